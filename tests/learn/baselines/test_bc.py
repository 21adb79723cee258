"""Behaviour cloning: its loss by numpy, its gradient by differences, what it clones."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from finite_differences import check_every_leaf, random_like
from forward import forward
from lane import lane_log
from made_up import six_transitions

from bcrl.errors import BCRLError
from bcrl.learn.baselines.bc import BCAll, BCSafe
from bcrl.learn.bcrl import BCRL
from bcrl.learn.protocol import Normaliser, Spec
from bcrl.learn.registry import make_method
from bcrl.learn.train_state import TrainState
from bcrl.learn.units import Units
from bcrl.train.run import fit

SPEC = Spec(2, 2, 1, 20, (1.0,), 10)
METHOD = BCAll(hidden=(4,), dropout=0.0)


@jax.jit
def step_from(policy):
    """The state after one step, and its metrics."""
    batch = six_transitions(np.random.default_rng(0), 2)
    state = TrainState.start({"policy": policy}, METHOD.optimisers(SPEC))
    return METHOD.update(state, [batch.features, batch.action], jax.random.key(1), SPEC, ("all",))


def loss_of(policy):
    return step_from(policy)[1]["policy/loss"]


def make_policy():
    return random_like(
        jax.eval_shape(lambda: METHOD.init(jax.random.key(0), SPEC)).networks["policy"], seed=1
    )


def test_the_loss_by_numpy(double):
    policy, batch = make_policy(), six_transitions(np.random.default_rng(0), 2)
    mean, log_std = np.split(np.asarray(forward(policy.trunk, batch.features)), 2, axis=1)
    squares = ((batch.action - np.tanh(mean)) / np.exp(log_std)) ** 2
    likely = np.sum(-0.5 * squares - log_std - 0.5 * np.log(2 * np.pi), axis=1)
    np.testing.assert_allclose(loss_of(policy), -np.mean(likely), rtol=1e-10)


def test_the_gradient_by_differences(double):
    policy = make_policy()
    check_every_leaf(policy, loss_of, jax.jit(jax.grad(loss_of))(policy))


def test_a_step_goes_down(double):
    policy = make_policy()
    after, metrics = step_from(policy)
    assert loss_of(after.networks["policy"]) < metrics["policy/loss"]


@pytest.mark.parametrize("threshold", [0.0, 3.0, 8.0, 99.0])
def test_what_is_cloned(threshold):
    log = lane_log(episodes=60)
    normaliser = Normaliser.of(log.observations)
    kept = log.costs.reshape(60, 20).sum(axis=1) <= threshold
    assert threshold == 99.0 or 0 < kept.sum() < 60
    wanted = log.actions.reshape(60, 20, 1)[kept].reshape(-1, 1)
    rows = BCSafe(threshold=threshold).prepare(log, normaliser)
    np.testing.assert_allclose(rows.take(np.arange(len(wanted)))[1], wanted, atol=2e-5)
    assert len(rows.table) == len(wanted)
    features, actions = BCAll().prepare(log, normaliser).take(np.arange(len(log)))
    np.testing.assert_allclose(actions, log.actions, atol=2e-5)
    np.testing.assert_allclose(features, normaliser(jnp.asarray(log.observations)))


@pytest.mark.parametrize(("method", "expected"), [(BCAll, 0.0), (BCSafe, -0.6)])
def test_it_does_as_the_drivers_did(method, expected):
    """Half of them go right, which costs, the others left by the same 0.6."""
    log = lane_log(episodes=100)
    right = (np.arange(len(log)) // 20 % 2).astype(np.float32)
    log = dataclasses.replace(log, actions=(1.2 * right - 0.6)[:, None], costs=right)
    threshold = {"threshold": 5.0} if method is BCSafe else {}
    policy = fit(
        log, method(hidden=(16,), batch_size=128, learning_rate=3e-3, **threshold), steps=600
    ).policy()
    action = policy.start(threshold=5, batch=20).act(log.observations[::100])
    np.testing.assert_allclose(action, expected, atol=0.12)


def test_bc_safe_keeps_the_episodes_within_the_threshold_in_every_cost(tiny_log):
    log = dataclasses.replace(tiny_log, costs=np.stack([tiny_log.costs, 2 * tiny_log.costs], 1))
    method = BCSafe(hidden=(8,), batch_size=8, threshold=20.0)
    alone = dataclasses.replace(method, threshold=10.0).chosen(tiny_log)
    assert 0 < alone.episode_count < tiny_log.episode_count
    np.testing.assert_array_equal(method.chosen(log).observations, alone.observations)
    assert fit(log, method, steps=1).policy().method == method
    with pytest.raises(BCRLError, match=r"threshold is one number, .* in units of 1, 2: give cost_unit"):
        Units((1.0, 2.0), 1.0).inside(method)


@pytest.mark.parametrize("family", ["bullet", "safety-gym", "metadrive"])
def test_its_network_is_that_of_bcrl(family):
    ours, theirs = (make_method(name, family=family) for name in ("bc-all", "bcrl"))
    assert isinstance(theirs, BCRL)
    for name in ("hidden", "dropout", "learning_rate", "batch_size"):
        assert getattr(ours, name) == getattr(theirs, name)
