"""The gradients of Algorithm 1: right where they flow, nothing where they must not."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from finite_differences import check_every_leaf, only_zeros

from bcrl.learn.bcrl import BCRL, Batch, State
from bcrl.learn.losses import advantage_weight, gaussian_log_density
from bcrl.learn.networks import apply_each
from bcrl.learn.protocol import Spec

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
    return State(
        jax.tree.map(lambda x: jnp.asarray(rng.normal(size=x.shape)), shape.networks),
        jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shape.optimisers),
    )


@pytest.fixture(scope="module")
def stepped(state, batch):
    """One step of every part."""
    return jax.jit(METHOD.update, static_argnums=(3, 4))(state, batch, jax.random.key(5), SPEC, ALL)[0]


@pytest.fixture(scope="module")
def batch(_double_precision):
    rng = np.random.default_rng(0)
    return Batch(
        *map(
            jnp.asarray,
            (
                rng.normal(size=(6, 2)),
                rng.uniform(-1, 1, (6, 1)),
                rng.normal(size=6),
                rng.random((6, 2)),
                rng.normal(size=(6, 2)),
                np.array([1.0, 1, 1, 0, 1, 1]),
            ),
        )
    )


def augmented(state, batch):
    _, q_c, v_c, next_v_c, _ = METHOD.cost_losses(state.networks["cost"], batch)
    return METHOD.augment(jax.random.key(2), batch, q_c, v_c, next_v_c, SPEC), v_c - q_c


def test_cost_losses_by_numpy(state, batch):
    cost = state.networks["cost"]
    total, q_c, v_c, next_v_c, metrics = METHOD.cost_losses(cost, batch)
    pairs = np.concatenate([batch.features, batch.action], 1)
    wanted_q = np.asarray(apply_each(cost.target, pairs)).max(0)
    raw, next_raw = np.asarray(cost.value(batch.features)), np.asarray(cost.value(batch.next_features))
    assert raw.min() < 0 < raw.max(), "the floor must matter for this test to say something"
    np.testing.assert_allclose(q_c, wanted_q, rtol=1e-10)
    np.testing.assert_allclose(v_c, np.maximum(raw, 0), rtol=1e-10)
    np.testing.assert_allclose(next_v_c, np.maximum(next_raw, 0), rtol=1e-10)
    gap = wanted_q - raw  # the regression sees the raw output
    weight = np.where(gap @ [1.0, 0.5] < 0, 0.8, 0.2)
    value_loss = np.mean(weight * (gap**2).sum(1))
    goal = batch.cost + 0.99 * np.asarray(batch.goes_on)[:, None] * np.maximum(next_raw, 0)
    critic_loss = ((np.asarray(apply_each(cost.critic, pairs)) - goal) ** 2).sum(-1).mean()
    np.testing.assert_allclose(metrics["cost/value_loss"], value_loss, rtol=1e-9)
    np.testing.assert_allclose(metrics["cost/critic_loss"], critic_loss, rtol=1e-9)
    np.testing.assert_allclose(total, value_loss + critic_loss, rtol=1e-9)


def test_reward_losses_by_numpy(state, batch):
    reward, (budget, _) = state.networks["reward"], augmented(state, batch)
    total, advantage, metrics = METHOD.reward_losses(reward, batch, budget)
    pairs = np.concatenate([batch.features, batch.action, np.log1p(budget.action)], 1)
    q = np.asarray(apply_each(reward.target, pairs))[..., 0].min(0)
    v = np.asarray(reward.value(np.concatenate([batch.features, np.log1p(budget.state)], 1)))[:, 0]
    after = np.concatenate([batch.next_features, np.log1p(budget.next_state)], 1)
    goal = batch.reward + 0.99 * batch.goes_on * np.asarray(reward.value(after))[:, 0]
    value_loss = np.mean(np.where(q - v < 0, 0.3, 0.7) * (q - v) ** 2)
    critic_loss = np.mean((np.asarray(apply_each(reward.critic, pairs))[..., 0] - goal) ** 2)
    np.testing.assert_allclose(advantage, q - v, rtol=1e-9)
    np.testing.assert_allclose(metrics["reward/value_loss"], value_loss, rtol=1e-9)
    np.testing.assert_allclose(metrics["reward/critic_loss"], critic_loss, rtol=1e-9)
    np.testing.assert_allclose(total, value_loss + critic_loss, rtol=1e-9)


def test_policy_losses_by_numpy(state, batch):
    method = BCRL(hidden=(4,), dropout=0.0, cost_weights=(1.0, 0.5), weight_limit=2.0)
    budget, saved = augmented(state, batch)
    plain = jax.eval_shape(lambda: method.init(jax.random.key(0), SPEC)).networks["policy"]
    leaves = jax.tree.leaves(state.networks["policy"])
    policy = jax.tree.unflatten(jax.tree.structure(plain), leaves)  # the same parameters without dropout
    advantage = jnp.asarray([-1.0, 0.0, 0.1, 0.2, 5.0, -0.3])
    total, metrics = method.policy_losses(policy, batch, budget, advantage, saved, jax.random.key(0))
    likely = gaussian_log_density(
        *policy.actor(jnp.concatenate([batch.features, jnp.log1p(budget.state)], 1)), batch.action
    )
    actor_loss = -np.mean(np.minimum(np.exp(3 * advantage), 2) * likely)
    likely = gaussian_log_density(*policy.fallback(batch.features), batch.action)
    fallback_loss = -np.mean(np.minimum(np.exp(3 * saved @ np.array([1.0, 0.5])), 2) * likely)
    np.testing.assert_allclose(metrics["policy/loss"], actor_loss, rtol=1e-9)
    np.testing.assert_allclose(metrics["policy/fallback_loss"], fallback_loss, rtol=1e-9)
    np.testing.assert_allclose(total, actor_loss + fallback_loss, rtol=1e-9)
    assert float(metrics["policy/weight_limited"]) == pytest.approx(1 / 6)
    assert float(advantage_weight(advantage, 3.0, 2.0).max()) == 2.0


@pytest.mark.parametrize("name", ["cost", "reward"])
def test_critic_gradients(name, state, batch):
    """The value follows its expectile loss alone and the critic its backup alone: the rest is a target.

    So the differences are taken of one loss at a time, while the gradient is that of their sum.
    """
    budget, _ = augmented(state, batch)

    def losses(networks):
        if name == "cost":
            total, *_, metrics = METHOD.cost_losses(networks, batch)
        else:
            total, _, metrics = METHOD.reward_losses(networks, batch, budget)
        return total, metrics

    networks = state.networks[name]
    gradient = jax.grad(lambda n: losses(n)[0])(networks)

    def value_loss(value):
        return losses(eqx.tree_at(lambda n: n.value, networks, value))[1][f"{name}/value_loss"]

    def critic_loss(critic):
        return losses(eqx.tree_at(lambda n: n.critic, networks, critic))[1][f"{name}/critic_loss"]

    check_every_leaf(networks.value, value_loss, gradient.value)
    check_every_leaf(networks.critic, critic_loss, gradient.critic)


def test_policy_gradients(state, batch):
    budget, saved = augmented(state, batch)
    advantage = jnp.asarray([-1.0, 0.0, 0.1, 0.2, 0.4, -0.3])

    def loss(policy):
        return METHOD.policy_losses(policy, batch, budget, advantage, saved, jax.random.key(4))[0]

    policy = state.networks["policy"]
    check_every_leaf(policy, loss, jax.grad(loss)(policy))


def test_reward_and_policy_losses_do_not_reach_the_cost_critics(state, batch):
    def loss(trained):
        cost = eqx.tree_at(lambda c: (c.value, c.critic), state.networks["cost"], trained)
        _, q_c, v_c, next_v_c, _ = METHOD.cost_losses(cost, batch)
        budget = METHOD.augment(jax.random.key(2), batch, q_c, v_c, next_v_c, SPEC)
        reward_loss, advantage, _ = METHOD.reward_losses(state.networks["reward"], batch, budget)
        policy_loss, _ = METHOD.policy_losses(
            state.networks["policy"], batch, budget, advantage, v_c - q_c, jax.random.key(3)
        )
        return reward_loss + policy_loss

    cost = state.networks["cost"]
    assert only_zeros(jax.grad(loss)((cost.value, cost.critic)))


def test_policy_losses_do_not_reach_the_reward_critics(state, batch):
    budget, saved = augmented(state, batch)

    def loss(reward):
        _, advantage, _ = METHOD.reward_losses(reward, batch, budget)
        return METHOD.policy_losses(
            state.networks["policy"], batch, budget, advantage, saved, jax.random.key(3)
        )[0]

    assert only_zeros(jax.grad(loss)(state.networks["reward"]))


@pytest.mark.parametrize("part", ALL)
def test_a_part_takes_the_same_step_alone_and_with_the_others(part, state, stepped, batch):
    """The three trainings share a loop and a loss, but nothing of one gradient enters another."""
    alone, _ = jax.jit(METHOD.update, static_argnums=(3, 4))(state, batch, jax.random.key(5), SPEC, (part,))
    found, wanted = jax.tree.leaves(alone.networks[part]), jax.tree.leaves(stepped.networks[part])
    for x, y in zip(found, wanted, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-9, atol=1e-12)
    for other in ALL:
        before, after = jax.tree.leaves(state.networks[other]), jax.tree.leaves(alone.networks[other])
        same = all(np.array_equal(x, y) for x, y in zip(before, after, strict=True))
        assert same == (other != part)


@pytest.mark.parametrize("name", ["cost", "reward"])
def test_targets_follow_slowly(name, state, stepped):
    old, new = state.networks[name], stepped.networks[name]
    for slow, fast, found in zip(*map(jax.tree.leaves, (old.target, new.critic, new.target)), strict=True):
        np.testing.assert_allclose(found, 0.995 * slow + 0.005 * fast, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", ["cost", "reward"])
def test_gradients_are_clipped_for_each_network_by_itself(name, state, batch):
    """Value and critic each keep a norm of their own, so that a spike in one spares the other."""
    tight = dataclasses.replace(METHOD, clip_norm=1e-3)
    after, _ = jax.jit(tight.update, static_argnums=(3, 4))(state, batch, jax.random.key(5), SPEC, (name,))
    # Adam's step hides the scale; its first moment after one step is a tenth of the gradient it was given.
    moment = optax.tree_utils.tree_get(after.optimisers[name], "mu")
    square = sum(float((x**2).sum()) for x in jax.tree.leaves(moment))
    np.testing.assert_allclose(np.sqrt(square), np.sqrt(2) * 1e-4, rtol=1e-6)
