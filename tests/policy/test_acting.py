"""Acting under a budget: each execution rule against a tracker written by hand in numpy."""

import dataclasses
import itertools
import os
import warnings
from functools import cache

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny_log_maker import make_log

from bcrl.assess import evaluate
from bcrl.errors import BCRLError
from bcrl.learn.bcrl import BCRL
from bcrl.learn.protocol import Normaliser, Spec, blank_actor
from bcrl.learn.units import Units
from bcrl.policy import Policy, load
from bcrl.train.run import fit

RULES = ["finite-horizon", "soft", "direct", "min"]
STEPS = 6


@cache
def untrained(k: int = 1, **options) -> Policy:
    """Random networks with costs of a size where rules differ and the fallback comes in; made by numpy."""
    log = make_log(k)
    method = BCRL(hidden=(8,), **{"gamma_cost": 0.9, "fallback_draws": 0, **options})
    spec = Spec(log.observation_size, log.action_size, k, log.horizon, (1.0,) * k, 10)
    rng = np.random.default_rng(2)
    shape = jax.eval_shape(lambda: method.init(jax.random.key(0), spec))
    state = jax.tree.map(lambda x: jnp.asarray(0.5 * rng.normal(size=x.shape), x.dtype), shape)
    # A least cost of about 2, and actions that cost a little more.
    last = lambda s: (s.networks["cost_value"].biases[-1], s.targets["cost_critic"].biases[-1])  # noqa: E731
    value, critic = last(state)
    state = eqx.tree_at(last, state, (value + 2.0, critic + 2.2))
    if "fallback_critic" in state.targets:
        ahead = lambda s: s.targets["fallback_critic"].biases[-1]  # noqa: E731
        state = eqx.tree_at(ahead, state, ahead(state) + 2.2)
    normaliser = Normaliser.of(log.observations)
    actor = method.actor(state, method.prepare(log, normaliser), normaliser, spec)
    return Policy(actor, method, spec, {"seed": 0})


def blank(method, log) -> Policy:
    """Networks as they are made, where what they have learned does not matter."""
    units = Units.of(log, method)
    spec = Spec.of(units.log_inside(log), 1)
    actor = jax.jit(blank_actor, static_argnums=(0, 1))(units.inside(method), spec)
    return Policy(actor, method, spec, {}, units)


@pytest.fixture(
    scope="module",
    params=["discounted-soft", "episodic-direct", "two costs", "unchecked", "unscaled", "fallback critic"],
)
def policy(request) -> Policy:
    return {
        "discounted-soft": lambda: untrained(),
        "episodic-direct": lambda: untrained(criterion="episodic", tracking="direct"),
        "two costs": lambda: untrained(2, max_budget=7.0),
        "unchecked": lambda: untrained(check_action=False),
        "unscaled": lambda: untrained(safety_factor=1.0),
        "fallback critic": lambda: untrained(fallback_critic=True),
    }[request.param]()


def given(costs: np.ndarray):
    """As a user gives it for one episode: a number for one cost, since a list would be a batch."""
    return float(costs[0]) if len(costs) == 1 else costs


# The policy's networks as programs: outside of one, every operation is compiled by itself.


@eqx.filter_jit
def least_cost(actor, features):
    return actor.least_cost(features)


@eqx.filter_jit
def cost_to_go(actor, features, action):
    return actor.cost_to_go(features, action)


@eqx.filter_jit
def cost_ahead(actor, features, action):
    """By Q_F where it is learned, else by Q_C."""
    critic = actor.cost_critic if actor.fallback_critic is None else actor.fallback_critic
    twins = [jax.tree.map(lambda x, i=i: x[i], critic) for i in range(2)]
    return jnp.maximum(*(twin(jnp.concatenate([features, action])) for twin in twins))


@eqx.filter_jit
def means(actor, features, shown):
    """Of the policy, shown a slack or a budget, and of the fallback."""
    return actor.actor(jnp.append(features, shown))[0], actor.fallback(features)[0]


class Tracker:
    """The formulas of the three rules, step by step, with the policy's own V_C and Q_C."""

    def __init__(self, policy: Policy, threshold: np.ndarray, horizon: int):
        self.actor, self.checks = policy.learned, policy.method.check_action
        self.factor = policy.method.safety_factor
        self.gamma = 1.0 if policy.method.criterion == "episodic" else policy.method.gamma_cost
        self.log_horizon = policy.spec.horizon
        self.threshold, self.horizon = threshold, horizon
        self.t, self.spent = 0, np.zeros_like(threshold)
        self.limit = np.asarray(self.actor.slack_limit)
        self.budget = self.convert()
        self.soft = self.budget - self.factor * np.asarray(self.actor.mean_start_value)

    def convert(self) -> np.ndarray:
        left = self.horizon - self.t
        share = np.mean(self.gamma ** np.arange(left)) if left > 0 else 1.0
        return np.maximum(self.threshold - self.spent, 0) * share

    def features(self, seen: np.ndarray) -> np.ndarray:
        normal = (seen - np.asarray(self.actor.normaliser.mean)) / np.asarray(self.actor.normaliser.std)
        if self.actor.criterion == "discounted":
            return normal
        return np.append(normal, min(self.t / self.log_horizon, 1.0))

    def slack(self, rule: str, features: np.ndarray) -> np.ndarray:
        least = self.factor * np.asarray(least_cost(self.actor, features.astype(np.float32)))
        horizon = self.convert() - least
        return {
            "finite-horizon": horizon,
            "soft": self.soft,
            "direct": self.budget - least,
            "min": np.minimum(horizon, self.soft),
        }[rule]

    def wanted(self, rule: str, features: np.ndarray) -> tuple[np.ndarray, bool]:
        """The action, and whether it is the fallback's."""
        slack = self.slack(rule, features)
        rows = features.astype(np.float32)
        least = self.factor * np.asarray(least_cost(self.actor, rows))
        shown = slack if self.actor.tracking == "soft" else slack + least
        shown = np.log1p(np.clip(shown, 0, self.limit))
        action, careful = map(np.asarray, means(self.actor, rows, shown.astype(np.float32)))
        if np.any(slack < self.actor.fallback_below):
            return careful, True
        cost = self.factor * np.asarray(cost_ahead(self.actor, rows, action))
        if self.checks and np.any(cost > slack + least):
            return careful, True
        return action, False

    def move(self, features: np.ndarray, action: np.ndarray, cost: np.ndarray) -> None:
        rows = features.astype(np.float32)
        critic, value = cost_to_go(self.actor, rows, action), least_cost(self.actor, rows)
        charge = self.factor * (np.asarray(critic) - np.asarray(value))
        self.soft = np.minimum((self.soft - charge) / self.gamma, self.limit)
        self.budget = np.minimum((self.budget - cost) / self.gamma, self.limit)
        self.spent = self.spent + cost
        self.t += 1


@pytest.mark.parametrize("rule", RULES)
def test_each_rule_is_its_formula(rule, policy):
    k = policy.spec.cost_count
    rng = np.random.default_rng(2)
    decided = []
    for start in (1.0, 4.0, 9.0):
        threshold = np.full(k, start)
        episode = policy.start(threshold=given(threshold), horizon=STEPS, execution=rule)
        by_hand = Tracker(policy, threshold, STEPS)
        for _ in range(STEPS):
            seen = rng.normal(size=policy.spec.observation_size).astype(np.float32)
            features = by_hand.features(seen)
            action = episode.act(seen)
            np.testing.assert_allclose(episode.slack, by_hand.slack(rule, features), rtol=1e-4, atol=1e-4)
            wanted, fallback = by_hand.wanted(rule, features)
            assert bool(episode.fallback) == fallback
            np.testing.assert_allclose(action, wanted, rtol=1e-4, atol=1e-4)
            cost = rng.random(k).astype(np.float32)
            by_hand.move(features, action, cost)
            episode.observe(cost)
            decided.append(fallback)
    assert len(set(decided)) == 2, "both the policy and the fallback must have acted"


def test_rules_differ(policy):
    seen = np.ones(policy.spec.observation_size)
    found = []
    for rule in RULES:
        episode = policy.start(threshold=given(np.full(policy.spec.cost_count, 5.0)), execution=rule)
        for _ in range(3):
            episode.act(seen)
            episode.observe(np.full(policy.spec.cost_count, 0.5))
        found.append(tuple(episode.slack.tolist()))
    # min is one of the others; with nothing discounted, direct and finite-horizon are both κ − C − V_C.
    assert len(set(found)) >= (2 if policy.method.criterion == "episodic" else 3)


def test_a_bare_budget_needs_no_horizon(policy):
    k = policy.spec.cost_count
    delta = np.arange(3.0, 3.0 + k)
    seen = np.ones(policy.spec.observation_size, np.float32)
    factor = policy.method.safety_factor
    mean = factor * np.asarray(policy.learned.mean_start_value)
    episode = policy.start(budget=given(delta))
    episode.act(seen)
    np.testing.assert_allclose(episode.slack, delta - mean, rtol=1e-5)  # soft: f in slack
    direct = policy.start(budget=given(delta), execution="direct")
    direct.act(seen)
    features = policy.learned.features(jnp.asarray(seen), jnp.zeros((), jnp.int32))
    least = factor * np.asarray(least_cost(policy.learned, features))
    np.testing.assert_allclose(direct.slack, delta - least, rtol=1e-5, atol=1e-5)
    for rule in ("finite-horizon", "min"):
        with pytest.raises(BCRLError, match="needs threshold"):
            policy.start(budget=given(delta), execution=rule)


@pytest.mark.parametrize(
    ("rule", "candidates"), [("finite-horizon", 3), ("soft", 0), ("direct", 0), ("min", 3)]
)
def test_a_batch_is_its_episodes_one_by_one(rule, candidates, policy):
    k = policy.spec.cost_count
    thresholds = np.array([[0.0], [4.0], [9.0], [50.0]]) * np.ones(k)
    horizons = np.array([3, 20, 20, 7])
    batch = policy.start(
        threshold=thresholds, horizon=horizons, execution=rule, candidates=candidates, seed=1
    )
    singles = [
        policy.start(
            threshold=given(thresholds[i]), horizon=int(horizons[i]), execution=rule, candidates=candidates
        )
        for i in range(4)
    ]
    for i, single in enumerate(singles):  # the same draws of candidates
        single.memory = dataclasses.replace(single.memory, key=batch.memory.key[i])
    rng = np.random.default_rng(0)
    for _ in range(3):
        seen = rng.normal(size=(4, policy.spec.observation_size))
        costs = rng.random((4, k))
        actions = batch.act(seen)
        assert actions.shape == (4, 2)
        assert np.all(np.abs(actions) <= 1)
        for i, single in enumerate(singles):
            np.testing.assert_allclose(single.act(seen[i]), actions[i], rtol=1e-4, atol=1e-5)
            np.testing.assert_allclose(single.slack, batch.slack[i], rtol=1e-4, atol=1e-4)
            assert single.fallback == batch.fallback[i]
            single.observe(costs[i])
        batch.observe(costs)


def test_restart_begins_the_marked_episodes_anew(policy):
    k = policy.spec.cost_count
    rng = np.random.default_rng(0)
    seen = rng.normal(size=(3, policy.spec.observation_size))
    batch = policy.start(threshold=np.full((3, k), 6.0), execution="direct")
    first = batch.act(seen)
    slack = batch.slack
    batch.observe(np.full((3, k), 1.0))
    batch.restart([False, True, False])
    again = batch.act(seen)
    np.testing.assert_array_equal(again[1], first[1])
    np.testing.assert_array_equal(batch.slack[1], slack[1])
    assert np.all(batch.slack[[0, 2]] != slack[[0, 2]])
    assert np.asarray(batch.memory.step).tolist() == [1, 0, 1]
    keys = jax.random.key_data(batch.memory.key)
    assert len({tuple(key) for key in np.asarray(keys).tolist()}) == 3


def test_restart_of_cloned_policies(tiny_log):
    from bcrl.learn.baselines.bc import BCAll

    batch = blank(BCAll(hidden=(8,)), tiny_log).start(threshold=[5.0, 7.0])
    batch.act(np.zeros((2, 6)))
    batch.observe([1.0, 1.0])
    batch.restart([True, False])
    batch.act(np.zeros((2, 6)))
    np.testing.assert_array_equal(batch.slack, [[5.0], [6.0]])


@pytest.mark.parametrize("fallback_critic", [False, True])
def test_the_best_safe_candidate_is_taken(fallback_critic):
    """Of the drawn actions, only those with Q_C ≤ δ, or Q_F, and of them the one with the largest Q_R."""
    policy = untrained(fallback_critic=fallback_critic)
    actor, factor = policy.learned, policy.method.safety_factor
    drawn = 16
    rng = np.random.default_rng(0)
    kinds = set()

    @jax.jit
    def see(seen):
        features = actor.features(seen, jnp.zeros((), jnp.int32))
        return features, factor * actor.least_cost(features), actor.fallback(features)[0]

    @jax.jit
    def judge(key, features, least, budget):
        """The drawn actions, what they cost and what they are worth."""
        mean, log_std = actor.actor(jnp.append(features, jnp.log1p(jnp.clip(budget - least, 0, 100))))
        noise = jax.random.normal(jax.random.fold_in(key, 0), (drawn, 2))
        options = jnp.clip(mean + jnp.exp(log_std) * noise, -1, 1).at[0].set(mean)
        rows = jnp.broadcast_to(features, (drawn, len(features)))
        cost = factor * actor.cost_to_go(rows, options)
        inputs = jnp.concatenate([rows, options, jnp.log1p(jnp.clip(budget - cost, 0, actor.slack_limit))], 1)
        twins = [jax.tree.map(lambda x, i=i: x[i], actor.critic)(inputs)[:, 0] for i in range(2)]
        ahead = factor * jax.vmap(lambda a: cost_ahead(actor, features, a))(options)
        return options, ahead[:, 0], jnp.minimum(*twins)

    act = eqx.filter_jit(actor.act)
    for _ in range(12):
        seen = rng.normal(size=6).astype(np.float32)
        features, least, careful = see(seen)
        # A budget among the costs of the drawn actions, so that some are forbidden and some are not.
        budget = least + 0.3 + 0.5 * float(rng.random())
        goal = policy.goal(budget=float(budget[0]), execution="direct", candidates=drawn)
        memory = actor.start(jax.random.key(int(rng.integers(1000))), goal)
        action, _, insight = act(memory, jnp.asarray(seen))
        options, cost, worth = map(np.asarray, judge(memory.key, features, least, budget))
        safe = cost <= float(budget[0])
        kinds.add("none" if not safe.any() else "all" if safe.all() else "some")
        if safe.any():
            best = max(np.flatnonzero(safe), key=lambda i: worth[i])
            np.testing.assert_allclose(action, options[best], atol=1e-5)
            assert not insight.fallback
            assert factor * float(cost_ahead(actor, features, action)[0]) <= float(budget[0]) + 1e-5
        else:
            assert insight.fallback
            np.testing.assert_allclose(action, np.clip(careful, -1, 1), atol=1e-5)
    assert "some" in kinds


@pytest.mark.parametrize("rule", RULES)
def test_a_larger_safety_factor_leaves_less_slack_and_more_to_the_fallback(rule):
    """The states and actions that are safe with a factor are so with every smaller one."""
    seen = np.random.default_rng(0).normal(size=(64, 6)).astype(np.float32)
    found = []
    for factor in (1.0, 1.3, 2.0):
        episode = untrained(safety_factor=factor).start(threshold=9.0, batch=64, execution=rule)
        episode.act(seen)
        found.append((episode.slack, episode.fallback))
    for (more, fewer), (less, others) in itertools.pairwise(found):
        assert np.all(less < more)
        assert np.all(others >= fewer)
    assert not found[0][1].all()
    assert found[2][1].sum() > found[0][1].sum()


@pytest.mark.parametrize(("slack", "fallback"), [(-1.0, True), (0.0, True), (0.29, True), (0.31, False)])
def test_the_fallback_acts_below_its_slack_and_says_so(slack, fallback):
    policy = untrained(fallback_below=0.3, nonnegative_values=False, check_action=False)
    reserved = policy.method.safety_factor * float(policy.learned.mean_start_value[0])
    episode = policy.start(budget=reserved + slack)
    seen = np.ones(6)
    action = episode.act(seen)
    np.testing.assert_allclose(episode.slack, [slack], atol=1e-5)
    assert bool(episode.fallback) == fallback
    features = policy.learned.normaliser(jnp.asarray(seen, jnp.float32))
    same = np.allclose(action, means(policy.learned, features, np.zeros(1, np.float32))[1], atol=1e-6)
    assert same == fallback


@pytest.mark.parametrize(
    ("k", "options"),
    [(1, {"fallback_beta": 0.0}), (1, {"fallback_beta": 5.0}), (2, {"fallback_beta": 3.0}),
     (2, {"fallback_beta": 3.0, "cost_weights": (1.0, 4.0)}),
     (2, {"fallback_beta": 3.0, "cost_weights": (1.0, 4.0), "fallback_critic": True})],
)  # fmt: skip
def test_a_fallback_that_draws_averages_cheap_actions_more(k, options):
    """Σ w a / Σ w over its draws, w = exp(−β Σ ω_i Q_C,i), or with Q_F."""
    policy = untrained(k, fallback_draws=8, **options)
    actor, seen = policy.learned, jnp.ones(6)
    memory = actor.start(jax.random.key(5), policy.goal(threshold=given(np.zeros(k)), horizon=9))
    action, _, insight = eqx.filter_jit(actor.act)(memory, seen)
    assert insight.fallback

    @jax.jit
    def draw():
        """What the fallback says of this state, and its noise."""
        features = actor.features(seen, memory.step)
        key = jax.random.fold_in(jax.random.fold_in(jax.random.key(5), 0), 1)
        return features, *actor.fallback(features), jax.random.normal(key, (8, 2))

    features, mean, log_std, noise = map(np.asarray, draw())
    drawn = np.clip(mean + np.exp(log_std) * noise, -1, 1)
    cost = np.array([np.asarray(cost_ahead(actor, features, one)) for one in drawn])
    weight = np.exp(-options["fallback_beta"] * cost @ np.array(options.get("cost_weights", (1.0,) * k)))
    np.testing.assert_allclose(action, weight @ drawn / weight.sum(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("k", "ramp"), [(1, 0.5), (1, 4.0), (2, 4.0)])
def test_with_a_ramp_the_fallback_weighs_each_cost_by_what_is_missing(k, ramp):
    """β_i = β · min(1, φ · (mean Q_C,i of the draws) / (ramp · δ_i)), and whole where nothing is left."""
    policy = untrained(k, fallback_draws=8, fallback_beta=3.0, fallback_ramp=ramp)
    actor, seen = policy.learned, jnp.ones(6)
    features = np.asarray(actor.features(seen, jnp.zeros((), jnp.int32)))
    mean, log_std = map(np.asarray, actor.fallback(jnp.asarray(features)))
    key = jax.random.fold_in(jax.random.fold_in(jax.random.key(5), 0), 1)
    drawn = np.clip(mean + np.exp(log_std) * np.asarray(jax.random.normal(key, (8, 2))), -1, 1)
    cost = np.array([np.asarray(cost_to_go(actor, features, one)) for one in drawn])
    need = policy.method.safety_factor * cost.mean(0)
    assert (need > 0).all()
    memory = actor.start(jax.random.key(5), policy.goal(threshold=given(np.zeros(k)), horizon=9))
    for share in (0.0, 0.2, 0.5, 1.0, 2.0):
        budget = need / (ramp * share) if share else np.zeros(k)
        beta = 3.0 * (min(share, 1.0) if share else 1.0)
        weight = np.exp(-beta * cost.sum(1))
        action = actor.careful(memory, jnp.asarray(features), jnp.asarray(budget, jnp.float32))
        np.testing.assert_allclose(action, weight @ drawn / weight.sum(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("k", "learned"), [(1, False), (2, False), (1, True)])
def test_mixtures_execute_the_first_safe_action_on_the_way_to_the_fallbacks(k, learned):
    """Whatever the budget: the policy's own where it is safe, the fallback's where nothing before it is."""
    n, options = 4, {"fallback_draws": 8, "fallback_below": 0.0, "fallback_critic": learned}
    policy = untrained(k, fallback_mixtures=n, **options)
    actor, goal = policy.learned, policy.goal(threshold=np.ones(k), horizon=9)

    @eqx.filter_jit
    def found(seed, budget):
        """What is done, and by hand the way from the policy's action to the fallback's with its costs."""
        memory = actor.start(seed, goal)
        features = jax.random.normal(seed, (6,))
        value = actor.safety_factor * actor.least_cost(features)
        own, _ = actor.actor(actor.policy_inputs(features, budget - value, value))
        share = jnp.arange(n + 1)[:, None] / n
        way = own + (actor.careful(memory, features, budget) - own) * share
        critic = actor.cost_ahead if learned else actor.cost_to_go
        cost = actor.safety_factor * jax.vmap(lambda one: critic(features[None], one[None])[0])(way)
        return actor.choose(memory, features, budget - value, value), way, cost, budget - value

    places = set()
    for seed in range(60):
        for budget in (2.0, 2.8, 3.4, 5.0):
            (action, own), *rest = found(jax.random.key(seed), jnp.full(k, budget))
            way, cost, slack = map(np.asarray, rest)
            if np.abs(cost - budget).min() < 1e-4 or np.abs(slack).min() < 1e-4:
                continue  # rounding decides
            safe = (cost <= budget).all(1)
            first = 0 if safe[0] and (slack >= 0).all() else 1 + int(np.argmax([*safe[1:-1], True]))
            np.testing.assert_allclose(action, np.clip(way[first], -1, 1), rtol=1e-4, atol=1e-5)
            assert bool(own) == (first == 0)
            places.add(first)
    assert {0, n} < places


def test_the_sharper_the_draws_the_cheaper_the_fallback():
    seen = jnp.ones(6)
    found = []
    for beta in (0.0, 10.0, 1e4):
        policy = untrained(fallback_draws=64, fallback_beta=beta)
        actor = policy.learned
        goal = policy.goal(threshold=0.0, horizon=9)
        action = eqx.filter_jit(actor.act)(actor.start(jax.random.key(1), goal), seen)[0]
        features = actor.features(seen, jnp.zeros((), jnp.int32))
        found.append(float(cost_to_go(actor, features, action)[0]))
    assert found == sorted(found, reverse=True)
    assert found[0] > found[-1] + 0.01


def test_one_short_cost_of_two_calls_the_fallback():
    policy = untrained(2)
    mean = np.asarray(policy.learned.mean_start_value)
    for extra, fallback in (([5.0, 5.0], False), ([5.0, 0.0], True), ([0.0, 5.0], True)):
        episode = policy.start(budget=np.maximum(mean, 0) + extra)
        episode.act(np.ones(6))
        assert bool(episode.fallback) == fallback


BAD_STARTS = [
    ({}, "either threshold"),
    ({"threshold": 1, "budget": 1}, "either threshold"),
    ({"threshold": -1.0}, "not negative"),
    ({"threshold": float("nan")}, "finite"),
    ({"budget": float("inf")}, "finite"),
    ({"threshold": "ten"}, "must be a number"),
    ({"threshold": 5, "horizon": 0}, "horizon"),
    ({"threshold": 5, "execution": "hope"}, "finite-horizon, soft, direct, min"),
    ({"threshold": 5, "candidates": -2}, "candidates"),
    ({"threshold": [[1.0, 2.0]]}, "bounds 1 costs"),
    ({"threshold": [1.0, 2.0], "batch": 3}, "one length"),
    ({"threshold": 5, "batch": 0}, "batch"),
    ({"threshold": 5, "batch": True}, "batch"),
    ({"threshold": []}, "at least one episode"),
    ({"threshold": 5, "execution": np.zeros(2)}, "execution"),
]


@pytest.mark.parametrize(("words", "wanted"), BAD_STARTS)
def test_a_bad_start_is_refused(words, wanted, tiny_policy):
    with pytest.raises(BCRLError, match=wanted) as refused:
        tiny_policy.start(**words)
    assert "\n" not in str(refused.value)


def test_bad_steps_are_refused(tiny_policy):
    episode = tiny_policy.start(threshold=5)
    with pytest.raises(BCRLError, match="nothing has been decided"):
        _ = episode.slack
    with pytest.raises(BCRLError, match=r"shape \(5,\).*\(6,\)"):
        episode.act(np.zeros(5))
    with pytest.raises(BCRLError, match="observe comes after act"):
        episode.observe(1.0)
    episode.act(np.zeros(6))
    with pytest.raises(BCRLError, match="cost is -1"):
        episode.observe(-1)
    with pytest.raises(BCRLError, match="cost has shape"):
        episode.observe([1.0, 2.0])
    with pytest.raises(BCRLError, match="restart is for batches"):
        episode.restart(True)
    batch = tiny_policy.start(threshold=5, batch=2)
    with pytest.raises(BCRLError, match="shape"):
        batch.act(np.zeros(6))
    assert batch.act(np.zeros((2, 6))).shape == (2, 2)


ODD = ["x", None, [[1], [1, 2]], {}, ["1"] * 6, np.zeros(6, complex), np.zeros(6, "M8[s]"), [10**400] * 6]


@pytest.mark.parametrize("odd", ODD, ids=lambda odd: str(odd)[:12])
def test_what_is_no_number_is_refused(odd, tiny_policy):
    episode = tiny_policy.start(threshold=5)
    with pytest.raises(BCRLError, match=r"^observation "):
        episode.act(odd)
    episode.act(np.zeros(6))
    with pytest.raises(BCRLError, match=r"^cost "):
        episode.observe(odd)
    episode.observe(0.0)
    for name in ("threshold", "horizon", "seed"):
        if odd is not None:
            with pytest.raises(BCRLError, match=f"^{name} "):
                tiny_policy.start(**{"threshold": 5, name: odd})


def test_every_action_is_paid_for(tiny_policy):
    """Forgetting observe would overspend without a word."""
    episode = tiny_policy.start(threshold=5, horizon=2)
    for _ in range(2):
        episode.act(np.zeros(6))
        with pytest.raises(BCRLError, match=r"act was called twice.*observe\(cost\)"):
            episode.act(np.zeros(6))
        episode.observe(1.0)
    with pytest.raises(BCRLError, match="has had its 2 steps: start a new one"):
        episode.act(np.zeros(6))
    batch = tiny_policy.start(threshold=5, horizon=[1, 3])
    batch.act(np.zeros((2, 6)))
    with pytest.raises(BCRLError, match="restart comes after observe"):
        batch.restart([True, False])  # its cost would be another episode's
    batch.observe([0.0, 0.0])
    with pytest.raises(BCRLError, match="restart those that ended"):
        batch.act(np.zeros((2, 6)))
    batch.restart([True, False])
    batch.act(np.zeros((2, 6)))


def test_a_policy_that_needs_the_reward_is_not_told_zero(tiny_log):
    from bcrl.learn.baselines.cdt import CDT

    method = CDT(width=8, layers=1, heads=1, context=2)
    episode = blank(method, tiny_log).start(threshold=5)
    episode.act(np.zeros(6))
    with pytest.raises(BCRLError, match=r"cdt needs the reward too: observe\(cost, reward\)"):
        episode.observe(1.0)
    with pytest.raises(BCRLError, match="reward is nan"):
        episode.observe(1.0, np.nan)
    episode.observe(1.0, 2.0)


@pytest.mark.parametrize("size", [1e30, 3e38, 1e39])
def test_no_action_is_ever_nan(size, tiny_policy):
    episode = tiny_policy.start(threshold=5)
    refused = ""
    try:
        action = episode.act(np.full(6, size))
    except BCRLError as error:
        refused = str(error)
        action = episode.act(np.zeros(6))  # the episode goes on as if that reading had not been
    assert np.all(np.isfinite(action))
    assert "observation" in refused or size < 1e38


@pytest.mark.parametrize("kind", ["act", "observe", "start", "evaluate", "fit", "load"])
def test_a_forked_process_says_so(kind, tiny_policy, tiny_log, tmp_path):
    """JAX would hang there for ever."""
    tries = {
        "act": lambda _, episode: episode.act(np.zeros(6)),
        "observe": lambda _, episode: episode.observe(0.0),
        "start": lambda policy, _: policy.start(budget=1.0),
        "evaluate": lambda policy, _: evaluate(policy, "point-circle", (5.0,), episodes=1),
        "fit": lambda policy, _: fit(tiny_log, policy.method, steps=1),
        "load": lambda *_: load(tmp_path / "p.bcrl"),
    }
    tiny_policy.save(tmp_path / "p.bcrl")
    episode = tiny_policy.start(threshold=5)
    if kind == "observe":
        episode.act(np.zeros(6))
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # JAX warns of the fork too
        child = os.fork()
    if child == 0:
        try:
            tries[kind](tiny_policy, episode)
        except BCRLError as error:
            os.write(writing, str(error).encode())
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    os.close(writing)
    with open(reading) as said:
        assert "forked after bcrl was loaded" in said.read()
