"""Discrete actions: the rule of execution against tables, files, the boundary of an episode, refusals."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bcrl.data import Dataset, Schema
from bcrl.errors import BCRLError
from bcrl.learn.networks import CategoricalPolicy, GaussianPolicy, gaussian_log_density, one_hot
from bcrl.learn.protocol import Goal, Normaliser, Spec
from bcrl.learn.registry import METHODS, make_method
from bcrl.policy import Policy
from bcrl.train.run import fit, load_run

LABELS = ("stay", "left", "right")
ABLE = ["bcrl", "bcrl-xql", "bcrl-sparse", "bc-all", "bc-safe"]


def labelled_log(costs: int = 1, rows: int = 240, length: int = 12) -> Dataset:
    rng = np.random.default_rng(4)
    seen = rng.normal(size=(rows // length, length + 1, 2)).astype(np.float32)
    paid = rng.random((rows, costs)).astype(np.float32)
    return Dataset(
        observations=seen[:, :-1].reshape(rows, 2),
        actions=np.eye(3)[rng.choice(3, rows, p=(0.6, 0.3, 0.1))],
        rewards=rng.normal(size=rows),
        costs=paid[:, 0] if costs == 1 else paid,
        next_observations=seen[:, 1:].reshape(rows, 2),
        terminals=np.zeros(rows, bool),
        timeouts=np.arange(rows) % length == length - 1,
        source="labelled log",
        schema=Schema(action_labels=LABELS),
    )


def small(name: str, **options):
    if name == "bc-safe":
        options["threshold"] = 1e6
    return make_method(name, preset="cpu", hidden=(8,), batch_size=16, **options)


def untrained(costs: int = 1, **options) -> Policy:
    """A policy with random networks, made without compiling."""
    log, method = labelled_log(costs), small("bcrl", **options)
    spec, normaliser = Spec.of(log, 10), Normaliser.of(log.observations)
    rng = np.random.default_rng(2)
    shape = jax.eval_shape(lambda: method.init(jax.random.key(0), spec))
    state = jax.tree.map(lambda x: jnp.asarray(0.5 * rng.normal(size=x.shape), x.dtype), shape)
    actor = method.actor(state, method.prepare(log, normaliser), normaliser, spec)
    return Policy(actor, method, spec, {"seed": 0})


@pytest.fixture(scope="module")
def policy() -> Policy:
    return untrained()


# ---- the networks -----------------------------------------------------------------------------------


def test_categorical_densities_are_probabilities_and_the_mode_is_one_hot():
    network = CategoricalPolicy(2, 3, (8,), 0.1, jax.random.key(0))
    x = jnp.asarray(np.random.default_rng(0).normal(size=(5, 2)), jnp.float32)
    density = jnp.stack([network.log_density(x, None, one_hot(jnp.full(5, a), 3)) for a in range(3)], axis=1)
    np.testing.assert_allclose(jnp.exp(density).sum(1), 1.0, rtol=1e-5)
    np.testing.assert_allclose(density, network(x), rtol=1e-6)
    np.testing.assert_array_equal(network.mode(x), np.eye(3)[np.argmax(density, axis=1)])


def test_the_gaussian_methods_are_the_functions_they_stand_for():
    network = GaussianPolicy(2, 3, (8,), 0.1, jax.random.key(0))
    x, action, key = jnp.ones((4, 2)), jnp.full((4, 3), 0.2), jax.random.key(1)
    wanted = gaussian_log_density(*network(x, key), action)
    np.testing.assert_array_equal(network.log_density(x, key, action), wanted)
    np.testing.assert_array_equal(network.mode(x), network(x)[0])


# ---- the rule of execution, with critics that are tables ----------------------------------------------


class Tabular(eqx.Module):
    """In the place of a network of (s, a, ...): an entry for each action, whatever the state is."""

    entries: jax.Array  # (n, k) for each of two members

    def __call__(self, x):
        return x[..., 2:5] @ self.entries


class Fixed(eqx.Module):
    """In the place of a policy: the same log-probabilities everywhere."""

    log_probability: jax.Array

    def __call__(self, x):
        return self.log_probability


numbers = st.lists(st.floats(0, 4, width=32), min_size=3, max_size=3).map(lambda x: np.array(x, np.float32))


def supports(preferences: np.ndarray, support: float) -> tuple[np.ndarray, np.ndarray]:
    """Which actions are surely supported, and which are but for rounding."""
    ratio = np.exp(preferences - preferences.max())
    return (ratio >= support * (1 + 1e-5)) | (ratio == 1), ratio >= support * (1 - 1e-5)


@settings(max_examples=40)
@given(
    cost=numbers,
    worth=numbers,
    likely=numbers,
    careful=numbers,
    least=st.floats(0, 3, width=32),
    budget=st.floats(0, 6, width=32),
    support=st.sampled_from([0.0, 0.1, 0.5, 1.0]),
)
def test_the_chosen_action_is_safe_and_supported_where_there_is_one(
    policy, cost, worth, likely, careful, least, budget, support
):
    twice = lambda entries: Tabular(jnp.stack([jnp.asarray(entries)[:, None]] * 2))  # noqa: E731
    actor = dataclasses.replace(
        policy.actor,
        cost_critic=twice(cost),
        critic=twice(worth),
        cost_value=lambda x: jnp.full((1,), least),
        actor=Fixed(jax.nn.log_softmax(jnp.asarray(likely))),
        fallback=Fixed(jax.nn.log_softmax(jnp.asarray(careful))),
        support=support,
    )
    goal = Goal(jnp.array([budget]), jnp.array([budget]), jnp.array(9), "direct")
    memory = actor.start(jax.random.key(0), goal)
    action, memory, insight = actor.act(memory, jnp.zeros(2))
    chosen = int(np.argmax(action))
    np.testing.assert_array_equal(action, np.eye(3)[chosen])
    # δ as the actor computes it, and the support with room for rounding.
    allowed = np.float32(np.float32(budget) - np.float32(least)) + np.float32(least)
    safe = cost <= allowed
    surely, perhaps = supports(likely, support)
    surely_cheap, perhaps_cheap = supports(careful, support)
    assert perhaps[chosen] if not insight.fallback else perhaps_cheap[chosen]
    if (safe & surely).any():
        assert not insight.fallback
        assert worth[chosen] >= worth[safe & surely].max()
    if not (safe & perhaps).any():
        assert insight.fallback
        assert cost[chosen] <= cost[surely_cheap].min()
    if (safe & (surely | surely_cheap)).any():
        assert safe[chosen]
    np.testing.assert_allclose(memory.charge, cost[chosen] - np.float32(least), rtol=1e-5, atol=1e-5)


# ---- episodes and files -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["bcrl-sparse", "bc-all"])
def test_trained_policies_answer_with_the_index_of_a_label_and_files_keep_it(name, tmp_path):
    log, out = labelled_log(), tmp_path / "run"
    run = fit(log, small(name, learning_rate=3e-3), steps=300, log_every=300, out=out)
    policy, copy = run.policy(), load_run(out).policy()
    assert copy.spec == policy.spec == load_run(out).spec == Spec.of(policy.units.log_inside(log), 300)
    assert copy.schema.action_labels == policy.schema.action_labels == tuple(LABELS)
    assert copy.spec.discrete
    seen = log.observations[:6]
    many, again = (p.start(threshold=np.linspace(0, 12, 6), horizon=9) for p in (policy, copy))
    answers = many.act(seen)
    assert answers.shape == (6,)
    assert answers.dtype.kind == "i"
    assert set(answers) <= {0, 1, 2}
    np.testing.assert_array_equal(again.act(seen), answers)
    label = policy.start(threshold=0.0, horizon=9).act(seen[0])
    assert label.shape == ()
    assert LABELS[label] in LABELS
    if name == "bc-all":  # the log's labels do not depend on the state, so a clone has their frequencies
        actor: Any = policy.learned
        likely = np.exp(np.asarray(actor.policy(actor.normaliser(jnp.asarray(log.observations)))))
        np.testing.assert_allclose(likely.mean(0), log.actions.mean(0), atol=0.05)


@pytest.mark.parametrize("name", ABLE)
@pytest.mark.parametrize("costs", [1, 2])
def test_every_able_method_takes_a_step_on_labels(name, costs):
    method, log = small(name), labelled_log(costs)
    spec, normaliser = Spec.of(log, 10), Normaliser.of(log.observations)
    arrays = method.prepare(log, normaliser)

    def step(key):
        state = method.init(key, spec)
        return state, method.update(state, method.sample(arrays, key), key, spec, method.schedule[0])[0]

    before, after = jax.eval_shape(step, jax.random.key(0))
    assert jax.tree.map(lambda x: (x.shape, x.dtype), before) == jax.tree.map(
        lambda x: (x.shape, x.dtype), after
    )


def test_two_costs_and_the_episodic_criterion():
    policy = untrained(2, criterion="episodic", tracking="direct")
    episode = policy.start(threshold=(3.0, 2.0), horizon=12)
    assert 0 <= episode.act(np.zeros(2)) < 3
    episode.observe((0.2, 0.1))


def test_one_hot_actions_reach_the_networks_as_they_are(policy):
    rows = small("bcrl").prepare(labelled_log(), policy.actor.normaliser).rows
    action = np.asarray(rows.take(jnp.arange(240))[1])
    np.testing.assert_array_equal(action, labelled_log().actions)


def test_observations_too_large_for_the_networks_are_refused(policy):
    with pytest.raises(BCRLError, match="no finite action"):
        policy.start(threshold=5).act(np.full(2, 3e38))


# ---- refusals -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(set(METHODS) - set(ABLE)))
def test_methods_without_discrete_actions_name_those_with(name):
    record = METHODS[name]
    assert not record.discrete
    options = {"threshold": 5.0} if record.threshold == "before training" else {}
    method = make_method(name, preset="cpu", **options)
    with pytest.raises(BCRLError, match=rf"^labelled log: .*{name} .*use bcrl, .*bc-all or bc-safe$"):
        fit(labelled_log(), method, steps=10)


def test_able_methods_are_those_of_the_registry():
    assert [name for name, record in METHODS.items() if record.discrete] == ABLE


@pytest.mark.parametrize("discrete", [1, "yes", None])
def test_a_spec_that_is_neither_discrete_nor_not_is_refused(discrete):
    with pytest.raises(BCRLError, match="discrete is"):
        Spec(2, 3, 1, 12, (1.0,), 10, discrete)
