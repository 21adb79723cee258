"""Another unit of cost, of reward or of actions in the log gives the same policy."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_log_maker import make_log

import bcrl
from bcrl.data import Dataset, Schema
from bcrl.learn.protocol import Spec
from bcrl.learn.registry import METHODS
from bcrl.learn.units import SPREAD, Units

SMALL = {"hidden": (8,), "vae_hidden": (8,), "width": 8, "heads": 2, "layers": 1, "batch_size": 16}
POWERS = st.integers(-10, 10).map(lambda n: 2.0**n)  # exact in floating point; 10⁻³ to 10³


def small(name: str, threshold: float = 9.0) -> bcrl.learn.protocol.Method:
    fields = {field.name for field in dataclasses.fields(METHODS[name].kind)}
    options = {
        option: value for option, value in (SMALL | {"threshold": threshold}).items() if option in fields
    }
    if name == "cdt":
        options["context"] = 3
    return bcrl.make_method(name, **options)


def changed(data: Dataset, **arrays: np.ndarray) -> Dataset:
    return Dataset.from_arrays(data.arrays() | arrays, consecutive=False)


def in_other_units(data: Dataset, cost: float, reward: float) -> Dataset:
    return changed(data, costs=data.costs * cost, rewards=data.rewards * reward)


def actions(policy: bcrl.Policy, data: Dataset, threshold: float, cost: float, reward: float) -> np.ndarray:
    """What the policy does along a logged episode."""
    episode = policy.start(threshold=threshold * cost, horizon=6)
    taken = []
    for row in range(6):
        taken.append(episode.act(data.observations[row]))
        episode.observe(float(data.costs[row]) * cost, float(data.rewards[row]) * reward)
    return np.array(taken)


@given(cost=POWERS, reward=POWERS, name=st.sampled_from([n for n in METHODS if not n.startswith("bc-")]))
@settings(max_examples=60)
def test_every_method_is_given_the_same_log_and_options(cost, reward, name):
    tiny_log = make_log()
    if small(name).in_task_units:  # as released: the constants are those of its tasks
        return
    seen = []
    for data, factor in ((tiny_log, 1.0), (in_other_units(tiny_log, cost, reward), cost)):
        method = small(name, threshold=9.0 * factor)
        units = Units.of(data, method)
        log = units.log_inside(data)
        seen.append((units.inside(method), Spec.of(log, 10), log.fingerprint()))
    assert seen[0] == seen[1]


@pytest.mark.parametrize(
    ("name", "options"), [("bcrl", {}), ("bcrl", {"fallback_critic": True}), ("bc-safe", {}), ("cdt", {})]
)
def test_the_same_actions_in_any_unit(tiny_log, name, options):
    cost, reward = 2.0**-7, 2.0**9
    base = bcrl.fit(tiny_log, dataclasses.replace(small(name), **options), steps=5).policy()
    other = in_other_units(tiny_log, cost, reward)
    method = dataclasses.replace(small(name, threshold=9.0 * cost), **options)
    scaled = bcrl.fit(other, method, steps=5).policy()
    for threshold in (0.5, 4.0):
        np.testing.assert_array_equal(
            actions(base, tiny_log, threshold, 1.0, 1.0), actions(scaled, tiny_log, threshold, cost, reward)
        )


def test_slack_is_in_the_users_unit(tiny_log, tmp_path):
    """And a file keeps the units."""
    other = in_other_units(tiny_log, 60.0, 1.0)
    policy = bcrl.fit(other, small("bcrl"), steps=2).policy()
    assert policy.units.cost == (float(other.max_cost[0]),)
    policy.save(tmp_path / "policy.bcrl")
    again = bcrl.load(tmp_path / "policy.bcrl")
    assert again.units == policy.units
    slacks = []
    for one in (policy, again):
        episode = one.start(budget=300.0, execution="direct")
        episode.act(other.observations[0])
        slacks.append(episode.slack)
    np.testing.assert_array_equal(*slacks)
    value = policy.learned.least_cost(policy.learned.features(other.observations[0], np.zeros((), int)))
    reserved = policy.method.safety_factor * np.asarray(value) * policy.units.cost[0]
    np.testing.assert_allclose(slacks[0], 300.0 - reserved, rtol=1e-5)


def test_each_cost_has_its_own_unit(tiny_log):
    both = np.stack([tiny_log.costs, 50 * tiny_log.costs], axis=1)
    data = changed(tiny_log, costs=both)
    units = Units.of(data, small("bcrl"))
    np.testing.assert_allclose(units.log_inside(data).max_cost, [1.0, 1.0])
    method = dataclasses.replace(small("bcrl"), max_budget=10.0)
    first, second = units.inside(method).max_budget
    assert first == pytest.approx(50 * second)


def test_the_unit_of_reward_is_that_of_bullets_returns(tiny_log):
    units = Units.of(tiny_log, small("bcrl"))
    log = units.log_inside(tiny_log)
    assert log.sums_to_go(log.rewards, 0.99).std() == pytest.approx(SPREAD, rel=1e-3)
    assert Units.of(tiny_log, small("bcrl").__class__(reward_unit=1.0)).reward == 1.0


def test_units_can_be_given(tiny_log):
    method = dataclasses.replace(small("bcrl"), cost_unit=(0.1,), reward_unit=2.0)
    units = Units.of(tiny_log, method)
    assert units == Units((0.1,), 2.0)
    assert units.log_inside(tiny_log).max_cost == pytest.approx(10.0)
    with pytest.raises(bcrl.BCRLError, match="cost_unit has 2 numbers, but the log 1 costs"):
        Units.of(tiny_log, dataclasses.replace(method, cost_unit=(1.0, 1.0)))


def test_a_log_without_reward_has_a_unit(tiny_log):
    data = changed(tiny_log, rewards=np.zeros(len(tiny_log)))
    assert Units.of(data, small("bcrl")).reward == 1.0


def test_actions_are_answered_in_the_users_bounds(tiny_log, tmp_path):
    size = tiny_log.action_size
    schema = Schema(action_low=(10.0,) * size, action_high=(30.0,) * size, action_names=tuple("ab"[:size]))
    data = dataclasses.replace(tiny_log, schema=schema, drop_incomplete=False)
    plain = bcrl.fit(tiny_log, small("bcrl"), steps=2).policy()
    bounded = bcrl.fit(data, small("bcrl"), steps=2).policy()
    bounded.save(tmp_path / "policy.bcrl")
    for policy in (bounded, bcrl.load(tmp_path / "policy.bcrl")):
        assert policy.schema == schema
        mine = actions(policy, tiny_log, 4.0, 1.0, 1.0)
        theirs = actions(plain, tiny_log, 4.0, 1.0, 1.0)
        np.testing.assert_allclose(mine, 20 + 10 * theirs, rtol=1e-5)


@pytest.mark.parametrize("odd", [0.0, -1.0, 1e300, 1e-300, 10**400, float("nan"), True, "1"], ids=repr)
def test_a_unit_that_float32_cannot_hold_is_refused(odd):
    for cost, reward, name in (((odd,), 1.0, "cost"), ((1.0,), odd, "reward")):
        with pytest.raises(bcrl.BCRLError, match=f"the unit of {name} is"):
            Units(cost, reward)
