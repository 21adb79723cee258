"""The budget-augmented MDP: the default on the grid world, its episodes, and the paper's scheme."""

import numpy as np
import pytest
from cmdp_models import random_model
from hypothesis import given, settings
from hypothesis import strategies as st

from bcrl.cmdp import CMDP, BudgetWarning, GridWorld, least_cost, optimum, plan, simulate, solve_lp
from bcrl.errors import BCRLError

INSTANCES = [
    (layout, slip, budget)
    for layout in ("corridor", "blocked")
    for slip in (0.4, 0.3, 0.2, 0.1, 0.05)
    for budget in (0.2, 0.5, 1.0)
]


def test_mean_gap_to_the_optimum_on_the_thirty_instances() -> None:
    gaps = []
    for layout, slip, budget in INSTANCES:
        model = GridWorld.load(layout, slip).cmdp
        policy = plan(model, budget)
        exact = policy.evaluate(budget)
        gaps.append(solve_lp(model, budget).value - exact.total_return)
        assert exact.cost[0] <= budget + 1e-9
        assert policy.excess() <= 1e-9
    assert min(gaps) > -1e-6
    assert np.mean(gaps) <= 0.1


def test_one_plan_serves_other_budgets() -> None:
    """Below the planned budget by a lottery, above it by the table; the return rises with the budget."""
    model = GridWorld.load("blocked", 0.2).cmdp
    policy = plan(model, 0.5)
    budgets = (0.05, 0.2, 0.5, 0.8, 2.0)
    results = [policy.evaluate(budget) for budget in budgets]
    assert all(one.cost[0] <= budget + 1e-9 for one, budget in zip(results, budgets, strict=True))
    returns = [one.total_return for one in results]
    assert returns == sorted(returns)
    assert returns[-1] > returns[0] + 1


@pytest.mark.parametrize("budget", [0.05, 0.5])
def test_simulation_agrees_with_the_linear_solve(budget: float) -> None:
    """Both in the table (0.5) and for a start below the base policy's cost (0.05)."""
    model = GridWorld.load("blocked", 0.2).cmdp
    policy = plan(model, 0.5)
    exact, seen = policy.evaluate(budget), simulate(policy, budget, 20_000, seed=3)
    assert seen.total_return == pytest.approx(exact.total_return, abs=4 * seen.return_error)
    assert seen.cost[0] == pytest.approx(exact.cost[0], abs=4 * seen.cost_error[0])
    visits = policy.occupancy(budget)
    moving = ~model.terminal
    np.testing.assert_allclose(seen.occupancy[moving], visits[moving], atol=0.05)


def test_a_shielded_episode_spends_no_more_than_its_slack_on_any_path() -> None:
    """Σ γᵗ A ≤ w₀ on every path, not only on average; and the mean cost is within the budget."""
    model = GridWorld.load("corridor", 0.3).cmdp
    budget = 0.5
    policy = plan(model, budget, shield=True)
    rng = np.random.default_rng(0)
    first = policy.grid.initial(np.array([budget]))[0]
    for _ in range(20):
        episode, state, spent, discount = policy.start(budget), int(model.start.argmax()), 0.0, 1.0
        for _ in range(100):
            action = episode.act(state)
            spent += discount * policy.grid.advantage[0, state, action]
            discount *= model.gamma
            row = model.transitions[[state * 4 + action]]
            state = int(rng.choice(row.indices, p=row.data))
            episode.observe(0.0)
        assert spent <= first + 1e-9
    seen = simulate(policy, budget, 20_000)
    assert seen.cost[0] <= budget + 4 * seen.cost_error[0]
    with pytest.raises(BCRLError, match="simulate"):
        policy.evaluate(budget)


def test_the_episode_interface() -> None:
    model = GridWorld.load("corridor", 0.2).cmdp
    policy = plan(model, 0.5)
    episode = policy.start(budget=0.5, seed=1)
    state = int(model.start.argmax())
    assert episode.slack == pytest.approx(0.5 - policy.base.cost[0])
    action = episode.act(state)
    assert isinstance(action, int)
    assert 0 <= action < 4
    episode.observe(0.0)
    assert episode.slack >= 0
    assert episode.fallback is False
    assert policy.act(state, 0.5, seed=1) in range(4)
    with pytest.raises(BCRLError, match="state 100"):
        episode.act(100)


def test_outside_the_safe_set_it_takes_least_cost_actions_and_says_so() -> None:
    model = GridWorld.load("corridor", 0.4).cmdp
    state = int(model.start.argmax())
    safest = least_cost(model)
    policy = plan(model, 0.5)
    with pytest.warns(BudgetWarning, match="outside the safe set"):
        episode = policy.start(budget=0.01)
    assert episode.act(state) == safest.policy[state]
    assert episode.fallback is True
    assert policy.evaluate(0.01).cost[0] == pytest.approx(safest.value[state])
    with pytest.warns(BudgetWarning):
        assert policy.act(state, 0.01) == safest.policy[state]
    planned_there = plan(model, 0.01)
    assert planned_there.evaluate(0.01).cost[0] == pytest.approx(safest.value[state])


def test_act_in_the_middle_uses_the_budget_left() -> None:
    """With a large budget left next to a hazard the policy goes where it would not with none."""
    model = GridWorld.load("blocked", 0.0).cmdp
    policy = plan(model, 1.0)
    before_the_hazards = 43  # row 4, column 3: straight on costs 2, around is free
    assert policy.act(before_the_hazards, 10.0) == 1
    assert policy.act(before_the_hazards, 0.0) != 1


@settings(max_examples=15)
@given(st.integers(0, 2**31), st.floats(0.01, 1.0))
def test_the_gap_is_the_price_of_pathwise_promises_only(seed: int, extra: float) -> None:
    """The default is never better than the optimum, and never worse than its base policy."""
    model = random_model(seed, 5, 3, 0.9, 3)
    budget = float(least_cost(model).value @ model.start) + extra
    policy = plan(model, budget, bins=20)
    earned = policy.evaluate(budget).total_return
    assert earned <= optimum(model, budget).value + 1e-7
    assert earned >= policy.base.total_return - 1e-3


def paper(model: CMDP, budget: float, **options):
    with pytest.warns(BudgetWarning, match="can exceed its budget"):
        return plan(model, budget, mode="paper", **options)


def test_the_money_pump() -> None:
    """One state, bins of width 1, budget 1, an action of cost 0.49: nearest rounding makes it free."""
    stay = np.ones((1, 2, 1))
    model = CMDP(stay, [[1.0, 0.0]], [[0.49, 0.0]], 0.99)
    pumped = paper(model, 1.0, bins=50)  # δ_max = 49
    assert pumped.budgets[1] == pytest.approx(1.0)
    assert pumped.evaluate(1.0).cost[0] == pytest.approx(49.0)
    assert pumped.excess() == pytest.approx(48.0)
    assert simulate(pumped, 1.0, 10).cost[0] == pytest.approx(49.0, abs=1e-3)
    kept = plan(model, 1.0)
    assert kept.evaluate(1.0).cost[0] == pytest.approx(1.0, abs=1e-6)
    assert kept.evaluate(1.0).total_return == pytest.approx(1 / 0.49, abs=1e-3)


@settings(max_examples=20)
@given(st.integers(0, 2**31))
def test_the_paper_schemes_excess_is_bounded_by_half_a_bin_for_ever(seed: int) -> None:
    """J_C ≤ δ + (h/2)/(1−γ) in every safe state and bin."""
    model = random_model(seed, 5, 3, 0.9, 3, free=0.2)
    policy = paper(model, 1.0, bins=21)
    assert policy.excess() <= policy.budgets[1] / 2 / (1 - model.gamma) + 1e-9


def test_the_linear_program_and_value_iteration_plan_the_same_in_paper_mode() -> None:
    model = GridWorld.load("corridor", 0.2).cmdp
    program = paper(model, 1.0, bins=15, solver="lp").evaluate(1.0)
    values = paper(model, 1.0, bins=15).evaluate(1.0)
    assert program.total_return == pytest.approx(values.total_return, abs=1e-5)


def test_paper_mode_runs_as_it_is_evaluated() -> None:
    model = GridWorld.load("blocked", 0.3).cmdp
    policy = paper(model, 1.0)
    exact, seen = policy.evaluate(1.0), simulate(policy, 1.0, 20_000, seed=5)
    assert seen.total_return == pytest.approx(exact.total_return, abs=4 * seen.return_error)
    assert seen.cost[0] == pytest.approx(exact.cost[0], abs=4 * seen.cost_error[0])
    episode = policy.start(1.0)
    episode.act(int(model.start.argmax()))
    assert isinstance(episode.slack, float)


def gamble() -> CMDP:
    """Five states: go leads by a coin to `bad` (cost 10 for certain) or `good` (earn by spending 5)."""
    moves = np.zeros((5, 2, 5))
    moves[0, 0, [1, 2]] = 0.5  # go
    moves[0, 1, 4] = 1  # stop
    moves[1, :, 3] = 1  # bad
    moves[2, :, 4] = 1  # good
    moves[3, :, 4] = 1
    rewards = np.array([[1.0, 0], [0, 0], [1, 0], [0, 0], [0, 0]])
    costs = np.array([[0.0, 0], [10, 10], [5, 0], [0, 0], [0, 0]])
    return CMDP(moves, rewards, costs, 0.99, 0, [False] * 4 + [True])


def test_the_direct_update_is_unsafe_under_noise() -> None:
    model, budget = gamble(), 5.0
    direct = paper(model, budget, bins=1001, update="direct")
    assert direct.evaluate(budget).cost[0] == pytest.approx(0.99 * 7.5)  # both outcomes spend all there was
    soft = paper(model, budget, bins=1001, update="soft")
    assert soft.evaluate(budget).cost[0] <= budget + 1e-9
    assert plan(model, budget).evaluate(budget).cost[0] <= budget + 1e-9
    with pytest.raises(BCRLError, match="direct update"):
        plan(model, budget, update="direct")


def test_the_direct_update_is_the_soft_one_on_a_deterministic_model() -> None:
    model = GridWorld.load("blocked", 0.0).cmdp
    direct, soft = (plan(model, 1.0, update=update).evaluate(1.0) for update in ("direct", "soft"))
    assert direct.total_return == soft.total_return
    assert soft.total_return <= optimum(model, 1.0).value + 1e-9


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mode": "other"}, "'slack' or 'paper'"),
        ({"mode": "paper", "shield": True}, "mode 'slack'"),
        ({"solver": "lp"}, "mode 'paper'"),
        ({"bins": 2}, "at least 3"),
        ({"update": "hard"}, "'soft' or 'direct'"),
    ],
)
def test_wrong_options_are_named(options: dict, message: str) -> None:
    with pytest.raises(BCRLError, match=message):
        plan(GridWorld.load("corridor").cmdp, 1.0, **options)


@pytest.mark.parametrize("budget", [-1.0, float("nan"), float("inf")])
def test_wrong_budgets_are_named(budget: float) -> None:
    with pytest.raises(BCRLError, match="a budget must be a finite number"):
        plan(GridWorld.load("corridor").cmdp, budget)
