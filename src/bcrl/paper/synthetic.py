"""Figure "Comparison with Optimal Solution" (section "Synthetic CMDPs"): return and cost against p.

The paper shows its map only as a picture; the maps here are those of the package.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

from bcrl.cmdp import BudgetWarning, Column, GridWorld, optimum, plan, unconstrained
from bcrl.errors import BCRLError
from bcrl.progress import progress

METHODS = ("unconstrained", "CMDP optimum", "BCRL", "BCRL, the paper's bins")


@dataclass(frozen=True)
class Point:
    """One method at one budget and one p; `total_return` and `cost` are exact."""

    layout: str
    budget: float
    p: float
    method: str
    total_return: float
    cost: float


def points(layout: str, budgets: Sequence[float], chances: Sequence[float]) -> list[Point]:
    """The points of all methods; only the unconstrained one has points where no policy keeps the budget."""
    found: list[Point] = []
    with progress("synthetic figure", len(budgets) * len(chances), "models") as tick:
        for p in chances:
            model = GridWorld.load(layout, slip=1 - p).cmdp
            free = Column.of(model, unconstrained(model))
            for budget in budgets:
                results = {"unconstrained": (free.total_return, free.cost[0])}
                try:
                    best = optimum(model, budget)
                except BCRLError:
                    pass  # infeasible: a gap in the figure, as in the paper
                else:
                    results["CMDP optimum"] = (best.value, best.cost[0])
                    with warnings.catch_warnings():
                        warnings.simplefilter("ignore", BudgetWarning)
                        policies = (plan(model, budget), plan(model, budget, mode="paper", bins=101))
                    for method, policy in zip(METHODS[2:], policies, strict=True):
                        exact = policy.evaluate(budget)
                        results[method] = (exact.total_return, exact.cost[0])
                for method, (earned, cost) in results.items():
                    found.append(Point(layout, budget, round(p, 6), method, float(earned), float(cost)))
                tick()
    return found
