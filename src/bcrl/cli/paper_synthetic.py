"""`bcrl paper run synthetic`: the paper's figure of a noisy grid, beside the CMDP optimum."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bcrl.cli.paper_run import OUT, Name, command_line, find_experiment, finish
from bcrl.errors import BCRLError, need

if TYPE_CHECKING:
    from bcrl.bench.tables import Table
    from bcrl.paper.synthetic import Point


@dataclass(kw_only=True)
class Command:
    """Compute return and cost of BCRL, the CMDP optimum and no constraint on a noisy grid, all exactly."""

    name: Name
    """The experiment, synthetic."""
    out: Path = OUT
    """Folder for synthetic.md, synthetic.tex, synthetic.png and synthetic.csv."""
    tasks: tuple[str, ...] = ("corridor",)
    """The name of a grid-world layout, or a text file."""
    budgets: tuple[float, ...] = (0.2, 1.0)
    """The budgets on the discounted cost, one column of the figure each."""
    points: int = 26
    """Number of values of p, from 0.5 to 1."""

    def run(self) -> None:
        from dataclasses import asdict

        import numpy as np

        experiment = find_experiment(self.name)
        need("scipy", "highspy", "numba", extra="cmdp")
        need("matplotlib", extra="report")
        from bcrl.paper import synthetic
        from bcrl.report.paper import Page, draw_grid

        if self.points < 2:
            raise BCRLError(f"--points must be at least 2, not {self.points}")
        if len(self.tasks) != 1:
            raise BCRLError(f"--tasks is {','.join(self.tasks)!r}, but synthetic takes one layout")
        found = synthetic.points(self.tasks[0], self.budgets, np.linspace(0.5, 1.0, self.points).tolist())
        table = ("Exact values", _table(found), "Return / cost; a dash where no policy keeps the budget.")
        data = [asdict(point) for point in found]
        cautions = [f"A map of this package, {self.tasks[0]}. {experiment.note}"]
        finish(Page(experiment, cautions, [table], data, draw_grid(found), command_line(self)), self.out)


def _table(found: "list[Point]") -> "Table":
    """A line per budget and p, at most six values of p."""
    from bcrl.bench.tables import Text
    from bcrl.paper.synthetic import METHODS

    chances = sorted({point.p for point in found})
    shown = chances[:: max(1, (len(chances) - 1) // 5)]
    table = [[Text(name) for name in ("budget", "p", *METHODS)]]
    for budget in sorted({point.budget for point in found}):
        for p in shown:
            at = {one.method: one for one in found if (one.budget, one.p) == (budget, p)}
            cells = [
                f"{at[method].total_return:.2f} / {at[method].cost:.2f}" if method in at else "–"
                for method in METHODS
            ]
            table.append([Text(cell) for cell in (f"{budget:g}", f"{p:g}", *cells)])
    return table
