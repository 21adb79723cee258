"""Gradients of BCRL's instances: Gumbel and sparse regression, and TD3+BC by numpy and finite differences."""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from finite_differences import check_every_leaf, only_zeros
from forward import forward, forward_each

from bcrl.learn.batch import Batch
from bcrl.learn.bcrl import BCRL
from bcrl.learn.bcrl_td3 import BCRLTD3
from bcrl.learn.losses import spread
from bcrl.learn.networks import gaussian_log_density
from bcrl.learn.protocol import Spec
from bcrl.learn.train_state import TrainState

SPEC = Spec(2, 1, 1, 20, (1.0,), 10)


@pytest.fixture(scope="module", autouse=True)
def _double_precision():
    with jax.enable_x64(True):
        yield


def random_state(method: BCRL, seed: int = 1) -> TrainState:
    rng = np.random.default_rng(seed)
    shape = jax.eval_shape(lambda: method.init(jax.random.key(0), SPEC))
    networks, targets = jax.tree.map(lambda x: rng.normal(size=x.shape), (shape.networks, shape.targets))
    return TrainState(networks, targets, jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), shape.moments))


def random_batch() -> Batch:
    rng = np.random.default_rng(0)
    columns = (
        rng.normal(size=(6, 2)),
        rng.uniform(-1, 1, (6, 1)),
        rng.normal(size=6),
        rng.random((6, 1)),
        rng.normal(size=(6, 2)),
        np.array([1.0, 1, 1, 0, 1, 1]),
    )
    return Batch(*columns)


@partial(jax.jit, static_argnums=0)
def augmented(method, state, batch):
    """Budgets inside the safe set, and what the cost critics say."""
    _, costs, _ = method.cost_losses(state.networks, state.targets, batch)
    return method.augment(jax.random.key(2), batch, costs, SPEC), costs


@pytest.mark.parametrize("regression", ["gumbel", "sparse"])
def test_value_gradients_are_those_of_the_textbook_loss(regression):
    """Finite differences of e^z − z − 1 and of 1[t > 0] t² + V/α, through the value network."""
    temperature = 2.0
    method = BCRL(
        hidden=(4,),
        cost_regression=regression,
        temperature_c=temperature,
        temperature_unit="raw",
        exponent_limit=None,
    )
    state, batch = random_state(method), random_batch()
    cost_value = state.networks["cost_value"]
    pairs = np.concatenate([batch.features, batch.action], 1)
    q = np.asarray(forward_each(state.targets["cost_critic"], pairs)).max(0)[:, 0]
    peak = max(np.max((np.asarray(forward(cost_value, batch.features))[:, 0] - q) / temperature), -1.0)

    def textbook(value):
        v = value(batch.features)[:, 0]
        if regression == "gumbel":
            z = (v - q) / temperature
            return 2 * temperature**2 * jnp.exp(-peak) * jnp.mean(jnp.exp(z) - z - 1)
        t = 1 + (v - q) / (2 * temperature)
        return 4 * temperature**2 * jnp.mean(jnp.where(t > 0, t**2, 0) - v / temperature)

    gradient = jax.jit(jax.grad(lambda n: method.cost_losses(n, state.targets, batch)[0]))(state.networks)
    check_every_leaf(cost_value, textbook, gradient["cost_value"])


@pytest.fixture(scope="module", params=["soft", "direct"])
def td3(request, _double_precision):
    """The method, its state, a batch, its budgets and what the cost critics say."""
    method = BCRLTD3(hidden=(4,), dropout=0.3, tracking=request.param, batch_size=6, max_budget=0.3)
    state, batch = random_state(method, 0), random_batch()
    return method, state, batch, *augmented(method, state, batch)


def test_td3_critic_loss_by_numpy(td3):
    method, state, batch, budget, costs = td3
    networks, targets, next_v_c = state.networks, state.targets, costs.next_value
    soft = method.tracking == "soft"
    quiet = dataclasses.replace(method, noise=0.0, unsafe_price=0.0)
    loss, metrics = jax.jit(quiet.critic_loss)(networks, targets, batch, budget, costs, jax.random.key(0))

    def q_c(action):
        pairs = jnp.concatenate([batch.next_features, action], 1)
        return np.asarray(forward_each(targets["cost_critic"], pairs)).max(0)

    seen = np.asarray(budget.next_state)
    delta = seen + next_v_c if soft else seen
    mine = networks["actor"](jnp.concatenate([batch.next_features, jnp.log1p(jnp.maximum(seen, 0))], 1))[0]
    careful = networks["fallback"](batch.next_features)[0]
    allowed = (q_c(mine) <= delta) & (delta - next_v_c >= 0.1)
    assert 0 < allowed.sum() < 6, "both must happen for this test to say something"
    assert float(metrics["reward/next_fallback"]) == pytest.approx(1 - allowed.mean())
    action = jnp.where(allowed, mine, careful)
    shown = np.maximum(delta - q_c(action), 0) if soft else np.maximum(seen, 0)
    rows = jnp.concatenate([batch.next_features, action, jnp.log1p(shown)], 1)
    worth = np.asarray(forward_each(targets["critic"], rows))[..., 0].min(0)
    goal = batch.reward + 0.99 * batch.bootstrap * worth
    rows = jnp.concatenate([batch.features, batch.action, jnp.log1p(budget.action)], 1)
    wanted = np.mean((np.asarray(forward_each(networks["critic"], rows))[..., 0] - goal) ** 2)
    np.testing.assert_allclose(loss, wanted, rtol=1e-9)


def test_td3_actor_loss_by_numpy(td3):
    method, state, batch, budget, costs = td3
    networks, targets, q_c, v_c = state.networks, state.targets, costs.critic, costs.value
    soft = method.tracking == "soft"
    key = jax.random.key(3)
    _, metrics = jax.jit(method.actor_loss)(networks, targets, batch, budget, costs, key)
    mean = networks["actor"](jnp.concatenate([batch.features, jnp.log1p(budget.state)], 1), key)[0]
    pairs = jnp.concatenate([batch.features, mean], 1)
    spent = np.asarray(forward_each(targets["cost_critic"], pairs)).max(0)
    left = np.asarray(budget.state + v_c if soft else budget.state) - spent
    safe = left[:, 0] >= 0
    assert 0 < safe.sum() < 6, "both must happen for this test to say something"
    shown = np.maximum(left, 0) if soft else budget.state
    worth = np.asarray(
        forward_each(targets["critic"], jnp.concatenate([batch.features, mean, jnp.log1p(shown)], 1))
    )
    worth = worth[..., 0].min(0)
    excess = np.maximum(-left[:, 0], 0) / np.sqrt(np.mean((q_c - v_c) ** 2))
    clone = np.mean((mean - batch.action) ** 2, axis=1)
    wanted = np.mean(clone - 2.5 / np.abs(worth).mean() * np.where(safe, worth, 0) + excess)
    np.testing.assert_allclose(metrics["policy/loss"], wanted, rtol=1e-5)
    assert float(metrics["policy/unsafe"]) == pytest.approx(1 - safe.mean())


def test_td3_gradients_stay_where_they_belong(td3):
    method, state, batch, budget, costs = td3
    key = jax.random.key(3)

    def critic_loss(networks, targets):
        return method.critic_loss(networks, targets, batch, budget, costs, key)[0]

    gradients, of_targets = jax.jit(jax.grad(critic_loss, argnums=(0, 1)))(state.networks, state.targets)
    of_critic = gradients.pop("critic")
    assert only_zeros((gradients, of_targets["critic"]))

    def at_critic(critic):
        return critic_loss(state.networks | {"critic": critic}, state.targets)

    check_every_leaf(state.networks["critic"], at_critic, of_critic)

    def actor_loss(networks):
        return method.actor_loss(networks, state.targets, batch, budget, costs, key)[0]

    gradients = jax.jit(jax.grad(actor_loss))(state.networks)
    assert not only_zeros(gradients.pop("actor"))
    assert only_zeros(gradients)


def test_td3_actor_gradient(td3):
    """The scale λ is a constant of the step, and so is the mean for the standard deviation's loss."""
    method, state, batch, budget, costs = td3
    targets, key = state.targets, jax.random.key(3)
    actor = state.networks["actor"]
    inputs = jnp.concatenate([batch.features, jnp.log1p(budget.state)], 1)
    mean = actor(inputs, key)[0]
    left, _ = method.left(targets, batch.features, mean, budget.state, costs.value)
    size = jnp.abs(method.worth(targets, batch.features, mean, left, budget.state)).mean() + 1e-6

    def loss(actor):
        found, log_std = actor(inputs, key)
        left, safe = method.left(targets, batch.features, found, budget.state, costs.value)
        worth = method.worth(targets, batch.features, found, left, budget.state)
        excess = jnp.maximum(-left[:, 0], 0) / spread(costs.critic - costs.value)
        clone = jnp.mean((found - batch.action) ** 2, axis=1)
        width = gaussian_log_density(mean, log_std, batch.action)
        return jnp.mean(clone - 2.5 / size * jnp.where(safe, worth, 0.0) + excess - width)

    def whole(actor):
        networks = state.networks | {"actor": actor}
        return method.actor_loss(networks, targets, batch, budget, costs, key)[0]

    check_every_leaf(actor, loss, jax.jit(jax.grad(whole))(actor))


@pytest.mark.parametrize("td3", ["soft"], indirect=True)
def test_td3_parts_take_the_same_step_alone_and_together(td3):
    method, state, batch, _, _ = td3
    parts = ("cost", "reward", "policy")
    step = jax.jit(method.update, static_argnums=(3, 4))
    together, _ = step(state, batch, jax.random.key(5), SPEC, parts)
    alone, _ = step(state, batch, jax.random.key(5), SPEC, ("reward",))
    critics = alone.networks["critic"], together.networks["critic"]
    for x, y in zip(*map(jax.tree.leaves, critics), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-9, atol=1e-12)
    assert "value" not in alone.networks
    in_turn = dataclasses.replace(method, phases="in-turn")
    assert (method.schedule, in_turn.schedule) == ((parts,), (("cost",), ("reward", "policy")))


# ---- gradient extraction ------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=["soft", "direct"])
def climbing(request, _double_precision):
    method = BCRL(
        hidden=(4,), tracking=request.param, batch_size=6, max_budget=0.3, extraction="gradient", greed=3.0
    )
    state, batch = random_state(method, 0), random_batch()
    budget, costs = augmented(method, state, batch)
    advantage = jnp.linspace(-1.0, 1.0, 6)
    return method, state, (batch, budget, costs, advantage, jax.random.key(3))


def test_gradient_loss_by_numpy(climbing):
    method, state, (batch, budget, costs, advantage, key) = climbing
    networks, targets = state.networks, state.targets
    total, metrics = jax.jit(method.gradient_loss)(networks, targets, batch, budget, costs, advantage, key)
    inputs = jnp.concatenate([batch.features, jnp.log1p(budget.state)], 1)
    mean, log_std = networks["actor"](inputs, key)
    left, safe = (
        np.asarray(x) for x in method.left(targets, batch.features, mean, budget.state, costs.value)
    )
    assert 0 < safe.sum() < 6, "both must happen for this test to say something"
    worth = np.asarray(method.worth(targets, batch.features, mean, left, budget.state))
    weight = np.exp(3.0 * np.asarray(advantage))
    weight /= weight.mean() + 1e-6
    excess = np.maximum(-left[:, 0], 0) / np.sqrt(np.mean((costs.critic - costs.value) ** 2))
    clone = np.mean((mean - batch.action) ** 2, axis=1)
    loss = np.mean(weight * clone - 3.0 / np.abs(worth).mean() * np.where(safe, worth, 0) + excess)
    np.testing.assert_allclose(metrics["policy/loss"], loss, rtol=1e-5)
    width = -np.mean(weight * gaussian_log_density(mean, log_std, batch.action))
    value = np.asarray(networks["value"](inputs)[:, 0])
    own = np.mean(np.where(safe, 0.5 * (worth - value) ** 2, 0.0))  # τ_R = 0.5; nothing where π is unsafe
    np.testing.assert_allclose(total, loss + width + own, rtol=1e-5)


def test_gradient_loss_reaches_the_policy_and_the_reward_value_alone(climbing):
    method, state, (batch, *rest) = climbing

    def loss(networks):
        return method.gradient_loss(networks, state.targets, batch, *rest)[0]

    gradients = jax.jit(jax.grad(loss))(state.networks)
    assert not only_zeros(gradients.pop("actor"))
    assert not only_zeros(gradients.pop("value"))
    assert only_zeros(gradients)


def test_a_policy_that_climbs_is_trained_with_what_it_climbs():
    assert BCRL(extraction="gradient", phases="in-turn").schedule == (("cost",), ("reward", "policy"))
    assert BCRL(phases="in-turn").schedule == (("cost",), ("reward",), ("policy",))
