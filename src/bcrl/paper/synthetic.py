"""Figure "Comparison with Optimal Solution" (section "Synthetic CMDPs"): return and cost against p.

The paper shows its map only as a picture; the maps here are those of the package.
"""

import csv
import io
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from bcrl.cmdp import BudgetWarning, Column, GridWorld, optimum, plan, unconstrained
from bcrl.errors import BCRLError
from bcrl.files import atomic_path, write_text
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


def write(found: Sequence[Point], path: Path) -> tuple[Path, Path]:
    """Writes the figure as PNG to `path` and its numbers as CSV beside it; returns both paths."""
    rows = [asdict(point) for point in found]
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    table = path.with_suffix(".csv")
    write_text(table, text.getvalue())
    _draw(found, path)
    return path, table


def _draw(found: Sequence[Point], path: Path) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    budgets = sorted({point.budget for point in found})
    figure = Figure(figsize=(4.2 * len(budgets), 6.4), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(2, len(budgets), sharex=True, sharey="row", squeeze=False)
    looks = dict(zip(METHODS, (("C7", "-"), ("k", "-"), ("C0", "--"), ("C1", ":")), strict=True))
    chances = sorted({point.p for point in found})
    for column, budget in enumerate(budgets):
        for method in METHODS:
            at = {one.p: one for one in found if one.budget == budget and one.method == method}
            # Missing points break the line: no policy keeps the budget there.
            earned = [at[p].total_return if p in at else np.nan for p in chances]
            cost = [at[p].cost if p in at else np.nan for p in chances]
            colour, line = looks[method]
            axes[0, column].plot(chances, earned, line, color=colour, label=method)
            axes[1, column].plot(chances, cost, line, color=colour)
        axes[1, column].axhline(budget, color="C3", linewidth=0.8)
        axes[1, column].annotate("budget", (chances[0], budget), color="C3", va="bottom", fontsize=8)
        axes[0, column].set_title(f"budget {budget:g}")
        axes[1, column].set_xlabel("probability p of the intended move")
    axes[0, 0].set_ylabel("return")
    axes[1, 0].set_ylabel("cost")
    axes[1, 0].set_ylim(0, 3 * max(budgets))  # the unconstrained cost would flatten the other curves
    axes[0, -1].legend(fontsize=8)
    figure.suptitle(f"grid world {found[0].layout}, exact values", fontsize=10)
    with atomic_path(path) as temporary:
        figure.savefig(temporary, dpi=130, metadata={"Software": None})
