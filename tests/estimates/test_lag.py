"""A motor that lags: the state is not all observed, and what a policy earns is known exactly."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bcrl.assess.rollout import scan
from bcrl.data import Dataset
from bcrl.estimates import ensemble
from bcrl.estimates.ensemble import Model, fit_model
from bcrl.estimates.log import actions_before
from bcrl.estimates.model_world import first_states, member_worlds
from bcrl.estimates.support import Logged

EPISODES, LENGTH = 60, 20


def lagging_log(lag: float) -> Dataset:
    """The speed v′ = (1 − lag) a + lag · (the action before) is seen and earned; actions are random."""
    rng = np.random.default_rng(0)
    actions = rng.uniform(-1, 1, (EPISODES, LENGTH))
    before = np.concatenate([np.zeros((EPISODES, 1)), actions[:, :-1]], axis=1)
    speed = np.concatenate([np.zeros((EPISODES, 1)), (1 - lag) * actions + lag * before], axis=1)
    return Dataset(
        observations=speed[:, :-1].reshape(-1, 1),
        actions=actions.reshape(-1, 1),
        rewards=speed[:, 1:].reshape(-1),
        costs=(speed[:, 1:] > 0.5).reshape(-1).astype(float),
        next_observations=speed[:, 1:].reshape(-1, 1),
        terminals=np.zeros(EPISODES * LENGTH, bool),
        timeouts=np.arange(EPISODES * LENGTH) % LENGTH == LENGTH - 1,
    )


def small_model(data: Dataset) -> Model:
    return fit_model(data, members=2, hidden=(32,), steps=800)


def earned(model: Model, action: float, steps: int = 5) -> float:
    """What the members say, in the mean, of episodes that start at rest and repeat one action."""
    actor: Any = Logged()
    states = first_states(np.zeros((1, 1)), np.zeros((1, 1)))
    begun = (jnp.full((1, steps, 1), action), jnp.zeros(1, jnp.int32))
    keys = jax.random.split(jax.random.key(0), (steps, 1))
    worlds = member_worlds(model, sampled=False)
    return float(np.mean([scan(actor, world, states, begun, keys)[0][..., 0].sum() for world in worlds]))


@pytest.fixture(scope="module")
def lagging() -> tuple[Dataset, Model]:
    log = lagging_log(0.5)
    return log, small_model(log)


def test_the_action_before_joins_the_model_where_it_matters(lagging, monkeypatch):
    # The first step earns half of the action, each further one all of it.
    exact = 0.5 * 4.5
    assert lagging[1].lags
    assert earned(lagging[1], 0.5) == pytest.approx(exact, rel=0.04)
    # Without it v is the best guess of the action before, so that v′ = (a + v)/2.
    monkeypatch.setattr(ensemble, "LAG", 1.0)
    assert earned(small_model(lagging[0]), 0.5) == pytest.approx(0.5 * 4.03125, rel=0.04)


def test_a_log_that_shows_all_of_the_state_keeps_the_plain_model():
    model = small_model(lagging_log(0.0))
    assert not model.lags
    assert earned(model, 0.5) == pytest.approx(0.5 * 5, rel=0.04)


def test_a_file_keeps_the_lag(lagging, tmp_path):
    lagging[1].save(tmp_path / "log.model")
    again = Model.load(tmp_path / "log.model")
    assert again.lags
    assert earned(again, 0.3) == earned(lagging[1], 0.3)


def test_no_action_comes_before_the_first_of_an_episode(lagging):
    before = actions_before(lagging[0])
    np.testing.assert_array_equal(before[lagging[0].starts], 0)
    np.testing.assert_array_equal(before[1:LENGTH], lagging[0].actions[: LENGTH - 1])
