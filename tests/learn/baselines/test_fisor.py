"""FISOR: its weights, losses and diffusion by numpy, its gradients by differences, and what it learns."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from finite_differences import check_every_leaf, check_every_network, random_like
from lane import Lane, fit_lane, lane_log
from made_up import step_size_after

import bcrl
from bcrl.assess.rollout import roll_out
from bcrl.errors import BCRLError
from bcrl.learn.baselines.diffusion import Diffusion
from bcrl.learn.baselines.fisor import FISOR
from bcrl.learn.batch import Batch
from bcrl.learn.networks import apply_each
from bcrl.learn.protocol import Normaliser, Spec
from bcrl.learn.registry import make_method
from bcrl.learn.train_state import TrainState

SPEC = Spec(2, 2, 1, 20, (1.0,), 10)
METHOD = FISOR(hidden=(4,), batch_size=6, critic_batch=4, policy_width=4, policy_blocks=2)
FAITHFUL = dataclasses.replace(METHOD, variant="faithful")


def make_networks(method: FISOR = METHOD) -> tuple[dict, dict]:
    """Networks and target networks, away from the start of training, where they are equal."""
    shapes = jax.eval_shape(lambda: method.init(jax.random.key(0), SPEC))
    return random_like(shapes.networks, seed=4), random_like(shapes.targets, seed=7)


def make_batch() -> Batch:
    rng = np.random.default_rng(0)
    return Batch(
        features=jnp.asarray(rng.normal(size=(6, 2))),
        action=jnp.asarray(rng.uniform(-1, 1, (6, 2))),
        reward=jnp.asarray(rng.normal(size=6)),
        cost=jnp.asarray([[0.0], [1.0], [0.0], [0.2], [0.0], [0.0]]),
        next_features=jnp.asarray(rng.normal(size=(6, 2))),
        bootstrap=jnp.asarray([1.0, 1, 0, 1, 1, 1]),
    )


def test_feasibility_by_hand():
    method = dataclasses.replace(METHOD, gamma=0.9)
    cost, bootstrap = jnp.asarray([0.0, 0.0, 0.3, 0.0, 2.0]), jnp.asarray([1.0, 1.0, 1.0, 0.0, 0.0])
    found = method.feasibility(cost, bootstrap, jnp.asarray([-2.0, 10.0, 10.0, 10.0, 10.0]))
    np.testing.assert_allclose(found, [-1.0, -0.1 + 9.0, 25.0, -1.0, 25.0], rtol=1e-6)


def test_weights_by_hand():
    """Not feasible: by what feasibility an action gains. Feasible: by reward, and nothing if it leads out."""
    advantage = jnp.asarray([0.5, 0.5, 9.0, 0.5, 0.0])
    v_h, q_h = jnp.asarray([1.0, -0.5, -0.5, -0.5, 2.0]), jnp.asarray([0.8, -0.1, 0.0, 0.1, 9.0])
    wanted = [np.exp(5 * 0.2), np.exp(3 * 0.5), 100.0, 0.0, np.exp(-35.0)]
    np.testing.assert_allclose(METHOD.weight(advantage, q_h, v_h), wanted, rtol=1e-5)
    assert float(METHOD.weight(advantage, jnp.full(5, -9.0), v_h)[0]) == 150.0
    drive = make_method("fisor", family="metadrive")
    np.testing.assert_allclose(drive.weight(advantage, q_h, v_h), [*wanted[:4], 1.0], rtol=1e-5)


def test_critic_losses_by_numpy(double):
    (networks, targets), batch = make_networks(), make_batch()
    networks["values"] = jax.tree.map(lambda x: 3 * x, networks["values"])
    trained = {name: networks[name] for name in ("values", "critics")}
    total, metrics = jax.jit(METHOD.critic_losses)(trained, targets, batch)
    pairs = np.concatenate([batch.features, batch.action], 1)
    slow, fast = (np.asarray(apply_each(n["critics"], pairs))[..., 0] for n in (targets, networks))
    q, q_h = slow[:2].min(0), slow[2:].max(0)
    v, v_h = np.asarray(apply_each(networks["values"], batch.features))[..., 0]
    next_v, next_v_h = np.asarray(apply_each(networks["values"], batch.next_features))[..., 0]
    h = np.array([-1.0, 25.0, -1.0, 25.0, -1.0, -1.0])
    assert np.any((next_v_h > h)[np.asarray(batch.bootstrap) > 0]), "else nothing is carried back"
    goal = batch.reward + 0.99 * batch.bootstrap * next_v
    goal_h = np.where(batch.bootstrap > 0, 0.01 * h + 0.99 * np.maximum(h, next_v_h), h)
    wanted = {
        "reward/value_loss": np.mean(np.where(q < v, 0.1, 0.9) * (q - v) ** 2),
        "reward/critic_loss": np.mean((fast[:2] - goal) ** 2),
        "safety/value_loss": np.mean(np.where(q_h < v_h, 0.9, 0.1) * (q_h - v_h) ** 2),
        "safety/critic_loss": np.mean((fast[2:] - goal_h) ** 2),
    }
    for name, value in wanted.items():
        np.testing.assert_allclose(metrics[name], value, rtol=1e-10, err_msg=name)
    np.testing.assert_allclose(total, sum(wanted.values()), rtol=1e-10)


def test_gradients_reach_their_own_networks_alone(double):
    (networks, targets), batch = make_networks(), make_batch()
    trained = {name: networks[name] for name in ("values", "critics")}

    own = {
        "values": ("reward/value_loss", "safety/value_loss"),
        "critics": ("reward/critic_loss", "safety/critic_loss"),
    }
    check_every_network(lambda networks: METHOD.critic_losses(networks, targets, batch), trained, own)


def test_policy_gradient(double):
    """With dropout and its own noise, the same for the same key."""
    policy, batch, weight = make_networks()[0]["policy"], make_batch(), jnp.asarray([1.0, 0, 2, 0.5, 1, 3])

    def loss(policy):
        return METHOD.policy_loss(policy, batch.features, batch.action, weight, jax.random.key(4))

    check_every_leaf(policy, loss, jax.jit(jax.grad(loss))(policy))


def plain_predictor(policy, x, noisy, time):
    """One row at a time."""

    def mish(x):
        return x * np.tanh(np.log1p(np.exp(x)))

    def mlp(layers, x, number=None):
        weights, biases = (
            [np.asarray(p if number is None else p[number]) for p in ps]
            for ps in (layers.weights, layers.biases)
        )
        for weight, bias in zip(weights[:-1], biases[:-1], strict=True):
            x = mish(x @ weight + bias)
        return x @ weights[-1] + biases[-1]

    rows = []
    for state, action, t in zip(x, noisy, time, strict=True):
        phase = 2 * np.pi * t * np.asarray(policy.frequencies)
        when = mlp(policy.time, np.concatenate([np.cos(phase), np.sin(phase)]))
        y = mlp(policy.first, np.concatenate([action, state, when]))
        for number in range(len(policy.scale)):
            normal = (y - y.mean()) / np.sqrt(y.var() + 1e-6)
            y = y + mlp(policy.blocks, normal * policy.scale[number] + policy.offset[number], number)
        rows.append(mlp(policy.last, mish(y)))
    return np.stack(rows)


def test_the_policy_loss_by_numpy(double):
    """A network that is asked for the noise at its own time step, without dropout."""
    method = dataclasses.replace(METHOD, dropout=0.0)
    policy, batch = make_networks(method)[0]["policy"], make_batch()
    weight, key = np.array([1.0, 0, 2, 0.5, 1, 3]), jax.random.key(7)
    found = jax.jit(method.policy_loss)(policy, batch.features, batch.action, weight, key)
    time_key, noise_key, _ = jax.random.split(key, 3)
    time = np.asarray(jax.random.randint(time_key, (6,), 0, 5))
    noise = np.asarray(jax.random.normal(noise_key, (6, 2)))
    kept = np.cumprod(1 - Diffusion(5).betas)[time][:, None]
    noisy = np.sqrt(kept) * batch.action + np.sqrt(1 - kept) * noise
    error = plain_predictor(policy, *map(np.asarray, (batch.features, noisy)), time) - noise
    np.testing.assert_allclose(found, np.mean(weight * (error**2).sum(1)), rtol=1e-9)


def test_few_times_at_once():
    """In float32, the first layer split by input agrees with the whole one."""
    method = dataclasses.replace(METHOD, dropout=0.0)
    policy = jax.tree.map(jnp.float32, make_networks(method)[0]["policy"])
    batch, time = jax.tree.map(jnp.float32, make_batch()), jnp.asarray([0, 4, 2, 2, 1, 3])
    found = policy.in_training(batch.features, batch.action, time, jax.random.key(0), 5)
    np.testing.assert_allclose(found, policy(batch.features, batch.action, time), rtol=1e-5, atol=1e-5)
    dropping = jax.tree.map(jnp.float32, make_networks(METHOD)[0]["policy"])
    one, other = (
        dropping.in_training(batch.features, batch.action, time, jax.random.key(seed), 5) for seed in (0, 1)
    )
    assert np.abs(one - other).max() > 1e-3, "other entries are dropped"


def test_the_schedule_by_hand():
    """Five steps: the noise of a step grows, and hardly anything of an action is left at the end."""
    betas = Diffusion(5).betas
    np.testing.assert_allclose(betas[0], 1 - np.exp(-0.02 - 4.95 / 25), rtol=1e-12)
    np.testing.assert_allclose(betas[4], 1 - np.exp(-0.02 - 4.95 * 9 / 25), rtol=1e-12)
    np.testing.assert_allclose(Diffusion(5).kept[-1], np.exp(-0.1 - 4.95), rtol=1e-12)


def mild(policy):
    """One that finds little noise: else every action ends at the border."""
    return jax.tree.map(lambda p: 0.3 * p, policy)


def test_drawing_by_numpy(double):
    policy, x = mild(make_networks()[0]["policy"]), make_batch().features
    diffusion, key = Diffusion(3), jax.random.key(3)
    noise = np.asarray(jax.random.normal(key, (4, 6, 2)))
    action = noise[3]
    for t in (2, 1, 0):
        beta, kept = diffusion.betas[t], np.prod(1 - diffusion.betas[: t + 1])
        error = plain_predictor(policy, np.asarray(x), action, np.full(6, t))
        action = (action - beta / np.sqrt(1 - kept) * error) / np.sqrt(1 - beta)
        action = np.clip(action + (np.sqrt(beta) * noise[t] if t else 0.0), -1, 1)
    assert np.sum(np.abs(action) < 1) >= 2
    np.testing.assert_allclose(jax.jit(diffusion.sample)(policy, x, key), action, rtol=1e-9, atol=1e-12)


@pytest.mark.slow
def test_one_step():
    """Types stay; the policy takes two steps and its slow copy follows; few rows train the critics."""
    shape = jax.eval_shape(lambda: METHOD.init(jax.random.key(0), SPEC))
    networks, targets = jax.tree.map(jnp.float32, make_networks())
    targets["policy"] = networks["policy"]
    moments = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shape.moments)
    state = TrainState(networks, targets, moments)
    batch = jax.tree.map(jnp.float32, make_batch())
    update = jax.jit(lambda s, b: METHOD.update(s, b, jax.random.key(1), SPEC, ("all",)))
    after, metrics = update(state, batch)
    for one, other in zip(jax.tree.leaves(shape), jax.tree.leaves(after), strict=True):
        assert (one.shape, one.dtype, one.weak_type) == (other.shape, other.dtype, other.weak_type)
    assert int(after.moments["policy"][0].count) == 2
    assert int(after.moments["values"][0].count) == 1
    for old, fast, slow in zip(
        *map(
            jax.tree.leaves, (state.targets["critics"], after.networks["critics"], after.targets["critics"])
        ),
        strict=True,
    ):
        np.testing.assert_allclose(slow, 0.995 * old + 0.005 * fast, rtol=1e-5, atol=1e-7)
    moved = [
        np.abs(slow - old).max() / np.abs(fast - old).max()
        for old, fast, slow in zip(
            *map(
                jax.tree.leaves,
                (state.networks["policy"], after.networks["policy"], after.targets["policy"]),
            ),
            strict=True,
        )
    ]
    # After one step a thousandth of the way, after the second another of what is twice as far.
    np.testing.assert_allclose(moved, 0.0015, rtol=0.2)
    other = dataclasses.replace(batch, reward=batch.reward.at[4:].add(9.0))
    assert float(update(state, other)[1]["reward/critic_loss"]) == float(metrics["reward/critic_loss"])
    other = dataclasses.replace(batch, reward=batch.reward.at[3].add(9.0))
    assert float(update(state, other)[1]["reward/critic_loss"]) != float(metrics["reward/critic_loss"])


def test_learning_rates():
    fixed, released = (method.policy_optimiser(SPEC)["policy"] for method in (METHOD, FAITHFUL))
    assert step_size_after(fixed, 2 * SPEC.steps) == 0.0
    assert step_size_after(released, 1_500_000) == pytest.approx(1.5e-4)


def test_prepared_rows():
    log = lane_log(episodes=30)
    normaliser = Normaliser.of(log.observations)
    fixed, released = (method.prepare(log, normaliser).table for method in (METHOD, FAITHFUL))
    scale = 20 / (log.episode_returns.max() - log.episode_returns.min())
    np.testing.assert_allclose(fixed[:, 2], scale * log.rewards, rtol=1e-5)
    given = dataclasses.replace(METHOD, return_range=4.0).prepare(log, normaliser).table
    np.testing.assert_allclose(given[:, 2], 5 * log.rewards, rtol=1e-5)
    np.testing.assert_allclose(released[:, 0], log.observations[:, 0], rtol=1e-6)
    np.testing.assert_allclose(np.mean(fixed[:, 0]), 0.0, atol=1e-5)
    with pytest.raises(BCRLError, match="return_range"):
        METHOD.prepare(dataclasses.replace(log, rewards=np.ones(len(log))), normaliser)


def test_acting_takes_the_safest_of_the_drawn():
    networks, targets = jax.tree.map(jnp.float32, make_networks())
    targets["policy"] = mild(targets["policy"])
    actor = METHOD.actor(TrainState(networks, targets, {}), None, Normaliser(jnp.zeros(2), jnp.ones(2)), SPEC)
    episode = bcrl.Policy(actor, METHOD, SPEC, {}).start(threshold=1.0)
    observation = np.array([0.3, -0.2], np.float32)
    key = jax.random.fold_in(episode.memory.key, 0)
    rows = np.tile(observation, (16, 1))
    drawn = np.asarray(jax.jit(Diffusion(5).sample)(targets["policy"], rows, key))
    assert len(np.unique(drawn[:, 0])) > 5
    danger = np.asarray(apply_each(targets["critics"], np.concatenate([rows, drawn], 1)))[2:, :, 0].max(0)
    np.testing.assert_allclose(episode.act(observation), drawn[np.argmin(danger)], rtol=1e-5)
    episode.observe(0.0)
    assert not np.array_equal(episode.act(observation), drawn[np.argmin(danger)]), "noise is fresh each step"


@pytest.fixture(scope="module")
def trained():
    """Sharper by reward and quicker to forget than the defaults, for a short training."""
    method = FISOR(
        hidden=(32, 32),
        batch_size=128,
        policy_width=32,
        policy_blocks=1,
        learning_rate=1e-3,
        gamma=0.9,
        target_rate=0.05,
        slow_rate=0.01,
        return_range=5.0,
    )
    return fit_lane(method, steps=3000)


@pytest.mark.slow
def test_earns_without_any_cost(trained):
    """Cloning earns −14 and costs; the constraint is a hard one, so thresholds make no difference."""
    episodes = roll_out(trained.policy(), Lane(), (2.0, 12.0))
    returns, costs = episodes.returns.mean(axis=1), episodes.costs.mean(axis=1)
    assert returns[0] == returns[1]
    # Five seeds reached 1.0…3.0 and no cost: taking the safest of 16 actions keeps far from the border.
    assert returns[0] > 0.3
    assert costs[0] < 0.3


@pytest.mark.slow
def test_the_policy_file_acts_the_same(trained, tmp_path):
    policy = trained.policy()
    policy.save(tmp_path / "policy.bcrl")
    again = bcrl.load(tmp_path / "policy.bcrl")
    assert again.method == policy.method
    before, after = (roll_out(p, Lane(), (2.0, 12.0)) for p in (policy, again))
    np.testing.assert_array_equal(before.returns, after.returns)
    np.testing.assert_array_equal(before.costs, after.costs)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("batch_size", 1),
        ("critic_batch", 0),
        ("candidates", 2.5),
        ("escape_beta", 0.0),
        ("return_range", -1.0),
        ("dropout", 1.0),
        ("expectile", 1.5),
        ("least_escape_weight", -1.0),
    ],
)
def test_a_bad_option_is_named(name, value):
    with pytest.raises(BCRLError, match=name) as refused:
        FISOR(**{name: value})
    assert "\n" not in str(refused.value)
