"""Q_F is what the fallback's own actions cost: exact in tables, and nobody else's business."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from known_mdp import ACTIONS, CODES, STATES, evaluate, fixed_point, make_log
from optimised import optimised

import bcrl
from bcrl.learn.batch import Batch
from bcrl.learn.bcrl import BCRL
from bcrl.learn.bcrl_td3 import BCRLTD3
from bcrl.learn.loop import initial_state, train
from bcrl.learn.networks import apply_each
from bcrl.learn.protocol import Normaliser, Spec

GAMMA_COST = 0.8
CHOSEN = np.array([0, 2, 1, 0])
"""The fallback's action in each state, which is neither the cheapest nor the log's."""


class InTables(eqx.Module):
    """A fallback that takes one of the log's actions in each state."""

    actions: jax.Array
    states: jax.Array

    def __call__(self, features, key=None):
        mean = self.actions[jnp.argmax(features @ self.states.T, axis=-1)]
        return mean, jnp.full(mean.shape, -20.0)


def learned(method, fallback, arrays, spec, steps):
    """Q_F after so many steps of its own loss, the fallback as it is."""
    networks = method.make_networks(jax.random.key(0), spec) | {"fallback": fallback}
    adam = optax.adam(optax.cosine_decay_schedule(method.learning_rate, steps))

    def step(carry, key):
        critic, target, moments = carry
        rows, noise = jax.random.split(key)

        def loss(critic):
            batch = method.sample(arrays, rows)
            now = networks | {"fallback_critic": critic}
            return method.fallback_critic_loss(now, {"fallback_critic": target}, batch, noise)

        change, moments = adam.update(jax.grad(loss)(critic), moments)
        critic = optax.apply_updates(critic, change)
        target = jax.tree.map(lambda t, n: t + method.target_rate * (n - t), target, critic)
        return (critic, target, moments), None

    critic = networks["fallback_critic"]
    keys = jax.random.split(jax.random.key(1), steps)
    with optimised():
        return jax.jit(lambda: jax.lax.scan(step, (critic, critic, adam.init(critic)), keys))()[0][1]


@pytest.mark.slow
@pytest.mark.parametrize("k", [1, 2])
def test_q_f_is_the_value_of_the_fallback(k):
    data, table = make_log(k)
    method = BCRL(
        fallback_critic=True,
        fallback_draws=0,
        gamma_cost=GAMMA_COST,
        hidden=(32,),
        batch_size=256,
        learning_rate=1e-3,
        target_rate=0.02,
    )
    normaliser, steps = Normaliser.of(data.observations), 8_000
    spec = Spec.of(data, steps)
    fallback = InTables(jnp.asarray(CODES[CHOSEN], jnp.float32), normaliser(jnp.eye(STATES)))
    arrays = method.prepare(data, normaliser)
    critic = learned(method, fallback, arrays, spec, steps)

    taken = np.eye(ACTIONS)[CHOSEN]
    value = evaluate(table, taken, GAMMA_COST)
    wanted = table.costs + GAMMA_COST * np.einsum("ijk,ck->cij", table.moves, value)
    features = normaliser(jnp.eye(STATES))
    pairs = jnp.concatenate(
        [jnp.repeat(features, ACTIONS, axis=0), jnp.tile(jnp.asarray(CODES, jnp.float32), (STATES, 1))],
        axis=1,
    )
    found = np.asarray(jnp.max(apply_each(critic, pairs), axis=0)).T.reshape(k, STATES, ACTIONS)
    np.testing.assert_allclose(found, wanted, rtol=0.03)
    # Q_C, of the log's cheaper actions, is below by more than the tolerance.
    least = fixed_point(table, GAMMA_COST, method.tau_c, np.ones(k))[1]
    assert np.max(least / wanted) < 0.9


def test_the_loss_by_hand():
    """With draws: the next action is their mean, weighed by the target of Q_F; costs end with an episode."""
    rng = np.random.default_rng(0)
    method = BCRL(
        fallback_critic=True,
        fallback_draws=3,
        fallback_beta=2.0,
        gamma_cost=GAMMA_COST,
        cost_weights=(1.0, 4.0),
        hidden=(8,),
    )
    spec = Spec(4, 2, 2, 10, (1.0, 1.0), 10)
    networks = method.make_networks(jax.random.key(0), spec)
    targets = method.init(jax.random.key(1), spec).targets
    make = lambda *shape: jnp.asarray(rng.normal(size=shape), jnp.float32)  # noqa: E731
    cost, bootstrap = jnp.abs(make(5, 2)), jnp.asarray([1.0, 1.0, 0.0, 1.0, 1.0])
    batch = Batch(make(5, 4), jnp.tanh(make(5, 2)), make(5), cost, make(5, 4), bootstrap)
    key = jax.random.key(7)
    loss = method.fallback_critic_loss(networks, targets, batch, key)

    def q(critic, features, action):
        pair = np.concatenate([features, action])
        return np.asarray(apply_each(critic, jnp.asarray(pair, jnp.float32)))

    mean, log_std = map(np.asarray, networks["fallback"](batch.next_features))
    noise = np.asarray(jax.random.normal(key, (3, 5, 2)))
    wanted = 0.0
    for row in range(5):
        following = np.asarray(batch.next_features[row])
        draws = np.clip(mean[row] + np.exp(log_std[row]) * noise[:, row], -1, 1)
        costs = np.array([q(targets["fallback_critic"], following, draw).max(0) for draw in draws])
        weight = np.exp(-2.0 * costs @ np.array([1.0, 4.0]))
        action = weight @ draws / weight.sum()
        after = np.maximum(q(targets["fallback_critic"], following, action).max(0), 0)
        target = np.asarray(cost[row]) + GAMMA_COST * float(bootstrap[row]) * after
        now = q(networks["fallback_critic"], np.asarray(batch.features[row]), np.asarray(batch.action[row]))
        wanted += np.sum((now - target) ** 2) / (2 * 5)  # the mean over the twins and the batch
    np.testing.assert_allclose(loss, wanted, rtol=1e-4)


@pytest.mark.parametrize("kind", [BCRL, BCRLTD3])
def test_all_else_is_learned_as_without_it(kind, tiny_log):
    small = {"hidden": (8,), "batch_size": 16}
    with_it = bcrl.fit(tiny_log, kind(**small, fallback_critic=True), steps=5).policy().learned
    without = bcrl.fit(tiny_log, kind(**small), steps=5).policy().learned
    assert without.fallback_critic is None
    assert with_it.fallback_critic is not None
    for one, other in zip(
        jax.tree.leaves(eqx.tree_at(lambda a: a.fallback_critic, with_it, None)),
        jax.tree.leaves(without),
        strict=True,
    ):
        np.testing.assert_array_equal(one, other)


def test_it_is_learned_with_the_policy(tiny_log):
    method = BCRL(hidden=(8,), batch_size=16, fallback_critic=True)
    start = initial_state(method, Spec.of(tiny_log, 3), (0,)).targets["fallback_critic"]
    for parts, moves in (("policy",), True), (("cost",), False), (("reward",), False):
        spec, normaliser = Spec.of(tiny_log, 3), Normaliser.of(tiny_log.observations)
        arrays, state = method.prepare(tiny_log, normaliser), initial_state(method, spec, (0,))
        for point in train(method, arrays, spec, (0,), state, step=0, log_every=3, schedule=(parts,)):
            state = point.state
        changed = [
            bool(jnp.any(a != b))
            for a, b in zip(
                jax.tree.leaves(start), jax.tree.leaves(state.targets["fallback_critic"]), strict=True
            )
        ]
        assert all(changed) if moves else not any(changed)


def test_labels_have_none():
    """The least of their few Q_C is compared in execution: nothing is drawn and nothing averaged."""
    method = BCRL(hidden=(8,), fallback_critic=True)
    spec = Spec(4, 3, 1, 10, (1.0,), 10, discrete=True)
    assert set(method.make_networks(jax.random.key(0), spec)) == set(
        BCRL(hidden=(8,)).make_networks(jax.random.key(0), spec)
    )
