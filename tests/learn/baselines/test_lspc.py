"""LSPC: its losses by numpy, its gradients by differences, and what its two policies learn."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from finite_differences import check_every_network, only_zeros, random_like
from lane import Lane, fit_lane
from made_up import six_transitions

import bcrl
from bcrl.assess.rollout import roll_out
from bcrl.errors import BCRLError
from bcrl.learn.baselines.lspc import LSPC
from bcrl.learn.batch import Batch
from bcrl.learn.networks import apply_each
from bcrl.learn.protocol import Spec
from bcrl.learn.registry import make_method
from bcrl.policy import Policy

SPEC = Spec(2, 2, 1, 20, (1.0,), 10)
METHOD = LSPC(hidden=(4,), latent=3)
FAITHFUL = dataclasses.replace(METHOD, variant="faithful")
KEY = 7


def make_batch() -> Batch:
    return six_transitions(np.random.default_rng(0), 2)


def make_networks() -> tuple[dict, dict]:
    """Networks and target networks, away from the start of training, where they are equal."""
    shapes = jax.eval_shape(lambda: METHOD.init(jax.random.key(0), SPEC))
    return random_like(shapes.networks, seed=3), random_like(shapes.targets, seed=4)


def losses(method: LSPC, networks: dict, targets: dict):
    @jax.jit
    def loss(changed):
        return method.losses({**networks, **changed}, targets, make_batch(), jax.random.key(KEY))

    return loss


@pytest.mark.parametrize("method", [METHOD, FAITHFUL])
def test_critic_losses_by_numpy(method, double):
    (networks, targets), batch = make_networks(), make_batch()
    _, metrics = losses(method, networks, targets)({})
    pairs = np.concatenate([batch.features, batch.action], 1)
    slow, fast = (np.asarray(apply_each(n["critics"], pairs))[..., 0] for n in (targets, networks))
    q, q_c = slow[:2].min(0), np.maximum(slow[2:].max(0), 0)
    v, raw = np.asarray(apply_each(networks["values"], batch.features))[..., 0]
    next_v, next_raw = np.asarray(apply_each(networks["values"], batch.next_features))[..., 0]
    assert raw.min() < 0 < raw.max(), "the floor must matter for this test to say something"
    goal = batch.reward + 0.99 * batch.bootstrap * next_v
    goal_c = batch.only_cost + 0.99 * batch.bootstrap * np.maximum(next_raw, 0)
    gap = q_c - (np.maximum(raw, 0) if method.faithful else raw)
    saved = np.maximum(raw, 0) - q_c
    wanted = {
        "reward/value_loss": np.mean(np.where(q < v, 0.3, 0.7) * (q - v) ** 2),
        "reward/critic_loss": np.mean((fast[:2] - goal) ** 2),
        "cost/value_loss": np.mean(np.where(gap < 0, 0.7, 0.3) * gap**2),
        "cost/critic_loss": np.mean((fast[2:] - goal_c) ** 2),
        "generator/weight": np.mean(np.minimum(np.exp(2 * saved), 200)),
        "policy/weight": np.mean(np.minimum(np.exp(2 * (q - v)), 200)),
    }
    for name, value in wanted.items():
        np.testing.assert_allclose(metrics[name], value, rtol=1e-10, err_msg=name)


def test_as_released_a_negative_cost_value_learns_nothing(double):
    """The floor is inside the regression there: a V_C below 0 everywhere has no gradient left."""
    networks, targets = make_networks()
    networks["values"] = eqx.tree_at(
        lambda v: v.biases[-1],
        networks["values"],
        replace_fn=lambda bias: jnp.asarray(bias).at[1].set(-100.0),
    )
    for method, stuck in ((METHOD, False), (FAITHFUL, True)):
        loss = losses(method, networks, targets)
        slope = jax.grad(lambda v, loss=loss: loss({"values": v})[0])(networks["values"])
        assert only_zeros([x[1] for x in slope.weights]) == stuck


def test_safe_weight_by_hand():
    value, critic = jnp.asarray([1.0, 1.0, 5.0, 0.5]), jnp.asarray([0.5, 2.0, 0.0, 0.5])
    np.testing.assert_allclose(METHOD.safe_weight(value, critic), [np.e, np.exp(-2), 200.0, 1.0], rtol=1e-6)
    masked = LSPC(cost_ceiling=1.0).safe_weight(value, critic)
    np.testing.assert_allclose(masked, [0.0, 0.0, 0.0, 1.0], rtol=1e-6)


def test_generator_and_latent_losses_by_numpy(double):
    (networks, _), batch = make_networks(), make_batch()
    vae, latents = networks["vae"], networks["latents"]
    weight, key = np.array([0.0, 1, 2, 3, 4, 5]), jax.random.key(3)
    noise = np.asarray(jax.random.normal(key, (6, 3)))

    mean, log_std = map(np.asarray, vae.encode(batch.features, batch.action))
    decoded = np.tanh(vae.decoder(np.concatenate([batch.features, mean + np.exp(log_std) * noise], 1)))
    kl = 0.5 * np.mean(mean**2 + np.exp(2 * log_std) - 1 - 2 * log_std, 1)
    wanted = np.mean(weight * (np.sum((decoded - batch.action) ** 2, 1) + 0.5 * kl))
    np.testing.assert_allclose(METHOD.generator_loss(vae, batch, weight, key), wanted, rtol=1e-10)

    mean, log_std = map(np.asarray, latents(batch.features))
    inside = 0.25 * np.tanh(mean + np.exp(log_std) * noise)
    decoded = np.tanh(vae.decoder(np.concatenate([batch.features, inside], 1)))
    wanted = np.mean(weight * np.sum((decoded - batch.action) ** 2, 1))
    np.testing.assert_allclose(METHOD.latents_loss(latents, vae, batch, weight, key), wanted, rtol=1e-10)


def test_gradients_reach_their_own_networks_alone(double):
    """The gradient is that of the sum of all losses; the differences are of each network's own losses."""
    trained, targets = make_networks()
    own = {
        "values": ("reward/value_loss", "cost/value_loss"),
        "critics": ("reward/critic_loss", "cost/critic_loss"),
        "vae": ("generator/loss",),
        "latents": ("policy/loss",),
    }
    check_every_network(losses(METHOD, trained, targets), trained, own, stacked=("values", "critics"))


@pytest.mark.parametrize(
    ("name", "value"),
    [("policy", "X"), ("latent", 0), ("radius", 0.0), ("cost_ceiling", 0.0), ("tau_c", 0.6)],
)
def test_a_bad_option_is_named(name, value):
    with pytest.raises(BCRLError, match=name):
        LSPC(**{name: value})


def test_family_options():
    assert make_method("lspc", family="bullet") == LSPC(reward_unit=1.0, radius=0.6)
    assert make_method("lspc", family="safety-gym") == LSPC(reward_unit=1.0)
    assert make_method("lspc", family="metadrive") == LSPC(reward_unit=1.0, cost_ceiling=0.02)


@pytest.fixture(scope="module")
def trained():
    return fit_lane(LSPC(hidden=(32, 32), batch_size=256, radius=0.6), steps=1500)


@pytest.fixture(scope="module")
def policies(trained):
    """O and S of the same networks."""
    safe = dataclasses.replace(trained.method, policy="S")
    one = jax.tree.map(lambda x: x[0], trained.state)
    actor = safe.actor(one, trained.arrays, trained.normaliser, trained.spec)
    return trained.policy(), Policy(actor, safe, trained.spec, {})


@pytest.mark.slow
def test_o_earns_and_s_costs_nothing(policies):
    """Cloning earns −14 here. S is safe and poor; O earns, and no threshold changes what either does."""
    earning, safe = (roll_out(policy, Lane(), (2.0, 12.0)) for policy in policies)
    assert earning.returns.mean() > 5.0
    assert earning.costs.mean() > 5.0, "no threshold is seen, so nothing keeps one"
    assert safe.costs.mean() < 0.5
    for episodes in (earning, safe):
        np.testing.assert_array_equal(episodes.returns[0], episodes.returns[1])


@pytest.mark.slow
def test_latents_stay_in_the_box(policies):
    """S with a box of no size decodes the latent 0; O moves no latent beyond the radius."""
    earning, safe = (policy.learned for policy in policies)
    features = jnp.asarray([0.3])
    point = dataclasses.replace(safe, radius=0.0)
    np.testing.assert_allclose(
        point.choose(features, None, jax.random.key(1)), safe.vae.decode(features, jnp.zeros(32)), rtol=1e-6
    )
    latent = earning.radius * earning.latents.sample(features, jax.random.key(1))
    assert jnp.abs(latent).max() <= np.float32(0.6)
    np.testing.assert_allclose(
        earning.choose(features, None, jax.random.key(1)), earning.vae.decode(features, latent), rtol=1e-6
    )


@pytest.mark.slow
def test_the_policy_files_act_the_same(policies, tmp_path):
    for policy in policies:
        policy.save(tmp_path / "policy.bcrl")
        again = bcrl.load(tmp_path / "policy.bcrl")
        assert again.method == policy.method
        before, after = (roll_out(p, Lane(), (2.0, 12.0)) for p in (policy, again))
        np.testing.assert_array_equal(before.returns, after.returns)
