"""Logs recorded in known models, and the models as worlds."""

import dataclasses

import jax
import numpy as np
import pytest

from bcrl.cmdp import GridWorld, evaluate, sample_log, unconstrained
from bcrl.errors import BCRLError
from bcrl.learn.protocol import Spec
from bcrl.worlds.known import KnownModel

GRID = GridWorld("small", ("..X", "S#.", ".XG"), slip=0.2, gamma=0.9)
MODEL = GRID.cmdp


def test_a_log_has_the_frequencies_of_the_model_and_of_the_policy():
    rng = np.random.default_rng(0)
    behaviour = rng.dirichlet(np.ones(4), MODEL.states)
    log = sample_log(MODEL, behaviour, 40_000, 30, seed=1, labels=("up", "right", "down", "left"))
    state, action, after = (x.argmax(1) for x in (log.observations, log.actions, log.next_observations))
    counts = np.zeros((MODEL.states, 4, MODEL.states))
    np.add.at(counts, (state, action, after), 1)
    tried = counts.sum(2)
    often = tried.sum(1) > 2000
    shares = tried[often] / tried[often].sum(1, keepdims=True)
    np.testing.assert_allclose(shares, behaviour[often], atol=0.03)
    moves = MODEL.transitions.toarray().reshape(counts.shape)
    seen = tried > 1500
    np.testing.assert_allclose((counts / np.maximum(tried, 1)[..., None])[seen], moves[seen], atol=0.04)
    np.testing.assert_array_equal(log.rewards, MODEL.rewards[state, action])
    np.testing.assert_array_equal(log.costs, MODEL.costs[0, state, action])
    np.testing.assert_array_equal(log.terminals, MODEL.terminal[after])
    assert log.schema.action_labels == ("up", "right", "down", "left")
    assert 40_000 <= len(log) < 40_000 + 30
    assert log.horizon == 30


def test_the_same_seed_gives_the_same_log_and_epsilon_mixes_with_the_best_policy():
    log = sample_log(MODEL, 0.2, 3_000, 30, seed=5)
    assert log.fingerprint() == sample_log(MODEL, 0.2, 3_000, 30, seed=5).fingerprint()
    assert log.fingerprint() != sample_log(MODEL, 0.2, 3_000, 30, seed=6).fingerprint()
    best = unconstrained(MODEL)[log.observations.argmax(1)]
    assert abs(np.mean(log.actions.argmax(1) == best) - (0.8 + 0.2 / 4)) < 0.03
    places = GRID.positions.astype(float)
    seen = sample_log(MODEL, unconstrained(MODEL), 500, 30, observations=places)
    assert seen.observation_size == 2
    assert np.all(seen.actions.argmax(1) >= 0)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"policy": 1.5}, "policy is 1.5"),
        ({"policy": np.full((MODEL.states, 4), 0.5)}, "add up to 1"),
        ({"policy": np.ones((3, 4)) / 4}, "policy"),
        ({"steps": 0}, "steps is 0"),
        ({"observations": np.ones((3, 2))}, "observations"),
        ({"labels": ("up", "down")}, "action_labels has 2"),
    ],
)
def test_wrong_arguments_are_one_line(arguments, said):
    with pytest.raises(BCRLError, match=said) as caught:
        sample_log(MODEL, **{"steps": 100, **arguments})
    assert "\n" not in str(caught.value)


def test_the_world_moves_as_the_model_does():
    world = KnownModel(MODEL, 60)
    policy = unconstrained(MODEL)
    actions = jax.nn.one_hot(policy, 4)

    def episode(key):
        first, moves = jax.random.split(key)

        def step(carry, inputs):
            state, alive = carry
            key, number = inputs
            after, reward, cost, terminal = world.step(state, actions[state], key)
            gained = alive * 0.9**number * jax.numpy.stack([reward, cost])
            return (after, alive & ~terminal), gained

        inputs = (jax.random.split(moves, 60), jax.numpy.arange(60))
        return jax.lax.scan(step, (world.reset(first), True), inputs)[1].sum(0)

    totals = np.asarray(jax.jit(jax.vmap(episode))(jax.random.split(jax.random.key(0), 20_000)))
    wanted = evaluate(MODEL, policy, MODEL.rewards, MODEL.costs[0]) @ MODEL.start
    errors = totals.std(0) / len(totals) ** 0.5
    assert np.all(np.abs(totals.mean(0) - wanted) < 4 * errors + 1e-3)


def test_a_world_refuses_policies_of_continuous_actions():
    spec = Spec(MODEL.states, 4, 1, 60, (1.0,), 10, discrete=True)
    KnownModel(MODEL, 60).check(spec)
    with pytest.raises(BCRLError, match="the policy has continuous actions, but known model discrete ones"):
        KnownModel(MODEL, 60).check(dataclasses.replace(spec, discrete=False))


def test_a_world_has_one_cost():
    with pytest.raises(BCRLError, match="has 2 costs"):
        KnownModel(GridWorld.load("two-costs").cmdp, 50)
