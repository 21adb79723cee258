"""The exact CMDP optimum as a mixture of deterministic policies, and the frontier return(budget).

max J_R s.t. J_C ≤ δ has the dual min_λ [max_π (J_R − λ J_C) + λ δ]. Each inner problem is a plain MDP, solved
by policy iteration from the last policy. With one cost the outer loop is the secant method on λ; with several
it is column generation over the same small program.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import linprog

from bcrl.cmdp._checks import ShortRepr
from bcrl.cmdp._lp import infeasible
from bcrl.cmdp._model import CMDP
from bcrl.cmdp._values import evaluate, lexicographic, policy_iteration_also, unconstrained
from bcrl.errors import BCRLError
from bcrl.progress import progress

# A policy enters the mixture only if it improves the optimum by this fraction of the returns' scale.
GAIN = 1e-10
USUAL = 24
TIGHT = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}


@dataclass(frozen=True, repr=False)
class Column(ShortRepr):
    """A deterministic policy with its exact return and costs, from the start and from every state."""

    policy: np.ndarray
    value: np.ndarray
    cost_value: np.ndarray
    total_return: float
    cost: np.ndarray

    @classmethod
    def of(cls, model: CMDP, policy: np.ndarray) -> "Column":
        return cls._from(model, policy, evaluate(model, policy, model.rewards, *model.costs))

    @classmethod
    def best(cls, model: CMDP, multipliers: np.ndarray, initial: np.ndarray) -> "Column":
        """The policy that maximises r − Σ λ_i c_i, by policy iteration from `initial`."""
        signal = model.rewards - np.tensordot(multipliers, model.costs, 1)
        also = (model.rewards, *model.costs)
        policy, values = policy_iteration_also(model, signal, also, initial=initial)
        return cls._from(model, policy, values[1:])

    @classmethod
    def _from(cls, model: CMDP, policy: np.ndarray, values: np.ndarray) -> "Column":
        means = values @ model.start
        return cls(policy, values[0], values[1:], float(means[0]), means[1:])


@dataclass(frozen=True, repr=False)
class Optimum(ShortRepr):
    """The CMDP optimum: sample one of `columns` with `probabilities` at the start of an episode."""

    value: float
    cost: np.ndarray
    probabilities: np.ndarray
    columns: tuple[Column, ...]
    multipliers: np.ndarray
    solves: int
    """Number of unconstrained MDPs that were solved."""


def optimum(model: CMDP, budget: float | Sequence[float] | np.ndarray) -> Optimum:
    """The exact CMDP optimum for one budget per cost (the objective of Section 2.1)."""
    limit = model.budget_vector(budget)
    # The number of MDPs is not known in advance; the bar's total is the usual one.
    with progress("λ-secant", USUAL, "MDPs") as tick:
        columns = [Column.of(model, unconstrained(model))]
        tick()
        if np.any(columns[0].cost > limit):
            columns += _least_cost_columns(model)
            tick(len(limit))
            _make_feasible(model, limit, columns)
        while True:
            returns, costs = totals(columns)
            probabilities, multipliers, intercept = lottery(returns, costs, limit)
            column = Column.best(model, multipliers, columns[int(probabilities.argmax())].policy)
            tick(len(columns) < USUAL - 1)
            scale = max(abs(column.total_return), abs(intercept), multipliers @ column.cost, 1e-300)
            gain = column.total_return - multipliers @ column.cost - intercept
            # A policy that is in the mixture already gains nothing but rounding.
            if gain <= GAIN * scale or any(np.array_equal(column.policy, one.policy) for one in columns):
                break
            columns.append(column)
    return Optimum(
        value=float(returns @ probabilities),
        cost=costs @ probabilities,
        probabilities=probabilities,
        columns=tuple(columns),
        multipliers=multipliers,
        solves=len(columns) + 1,
    )


def totals(columns: Sequence[Column]) -> tuple[np.ndarray, np.ndarray]:
    """The columns' returns (n,) and costs (N, n) from the start distribution."""
    returns = np.array([column.total_return for column in columns])
    return returns, np.stack([column.cost for column in columns], 1)


def lottery(
    returns: np.ndarray, costs: np.ndarray, budget: np.ndarray
) -> tuple[np.ndarray, np.ndarray, float]:
    """The best mixture within the budget of policies with `returns` (n,) and `costs` (N, n).

    Returns the probabilities, the multipliers λ and the value at budget 0; raises BCRLError if no mixture
    keeps the budget.
    """
    rounding = 1e-12 * np.maximum(1.0, np.abs(costs).max(1))
    if len(budget) == 1:
        # A budget equal to the least cost must stay feasible despite rounding.
        least = costs[0].min()
        close = budget[0] < least <= budget[0] + rounding[0]
        return _lottery_of_two(returns, costs[0], float(least if close else budget[0]))
    limit = budget + rounding
    sums, one = np.ones((1, len(returns))), np.ones(1)
    solved = linprog(-returns, costs, limit, sums, one, method="highs-ds", options=TIGHT)
    if not solved.success:
        raise infeasible(budget, budget + _least_extra(costs, budget)[0])
    probabilities = np.maximum(solved.x, 0.0)
    multipliers = np.maximum(-solved.ineqlin.marginals, 0.0)
    return probabilities / probabilities.sum(), multipliers, float(-solved.eqlin.marginals[0])


def _lottery_of_two(
    returns: np.ndarray, costs: np.ndarray, budget: float
) -> tuple[np.ndarray, np.ndarray, float]:
    """`lottery` for one cost in closed form: the highest secant over the budget, one policy on each side."""
    within = np.flatnonzero(costs <= budget)
    if not len(within):
        raise infeasible(np.array([budget]), costs.min(keepdims=True))
    low = within[np.lexsort((costs[within], -returns[within]))[0]]
    probabilities = np.zeros(len(returns))
    beyond = np.flatnonzero((costs > budget) & (returns > returns[low]))
    if not len(beyond):
        probabilities[low] = 1.0
        return probabilities, np.zeros(1), float(returns[low])
    slopes = (returns[beyond] - returns[within, None]) / (costs[beyond] - costs[within, None])
    heights = returns[within, None] + slopes * (budget - costs[within, None])
    of_low, of_high = np.unravel_index(int(heights.argmax()), heights.shape)
    low, high, slope = within[of_low], beyond[of_high], slopes[of_low, of_high]
    probabilities[high] = (budget - costs[low]) / (costs[high] - costs[low])
    probabilities[low] = 1.0 - probabilities[high]
    return probabilities, np.array([slope]), float(returns[low] - slope * costs[low])


def _least_cost_columns(model: CMDP) -> list[Column]:
    """For each cost the least-cost policy with the highest return."""
    return [Column.of(model, lexicographic(model, -cost, model.rewards)) for cost in model.costs]


def _make_feasible(model: CMDP, budget: np.ndarray, columns: list[Column]) -> None:
    """Adds policies until a mixture keeps all budgets; if none can, raises with the nearest feasible ones."""
    while True:
        _, costs = totals(columns)
        scale = max(1.0, float(np.abs(costs).max()))
        extra, weights, least = _least_extra(costs, budget)
        if extra <= 1e-12 * scale:
            return
        # With weights on one cost only, ties would hide policies with less of the others.
        signal = -np.tensordot(weights, model.costs, 1)
        column = Column.of(model, lexicographic(model, signal, -model.costs.sum(0)))
        known = any(np.array_equal(column.policy, one.policy) for one in columns)
        if known or weights @ column.cost >= least - 1e-11 * scale:
            raise infeasible(budget, budget + extra)
        columns.append(column)


def _least_extra(costs: np.ndarray, budget: np.ndarray) -> tuple[float, np.ndarray, float]:
    """min t with Σ q J_C ≤ δ + t over mixtures q of columns; t, weights of the costs, their least sum."""
    count = costs.shape[1]
    solved = linprog(
        np.r_[np.zeros(count), 1.0],
        np.c_[costs, -np.ones(len(budget))],
        budget,
        np.c_[np.ones((1, count)), 0.0],
        np.ones(1),
        method="highs-ds",
        options=TIGHT,
    )
    weights = np.maximum(-solved.ineqlin.marginals, 0.0)
    return float(solved.fun), weights, float(solved.eqlin.marginals[0])


@dataclass(frozen=True, repr=False)
class Frontier(ShortRepr):
    """The vertices of return(budget) for the start distribution, by increasing cost; linear in between."""

    columns: tuple[Column, ...]

    @property
    def budgets(self) -> np.ndarray:
        return np.array([column.cost[0] for column in self.columns])

    @property
    def returns(self) -> np.ndarray:
        return np.array([column.total_return for column in self.columns])

    def at(self, budget: float) -> float:
        """The CMDP optimum for `budget`."""
        least = self.budgets[0]
        if budget < least - 1e-12 * max(1.0, least):
            raise infeasible(np.array([budget]), np.array([least]))
        return float(np.interp(budget, self.budgets, self.returns))


def frontier(model: CMDP) -> Frontier:
    """All vertices of the frontier of one cost: between two of them, look for a policy above their line."""
    if len(model.costs) != 1:
        raise BCRLError(f"the frontier is for one cost; the model has {len(model.costs)} (use optimum)")
    low, high = _least_cost_columns(model)[0], Column.of(model, unconstrained(model))
    if high.cost[0] <= low.cost[0] + 1e-12:
        return Frontier((high,))
    found, open_pairs = [low, high], [(low, high)]
    width = high.cost[0] - low.cost[0]
    # The bar counts thousandths of the budget range whose frontier is known.
    with progress("frontier", 1000, "‰ of the range") as tick:
        shown = 0.0
        while open_pairs:
            low, high = open_pairs.pop()
            slope = (high.total_return - low.total_return) / (high.cost[0] - low.cost[0])
            middle = Column.best(model, np.array([slope]), low.policy)
            line = low.total_return - slope * low.cost[0]
            scale = max(abs(line), abs(middle.total_return))
            above = middle.total_return - slope * middle.cost[0] > line + GAIN * scale
            if above and low.cost[0] < middle.cost[0] < high.cost[0]:
                found.append(middle)
                open_pairs += [(middle, high), (low, middle)]
                continue
            shown += 1000 * (high.cost[0] - low.cost[0]) / width
            tick(int(shown), f"{len(found)} vertices")
            shown -= int(shown)
    return Frontier(tuple(sorted(found, key=lambda column: column.cost[0])))
