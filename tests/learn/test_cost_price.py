"""The price of cost in training: what it does to the log, and that units do not matter."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bcrl
from bcrl.data import Dataset
from bcrl.errors import BCRLError
from bcrl.learn.protocol import Normaliser
from bcrl.learn.units import Units

SIZES = {"hidden": (8,), "batch_size": 4}


def with_costs(data: Dataset, costs: np.ndarray) -> Dataset:
    return Dataset.from_arrays(data.arrays() | {"costs": costs}, consecutive=data.consecutive)


def rewards_of(method, data: Dataset) -> np.ndarray:
    """The rewards that training sees, one for each row."""
    arrays = method.prepare(data, Normaliser.of(data.observations))
    return np.asarray(arrays.rows.split(arrays.rows.table)[2])[:, 0]


@pytest.mark.parametrize("price", [2.0, (2.0,)])
def test_reward_is_less_by_the_price_of_the_cost(tiny_log, price):
    method = bcrl.make_method("bcrl", cost_price=price, **SIZES)
    np.testing.assert_allclose(
        rewards_of(method, tiny_log), tiny_log.rewards - 2.0 * tiny_log.costs, rtol=1e-6, atol=1e-6
    )


def test_each_cost_has_its_own_price(tiny_log):
    data = with_costs(tiny_log, np.stack([tiny_log.costs, 3 * tiny_log.costs], axis=1))
    method = bcrl.make_method("bcrl", cost_price=(1.0, 0.5), **SIZES)
    np.testing.assert_allclose(
        rewards_of(method, data), tiny_log.rewards - 2.5 * tiny_log.costs, rtol=1e-5, atol=1e-5
    )


def test_a_price_is_paid_in_every_step_of_a_stretch(tiny_log):
    ended = (tiny_log.terminals | tiny_log.timeouts)[:, None]
    following = np.where(ended, tiny_log.next_observations, np.roll(tiny_log.observations, -1, axis=0))
    tiny_log = Dataset.from_arrays(tiny_log.arrays() | {"next_observations": following})
    plain = bcrl.make_method("bcrl", n_step=3, gamma=1.0, criterion="episodic", **SIZES)
    priced = dataclasses.replace(plain, cost_price=(2.0,))
    lower = rewards_of(plain, tiny_log) - rewards_of(priced, tiny_log)
    costs = plain.prepare(tiny_log, Normaliser.of(tiny_log.observations)).rows
    np.testing.assert_allclose(lower, 2.0 * np.asarray(costs.split(costs.table)[3])[:, 0], atol=1e-4)


POWERS = st.integers(-8, 8).map(lambda power: 2.0**power)


@given(cost=POWERS, reward=POWERS)
def test_another_unit_is_the_same_training(tiny_log, cost, reward):
    seen = []
    for c, r in ((1.0, 1.0), (cost, reward)):
        data = Dataset.from_arrays(
            tiny_log.arrays() | {"costs": tiny_log.costs * c, "rewards": tiny_log.rewards * r},
            consecutive=False,
        )
        method = bcrl.make_method("bcrl", cost_price=1.5 * r / c, **SIZES)
        units = Units.of(data, method)
        seen.append(rewards_of(units.inside(method), units.log_inside(data)))
    np.testing.assert_array_equal(*seen)


@pytest.mark.parametrize("option", ["cost_price", "max_budget"])
def test_numbers_that_do_not_fit_the_costs_are_refused(tiny_log, option):
    method = bcrl.make_method("bcrl", **{option: (1.0, 2.0)}, **SIZES)
    with pytest.raises(BCRLError, match=f"{option} has 2 numbers, but the log's costs are 1"):
        bcrl.fit(tiny_log, method, steps=1)
