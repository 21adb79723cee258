"""The gradients of Algorithm 1: right where they flow, nothing where they must not."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from finite_differences import check_every_leaf, only_zeros
from forward import forward, forward_each

from bcrl.learn.batch import Batch
from bcrl.learn.bcrl import BCRL
from bcrl.learn.losses import advantage_weight
from bcrl.learn.networks import gaussian_log_density
from bcrl.learn.protocol import Spec
from bcrl.learn.train_state import TrainState

SPEC = Spec(2, 1, 2, 20, (1.0, 1.0), 10)
METHOD = BCRL(hidden=(4,), batch_size=6, dropout=0.3, cost_weights=(1.0, 0.5), tau_r=0.7)
ALL = ("cost", "reward", "policy")


@pytest.fixture(scope="module", autouse=True)
def _double_precision():
    """Finite differences need it; the code under test takes whatever precision it is given."""
    with jax.enable_x64(True):
        yield


@pytest.fixture(scope="module")
def state(_double_precision):
    """Parameters from numpy, away from the start of training, where targets equal critics; Adam's zeros."""
    rng = np.random.default_rng(1)
    shape = jax.eval_shape(lambda: METHOD.init(jax.random.key(0), SPEC))
    networks, targets = jax.tree.map(lambda x: rng.normal(size=x.shape), (shape.networks, shape.targets))
    return TrainState(networks, targets, jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), shape.moments))


@pytest.fixture(scope="module")
def stepped(state, batch):
    """One step of every part."""
    return jax.jit(METHOD.update, static_argnums=(3, 4))(state, batch, jax.random.key(5), SPEC, ALL)[0]


@pytest.fixture(scope="module")
def batch(_double_precision):
    rng = np.random.default_rng(0)
    return Batch(
        rng.normal(size=(6, 2)),
        rng.uniform(-1, 1, (6, 1)),
        rng.normal(size=6),
        rng.random((6, 2)),
        rng.normal(size=(6, 2)),
        np.array([1.0, 1, 1, 0, 1, 1]),
    )


@jax.jit
def augmented(state, batch):
    """Budgets inside the safe set, and what the cost critics say."""
    _, costs, _ = METHOD.cost_losses(state.networks, state.targets, batch)
    return METHOD.augment(jax.random.key(2), batch, costs, SPEC), costs


def test_cost_losses_by_numpy(state, batch):
    value, critic = state.networks["cost_value"], state.networks["cost_critic"]
    total, costs, metrics = jax.jit(METHOD.cost_losses)(state.networks, state.targets, batch)
    pairs = np.concatenate([batch.features, batch.action], 1)
    wanted_q = np.asarray(forward_each(state.targets["cost_critic"], pairs)).max(0)
    raw, next_raw = (np.asarray(forward(value, x)) for x in (batch.features, batch.next_features))
    assert raw.min() < 0 < raw.max(), "the floor must matter for this test to say something"
    np.testing.assert_allclose(costs.critic, wanted_q, rtol=1e-10)
    np.testing.assert_allclose(costs.value, np.maximum(raw, 0), rtol=1e-10)
    np.testing.assert_allclose(costs.next_value, np.maximum(next_raw, 0), rtol=1e-10)
    gap = wanted_q - raw  # the regression sees the raw output
    weight = np.where(gap @ [1.0, 0.5] < 0, 0.8, 0.2)
    value_loss = np.mean(weight * (gap**2).sum(1))
    target = batch.cost + 0.99 * np.asarray(batch.bootstrap)[:, None] * np.maximum(next_raw, 0)
    critic_loss = ((np.asarray(forward_each(critic, pairs)) - target) ** 2).sum(-1).mean()
    np.testing.assert_allclose(metrics["cost/value_loss"], value_loss, rtol=1e-9)
    np.testing.assert_allclose(metrics["cost/critic_loss"], critic_loss, rtol=1e-9)
    np.testing.assert_allclose(total, value_loss + critic_loss, rtol=1e-9)


def test_reward_losses_by_numpy(state, batch):
    value, critic = state.networks["value"], state.networks["critic"]
    budget, costs = augmented(state, batch)
    losses = jax.jit(METHOD.reward_losses)
    total, advantage, metrics = losses(state.networks, state.targets, batch, budget, costs)
    pairs = np.concatenate([batch.features, batch.action, np.log1p(budget.action)], 1)
    q = np.asarray(forward_each(state.targets["critic"], pairs))[..., 0].min(0)
    v = np.asarray(forward(value, np.concatenate([batch.features, np.log1p(budget.state)], 1)))[:, 0]
    after = np.concatenate([batch.next_features, np.log1p(budget.next_state)], 1)
    target = batch.reward + 0.99 * batch.bootstrap * np.asarray(forward(value, after))[:, 0]
    value_loss = np.mean(np.where(q - v < 0, 0.3, 0.7) * (q - v) ** 2)
    critic_loss = np.mean((np.asarray(forward_each(critic, pairs))[..., 0] - target) ** 2)
    np.testing.assert_allclose(advantage, q - v, rtol=1e-9)
    np.testing.assert_allclose(metrics["reward/value_loss"], value_loss, rtol=1e-9)
    np.testing.assert_allclose(metrics["reward/critic_loss"], critic_loss, rtol=1e-9)
    np.testing.assert_allclose(total, value_loss + critic_loss, rtol=1e-9)


def test_policy_losses_by_numpy(state, batch):
    method = BCRL(hidden=(4,), dropout=0.0, cost_weights=(1.0, 0.5), weight_limit=2.0)
    budget, costs = augmented(state, batch)
    plain = jax.eval_shape(lambda: method.init(jax.random.key(0), SPEC)).networks
    log_density = jax.jit(lambda network, x, action: gaussian_log_density(*network(x), action))
    actor, fallback = (  # the same parameters without dropout
        jax.tree.unflatten(jax.tree.structure(plain[name]), jax.tree.leaves(state.networks[name]))
        for name in ("actor", "fallback")
    )
    advantage = np.asarray([-1.0, 0.0, 0.1, 0.2, 5.0, -0.3])
    loss, metrics = jax.jit(method.policy_loss)(actor, batch, budget, advantage, jax.random.key(0))
    inputs = np.concatenate([batch.features, np.log1p(budget.state)], 1)
    likely = log_density(actor, inputs, batch.action)
    wanted = -np.mean(np.minimum(np.exp(3 * advantage), 2) * likely)
    np.testing.assert_allclose([loss, metrics["policy/loss"]], wanted, rtol=1e-9)
    assert float(metrics["policy/weight_limited"]) == pytest.approx(1 / 6)
    assert float(advantage_weight(advantage, 3.0, 2.0).max()) == 2.0
    likely = log_density(fallback, batch.features, batch.action)
    saved = (costs.value - costs.critic) @ np.array([1.0, 0.5])
    wanted = -np.mean(np.minimum(np.exp(3 * saved), 2) * likely)
    found = jax.jit(method.fallback_loss)(fallback, batch, costs, jax.random.key(0))
    np.testing.assert_allclose(found, wanted, rtol=1e-9)


def test_the_total_is_the_sum_of_the_five_steps(state, batch):
    key = jax.random.key(5)
    total_loss = jax.jit(METHOD.total_loss, static_argnums=4)
    total, metrics = total_loss(state.networks, state.targets, batch, key, SPEC)
    names = ("cost/value_loss", "cost/critic_loss", "reward/value_loss", "reward/critic_loss")
    parts = [metrics[name] for name in (*names, "policy/loss", "policy/fallback_loss")]
    np.testing.assert_allclose(total, sum(parts), rtol=1e-9)


@pytest.mark.parametrize("part", ["cost", "reward"])
def test_critic_gradients(part, state, batch):
    """The value follows its regression alone and the critic its backup alone: the rest is a target.

    So the differences are taken of one loss at a time, while the gradient is that of their sum.
    """
    budget, costs = augmented(state, batch)

    def losses(networks):
        if part == "cost":
            total, _, metrics = METHOD.cost_losses(networks, state.targets, batch)
        else:
            total, _, metrics = METHOD.reward_losses(networks, state.targets, batch, budget, costs)
        return total, metrics

    gradient = jax.jit(jax.grad(lambda n: losses(n)[0]))(state.networks)
    for name, loss in zip(METHOD.networks_of[part], ("value_loss", "critic_loss"), strict=True):
        check_every_leaf(
            state.networks[name],
            lambda network, name=name, loss=loss: losses(state.networks | {name: network})[1][
                f"{part}/{loss}"
            ],
            gradient[name],
        )


def test_policy_gradients(state, batch):
    budget, costs = augmented(state, batch)
    advantage = jnp.asarray([-1.0, 0.0, 0.1, 0.2, 0.4, -0.3])
    key = jax.random.key(4)

    def policy_loss(actor):
        return METHOD.policy_loss(actor, batch, budget, advantage, key)[0]

    def fallback_loss(fallback):
        return METHOD.fallback_loss(fallback, batch, costs, key)

    for name, loss in (("actor", policy_loss), ("fallback", fallback_loss)):
        network = state.networks[name]
        check_every_leaf(network, loss, jax.jit(jax.grad(loss))(network))


def test_reward_and_policy_losses_do_not_reach_the_cost_critics(state, batch):
    def loss(trained):
        networks = state.networks | trained
        _, costs, _ = METHOD.cost_losses(networks, state.targets, batch)
        budget = METHOD.augment(jax.random.key(2), batch, costs, SPEC)
        reward_loss, advantage, _ = METHOD.reward_losses(networks, state.targets, batch, budget, costs)
        policy_loss, _ = METHOD.policy_loss(networks["actor"], batch, budget, advantage, jax.random.key(3))
        fallback_loss = METHOD.fallback_loss(networks["fallback"], batch, costs, jax.random.key(3))
        return reward_loss + policy_loss + fallback_loss

    cost = {name: state.networks[name] for name in METHOD.networks_of["cost"]}
    assert only_zeros(jax.jit(jax.grad(loss))(cost))


def test_policy_losses_do_not_reach_the_reward_critics(state, batch):
    budget, costs = augmented(state, batch)

    def loss(trained):
        networks = state.networks | trained
        _, advantage, _ = METHOD.reward_losses(networks, state.targets, batch, budget, costs)
        return METHOD.policy_loss(networks["actor"], batch, budget, advantage, jax.random.key(3))[0]

    reward = {name: state.networks[name] for name in METHOD.networks_of["reward"]}
    assert only_zeros(jax.jit(jax.grad(loss))(reward))


@pytest.mark.parametrize("part", ALL)
def test_a_part_takes_the_same_step_alone_and_with_the_others(part, state, stepped, batch):
    """The three trainings share a loop and a loss, but nothing of one gradient enters another."""
    alone, _ = jax.jit(METHOD.update, static_argnums=(3, 4))(state, batch, jax.random.key(5), SPEC, (part,))
    for name, before in state.networks.items():
        found, mine = jax.tree.leaves(alone.networks[name]), name in METHOD.networks_of[part]
        for x, y in zip(
            found, jax.tree.leaves((stepped.networks if mine else state.networks)[name]), strict=True
        ):
            np.testing.assert_allclose(x, y, rtol=1e-9, atol=1e-12)
        same = all(np.array_equal(x, y) for x, y in zip(jax.tree.leaves(before), found, strict=True))
        assert same == (not mine)
    for name, before in state.targets.items():
        pairs = zip(*map(jax.tree.leaves, (before, alone.targets[name])), strict=True)
        assert all(np.array_equal(x, y) for x, y in pairs) == (name not in METHOD.networks_of[part])


@pytest.mark.parametrize("name", ["cost_critic", "critic"])
def test_targets_follow_slowly(name, state, stepped):
    trees = state.targets[name], stepped.networks[name], stepped.targets[name]
    for slow, fast, found in zip(*map(jax.tree.leaves, trees), strict=True):
        np.testing.assert_allclose(found, 0.995 * slow + 0.005 * np.asarray(fast), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("part", ["cost", "reward"])
def test_gradients_are_clipped_for_each_network_by_itself(part, state, batch):
    """Value and critic each keep a norm of their own, so that a spike in one spares the other."""
    tight = dataclasses.replace(METHOD, clip_norm=1e-3)
    after, _ = jax.jit(tight.update, static_argnums=(3, 4))(state, batch, jax.random.key(5), SPEC, (part,))
    # Adam's step hides the scale; its first moment after one step is a tenth of the gradient it was given.
    for name in METHOD.networks_of[part]:
        moment = optax.tree_utils.tree_get(after.moments[name], "mu")
        square = sum(float((np.asarray(x) ** 2).sum()) for x in jax.tree.leaves(moment))
        np.testing.assert_allclose(np.sqrt(square), 1e-4, rtol=1e-6)
