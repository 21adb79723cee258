"""CAPS: losses by numpy, gradients by differences, switching by enumeration, and what it learns."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from finite_differences import check_every_network, only_zeros, random_like
from forward import forward, forward_each
from lane import Lane, fit_lane, lane_log
from made_up import six_transitions, step_size_after

import bcrl
from bcrl.assess.rollout import roll_out
from bcrl.errors import BCRLError
from bcrl.learn.baselines import in_sample
from bcrl.learn.baselines.caps import CAPS, head_weights
from bcrl.learn.batch import Batch
from bcrl.learn.protocol import Normaliser, Spec
from bcrl.learn.registry import make_method

SPEC = Spec(2, 2, 1, 20, (1.0,), 10)
METHOD = CAPS(hidden=(4,), heads=3)
FAITHFUL = CAPS(hidden=(4,), heads=3, variant="faithful")


def make_batch() -> Batch:
    return six_transitions(np.random.default_rng(0), 2)


def make_networks(method: CAPS) -> tuple[dict, dict]:
    """Networks and target networks, away from the start of training, where they are equal."""
    shapes = jax.eval_shape(lambda: method.init(jax.random.key(0), SPEC))
    return random_like(shapes.networks, seed=1), random_like(shapes.targets, seed=2)


def losses(method: CAPS, networks: dict, targets: dict):
    return jax.jit(lambda changed: method.losses({**networks, **changed}, targets, make_batch()))


def test_weights_of_the_heads_by_hand():
    by_reward, by_cost = jnp.asarray([1.0, 2.0]), jnp.asarray([10.0, 100.0])
    np.testing.assert_array_equal(head_weights(by_reward, by_cost, 2), [[1, 10], [2, 100]])
    # Five heads: the inner ones add 0.5, 1 and 1.5 times the weight by cost.
    np.testing.assert_array_equal(
        head_weights(by_reward, by_cost, 5), [[1, 6, 11, 16, 10], [2, 52, 102, 152, 100]]
    )


def test_backup_by_hand():
    critics = jnp.asarray([[1.0, 2.0], [3.0, 4.0]])
    found = in_sample.backup_loss(
        critics, jnp.asarray([1.0, 1.0]), jnp.asarray([1.0, 0.0]), jnp.full(2, 4.0), 0.5
    )
    assert float(found) == pytest.approx(((1 - 3) ** 2 + (2 - 1) ** 2 + (3 - 3) ** 2 + (4 - 1) ** 2) / 4)


def test_losses_by_numpy(double):
    (networks, targets), batch = make_networks(METHOD), make_batch()
    _, metrics = losses(METHOD, networks, targets)({})
    pairs = np.concatenate([batch.features, batch.action], 1)
    slow, fast = (np.asarray(forward_each(n["critics"], pairs))[..., 0] for n in (targets, networks))
    q, q_c = slow[:2].min(0), slow[2:].max(0)
    v, v_c = np.asarray(forward_each(networks["values"], batch.features))[..., 0]
    next_v, next_v_c = np.asarray(forward_each(networks["values"], batch.next_features))[..., 0]
    goal = batch.reward + 0.99 * batch.bootstrap * next_v
    goal_c = batch.only_cost + 0.99 * batch.bootstrap * next_v_c
    wanted = {
        "reward/value_loss": np.mean(np.where(q < v, 0.3, 0.7) * (q - v) ** 2),
        "reward/critic_loss": np.mean((fast[:2] - goal) ** 2),
        # The 0.3-expectile of cost is the 0.7-expectile of −cost.
        "cost/value_loss": np.mean(np.where(q_c < v_c, 0.7, 0.3) * (q_c - v_c) ** 2),
        "cost/critic_loss": np.mean((fast[2:] - goal_c) ** 2),
    }
    for name, value in wanted.items():
        np.testing.assert_allclose(metrics[name], value, rtol=1e-10, err_msg=name)


@pytest.mark.parametrize("method", [METHOD, FAITHFUL])
def test_loss_of_the_heads_by_numpy(method, double):
    heads, batch = make_networks(method)[0]["heads"], make_batch()
    advantage, saved = np.array([-1.0, 0, 0.2, 5, 1, -0.1]), np.array([0.3, 9, 0, -2, 0.1, 0.2])
    found = jax.jit(method.heads_loss)(heads, batch, advantage, saved)
    by_reward, by_cost = (np.minimum(np.exp(3 * x), 100) for x in (advantage, saved))
    means = np.tanh(np.asarray(forward(heads.trunk, batch.features))).reshape(6, 3, 2)
    std = np.ones((3, 2)) if method.faithful else np.exp(heads.log_std)
    density = -0.5 * ((batch.action[:, None] - means) / std) ** 2 - np.log(std) - 0.5 * np.log(2 * np.pi)
    likely = np.sum(density, -1)
    wanted = -np.mean(
        [by_reward * likely[:, 0], (by_reward + by_cost) * likely[:, 1], by_cost * likely[:, 2]]
    )
    np.testing.assert_allclose(found, wanted, rtol=1e-10)


def test_gradients_reach_their_own_networks_alone(double):
    """The gradient is that of the sum of all losses; the differences are of each network's own losses."""
    trained, targets = make_networks(METHOD)
    own = {
        "values": ("reward/value_loss", "cost/value_loss"),
        "critics": ("reward/critic_loss", "cost/critic_loss"),
        "heads": ("policy/loss",),
    }
    check_every_network(losses(METHOD, trained, targets), trained, own, stacked=("values", "critics"))


def test_as_released_the_spread_is_never_learned(double):
    trained, targets = make_networks(FAITHFUL)
    loss = losses(FAITHFUL, trained, targets)
    gradient = jax.jit(jax.grad(lambda t: loss(t)[0]))(trained)
    assert only_zeros(gradient["heads"].log_std)
    assert not only_zeros(gradient["heads"].trunk)


def test_learning_rates():
    fixed, released = (method.optimisers(SPEC) for method in (METHOD, FAITHFUL))
    assert step_size_after(fixed["heads"], SPEC.steps) == 0.0
    assert step_size_after(released["heads"], 100_000) == pytest.approx(0.976 * 3e-4, rel=1e-3)
    for name in ("values", "critics"):  # these do not decay
        assert step_size_after(fixed[name], 100_000) == pytest.approx(3e-4, rel=1e-3)


def test_one_step_moves_every_network_and_the_targets_follow():
    method = CAPS(hidden=(4,), heads=3)
    state = jax.jit(lambda: method.init(jax.random.key(0), SPEC))()
    update = jax.jit(method.update, static_argnums=(3, 4))
    after, _ = update(state, jax.tree.map(jnp.float32, make_batch()), jax.random.key(1), SPEC, ("all",))
    for name in ("values", "critics", "heads"):
        moved = [
            not np.array_equal(x, y)
            for x, y in zip(*map(jax.tree.leaves, (state.networks[name], after.networks[name])), strict=True)
        ]
        assert all(moved), name
    for old, fast, found in zip(
        *map(
            jax.tree.leaves, (state.targets["critics"], after.networks["critics"], after.targets["critics"])
        ),
        strict=True,
    ):
        np.testing.assert_allclose(
            found, 0.995 * np.asarray(old) + 0.005 * np.asarray(fast), rtol=1e-5, atol=1e-7
        )


def test_switching_by_enumeration():
    """Of the actions that fit the best, else the cheapest, at thresholds from none to all fitting."""
    method = CAPS(hidden=(4,), heads=3)
    state = jax.eval_shape(lambda: method.init(jax.random.key(3), SPEC))
    state = eqx.tree_at(lambda s: s.networks, state, random_like(state.networks, seed=4))
    actor = method.actor(state, None, Normaliser(jnp.zeros(2), jnp.ones(2)), SPEC)
    policy = bcrl.Policy(actor, method, SPEC, {})
    observation = np.array([0.5, -1.0], np.float32)
    actions = np.asarray(forward(state.networks["heads"], observation))
    pairs = np.concatenate([np.tile(observation, (3, 1)), actions], 1)
    q = np.asarray(forward_each(state.networks["critics"], pairs))[..., 0]
    worth, cost = q[:2].min(0), q[2:].max(0)
    worth_factor = (1 - 0.99**20) / (0.01 * 20)
    seen = set()
    for threshold in np.linspace(0, 1.2 * cost.max() / worth_factor, 30):
        fits = cost < threshold * worth_factor
        wanted = np.argmin(cost) if not fits.any() else max(np.flatnonzero(fits), key=lambda k: worth[k])
        episode = policy.start(threshold=threshold)
        np.testing.assert_allclose(episode.act(observation), actions[wanted], rtol=1e-5)
        assert episode.fallback == (not fits.any())
        np.testing.assert_allclose(episode.slack, threshold * worth_factor - cost.min(), rtol=1e-4, atol=1e-5)
        seen.add((int(wanted), bool(fits.any())))
    assert len(seen) > 1, "the thresholds must make a difference for this test to say something"
    # What was spent is gone, and fewer steps are left.
    episode = policy.start(threshold=5.0)
    episode.act(observation)
    episode.observe(1.0)
    episode.act(observation)
    np.testing.assert_allclose(episode.slack, 4.0 * (1 - 0.99**19) / (0.01 * 19) - cost.min(), rtol=1e-4)


def test_other_rules_are_refused(trained):
    with pytest.raises(BCRLError, match="caps tracks no budget"):
        trained.policy().start(budget=1.0)


@pytest.mark.parametrize(
    ("name", "value"), [("heads", 1), ("heads", 2.5), ("reward_scale", 0.0), ("tau_c", 0.6)]
)
def test_a_bad_option_is_named(name, value):
    with pytest.raises(BCRLError, match=name):
        CAPS(**{name: value})


def test_family_options():
    assert make_method("caps", family="metadrive") == CAPS(reward_unit=1.0, tau_r=0.5, tau_c=0.5)
    assert make_method("caps", family="bullet") == CAPS(reward_unit=1.0)


def test_variants_prepare_data_differently():
    log = lane_log(episodes=3)
    normaliser = Normaliser.of(log.observations)
    fixed, released = (method.prepare(log, normaliser) for method in (METHOD, FAITHFUL))
    np.testing.assert_allclose(released.table[:, 0], log.observations[:, 0], rtol=1e-6)
    np.testing.assert_allclose(np.mean(fixed.table[:, 0]), 0.0, atol=1e-5)
    np.testing.assert_allclose(fixed.table[:, 2], 0.1 * log.rewards, rtol=1e-5)


@pytest.fixture(scope="module")
def trained():
    """Lane rewards are of order 1, so they are left as they are.

    With γ = 0.99 the cost critic would look farther than the lane's 20 steps, and take the end of the
    episode, which the state does not show, for a saving (12.95 for a threshold of 12).
    """
    method = CAPS(hidden=(32, 32), batch_size=256, reward_scale=1.0, gamma=0.8)
    return fit_lane(method, steps=1500)


def test_learns_to_earn_and_to_spend_by_threshold(trained):
    """Cloning earns −14 here. Heads switch near the border: the cost rises with the threshold, under it."""
    episodes = roll_out(trained.policy(), Lane(), (2.0, 6.0, 12.0))
    returns, costs = episodes.returns.mean(axis=1), episodes.costs.mean(axis=1)
    assert returns[0] > 1.0
    assert returns[2] > returns[1] > returns[0]
    assert np.all(costs < [2.0, 6.0, 12.0])
    assert costs[2] > costs[0] + 4.0


def test_the_policy_file_acts_the_same(trained, tmp_path):
    policy = trained.policy()
    policy.save(tmp_path / "policy.bcrl")
    again = bcrl.load(tmp_path / "policy.bcrl")
    assert again.method == policy.method
    before, after = (roll_out(p, Lane(), (2.0, 6.0, 12.0)) for p in (policy, again))
    np.testing.assert_array_equal(before.returns, after.returns)
    np.testing.assert_array_equal(before.costs, after.costs)
