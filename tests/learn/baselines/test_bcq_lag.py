"""BCQ-Lag: its losses and its controller by hand, its gradients by differences, and what it learns."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from finite_differences import check_every_network, only_zeros, random_like
from forward import forward, forward_each
from lane import Lane, fit_lane, lane_log
from made_up import six_transitions, vae_loss

import bcrl
from bcrl.assess.rollout import roll_out
from bcrl.errors import BCRLError
from bcrl.learn.baselines.bcq_lag import BCQLag, Multiplier, Sample, careful
from bcrl.learn.protocol import Normaliser, Spec
from bcrl.learn.train_state import TrainState
from bcrl.policy import Policy

SPEC = Spec(2, 2, 1, 20, (1.0,), 10)
METHOD = BCQLag(threshold=6.0, hidden=(4,), vae_hidden=(4,), candidates=3, reach=0.3, gamma=0.9)
FAITHFUL = dataclasses.replace(METHOD, variant="faithful")
PRICE = 0.7


def make_sample(method: BCQLag) -> Sample:
    rng = np.random.default_rng(0)
    batch = six_transitions(rng, 2)
    starts = rng.normal(size=(0 if method.faithful else 5, 2))
    return Sample(batch, starts.astype(batch.features.dtype))


def make_state(method: BCQLag) -> TrainState:
    """Parameters away from the start of training, where targets equal the networks; Adam's zeros."""
    shapes = jax.eval_shape(lambda: method.init(jax.random.key(0), SPEC))
    moments = jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), shapes.moments)
    multiplier = Multiplier(jnp.asarray(PRICE), jnp.asarray(0.5), jnp.asarray(-0.2))
    return TrainState(random_like(shapes.networks, 1), random_like(shapes.targets, 2), moments, multiplier)


def losses_of(method: BCQLag, state: TrainState):
    sample = make_sample(method)

    @jax.jit
    def losses(changed):
        networks = {**state.networks, **changed}
        return method.losses(networks, state.targets, state.extra, sample, jax.random.key(3), SPEC)

    return losses


def test_the_careful_value_by_hand():
    values = jnp.asarray([[1.0, 9.0], [3.0, 8.0], [2.0, 4.0], [5.0, 7.0]])  # pairs of (1, 3), (2, 5); …
    np.testing.assert_allclose(careful(values, 0.75), [0.75 * 1 + 0.25 * 2, 0.75 * 4 + 0.25 * 8])
    np.testing.assert_allclose(careful(values, 1.0), [1.0, 4.0])


def test_careful_means_dear_for_cost_unless_faithful(double):
    state, batch = make_state(METHOD), make_sample(METHOD).batch
    pairs = np.concatenate([batch.features, batch.action], axis=1)
    values = forward_each(state.targets["critics"], pairs)[..., 0]
    for method, cost in ((METHOD, -careful(-values[4:], 0.75)), (FAITHFUL, careful(values[4:], 0.75))):
        q, q_c = jax.jit(method.judge)(state.targets["critics"], batch.features, batch.action, 0.75)
        np.testing.assert_allclose(q, careful(values[:4], 0.75))
        np.testing.assert_allclose(q_c, cost)
    assert np.all(-careful(-values[4:], 0.75) > careful(values[4:], 0.75))


def test_backups_by_hand():
    sample = make_sample(METHOD)
    batch, next_q, next_q_c = sample.batch, jnp.arange(6.0), 10.0 + jnp.arange(6.0)
    goal, goal_c = METHOD.goals(batch, next_q, next_q_c)
    np.testing.assert_allclose(goal, batch.reward + 0.9 * np.array([0, 1, 2, 0, 4, 5]), rtol=1e-6)
    np.testing.assert_allclose(goal_c, batch.only_cost + 0.9 * np.array([10, 11, 12, 0, 14, 15]), rtol=1e-6)
    faithful, faithful_c = FAITHFUL.goals(batch, next_q, next_q_c)
    np.testing.assert_allclose(faithful, goal)
    np.testing.assert_allclose(faithful_c, batch.only_cost + 0.9 * np.arange(10, 16), rtol=1e-6)


@pytest.mark.parametrize("price", [0.0, 0.7, 50.0])
def test_both_values_are_those_of_the_best_candidate(price, double):
    state, features = make_state(METHOD), make_sample(METHOD).batch.next_features
    networks, key = {**state.networks, **state.targets}, jax.random.key(4)
    choices = jax.jit(METHOD.choices, static_argnums=3)
    wide, actions = choices(networks, features, key, METHOD.candidates)
    assert actions.shape == (6, 3, 2)
    assert np.ptp(actions, axis=1).max(axis=1).min() > 0  # no three candidates are one
    q, q_c = map(np.asarray, jax.jit(METHOD.judge)(networks["critics"], wide, actions, 0.75))
    best = np.argmax(q - price * q_c, axis=1)
    found, found_c = jax.jit(METHOD.values)(networks, features, jnp.asarray(price), key)
    np.testing.assert_allclose(found, q[np.arange(6), best])
    np.testing.assert_allclose(found_c, q_c[np.arange(6), best])
    # As released: the best and the dearest, though no action need be both.
    q, q_c = map(np.asarray, jax.jit(FAITHFUL.judge)(networks["critics"], wide, actions, 0.75))
    found, found_c = jax.jit(FAITHFUL.values)(networks, features, jnp.asarray(price), key)
    np.testing.assert_allclose(found, q.max(1))
    np.testing.assert_allclose(found_c, q_c.max(1))


def test_an_action_is_a_drawn_one_with_a_small_shift(double):
    networks, features = make_state(METHOD).networks, make_sample(METHOD).batch.features
    drawn = np.asarray(jax.jit(lambda vae: vae.sample(features, jax.random.key(1), 0.5))(networks["vae"]))
    shift = np.tanh(forward(networks["shift"], np.concatenate([features, drawn], axis=1)))
    found = jax.jit(METHOD.propose)(networks, features, jax.random.key(1))
    np.testing.assert_allclose(found, np.clip(drawn + 0.3 * shift, -1, 1))
    assert np.abs(shift).max() > 0.1


def test_losses_by_numpy(double):
    state, sample = make_state(METHOD), make_sample(METHOD)
    networks, batch = state.networks, sample.batch
    total, (multiplier, metrics) = losses_of(METHOD, state)({})
    vae_key, next_key, action_key = jax.random.split(jax.random.key(3), 3)

    np.testing.assert_allclose(
        metrics["vae/loss"], vae_loss(networks["vae"], batch, vae_key, 0.5), rtol=1e-10
    )

    ahead = np.concatenate([batch.next_features, sample.starts])
    slow = {"vae": networks["vae"], **state.targets}
    next_q, next_q_c = map(np.asarray, jax.jit(METHOD.values)(slow, ahead, jnp.asarray(PRICE), next_key))
    pairs = np.concatenate([batch.features, batch.action], axis=1)
    fast = np.asarray(forward_each(networks["critics"], pairs))[..., 0]
    goal = batch.reward + 0.9 * batch.bootstrap * next_q[:6]
    goal_c = batch.only_cost + 0.9 * batch.bootstrap * next_q_c[:6]
    np.testing.assert_allclose(metrics["critic/loss"], ((fast[:4] - goal) ** 2).mean(1).sum())
    np.testing.assert_allclose(metrics["cost/loss"], ((fast[4:] - goal_c) ** 2).mean(1).sum())

    # κ = 6 over 20 steps, discounted by 0.9: 0.3 (1 − 0.9²⁰)/0.1. The error is that of initial states.
    limit = 3.0 * (1 - 0.9**20)
    error = next_q_c[6:].mean() - limit
    np.testing.assert_allclose(metrics["cost/expected"], next_q_c[6:].mean())
    np.testing.assert_allclose(multiplier.error, error, rtol=1e-6)
    action = jax.jit(METHOD.propose)(networks, batch.features, action_key)
    q, q_c = map(np.asarray, jax.jit(METHOD.judge)(networks["critics"], batch.features, action, 1.0))
    wanted = np.mean(-q + multiplier.value * (q_c - limit))
    np.testing.assert_allclose(metrics["policy/loss"], wanted, rtol=1e-6)
    parts = ("vae/loss", "critic/loss", "cost/loss", "policy/loss")
    np.testing.assert_allclose(total, sum(float(metrics[name]) for name in parts))


def test_the_faithful_error_is_the_mean_over_the_batch(double):
    state = make_state(FAITHFUL)
    _, (multiplier, metrics) = losses_of(FAITHFUL, state)({})
    np.testing.assert_allclose(metrics["cost/expected"], metrics["cost/value"])
    np.testing.assert_allclose(multiplier.error, metrics["cost/value"] - 3.0 * (1 - 0.9**20), rtol=1e-6)


def test_the_controller_by_hand():
    method = dataclasses.replace(METHOD, gains=(0.1, 0.02, 0.5), multiplier_limit=2.0)
    faithful = dataclasses.replace(method, variant="faithful")
    before = Multiplier(*map(jnp.asarray, (0.0, 0.3, 1.0)))
    up = method.controlled(before, jnp.asarray(2.0))
    assert float(up.integral) == pytest.approx(0.3 + 0.04)
    assert float(up.value) == pytest.approx(0.1 * 2 + 0.34 + 0.5 * 1)
    assert float(up.error) == 2.0
    down = method.controlled(before, jnp.asarray(-5.0))  # nothing but what the integral has left
    assert float(down.value) == pytest.approx(0.2)
    assert float(method.controlled(before, jnp.asarray(-50.0)).value) == 0.0
    # A long time out of reach winds up as released, and stops at the limit here.
    assert float(faithful.controlled(before, jnp.asarray(500.0)).value) == pytest.approx(50 + 10.3 + 249.5)
    wound = method.controlled(before, jnp.asarray(500.0))
    assert (float(wound.value), float(wound.integral)) == (2.0, 2.0)


def test_every_network_follows_its_own_loss_alone(double):
    state = make_state(METHOD)
    losses = losses_of(METHOD, state)
    own = {"vae": ("vae/loss",), "critics": ("critic/loss", "cost/loss"), "shift": ("policy/loss",)}

    def sum_and_parts(networks):
        total, (_, metrics) = losses(networks)
        return total, metrics

    check_every_network(sum_and_parts, state.networks, own)


def test_no_gradient_passes_through_the_price(double):
    for method in (METHOD, FAITHFUL):
        state = make_state(method)
        losses = losses_of(method, state)

        def price(networks, losses=losses):
            metrics = losses(networks)[1][1]
            return metrics["cost/expected"] + metrics["policy/multiplier"]

        assert only_zeros(jax.jit(jax.grad(price))(state.networks))


def test_one_update(double):
    state, sample = make_state(METHOD), make_sample(METHOD)
    update = jax.jit(METHOD.update, static_argnums=(3, 4))
    after, metrics = update(state, sample, jax.random.key(3), SPEC, ("all",))
    for part in ("shift", "critics"):
        old, new, found = state.targets[part], after.networks[part], after.targets[part]
        for slow, fast, x in zip(*map(jax.tree.leaves, (old, new, found)), strict=True):
            np.testing.assert_allclose(x, 0.995 * slow + 0.005 * np.asarray(fast), rtol=1e-9, atol=1e-12)
    for old, new in zip(*map(jax.tree.leaves, (state.networks, after.networks)), strict=True):
        assert np.abs(new - old).max() == pytest.approx(1e-3, rel=0.02)  # Adam's first step is its rate
    assert float(after.extra.value) == float(metrics["policy/multiplier"])


@pytest.mark.parametrize("method", [METHOD, FAITHFUL], ids=["fixed", "faithful"])
def test_the_policy_file_acts_the_same(method, tmp_path):
    normaliser = Normaliser(jnp.asarray([1.0, 2.0]), jnp.asarray([3.0, 4.0]))
    policy = Policy(method.actor(make_state(method), None, normaliser, SPEC), method, SPEC, {})
    policy.save(tmp_path / "p.bcrl")
    loaded = bcrl.load(tmp_path / "p.bcrl")
    assert loaded.method == method
    first, second = (p.start(threshold=6, seed=5, batch=3) for p in (policy, loaded))
    observations = np.random.default_rng(0).normal(size=(3, 2)).astype(np.float32)
    actions = []
    for _ in range(2):
        actions.append(first.act(observations))
        np.testing.assert_array_equal(actions[-1], second.act(observations))
        first.observe(np.zeros(3))
        second.observe(np.zeros(3))
    assert not np.array_equal(*actions), "every step draws anew"


@pytest.mark.parametrize("method", [METHOD, FAITHFUL], ids=["fixed", "faithful"])
def test_it_takes_what_it_draws_or_the_best_of_several(method, double):
    state = make_state(method)
    identity = Normaliser(jnp.zeros(2), jnp.ones(2))
    observation, key = np.array([0.3, -0.4]), jax.random.key(2)
    networks = {"vae": state.networks["vae"], **state.targets}
    actor = method.actor(state, None, identity, SPEC)
    found = jax.jit(lambda: actor.choose(observation, None, key))()
    drawn = jax.jit(method.propose)(networks, observation[None, None], key)[0, 0]
    np.testing.assert_allclose(found, drawn, rtol=1e-12)

    several = dataclasses.replace(method, acting_candidates=5)
    # Not compiled as two programs, whose last digits may differ.
    found = several.actor(state, None, identity, SPEC).choose(observation, None, key)
    wide, actions = several.choices(networks, observation[None], key, 5)
    q, q_c = map(np.asarray, jax.jit(several.judge)(networks["critics"], wide, actions, 0.75))
    best = int(np.argmax(q[0] - PRICE * q_c[0]))
    assert best > 0, "for this test to say something"
    np.testing.assert_array_equal(found, actions[0, best])


def test_fixed_standardises_and_faithful_does_not():
    normaliser = Normaliser(jnp.asarray([2.0]), jnp.asarray([4.0]))
    log = lane_log(episodes=3)
    for variant, scale, offset in (("fixed", 4.0, 2.0), ("faithful", 1.0, 0.0)):
        method = BCQLag(variant=variant, threshold=1.0, batch_size=7)
        arrays = method.prepare(log, normaliser)
        starts = (log.initial_observations - offset) / scale
        np.testing.assert_allclose(arrays.starts.table, starts, rtol=1e-5)
        sample = method.sample(arrays, jax.random.key(0))
        assert sample.batch.features.shape == (7, 1)
        assert (len(sample.starts) == 0) == (variant == "faithful")


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"threshold": -1.0},
        {"reach": 0.0},
        {"candidates": 0},
        {"acting_candidates": 0},
        {"caution": 1.5},
        {"gains": (0.1, -1.0, 0.0)},
        {"variant": "x"},
    ],
)
def test_bad_options_are_named(options):
    name = next(iter(options), "threshold")
    with pytest.raises(BCRLError, match=name):
        BCQLag(**{**({} if name == "threshold" else {"threshold": 1.0}), **options})


# ---- learning ---------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("threshold", "least_return", "most_return", "least_cost", "most_cost"),
    [
        (2.0, 2.0, 8.0, 0.0, 2.0),  # waits at the border: over 4 seeds 3.3 … 4.0, cost 0 … 0.05
        (20.0, 11.0, 20.0, 11.0, 20.0),  # nothing is forbidden: 13.4 … 14, cost 14 … 14.6
    ],
)
def test_the_lane(threshold, least_return, most_return, least_cost, most_cost):
    """Cloning earns −14. The auto-encoder is let off its leash, for the log's usual actions lead nowhere."""
    method = BCQLag(
        threshold=threshold,
        hidden=(64,),
        vae_hidden=(64,),
        vae_kl=0.02,
        latent_limit=2.0,
        candidates=6,
        acting_candidates=6,
        batch_size=64,
        reward_scale=1.0,
        learning_rate=5e-3,
        target_rate=0.02,
        gamma=0.9,
    )
    policy = fit_lane(method, steps=1_000).policy()
    episodes = roll_out(policy, Lane(), (threshold,))
    assert least_return < episodes.returns.mean() < most_return
    assert least_cost <= episodes.costs.mean() <= most_cost
