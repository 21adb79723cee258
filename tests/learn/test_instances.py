"""BCRL's instances: regressions by the textbook and to exact fixed points, learning, options."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from known_mdp import ACTIONS, CODES, STATES, Table, evaluate, learned_costs, make_log
from lane import Lane, fit_lane

import bcrl
from bcrl.assess.rollout import roll_out
from bcrl.cli.arguments import parse
from bcrl.cli.train import command_for
from bcrl.errors import BCRLError
from bcrl.learn.bcrl import BCRL
from bcrl.learn.bcrl_td3 import BCRLTD3
from bcrl.learn.losses import (
    expectile_loss,
    gumbel_weight,
    joint_loss,
    sparse_advantage_weight,
    sparse_weight,
    spread,
)
from bcrl.learn.protocol import Spec, blank_actor
from bcrl.learn.registry import make_method
from bcrl.policy import Policy

relaxed = settings(max_examples=30)
gaps = np.array([-3.0, -0.4, -1e-5, 0.0, 2e-4, 0.5, 2.0])
values = arrays(np.float32, 6, elements=st.floats(-5, 5, width=32))
temperatures = st.sampled_from([0.2, 1.0, 5.0])


def root(rising, low: float, high: float) -> float:
    """Where a rising function is zero, by bisection."""
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (low, middle) if rising(middle) > 0 else (middle, high)
    return low


# ---- the regressions --------------------------------------------------------------------------------


def test_the_gumbel_weight_gives_the_slope_of_gumbel_regression():
    for beta in (0.3, 2.0):
        z = gaps / beta
        scale = np.exp(-max(z.max(), -1.0))
        # d/dV of e^z − z − 1 is −(e^z − 1)/β; in units of u² that is times β², and all by the same scale.
        np.testing.assert_allclose(gumbel_weight(gaps, beta) * gaps, beta * scale * np.expm1(z), rtol=1e-3)
    np.testing.assert_allclose(gumbel_weight(jnp.zeros(3), 1.0), 1.0)
    # All far below V: without a floor for m the scale would be e^50.
    low = gumbel_weight(jnp.asarray([-50.0, -60.0]), 1.0)
    np.testing.assert_allclose(low, [np.e / 50, np.e / 60], rtol=1e-5)


@pytest.mark.parametrize("limit", [None, 5.0])
def test_the_gumbel_weight_is_finite_whatever_the_difference(limit):
    weight = np.asarray(gumbel_weight(jnp.asarray([-1e6, -1.0, 0.0, 1e-6, 1.0, 1e6]), 0.1, limit))
    assert np.all(np.isfinite(weight))
    assert np.all(weight >= 0)
    assert weight.max() > 0


def test_beyond_its_limit_a_sample_pulls_no_harder_and_is_not_dropped():
    difference = jnp.asarray([-1.0, 2.0, 5.0, 50.0])
    pull = gumbel_weight(difference, 1.0, 5.0) * difference
    np.testing.assert_allclose(pull, np.exp(-5) * np.expm1([-1.0, 2.0, 5.0, 5.0]), rtol=1e-5)


def test_the_sparse_weight_gives_the_slope_of_sparse_regression():
    for alpha in (0.1, 1.0):
        t = 1 + gaps / (2 * alpha)
        # d/dV of 1[t > 0] t² + V/α is −(max(t, 0) − 1)/α.
        pull = 2 * alpha * (np.maximum(t, 0) - 1)
        np.testing.assert_allclose(sparse_weight(gaps, alpha) * gaps, pull, rtol=1e-5, atol=1e-7)


@relaxed
@given(values, temperatures)
def test_gumbel_regression_is_least_at_the_soft_maximum(q, beta):
    wanted = beta * np.log(np.mean(np.exp((q.astype(float) - q.max()) / beta))) + q.max()
    assert np.mean(np.exp((q - wanted) / beta)) == pytest.approx(1.0)

    def slope(v):
        difference = jnp.asarray(q) - v
        return jax.grad(lambda d: joint_loss(d[:, None], gumbel_weight(difference, beta)))(difference).sum()

    width = float(np.ptp(q)) + 1e-2
    assert slope(wanted - 0.1 * width) > 0 > slope(wanted + 0.1 * width)
    np.testing.assert_allclose(slope(wanted), 0.0, atol=1e-4 * width)


@relaxed
@given(values, temperatures)
def test_sparse_regression_is_least_where_the_mean_of_t_is_one(q, alpha):
    wanted = root(
        lambda v: 1 - np.mean(np.maximum(1 + (q.astype(float) - v) / (2 * alpha), 0)),
        q.min() - 1,
        q.max() + 1,
    )

    def slope(v):
        difference = jnp.asarray(q) - v
        return jax.grad(lambda d: joint_loss(d[:, None], sparse_weight(difference, alpha)))(difference).sum()

    width = float(np.ptp(q)) + 1e-2
    assert slope(wanted - 0.1 * width) > 0 > slope(wanted + 0.1 * width)
    np.testing.assert_allclose(slope(wanted), 0.0, atol=1e-4 * width)


def minimiser(method: BCRL, part: str, q: np.ndarray) -> float:
    """The V at which the method's own value loss is least."""
    rule = method.cost_rule if part == "cost" else method.reward_rule

    @jax.jit
    def slope(v):
        return jax.grad(lambda v: rule.value_loss((q - v)[:, None], jnp.ones(1)))(v)

    return root(lambda v: float(slope(jnp.asarray(v))), float(q.min()) - 1, float(q.max()) + 1)


@pytest.mark.parametrize("regression", ["gumbel", "sparse"])
def test_value_losses_range_from_the_mean_to_the_best_and_costs_mirror_rewards(regression):
    q = np.random.default_rng(0).normal(size=40)

    def method(temperature, unit="raw"):
        return BCRL(
            cost_regression=regression,
            reward_regression=regression,
            temperature_c=temperature,
            temperature_r=temperature,
            temperature_unit=unit,
            exponent_limit=None,
        )

    with jax.enable_x64(True):
        assert minimiser(method(1e3), "reward", q) == pytest.approx(q.mean(), abs=2e-3)
        assert minimiser(method(1e-4), "reward", q) == pytest.approx(q.max(), abs=1e-2)
        assert minimiser(method(1e-4), "cost", q) == pytest.approx(q.min(), abs=1e-2)
        middle = minimiser(method(0.5), "reward", q)
        if regression == "gumbel":
            assert middle == pytest.approx(0.5 * np.log(np.mean(np.exp(q / 0.5))), abs=1e-6)
        assert minimiser(method(0.5), "cost", -q) == pytest.approx(-middle, abs=1e-6)
        # In spreads, another unit or another zero of reward changes nothing but V's own.
        relative = minimiser(method(0.5, "spread"), "reward", q)
        assert minimiser(method(0.5, "spread"), "reward", 1000 * q + 7) == pytest.approx(
            1000 * relative + 7, rel=1e-4
        )
        assert minimiser(method(0.5), "reward", 1000 * q) != pytest.approx(1000 * middle, rel=0.1)


@pytest.mark.parametrize(("regression", "taus"), [("gumbel", (0.7, 0.8)), ("sparse", (0.5, 0.6))])
def test_default_temperatures_are_as_greedy_as_these_expectiles(regression, taus):
    """For normally distributed Q, as docs/instances.md says."""
    q = np.random.default_rng(1).normal(size=4000)
    with jax.enable_x64(True):
        found = minimiser(BCRL(reward_regression=regression), "reward", q)
        low, high = (minimiser(BCRL(tau_r=tau), "reward", q) for tau in taus)
    assert low < found < high


@pytest.mark.parametrize("regression", ["gumbel", "sparse"])
def test_several_costs_share_one_weight(regression):
    """Σ ω V is the regression of Σ ω Q, and every V_i the mean of Q_i under the same policy."""
    method = BCRL(cost_regression=regression, temperature_c=0.3, temperature_unit="raw", exponent_limit=None)
    q, omega = np.random.default_rng(2).random((30, 2)), np.array([1.0, 0.5])
    with jax.enable_x64(True):
        loss = jax.jit(jax.value_and_grad(lambda v: method.cost_rule.value_loss(q - v, jnp.asarray(omega))))
        v = jnp.zeros(2)
        for _ in range(4000):
            v = v - 0.2 * loss(v)[1]
        difference = (v - q) @ omega
        weight = gumbel_weight(difference, 0.3) if regression == "gumbel" else sparse_weight(difference, 0.3)
        np.testing.assert_allclose(v, weight @ q / weight.sum(), rtol=1e-6)
        single = dataclasses.replace(method)
        assert float(v @ omega) == pytest.approx(minimiser(single, "cost", q @ omega), rel=1e-6)


def test_sparse_extraction_by_hand():
    advantage = jnp.asarray([-3.0, -0.5, 0.0, 0.5, 1e6])
    np.testing.assert_allclose(
        sparse_advantage_weight(advantage, 0.5, 100.0, "above"), [0, 0, 0, 0.5, 100], rtol=1e-6
    )
    np.testing.assert_allclose(
        sparse_advantage_weight(advantage, 0.5, 100.0, "support"), [0, 0.5, 1, 1.5, 100], rtol=1e-6
    )
    # The rule belongs to the regression: mixed instances clone each by its own.
    mixed = BCRL(cost_regression="sparse", temperature_c=0.5, temperature_unit="raw", beta=2.0)
    small = advantage[:4]
    np.testing.assert_allclose(mixed.cost_rule.weight(small), [0, 0, 0, 0.5], rtol=1e-6)
    np.testing.assert_allclose(mixed.reward_rule.weight(small), np.exp(2 * small), rtol=1e-6)
    np.testing.assert_allclose(spread(jnp.asarray([3.0, -4.0])), np.sqrt(12.5), rtol=1e-5)


# ---- exact fixed points -----------------------------------------------------------------------------

GAMMA_COST = 0.8
OMEGA = (1.0, 3.0)


def fixed_point(table: Table, share: np.ndarray, method: BCRL, omega: np.ndarray):
    """V (k, S) and Q (k, S, A) that the regression of `method` must reach, and its base policy, in tables.

    `share` is how often the log visits each state: the spread is taken over the whole log.
    """
    value = np.zeros((len(table.costs), STATES))
    for _ in range(100_000):
        critic = table.costs + GAMMA_COST * np.einsum("ijk,ck->cij", table.moves, value)
        saved = np.einsum("c,cij->ij", omega, value[..., None] - critic)
        unit = 1.0
        if method.temperature_unit == "spread":
            unit = np.sqrt(np.sum(share[:, None] * table.behaviour * saved**2))
        z = saved / (method.temperature_c * unit)
        if method.cost_regression == "gumbel":
            capped = z if method.exponent_limit is None else np.minimum(z, method.exponent_limit)
            weight = np.where(np.abs(z) < 1e-9, 1.0, np.expm1(capped) / np.where(z == 0, 1.0, z))
        else:
            t = 1 + z / 2
            weight = np.where(np.abs(z) < 1e-9, 1.0, (np.maximum(t, 0) - 1) / np.where(z == 0, 1.0, z / 2))
        base = table.behaviour * weight
        base /= base.sum(1, keepdims=True)
        new = np.einsum("ij,cij->ci", base, critic)
        if np.abs(new - value).max() < 1e-12:
            return value, critic, base
        value = (value + new) / 2
    raise AssertionError("the fixed point was not reached")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("k", "options"),
    [
        (
            1,
            {
                "cost_regression": "gumbel",
                "temperature_c": 0.3,
                "temperature_unit": "raw",
                "exponent_limit": None,
                "batch_size": 128,
            },
        ),
        (2, {"cost_regression": "sparse", "temperature_c": 0.2, "batch_size": 512}),
    ],
)
def test_learned_cost_critics_are_the_fixed_point(k, options):
    data, table = make_log(k)
    omega = np.array(OMEGA[:k])
    method = BCRL(
        **options,
        gamma_cost=GAMMA_COST,
        cost_weights=OMEGA[:k],
        hidden=(32,),
        learning_rate=1e-3,
        target_rate=0.02,
    )
    actor = learned_costs(data, method, steps=4_000)

    share = data.observations.mean(0)
    value, critic, base = fixed_point(table, share, method, omega)
    np.testing.assert_allclose(
        value, evaluate(table, base, GAMMA_COST), rtol=1e-8
    )  # one policy for all costs
    features = actor.normaliser(jnp.eye(STATES))
    pairs = jnp.repeat(features, ACTIONS, axis=0), jnp.tile(jnp.asarray(CODES, jnp.float32), (STATES, 1))
    np.testing.assert_allclose(np.asarray(actor.least_cost(features)).T, value, rtol=0.02)
    np.testing.assert_allclose(
        np.asarray(actor.cost_to_go(*pairs)).T.reshape(critic.shape), critic, rtol=0.02
    )
    # It is not the log's own cost: that is farther away than the tolerance.
    own = evaluate(table, table.behaviour, GAMMA_COST)
    assert np.min(omega @ own / (omega @ value)) > 1.05
    if k == 1 and method.cost_regression == "gumbel":
        soft = -0.3 * np.log(np.sum(table.behaviour * np.exp(-critic[0] / 0.3), axis=1))
        np.testing.assert_allclose(value[0], soft, rtol=1e-8)


# ---- learning ---------------------------------------------------------------------------------------

LEARNERS = {
    "bcrl-xql": {},
    "bcrl-sparse": {},
    "bcrl": {"cost_regression": "sparse", "reward_regression": "gumbel"},
    "bcrl-td3bc": {"greed": 5.0},
    "bcrl-gradient": {},
}


@pytest.fixture(scope="module", params=LEARNERS)
def lane_policy(request):
    options = {"hidden": (32, 32), "batch_size": 128, "learning_rate": 1e-3, **LEARNERS[request.param]}
    method = make_method(request.param, preset="cpu", family="point", **options)
    return fit_lane(method, long=False, steps=1_500, log_every=1_500).policy()


@pytest.mark.slow
def test_every_instance_learns_to_earn_within_its_budget(lane_policy, tmp_path):
    """Cloning the log earns −14. What is right of the border earns more and costs."""
    episodes = roll_out(lane_policy, Lane(), (2.0, 6.0, 12.0))
    returns, costs = episodes.returns.mean(1), episodes.costs.mean(1)
    assert np.all(returns > [2.0, 4.0, 8.0])
    assert np.all(costs < [2.5, 6.5, 12.5])
    assert costs[0] + 5 < costs[2]

    lane_policy.save(tmp_path / "policy.bcrl")
    again = bcrl.load(tmp_path / "policy.bcrl")
    assert again.method == lane_policy.method
    seen = np.linspace(-1, 1, 7, dtype=np.float32)[:, None]
    actions = [policy.start(threshold=np.full(7, 4.0)).act(seen) for policy in (lane_policy, again)]
    np.testing.assert_array_equal(*actions)
    assert again.actor.guarded  # each action is asked whether it is safe


@pytest.mark.slow
def test_a_guarded_actor_replaces_an_unsafe_action_by_the_fallback():
    method, spec = BCRLTD3(hidden=(8,), fallback_draws=0), Spec(3, 2, 1, 20, (1.0,), 1)
    policy = Policy(blank_actor(method, spec), method, spec, {})  # any parameters will do
    seen = np.random.default_rng(0).normal(size=(64, 3), scale=3.0).astype(np.float32)
    thresholds = np.linspace(0.2, 3.0, 64)
    free = Policy(dataclasses.replace(policy.learned, guarded=False), method, policy.spec, {})
    one, two, three = (
        policy.start(threshold=thresholds),
        free.start(threshold=thresholds),
        free.start(threshold=thresholds, candidates=1),
    )
    guarded, unguarded = one.act(seen), two.act(seen)
    np.testing.assert_array_equal(guarded, three.act(seen))
    np.testing.assert_array_equal(one.fallback, three.fallback)
    replaced = one.fallback & ~two.fallback
    assert 0 < replaced.sum() < 64
    features = jax.vmap(policy.learned.normaliser)(jnp.asarray(seen))
    np.testing.assert_allclose(guarded[replaced], policy.learned.fallback(features)[0][replaced], atol=1e-6)
    np.testing.assert_array_equal(guarded[~replaced], unguarded[~replaced])


# ---- options ----------------------------------------------------------------------------------------


def test_an_instance_stands_for_options_that_win_over_it():
    names = {"bcrl": "expectile", "bcrl-xql": "gumbel", "bcrl-sparse": "sparse"}
    for name, regression in names.items():
        method = make_method(name, preset="cpu", family="metadrive")
        assert (method.cost_regression, method.reward_regression) == (regression, regression)
        assert method.tau_c == 0.4
    method = make_method("bcrl-xql", reward_regression="sparse")
    assert (method.cost_regression, method.reward_regression) == ("gumbel", "sparse")
    assert isinstance(make_method("bcrl-td3bc"), BCRLTD3)


def test_instances_on_the_command_line():
    def options(*words):
        words = ["--data", "log.npz", "--out", "run", *words]
        command, default = command_for(words)
        return parse(command, "bcrl train", words, default).options

    assert options() == BCRL()
    assert options("--method", "bcrl-xql").reward_regression == "gumbel"
    words = ("--cost-regression", "expectile", "--sparse-extraction", "support")
    mixed = options("--method=bcrl-sparse", *words)
    assert mixed == BCRL(reward_regression="sparse", sparse_extraction="support")
    assert options("--method", "bcrl-td3bc", "--greed", "4") == BCRLTD3(greed=4.0)
    paper = options("--method", "bcrl-xql", "--temperature-unit", "raw", "--temperature-c", "0.1")
    assert json.loads(json.dumps(dataclasses.asdict(paper)))["temperature_c"] == 0.1


@pytest.mark.parametrize(
    ("name", "options", "wanted"),
    [
        ("bcrl-cql", {}, r"no method 'bcrl-cql'; did you mean bcrl-xql\?"),
        ("bc-all", {"cost_regression": "gumbel"}, "bc-all has no option 'cost_regression'"),
        ("bcrl", {"cost_regression": "quantile"}, "cost_regression"),
        ("bcrl", {"temperature_c": 0.0}, "temperature_c"),
        ("bcrl", {"temperature_r": -1.0}, "temperature_r"),
        ("bcrl", {"exponent_limit": 0.0}, "exponent_limit"),
        ("bcrl-td3bc", {"greed": 0.0}, "greed"),
        ("bcrl-td3bc", {"noise": -0.1}, "noise"),
        ("bcrl-td3bc", {"unsafe_price": -1.0}, "unsafe_price"),
    ],
)
def test_bad_options_of_instances_are_named(name, options, wanted):
    with pytest.raises(BCRLError, match=wanted):
        make_method(name, **options)


def test_the_expectile_is_as_it_was():
    """The default instance goes the same way as ever: its loss is the expectile loss itself."""
    gap = jnp.asarray(np.random.default_rng(3).normal(size=(9, 1)), jnp.float32)
    found = BCRL(tau_r=0.7).reward_rule.value_loss(gap, jnp.ones(1))
    np.testing.assert_array_equal(found, expectile_loss(gap[:, 0], 0.7))
