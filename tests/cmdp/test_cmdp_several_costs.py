"""Several costs: where the appendix's claim fails, and what is done instead."""

import numpy as np
import pytest
from cmdp_models import models, random_policy
from hypothesis import given, settings
from hypothesis import strategies as st

from bcrl.cmdp import CMDP, GridWorld, cost_critic, evaluate, least_cost, optimum, plan, simulate, solve_lp
from bcrl.cmdp._slack import SlackGrid
from bcrl.errors import BCRLError


def either_or() -> CMDP:
    """s₀ then the end; a₁ costs (0, 1), a₂ costs (1, 0)."""
    moves = np.zeros((2, 2, 2))
    moves[:, :, 1] = 1
    costs = np.zeros((2, 2, 2))
    costs[1, 0, 0] = costs[0, 0, 1] = 1
    return CMDP(moves, [[1.0, 1.0], [0, 0]], costs, 0.9, 0, [False, True])


def dead_end() -> CMDP:
    """Before it, "go" (cost 0, reward 10) leads to that state, "stop" costs (.6, .6) and ends."""
    moves = np.zeros((3, 2, 3))
    moves[0, 0, 1] = moves[0, 1, 2] = 1
    moves[1, :, 2] = 1
    rewards = np.array([[10.0, 0.0], [0, 0], [0, 0]])
    costs = np.zeros((2, 3, 2))
    costs[:, 0, 1] = 0.6
    costs[1, 1, 0] = costs[0, 1, 1] = 1
    return CMDP(moves, rewards, costs, 0.9, 0, [False, False, True])


def test_the_intersection_of_safe_sets_has_no_safe_action() -> None:
    """Counterexample 1: s₀ ∈ S_P for every budget, but A_P is empty at (.5, .5): only mixtures do."""
    model = either_or()
    critics = [least_cost(model, i) for i in range(2)]
    assert all(critic.safe_states(0.0)[0] for critic in critics)
    assert not (critics[0].safe_actions(0.5) & critics[1].safe_actions(0.5))[0].any()
    best = solve_lp(model, [0.5, 0.5])
    assert best.value == pytest.approx(1.0)
    np.testing.assert_allclose(best.policy[0], 0.5, atol=1e-7)
    policy = plan(model, [0.5, 0.5])
    exact = policy.evaluate([0.5, 0.5])
    np.testing.assert_allclose(exact.cost, 0.5, atol=1e-9)
    assert exact.total_return == pytest.approx(1.0)
    seen = simulate(policy, [0.5, 0.5], 20_000)
    assert np.all(seen.cost <= 0.5 + 4 * seen.cost_error)
    with pytest.raises(BCRLError, match=r"nearest feasible budgets are \(0.5, 0.5\)"):
        optimum(model, [0.4, 0.4])


def test_both_choices_look_safe_and_one_is_a_dead_end() -> None:
    """Counterexample 2: after "go" the budget (.78, .78) is in S_P with A_P empty; yet the optimum goes."""
    model, budget = dead_end(), np.array([0.7, 0.7])
    critics = [least_cost(model, i) for i in range(2)]
    looks_safe = np.all([critic.safe_actions(0.7)[0] for critic in critics], 0)
    assert looks_safe.all()
    left = budget / model.gamma  # "go" costs nothing and V_C* of the next state is (0, 0)
    assert all(critic.safe_states(x)[1] for critic, x in zip(critics, left, strict=True))
    assert not np.all([critic.safe_actions(x)[1] for critic, x in zip(critics, left, strict=True)], 0).any()
    best = solve_lp(model, budget)
    assert best.value == pytest.approx(10.0)
    assert np.all(best.cost <= budget + 1e-9)
    assert best.cost.sum() == pytest.approx(0.9)
    exact = plan(model, budget).evaluate(budget)
    assert exact.total_return == pytest.approx(10.0)
    assert np.all(exact.cost <= budget + 1e-9)


@settings(max_examples=40)
@given(models(costs=2, max_states=4), st.integers(0, 2**31), st.booleans())
def test_a_joint_base_keeps_every_budget(model: CMDP, seed: int, pure: bool) -> None:
    """One base policy for all costs: its action is always allowed, and the whole set keeps all budgets."""
    rng = np.random.default_rng(seed)
    base = rng.integers(0, model.actions, model.states)
    critics = [cost_critic(model, base, i) for i in range(2)]
    levels = np.sort(np.c_[np.zeros((2, 1)), rng.uniform(0.01, 2, (2, 3))])
    grid = SlackGrid(
        model, levels, np.stack([c.value for c in critics]), np.stack([c.advantage for c in critics])
    )
    allowed = grid.allowed()
    assert np.take_along_axis(allowed, base[:, None, None], 2).all()
    policy = random_policy(rng, allowed)
    if pure:
        policy = (policy.argmax(2)[..., None] == np.arange(model.actions)).astype(float)
    costs = np.einsum("ska,nsa->nsk", policy, model.costs).reshape(2, -1)
    assert grid.excess(grid.chain(policy), costs) <= 1e-9


@settings(max_examples=30)
@given(models(costs=2, max_states=4, min_actions=2), st.floats(0, 0.5), st.floats(0, 0.5))
def test_the_default_keeps_all_budgets_jointly(model: CMDP, x: float, y: float) -> None:
    joint = evaluate(model, least_cost(model, 0).policy, *model.costs) @ model.start
    budget = joint + np.array([x, y])
    policy = plan(model, budget, bins=6)
    assert policy.excess() <= 1e-9
    for asked in (budget, budget + 0.3):
        exact = policy.evaluate(asked)
        assert np.all(exact.cost <= asked + 1e-9)
    assert policy.evaluate(budget).total_return >= policy.base.total_return - 1e-3


def test_vector_slack_on_the_grid() -> None:
    """Shielded, the slack of both costs is tracked exactly; nothing falls below 0."""
    model = GridWorld.load("two-costs", 0.2).cmdp
    budget = [0.5, 0.5]
    policy = plan(model, budget, bins=8, shield=True)
    larger = [0.6, 0.9]
    seen = simulate(policy, larger, 5_000)
    assert np.all(seen.cost <= larger + 4 * seen.cost_error)
    slack = policy.grid.initial(np.array(larger))
    state = int(model.start.argmax())
    memory = policy.begin_at(state, policy.grid.base_value[:, state] + slack, np.random.default_rng(0))
    policy.step(memory, np.array([state]), np.random.default_rng(0))
    assert memory.slack.shape == (1, 2)
    assert np.all(memory.slack >= 0)
    assert plan(model, budget, bins=8).excess() <= 1e-9


def test_the_number_of_budgets_must_match() -> None:
    with pytest.raises(BCRLError, match=r"2 cost\(s\) but 1 budget"):
        plan(GridWorld.load("two-costs").cmdp, 1.0)
    with pytest.raises(BCRLError, match="one cost"):
        plan(GridWorld.load("two-costs").cmdp, [1.0, 1.0], mode="paper")
