"""Exact solutions: policy iteration, value iteration, the linear program and the frontier agree."""

import numpy as np
import pytest
from cmdp_models import models, random_model
from hypothesis import given, settings
from hypothesis import strategies as st

from bcrl.cmdp import (
    CMDP,
    GridWorld,
    MixturePolicy,
    StationaryPolicy,
    evaluate,
    frontier,
    least_cost,
    optimum,
    policy_iteration,
    simulate,
    smallest_budget,
    solve_lp,
    unconstrained,
    value_iteration,
)
from bcrl.errors import BCRLError

few = settings(max_examples=50)
share = st.floats(0, 1)


@few
@given(models())
def test_policy_iteration_is_value_iteration(model: CMDP) -> None:
    for signal in (model.rewards, -model.costs[0]):
        policy, value = policy_iteration(model, signal)
        np.testing.assert_allclose(value, value_iteration(model, signal), atol=1e-8)
        np.testing.assert_allclose(value, evaluate(model, policy, signal)[0], atol=1e-9)


@few
@given(models())
def test_least_cost_is_the_linear_programs(model: CMDP) -> None:
    assert float(least_cost(model).value @ model.start) == pytest.approx(smallest_budget(model)[0], abs=1e-7)


@few
@given(models(min_actions=2), share)
def test_frontier_and_secant_are_the_linear_programs_optimum(model: CMDP, part: float) -> None:
    whole = frontier(model)
    low, high = whole.budgets[0], whole.budgets[-1] + 0.1
    budget = low + part * (high - low) + 1e-7
    program, secant = solve_lp(model, budget), optimum(model, budget)
    assert whole.at(budget) == pytest.approx(program.value, abs=1e-6)
    assert secant.value == pytest.approx(program.value, abs=1e-6)
    assert secant.cost[0] <= budget + 1e-9
    if 0.05 < part < 0.95:  # at a vertex the slope is not unique
        assert program.value == pytest.approx(secant.value, abs=1e-6)
    slopes = np.diff(whole.returns) / np.diff(whole.budgets)
    assert np.all(slopes > 0)
    assert np.all(np.diff(slopes) < 1e-6 * (1 + np.abs(slopes[1:])))


@settings(max_examples=40)
@given(models(costs=2, min_actions=2), share, share)
def test_several_costs_by_columns_are_the_linear_programs_optimum(model: CMDP, x: float, y: float) -> None:
    free = evaluate(model, unconstrained(model), *model.costs) @ model.start
    budget = np.array([x, y]) * (free + 0.1)
    try:
        program = solve_lp(model, budget)
    except BCRLError:
        with pytest.raises(BCRLError, match="nearest feasible budgets"):
            optimum(model, budget)
        return
    if np.any(smallest_budget(model, budget - 1e-6) > budget - 1e-7):
        return  # on the edge of what is feasible the two differ by their tolerances
    columns = optimum(model, budget)
    assert columns.value == pytest.approx(program.value, abs=1e-5)
    assert np.all(columns.cost <= budget + 1e-9)
    assert np.count_nonzero(columns.probabilities > 1e-9) <= 3


@few
@given(models(min_actions=2), share)
def test_the_optimum_as_a_policy_has_its_value_and_cost(model: CMDP, part: float) -> None:
    whole = frontier(model)
    budget = whole.budgets[0] + part * (whole.budgets[-1] - whole.budgets[0])
    drawn = MixturePolicy(model, whole).evaluate(budget)
    assert drawn.total_return == pytest.approx(whole.at(budget), abs=1e-8)
    assert drawn.cost[0] <= budget + 1e-9
    program = solve_lp(model, budget + 1e-6)
    fixed = StationaryPolicy(model, program.policy).evaluate(budget)
    assert fixed.total_return == pytest.approx(program.value, abs=1e-5)
    assert fixed.cost[0] == pytest.approx(program.cost[0], abs=1e-5)


def test_infeasible_budgets_name_the_smallest_feasible_one() -> None:
    model = GridWorld.load("corridor", slip=0.4).cmdp
    least = float(least_cost(model).value @ model.start)
    for solve in (solve_lp, optimum):
        with pytest.raises(BCRLError, match=f"smallest feasible budget is {least:.6g}"):
            solve(model, least / 2)
    with pytest.raises(BCRLError, match=f"smallest feasible budget is {least:.6g}"):
        frontier(model).at(least / 2)
    assert optimum(model, least).cost[0] == pytest.approx(least)


def test_infeasible_budgets_of_several_costs_are_named_jointly() -> None:
    model = GridWorld.load("two-costs", slip=0.4).cmdp
    nearest = smallest_budget(model, [0.01, 0.02])
    assert nearest[1] - nearest[0] == pytest.approx(0.01)
    text = rf"nearest feasible budgets are \({nearest[0]:.6g}, {nearest[1]:.6g}\)"
    for solve in (solve_lp, optimum):
        with pytest.raises(BCRLError, match=text):
            solve(model, [0.01, 0.02])
    assert np.all(solve_lp(model, nearest + 1e-6).cost <= nearest + 2e-6)


def test_ties_are_broken_by_the_other_signal() -> None:
    """Two ways with the same reward: unconstrained takes the free one; least cost takes the rewarded one."""
    stay = np.zeros((2, 3, 2))
    stay[:, :, 1] = 1
    rewards = np.array([[1.0, 1.0, 0.0], [0, 0, 0]])
    costs = np.array([[1.0, 0.0, 0.0], [0, 0, 0]])
    model = CMDP(stay, rewards, costs, 0.9, 0, [False, True])
    assert unconstrained(model)[0] == 1
    assert least_cost(model).policy[0] == 1


def test_policies_run_as_they_are_evaluated() -> None:
    model = random_model(11, 6, 3, 0.9, 3)
    budget = frontier(model).budgets[[0, -1]].mean()
    program = solve_lp(model, budget)
    for policy in (MixturePolicy(model, optimum(model, budget)), StationaryPolicy(model, program.policy)):
        exact, seen = policy.evaluate(budget), simulate(policy, budget, 20_000, seed=1)
        assert seen.total_return == pytest.approx(exact.total_return, abs=4 * seen.return_error + 1e-5)
        assert seen.cost[0] == pytest.approx(exact.cost[0], abs=4 * seen.cost_error[0] + 1e-5)


def test_the_frontier_is_for_one_cost() -> None:
    with pytest.raises(BCRLError, match="2"):
        frontier(GridWorld.load("two-costs").cmdp)
