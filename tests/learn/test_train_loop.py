"""The train loop: parts in turn or together, critics taken over, seeds as one program."""

import csv
import dataclasses
from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bcrl.errors import BCRLError
from bcrl.learn.baselines.bc import BCSafe
from bcrl.learn.loop import initial_state, train
from bcrl.learn.protocol import Normaliser, Spec
from bcrl.learn.registry import make_method
from bcrl.train.run import fit

PARTS = ("cost", "reward", "policy")
STEPS = 40  # as in the shared run, so that programs are compiled once


def leaves(tree) -> list[np.ndarray]:
    return [np.asarray(x) for x in jax.tree.leaves(tree)]


def same(one, other) -> bool:
    return all(np.array_equal(x, y) for x, y in zip(leaves(one), leaves(other), strict=True))


@pytest.mark.slow
def test_phases_change_their_own_networks_only(tiny_log):
    # The programs that tests/train/test_resume.py also trains with.
    method, seeds = make_method("bcrl", hidden=(8,), batch_size=8, phases="in-turn"), (0, 3)
    spec = Spec.of(tiny_log, STEPS)
    arrays = method.prepare(tiny_log, Normaliser.of(tiny_log.observations))
    state = initial_state(method, spec, seeds)
    before = jax.tree.map(np.array, state)
    for number, point in enumerate(train(method, arrays, spec, seeds, state, step=0, log_every=10)):
        assert point.step == 10 * (number + 1)
        active = PARTS[number // 4]
        after = jax.tree.map(np.array, point.state)  # a copy: the loop reuses the memory
        for name in before.networks:
            mine = name in method.networks_of[active]
            assert mine != same(before.networks[name], after.networks[name]), (number, name)
            assert mine != same(before.moments[name], after.moments[name]), (number, name)
        for name in before.targets:
            mine = name in method.networks_of[active]
            assert mine != same(before.targets[name], after.targets[name]), (number, name)
        before = after
    assert number == 11


def test_cost_critics_stop_early(tiny_log):
    """After `cost_share` of the steps they stay as they are; all else goes on."""
    method, seeds = make_method("bcrl", hidden=(8,), batch_size=8, cost_share=0.5), (0,)
    spec = Spec.of(tiny_log, 20)
    arrays = method.prepare(tiny_log, Normaliser.of(tiny_log.observations))
    state = initial_state(method, spec, seeds)
    before = jax.tree.map(np.array, state.networks)
    for point in train(method, arrays, spec, seeds, state, step=0, log_every=10):
        after = jax.tree.map(np.array, point.state.networks)
        for name in before:
            stopped = point.step == 20 and name in method.networks_of["cost"]
            assert stopped == same(before[name], after[name]), (point.step, name)
        before = after


@pytest.mark.slow
def test_cost_critics_are_taken_over_and_left_alone(tiny_log, tiny_method, tiny_policy):
    """For another reward, on part of the log: critics and normalisation are the donor's, bit for bit."""
    other = dataclasses.replace(tiny_log.select_episodes([0, 2, 5]), rewards=-tiny_log.rewards[:60])
    run = fit(other, tiny_method, seeds=(1, 2), steps=20, log_every=10, cost_critics=tiny_policy)
    donor = tiny_policy.learned
    for seed in (1, 2):
        actor = run.policy(seed).learned
        assert same(actor.cost_value, donor.cost_value)
        assert same(actor.cost_critic, donor.cost_critic)
        assert same(actor.normaliser, donor.normaliser)
        assert not same(actor.actor, donor.actor)
        # E[V_C(s₀)] belongs to the new log's starts.
        starts = donor.least_cost(donor.normaliser(other.initial_observations))
        np.testing.assert_allclose(actor.mean_start_value, np.mean(starts, axis=0), rtol=1e-5)
    assert not same(run.policy(1).learned.actor, run.policy(2).learned.actor)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"hidden": (4,)}, "hidden"),
        ({"criterion": "episodic"}, "criterion"),
        ({"gamma_cost": 0.9}, "gamma_cost"),
        ({"nonnegative_values": False}, "nonnegative_values"),
    ],
)
def test_cost_critics_of_another_kind_are_refused(change, words, tiny_log, tiny_method, tiny_policy):
    with pytest.raises(BCRLError, match=words):
        fit(tiny_log, dataclasses.replace(tiny_method, **change), steps=20, cost_critics=tiny_policy)


def test_cost_critics_are_for_bcrl_alone(tiny_log, tiny_policy):
    with pytest.raises(BCRLError, match="BCRL to BCRL only"):
        fit(tiny_log, BCSafe(threshold=100.0), steps=20, cost_critics=tiny_policy)


@pytest.mark.slow
def test_a_seed_alone_and_among_others_is_the_same(tiny_log, tiny_method, tiny_run):
    """Up to the order of float32 sums, which over 40 steps of training must not matter much."""
    alone = fit(tiny_log, tiny_method, seeds=(10,), steps=STEPS, log_every=10).policy(10).learned
    among = tiny_run.policy(10).learned
    for x, y in zip(leaves(alone), leaves(among), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-3, atol=1e-4)
    other = tiny_run.policy(0).learned
    assert max(float(np.abs(x - y).max()) for x, y in zip(leaves(alone), leaves(other), strict=True)) > 0.1


def test_metrics_have_a_row_for_each_seed_and_log_point(tiny_run):
    with open(tiny_run.folder / "metrics.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["step"], row["seed"]) for row in rows] == [
        (str(step), str(seed)) for step in (10, 20, 30, 40) for seed in (0, 10)
    ]
    assert {"cost/value_loss", "cost/critic_loss", "reward/value_loss", "policy/loss"} <= set(rows[0])
    for row, kept in zip(rows, tiny_run.metrics, strict=True):
        assert {name: float(text) for name, text in row.items()} == kept
    assert rows[0]["cost/critic_loss"] != rows[1]["cost/critic_loss"]


@dataclass(frozen=True)
class Counter:
    """A method that only counts: two phases, and a metric that is the number of updates so far."""

    name: ClassVar[str] = "counter"
    schedule: ClassVar = (("first",), ("second",))

    def init(self, key, spec):
        return {"first": jnp.zeros(()), "second": jnp.zeros(())}

    def sample(self, arrays, key):
        return None

    def update(self, state, batch, key, spec, parts):
        state = {name: count + (name in parts) for name, count in state.items()}
        return state, {"count": state["first"] + state["second"], "draw": jax.random.uniform(key)}


def counted(step: int = 0, state=None, log_every: int = 4) -> list:
    spec = Spec(1, 1, 1, 1, (1.0,), 5)
    state = initial_state(Counter(), spec, (3, 4)) if state is None else state
    points = train(Counter(), None, spec, (3, 4), state, step=step, log_every=log_every)
    return [(point.step, jax.tree.map(np.array, point.state), point.metrics) for point in points]


def test_log_points_fall_on_multiples_and_on_the_end_of_each_phase():
    points = counted()
    assert [step for step, _, _ in points] == [4, 5, 9, 10]
    for (step, state, metrics), mean in zip(points, [2.5, 5.0, 7.5, 10.0], strict=True):
        assert state["first"].tolist() == [min(step, 5)] * 2
        assert state["second"].tolist() == [max(step - 5, 0)] * 2
        assert metrics["count"].tolist() == [mean] * 2  # over the steps since the last point


def test_the_randomness_of_a_step_is_its_own():
    """Each step and seed has other draws, which depend on nothing else: a resumed run repeats them."""
    draws = np.array([metrics["draw"] for _, _, metrics in counted(log_every=1)])
    assert len(set(draws.ravel().tolist())) == 20
    later = counted(step=3, log_every=1)
    np.testing.assert_array_equal([metrics["draw"] for _, _, metrics in later], draws[3:])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"seeds": ()}, "seeds"),
        ({"seeds": (1, 1)}, "seeds"),
        ({"seeds": (-1,)}, "seeds"),
        ({"seeds": (2**32,)}, "seeds"),
        ({"steps": 0}, "steps"),
        ({"log_every": 0}, "log_every"),
        ({"checkpoint_every": -1}, "checkpoint_every"),
        ({"resume": True}, "resume"),
    ],
)
def test_a_bad_argument_of_fit_is_named(change, words, tiny_log, tiny_method):
    with pytest.raises(BCRLError, match=words):
        fit(tiny_log, tiny_method, **{"steps": 10, **change})


def test_cost_weights_must_be_as_many_as_costs(tiny_log, tiny_method):
    with pytest.raises(BCRLError, match="cost_weights"):
        fit(tiny_log, dataclasses.replace(tiny_method, cost_weights=(1.0, 2.0)), steps=1)


def test_a_log_without_cost_is_refused(tiny_log, tiny_method):
    free = dataclasses.replace(tiny_log, costs=tiny_log.costs * 0)
    declared = dataclasses.replace(free, schema=dataclasses.replace(free.schema, max_cost=(1.0,)))
    for log in (free, declared):
        with pytest.raises(BCRLError, match="every cost is 0"):
            fit(log, tiny_method, steps=1)


def test_unknown_seed(tiny_run):
    with pytest.raises(BCRLError, match="seed 5 was not trained; trained: 0, 10"):
        tiny_run.policy(5)
