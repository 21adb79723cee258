"""CCAC: the cost to go, losses by numpy, gradients by differences, two phases, and what it learns."""

import csv
import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from finite_differences import check_every_network, only_zeros, random_like
from forward import forward, forward_each
from lane import Lane, fit_lane
from made_up import six_transitions

import bcrl
from bcrl.assess.rollout import roll_out
from bcrl.data import Dataset
from bcrl.errors import BCRLError
from bcrl.learn.baselines import ccac
from bcrl.learn.baselines.ccac import CCAC, Sample
from bcrl.learn.networks import MLP
from bcrl.learn.protocol import Normaliser, Spec
from bcrl.learn.train_state import TrainState

SPEC = Spec(2, 2, 1, 20, (1.0,), 10)
METHOD = CCAC(hidden=(2,), latent=3, batch_size=6)
FAITHFUL = dataclasses.replace(METHOD, variant="faithful")
WARM_UP, ALL = METHOD.schedule
KEY = 5


def make_sample(method: CCAC = METHOD, span: float = 100.0) -> Sample:
    """Six transitions; pairs are clipped at ±span."""
    rng = np.random.default_rng(0)
    batch = six_transitions(rng, 2)
    kind = jax.dtypes.canonicalize_dtype(float)
    left = np.array([3.0, 0.0, 1.0, 5.0, 3.0, 2.0], kind)
    next_left = left - np.array([1.0, 0, 0, 5, 1, 1], kind)
    shown, next_shown = (ccac.show(x[:, None], method.faithful) for x in (left, next_left))
    return Sample(batch, left, shown, next_shown, 0.9 * left, jnp.full(4, -span), jnp.full(4, span))


def make_networks() -> dict:
    return random_like(jax.eval_shape(lambda: METHOD.init(jax.random.key(0), SPEC)).networks, seed=2)


def make_targets() -> MLP:
    """Away from the start of training, where they equal the critics."""
    return random_like(
        jax.eval_shape(lambda: METHOD.init(jax.random.key(0), SPEC)).targets["critics"], seed=3
    )


def losses(method: CCAC, networks: dict, sample: Sample):
    @jax.jit
    def loss(changed):
        return method.losses({**networks, **changed}, make_targets(), sample, jax.random.key(KEY), ALL)

    return loss


# ---- data -----------------------------------------------------------------------------------------------


def three_episodes() -> Dataset:
    """Of 3, 1 and 2 steps; the second ends by itself."""
    costs = np.array([1.0, 0.0, 2.5, 0.5, 0.0, 0.0])
    observations = np.arange(12.0).reshape(6, 2)
    return Dataset.from_arrays(
        {
            "observations": observations,
            "actions": np.linspace(-0.5, 0.5, 6)[:, None],
            "rewards": np.ones(6),
            "costs": costs,
            "next_observations": observations + 2,
            "terminals": [0, 0, 0, 1, 0, 0],
            "timeouts": [0, 0, 1, 0, 0, 1],
        }
    )


@pytest.mark.parametrize("method", [METHOD, FAITHFUL])
def test_columns_by_hand(method):
    log = three_episodes()
    arrays = method.prepare(log, Normaliser.of(log.observations))
    *_, bootstrap, left, next_left, limit = (np.asarray(x)[:, 0] for x in arrays.rows.take(np.arange(6)))
    np.testing.assert_array_equal(left, [3.5, 2.5, 2.5, 0.5, 0.0, 0.0])
    np.testing.assert_array_equal(next_left, [2.5, 2.5, 0.0, 0.0, 0.0, 0.0])
    np.testing.assert_array_equal(bootstrap, [1, 1, 0, 0, 1, 0])
    # The horizon is 3. Spread over the n steps left, 1 is worth (1 + γ + …)/n discounted.
    worth = np.array([1 + 0.99 + 0.99**2, 3 * (1 + 0.99) / 2, 3, 1 + 0.99 + 0.99**2, 1, 1]) / 3
    np.testing.assert_allclose(limit, left * (1.0 if method.faithful else worth), rtol=1e-6)
    np.testing.assert_allclose(np.asarray(arrays.low)[-1], -0.5, rtol=1e-6)
    np.testing.assert_allclose(np.asarray(arrays.high)[-1], 0.5, rtol=1e-6)
    sample = method.sample(arrays, jax.random.key(0))
    shown = sample.left if method.faithful else np.log1p(sample.left)
    np.testing.assert_allclose(sample.shown[:, 0], shown, rtol=1e-6)


# ---- losses ---------------------------------------------------------------------------------------------


def softplus(x):
    return np.log1p(np.exp(x))


def test_generator_loss_by_numpy(double):
    generator, sample, key = make_networks()["generator"], make_sample(span=0.3), jax.random.key(2)
    pairs = np.concatenate([sample.batch.features, sample.batch.action], 1)
    found, rebuilt = jax.jit(METHOD.generator_loss)(generator, pairs, sample, key)
    mean, log_std = np.split(
        np.asarray(forward(generator.encoder, np.concatenate([pairs, sample.shown], 1))), 2, 1
    )
    latent = mean + np.exp(log_std) * np.asarray(jax.random.normal(key, (6, 3)))
    raw = np.asarray(forward(generator.decoder, np.concatenate([latent, sample.shown], 1)))
    assert np.abs(raw).min() < 0.3 < np.abs(raw).max(), "some must be clipped for this test to say something"
    np.testing.assert_allclose(rebuilt, np.clip(raw, -0.3, 0.3), rtol=1e-10)
    kl = 0.5 * np.mean(mean**2 + np.exp(2 * log_std) - 1 - 2 * log_std)
    np.testing.assert_allclose(found, np.mean((np.clip(raw, -0.3, 0.3) - pairs) ** 2) + 0.5 * kl, rtol=1e-10)


def test_clipping_lets_gradients_through():
    slope = jax.grad(lambda x: ccac.clip_straight_through(x, -1.0, 1.0) ** 2)
    assert float(ccac.clip_straight_through(jnp.asarray(3.0), -1.0, 1.0)) == 1.0
    assert float(slope(3.0)) == 2.0


@pytest.mark.parametrize("method", [METHOD, FAITHFUL])
def test_classifier_loss_by_numpy(method, double):
    classifier, sample = make_networks()["classifier"], make_sample(method)
    pairs = np.concatenate([sample.batch.features, sample.batch.action], 1)
    rebuilt = 0.5 * pairs
    left = np.array([3.0, 0.0, 1.0, 5.0, 3.0, 2.0])
    reference = np.full(6, 3.0) if method.faithful else np.array([2.0, 3.0, 0.0, 1.0, 5.0, 3.0])
    more = [0, 0, 0, 1, 0, 0] if method.faithful else [1, 0, 1, 1, 0, 0]
    np.testing.assert_array_equal(left > reference, more)
    shown = (reference if method.faithful else np.log1p(reference))[:, None]
    total = 0.0
    for x in (pairs, rebuilt):
        chance = 1 / (1 + np.exp(-np.asarray(forward(classifier, np.concatenate([x, shown], 1)))[:, 0]))
        total += np.mean(-np.where(more, np.log(chance), np.log(1 - chance))) / 2
    found = jax.jit(method.classifier_loss)(classifier, pairs, rebuilt, sample)
    np.testing.assert_allclose(found, total, rtol=1e-10)


@pytest.mark.parametrize("method", [METHOD, FAITHFUL])
def test_agent_losses_by_numpy(method, double):
    networks, sample = make_networks(), make_sample(method)
    _, metrics = losses(method, networks, sample)({})
    batch, shown = sample.batch, np.asarray(sample.shown)
    _, make_key, act_key = jax.random.split(jax.random.key(KEY), 3)

    latent = np.clip(np.asarray(jax.random.normal(make_key, (6, 3))), -1, 1)
    made_up = np.asarray(forward(networks["generator"].decoder, np.concatenate([latent, shown], 1)))
    rows = np.concatenate([made_up, shown], 1)
    kept = np.asarray(forward(networks["classifier"], rows))[:, 0] > 0
    assert 0 < kept.sum() < 6, "some must be kept for this test to say something"

    states = np.concatenate([batch.features, shown], 1)
    next_states = np.concatenate([batch.next_features, sample.next_shown], 1)
    mean, log_std = map(np.asarray, forward(networks["actor"], np.concatenate([states, next_states])))
    drawn = np.tanh(mean + np.exp(log_std) * np.asarray(jax.random.normal(act_key, (12, 2))))

    def judge(critics, features, action, shown):
        q = np.asarray(forward_each(critics, np.concatenate([features, action, shown], 1)))[..., 0]
        return softplus(q[:4]) if method.faithful else q[:4], softplus(q[4:])

    next_q, next_q_c = judge(make_targets(), batch.next_features, drawn[6:], np.asarray(sample.next_shown))
    goal = batch.reward + 0.99 * batch.bootstrap * next_q.min(0)
    goal_c = batch.only_cost + 0.99 * batch.bootstrap * next_q_c.min(0)
    q, q_c = judge(networks["critics"], batch.features, batch.action, shown)
    made_over = judge(networks["critics"], made_up[:, :2], made_up[:, 2:], shown)[1].min(0) - sample.limit
    prices = np.exp(np.asarray(forward_each(networks["multipliers"], shown))[..., 0])
    worth, spent = (x.min(0) for x in judge(networks["critics"], batch.features, drawn[:6], shown))
    over = spent - sample.limit
    squares = [sum(np.sum(x[i] ** 2) for x in jax.tree.leaves(networks["multipliers"])) for i in (0, 1)]
    size = 0.0 if method.faithful else 1e-3 * np.mean(np.sum(mean[:6] ** 2 + log_std[:6] ** 2, 1))

    wanted = {
        "critic/loss": np.sum(np.mean((q - goal) ** 2, 1)),
        "cost/loss": np.sum(np.mean((q_c - goal_c) ** 2, 1)) - np.mean((prices[0] * made_over)[kept]),
        "policy/loss": np.mean(-worth + prices[1] * over) + size,
        "multipliers/loss": np.mean((prices[0] * made_over)[kept])
        - np.mean(prices[1] * over)
        + 0.01 * sum(squares),
    }
    for name, value in wanted.items():
        np.testing.assert_allclose(metrics[name], value, rtol=1e-9, err_msg=name)
    assert metrics["cost/made_up_share"] == np.float32(kept.mean())


def test_the_logarithms_of_multipliers_are_clipped():
    multipliers = jax.tree.map(lambda x: 0 * x, make_networks()["multipliers"])
    multipliers = eqx.tree_at(lambda m: m.biases[-1], multipliers, jnp.asarray([[9.0], [-99.0]]))
    made_price, price = jax.jit(METHOD.prices)(multipliers, make_sample().shown)
    np.testing.assert_allclose(made_price, np.exp(5.0), rtol=1e-6)
    np.testing.assert_allclose(price, np.exp(-20.0), rtol=1e-5)


def test_without_made_up_pairs_their_multiplier_rests(double):
    networks = make_networks()
    nothing = jnp.zeros(6, bool)

    def loss(multipliers):
        made_price, price = METHOD.prices(multipliers, make_sample().shown)
        return METHOD.multiplier_loss(multipliers, made_price, price, jnp.ones(6), jnp.ones(6), nothing)

    slope = jax.tree.map(np.asarray, jax.jit(jax.grad(loss))(networks["multipliers"]))
    first, second = (jax.tree.map(lambda x, i=i: x[i], slope) for i in (0, 1))
    assert only_zeros(first)
    assert not only_zeros(second)


@pytest.mark.slow
def test_gradients_reach_their_own_networks_alone(double):
    """The gradient is that of the sum of all losses; the differences are of each network's own losses."""
    trained = make_networks()
    own = {
        "generator": ("generator/loss",),
        "classifier": ("classifier/loss",),
        "critics": ("critic/loss", "cost/loss"),
        "actor": ("policy/loss",),
        "multipliers": ("multipliers/loss",),
    }
    loss = losses(METHOD, trained, make_sample())
    check_every_network(loss, trained, own, stacked=("critics", "multipliers"))


# ---- steps ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def steps():
    """A state, and what follows from it by a step of each phase and variant."""

    def after(method, parts):
        sample = jax.tree.map(jnp.float32, make_sample(method))
        update = jax.jit(method.update, static_argnums=(3, 4))
        return update(state, sample, jax.random.key(1), SPEC, parts)

    state = jax.jit(lambda: METHOD.init(jax.random.key(0), SPEC))()
    return state, {
        (m.variant, p): after(m, p) for m, p in ((METHOD, WARM_UP), (METHOD, ALL), (FAITHFUL, ALL))
    }


def moved(before: TrainState, after: TrainState, name: str) -> bool:
    pairs = zip(*(jax.tree.leaves(s.networks[name]) for s in (before, after)), strict=True)
    return any(not np.array_equal(x, y) for x, y in pairs)


@pytest.mark.slow
def test_the_warm_up_trains_the_generator_alone(steps):
    state, after = steps
    warm, metrics = after["fixed", WARM_UP]
    everything, all_metrics = after["fixed", ALL]
    assert {n for n in state.networks if moved(state, warm, n)} == {"generator", "classifier"}
    assert {n for n in state.networks if moved(state, everything, n)} == set(state.networks)
    assert metrics.keys() == all_metrics.keys(), "both phases fill the columns of one table"


@pytest.mark.slow
def test_targets_follow_slowly(steps):
    state, after = steps
    new = after["fixed", ALL][0]
    trees = (state.targets["critics"], new.networks["critics"], new.targets["critics"])
    for slow, fast, found in zip(*map(jax.tree.leaves, trees), strict=True):
        np.testing.assert_allclose(
            found, 0.995 * np.asarray(slow) + 0.005 * np.asarray(fast), rtol=1e-5, atol=1e-7
        )


@pytest.mark.slow
def test_as_released_the_multipliers_share_one_adam(steps):
    """It is stepped twice, each time with one net's gradient; the first net then drifts on by momentum."""
    _, after = steps
    counts = {v: int(after[v, ALL][0].moments["multipliers"][0].count) for v in ("fixed", "faithful")}
    assert counts == {"fixed": 1, "faithful": 2}
    first, second = ccac.one_after_another({"x": jnp.asarray([[1.0, 2.0], [3.0, 4.0]])})
    np.testing.assert_array_equal(first["x"], [[1.0, 2.0], [0.0, 0.0]])
    np.testing.assert_array_equal(second["x"], [[0.0, 0.0], [3.0, 4.0]])


@pytest.mark.parametrize(
    ("name", "value"), [("actor_rate", 0.0), ("multiplier_rate", -1.0), ("latent", 0), ("reward_scale", 0.0)]
)
def test_a_bad_option_is_named(name, value):
    with pytest.raises(BCRLError, match=name):
        CCAC(**{name: value})


# ---- acting and learning --------------------------------------------------------------------------------


@pytest.mark.parametrize("method", [METHOD, FAITHFUL])
def test_the_actor_is_told_what_is_left(method, tmp_path):
    state = jax.jit(lambda: method.init(jax.random.key(3), SPEC))()
    normaliser = Normaliser(jnp.asarray([1.0, 0.0]), jnp.asarray([2.0, 1.0]))
    actor = method.actor(state, None, normaliser, SPEC)
    bcrl.Policy(actor, method, SPEC, {}).save(tmp_path / "policy.bcrl")
    policy = bcrl.load(tmp_path / "policy.bcrl")
    assert policy.method == method
    observation = np.array([0.5, -1.0], np.float32)
    seen = observation if method.faithful else (observation - [1.0, 0.0]) / [2.0, 1.0]
    mode = jax.jit(lambda policy, x: policy.mode(x))
    episode = policy.start(threshold=1.25)
    for left in (1.25, 0.75, 0.0):  # overspent by 0.25 in the end
        shown = left if method.faithful else np.log1p(left)
        wanted = mode(actor.policy, np.asarray([*seen, shown], np.float32))
        np.testing.assert_allclose(episode.act(observation), wanted, rtol=1e-5)
        episode.observe(0.5 if left == 1.25 else 1.0)
    with pytest.raises(BCRLError, match="ccac tracks no budget"):
        policy.start(budget=1.0)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    method = CCAC(
        hidden=(32, 32),
        batch_size=64,
        reward_scale=1.0,
        gamma=0.9,
        target_rate=0.02,
        actor_rate=1e-3,
        multiplier_rate=3e-4,
    )
    out = tmp_path_factory.mktemp("runs") / "ccac"
    return fit_lane(method, steps=2400, seeds=(0, 1, 2), out=out, log_every=800)


@pytest.mark.slow
def test_learns_to_spend_what_it_is_told(trained):
    """Cloning earns −14 here, at any threshold.

    Multipliers and actor chase each other for long before they settle, and not for every seed at the same
    time: so the middle one of three seeds counts.
    """
    episodes = [roll_out(trained.policy(seed), Lane(), (2.0, 6.0, 12.0)) for seed in trained.seeds]
    returns = np.median([e.returns.mean(axis=1) for e in episodes], axis=0)
    costs = np.median([e.costs.mean(axis=1) for e in episodes], axis=0)
    assert returns[1] > 0.0
    assert returns[2] > 6.0
    assert np.all(costs < np.array([2.0, 6.0, 12.0]) + 3.0)
    assert costs[2] - costs[0] > 6.0


@pytest.mark.slow
def test_the_folder_of_a_run_keeps_both_phases(trained):
    with open(trained.folder / "metrics.csv", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["seed"] == "1"]
    assert [row["step"] for row in rows] == ["800", "1600", "2400", "3200", "4000", "4800"]
    assert [float(row["policy/loss"]) == 0.0 for row in rows] == [True] * 3 + [False] * 3
    before, after = (
        roll_out(policy, Lane(), (2.0, 6.0, 12.0))
        for policy in (trained.policy(1), bcrl.load(trained.folder / "policy-1.bcrl"))
    )
    np.testing.assert_array_equal(before.returns, after.returns)
