"""The paper's lemma and theorems, and what the default mode adds to them, on random models."""

from itertools import pairwise

import numpy as np
import pytest
from cmdp_models import models, random_model, random_policy
from hypothesis import given, settings
from hypothesis import strategies as st

from bcrl.cmdp import CMDP, CostCritic, cost_critic, evaluate, least_cost, plan, simulate
from bcrl.cmdp._slack import SlackGrid, solve_chain
from bcrl.cmdp._values import q_values

seeds = st.integers(0, 2**32 - 1)
few = settings(max_examples=60)


def grid_of(model: CMDP, critic: CostCritic, rng: np.random.Generator) -> SlackGrid:
    """A random grid of slack: level 0 and a few more, up to somewhere between a crumb and all there is."""
    top = rng.uniform(0.05, 1.2) / (1 - model.gamma)
    levels = np.unique(np.r_[0.0, top, rng.uniform(0, top, int(rng.integers(1, 8)))])
    return SlackGrid(model, levels[None], critic.value[None], critic.advantage[None])


def excess(grid: SlackGrid, policy: np.ndarray) -> float:
    costs = np.einsum("ska,nsa->nsk", policy, grid.model.costs).reshape(len(grid.levels), -1)
    return grid.excess(grid.chain(policy), costs)


@few
@given(models(), seeds)
def test_safe_actions_exist_exactly_in_the_safe_set(model: CMDP, seed: int) -> None:
    """Lemma 1, and its converse."""
    critic = least_cost(model)
    budgets = np.random.default_rng(seed).uniform(0, critic.value.max() * 1.5 + 0.1, 20)
    for budget in [*budgets, *critic.value]:
        some = (critic.safe_actions(budget) & model.available).any(1)
        np.testing.assert_array_equal(some, critic.safe_states(budget))


@few
@given(models(), seeds)
def test_soft_tracking_never_leaves_the_safe_set_and_keeps_every_horizon_within_budget(
    model: CMDP, seed: int
) -> None:
    """Theorem 1, parts 1 and 2, with exact budgets: every path of a tree, as the proof's induction has it."""
    critic = least_cost(model)
    moves = model.transitions.toarray().reshape(model.states, model.actions, -1)
    rng = np.random.default_rng(seed)

    def cost_of(state: int, budget: float, horizon: int) -> float:
        assert critic.value[state] <= budget + 1e-9
        slack = max(budget - critic.value[state], 0.0)
        allowed = (critic.advantage[state] <= slack) & model.available[state]
        assert allowed.any()
        total = 0.0
        for action, chance in enumerate(random_policy(rng, allowed)):
            if chance == 0:
                continue
            cost = model.costs[0, state, action]
            if horizon and model.gamma:
                left = (budget - critic.critic[state, action]) / model.gamma
                for following in np.flatnonzero(moves[state, action]):
                    later = cost_of(following, critic.value[following] + left, horizon - 1)
                    cost += model.gamma * moves[state, action, following] * later
            total += chance * cost
        return total

    for state in range(model.states):
        budget = critic.value[state] + rng.exponential()
        assert cost_of(state, budget, 2) <= budget + 1e-9


@few
@given(models(), seeds)
def test_every_policy_in_the_safe_set_keeps_the_budget_on_bins(model: CMDP, seed: int) -> None:
    """Theorem 1, parts 2 and 3, exactly and for the infinite horizon, with rounding that keeps the mean."""
    rng = np.random.default_rng(seed)
    grid = grid_of(model, least_cost(model), rng)
    policy = random_policy(rng, grid.allowed())
    assert excess(grid, policy) <= 1e-9
    costs = np.einsum("ska,sa->sk", policy, model.costs[0]).ravel()
    values = solve_chain(grid.chain(policy), model.gamma, costs).reshape(model.states, -1)
    initial = float(model.start @ grid.base_value[0])
    for slack in rng.uniform(0, grid.levels[0, -1], 5):
        budget = initial + slack
        bins, chance = grid.neighbours(grid.initial(np.array([budget]))[None])
        assert float(model.start @ values[:, bins[0]] @ chance[0]) <= budget + 1e-9


@few
@given(models(), seeds)
def test_rounding_keeps_the_mean(model: CMDP, seed: int) -> None:
    """The one property of rounding that the theorem needs, and that rounding to the nearest lacks."""
    rng = np.random.default_rng(seed)
    grid = grid_of(model, least_cost(model), rng)
    slack = rng.uniform(0, grid.levels[0, -1], (50, 1))
    bins, chance = grid.neighbours(slack)
    np.testing.assert_allclose(chance.sum(1), 1)
    np.testing.assert_allclose((grid.levels[0][bins] * chance).sum(1), slack[:, 0], atol=1e-12)


@few
@given(models(), seeds, st.sampled_from(["deterministic", "stochastic", "behaviour"]))
def test_anchored_critics_keep_the_budget(model: CMDP, seed: int, kind: str) -> None:
    """Theorem 1 with V^b, Q^b of any base policy in the place of V_C*, Q_C*."""
    rng = np.random.default_rng(seed)
    if kind == "deterministic":
        base = rng.integers(0, model.actions, model.states)
    elif kind == "stochastic":
        base = random_policy(rng, model.available)
    else:
        base = np.full((model.states, model.actions), 1 / model.actions)
    critic = cost_critic(model, base)
    grid = grid_of(model, critic, rng)
    allowed = grid.allowed()
    assert allowed.any(2).all()  # an action with A ≤ 0 always exists
    assert excess(grid, random_policy(rng, allowed)) <= 1e-9


def expectile_critic(model: CMDP, behaviour: np.ndarray, tau: float, cost: int = 0) -> CostCritic:
    """What in-sample learning of Eqs. (loss_vcs), (loss_qcs) converges to with exact regressions.

    V is the τ-expectile of Q under `behaviour` (S, A). It is the value of the policy
    b ∝ behaviour · |τ − 1[Q < V]|, found here by policy iteration on b.
    """
    signal = model.costs[cost]
    policy = behaviour
    for _ in range(10_000):
        value = evaluate(model, policy, signal)[0]
        critic = q_values(model, signal, value)
        following = _expectile_weights(critic, behaviour, tau)
        if np.abs(following - policy).max() < 1e-14:
            break
        policy = following
    return cost_critic(model, policy, cost)


def _expectile_weights(critic: np.ndarray, behaviour: np.ndarray, tau: float) -> np.ndarray:
    """The weights whose mean of `critic` is its τ-expectile, row by row."""
    value = (behaviour * critic).sum(1, keepdims=True)
    weights = behaviour
    for _ in range(critic.shape[1] + 1):  # each pass moves the split past at least one action
        weights = behaviour * np.where(critic < value, 1 - tau, tau)
        weights = weights / weights.sum(1, keepdims=True)
        value = (weights * critic).sum(1, keepdims=True)
    return weights


@few
@given(models(), seeds, st.sampled_from([0.05, 0.3, 0.5, 0.8]))
def test_expectile_critics_are_values_of_a_policy_and_keep_the_budget(
    model: CMDP, seed: int, tau: float
) -> None:
    """What in-sample learning finds: V is the τ-expectile of Q, and Theorem 1 covers it."""
    rng = np.random.default_rng(seed)
    behaviour = rng.dirichlet(np.ones(model.actions), model.states)
    critic = expectile_critic(model, behaviour, tau)
    gap = critic.critic - critic.value[:, None]
    slope = (behaviour * np.where(gap < 0, 1 - tau, tau) * gap).sum(1)
    np.testing.assert_allclose(slope, 0, atol=1e-9)
    np.testing.assert_allclose(evaluate(model, critic.policy, model.costs[0])[0], critic.value, atol=1e-9)
    grid = grid_of(model, critic, rng)
    assert excess(grid, random_policy(rng, grid.allowed())) <= 1e-9


@few
@given(models(deterministic=True), seeds)
def test_soft_tracking_is_direct_tracking_when_deterministic(model: CMDP, seed: int) -> None:
    """Lemma of appendix "Stochastic Case": g of soft tracking = g of direct tracking."""
    rng = np.random.default_rng(seed)
    critic = least_cost(model)
    budget = rng.exponential(size=(model.states, model.actions))
    following = model.transitions.indices.reshape(model.states, model.actions)
    soft = model.gamma * critic.value[following] + (budget - critic.critic)  # both sides times γ
    np.testing.assert_allclose(soft, budget - model.costs[0], atol=1e-9)


@few
@given(models(deterministic=True), seeds)
def test_deterministic_policies_within_the_budget_are_in_the_safe_set(model: CMDP, seed: int) -> None:
    """Theorem on deterministic models, part 2: on the states that the policy visits."""
    if model.gamma == 0:
        return
    rng = np.random.default_rng(seed)
    critic = least_cost(model)
    for _ in range(5):
        policy = rng.integers(0, model.actions, model.states)
        state = int(rng.integers(model.states))
        budget = float(evaluate(model, policy, model.costs[0])[0, state])  # not a crumb to spare
        rounding = 1e-10
        for _ in range(12):
            action = policy[state]
            assert critic.critic[state, action] <= budget + rounding
            budget = (budget - model.costs[0, state, action]) / model.gamma
            rounding /= model.gamma
            state = int(model.transitions.indices[state * model.actions + action])


@settings(max_examples=60)
@given(models(), seeds, st.integers(3, 20))
def test_the_default_mode_never_exceeds_the_budget(model: CMDP, seed: int, bins: int) -> None:
    """In every state and bin, from the start, and for budgets it was not planned for."""
    rng = np.random.default_rng(seed)
    least = float(least_cost(model).value @ model.start)
    budget = least + rng.exponential(0.3)
    policy = plan(model, budget, bins=bins)
    assert policy.excess() <= 1e-9
    for other in (budget, least, least + rng.exponential(0.3), 3 * budget):
        assert policy.evaluate(other).cost[0] <= other + 1e-9


@settings(max_examples=25)
@given(models(min_actions=2), seeds)
def test_more_budget_never_earns_less(model: CMDP, seed: int) -> None:
    least = float(least_cost(model).value @ model.start)
    budget = least + np.random.default_rng(seed).exponential(0.3)
    policy = plan(model, budget, bins=10)
    values = model.start @ policy.value
    assert all(after >= before - 1e-3 / (1 - model.gamma) for before, after in pairwise(values))
    assert values[0] >= policy.base.total_return - 1e-9


@pytest.mark.parametrize("shield", [False, True])
def test_the_theorem_holds_for_the_running_policy(shield: bool) -> None:
    """Whole episodes by the public interface: mean cost within the budget, up to sampling error."""
    model = random_model(3, 6, 3, 0.9, 3)
    least = float(least_cost(model).value @ model.start)
    for budget in (least + 0.05, least + 0.5):
        policy = plan(model, budget, shield=shield)
        seen = simulate(policy, budget, 20_000)
        assert seen.cost[0] <= budget + 4 * seen.cost_error[0]
        assert seen.fallback == 0


@settings(max_examples=25)
@given(st.integers(1, 2).flatmap(lambda costs: models(costs=costs, max_states=4)), seeds)
def test_the_compiled_plan_solves_the_bellman_equation_of_the_bins(model: CMDP, seed: int) -> None:
    """Against explicit transitions between (state, bin) pairs; without lottery the equation is plain."""
    base = evaluate(model, least_cost(model).policy, *model.costs) @ model.start
    budget = base + np.random.default_rng(seed).exponential(0.3, len(model.costs))
    policy = plan(model, budget, bins=5, shield=True)
    best = np.full(policy.value.shape, -np.inf)
    allowed = policy.grid.allowed()
    for action in range(model.actions):
        chain = policy.grid.chain(np.full(best.shape, action))
        later = (chain @ policy.value.ravel()).reshape(best.shape)
        earned = model.rewards[:, action, None] + model.gamma * later
        best = np.where(allowed[..., action], np.maximum(best, earned), best)
    np.testing.assert_allclose(policy.value, best, atol=2e-5)
