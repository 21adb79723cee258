"""Rows of ship results as tables: the paper's, and each run minus a reference in the same scenarios."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from bcrl.assess.statistics import Estimate, Kept, estimate, kept
from bcrl.errors import BCRLError
from bcrl.ship._evaluate import EXPERT, MEASURES, ShipResult

CLONE = "bc-all"
"""The method that runs are compared with by default."""
PAIRED = ("close_quarters", "ade", "cost")
"""The measures of which differences are shown."""


@dataclass(frozen=True)
class Line:
    """A line of the paper's table: a run at one threshold, or the experts (threshold infinite)."""

    run: str
    budget: float
    threshold: float
    episodes: int
    measures: dict[str, Estimate]
    """By the names in MEASURES."""
    off_water: float = np.nan
    """Steps off known water that are allowed; NaN without a budget of them."""

    @property
    def kept_water(self) -> Kept | None:
        """Whether the budget of steps off known water is kept; None where there is none."""
        return None if np.isnan(self.off_water) else kept(self.measures["off_water_cost"], self.off_water)

    @property
    def kept(self) -> Kept | None:
        """Whether the threshold is kept; None for experts, who have none."""
        return None if self.run == EXPERT else kept(self.measures["cost"], self.threshold)

    @property
    def allowed(self) -> str:
        """The budget, or the threshold where there is none; empty for experts."""
        if self.run == EXPERT:
            return ""
        return f"cost {self.threshold:g}" if np.isnan(self.budget) else f"{self.budget:g}"


def table_lines(results: Sequence[ShipResult]) -> list[Line]:
    """The experts first, then the runs in their order, the tightest threshold first."""
    lines = []
    for rows in _groups(results):
        measures = {name: estimate(_column(rows, name), _column(rows, "seed")) for name in MEASURES}
        one = rows[0]
        lines.append(Line(one.run, one.budget, one.threshold, len(rows), measures, one.off_water_threshold))
    return lines


@dataclass(frozen=True)
class Difference:
    """A run at one threshold minus the reference in the same scenarios."""

    line: Line
    """The run itself."""
    pairs: int
    """Episodes that both have."""
    measures: dict[str, Estimate]
    """By the names in PAIRED."""


def reference_run(results: Sequence[ShipResult], name: str | None = None) -> str:
    """The run to compare others with: that of this name, else the first clone (BC-All), else the experts.

    Empty if there is nothing to compare.
    """
    runs = {result.run: result.method for result in results}
    if name is not None and name not in runs:
        raise BCRLError(f"the reference is {name!r}, but the runs are {', '.join(runs)}")
    clones = [run for run, method in runs.items() if method == CLONE]
    chosen = name or next(iter(clones), EXPERT)
    return chosen if chosen in runs and set(runs) - {chosen, EXPERT} else ""


def differences(results: Sequence[ShipResult], reference: str) -> list[Difference]:
    """Every run but the experts minus the reference, paired by training seed, scenario and threshold.

    Experts, who have no threshold, are paired with every one. The bootstrap draws seeds, and scenarios
    inside them. A run that has no pair is left out.
    """

    def key(row: ShipResult) -> tuple[float, ...]:
        return (row.seed, row.scenario, *(() if reference == EXPERT else (row.threshold,)))

    theirs = {key(row): row for row in results if row.run == reference}
    found = []
    for rows in _groups([row for row in results if row.run not in (reference, EXPERT)]):
        mine = [row for row in rows if key(row) in theirs]
        if mine:
            other, seeds = [theirs[key(row)] for row in mine], _column(mine, "seed")
            minus = {name: estimate(_column(mine, name) - _column(other, name), seeds) for name in PAIRED}
            found.append(Difference(table_lines(rows)[0], len(mine), minus))
    return found


def _groups(results: Sequence[ShipResult]) -> Iterable[list[ShipResult]]:
    """The rows of each run and threshold, in the order of the table."""
    names = list(dict.fromkeys(result.run for result in results))
    names.sort(key=lambda name: name != EXPERT)
    for name in names:
        groups: dict[str, list[ShipResult]] = {}  # by text, since NaN is not equal to itself
        for row in results:
            if row.run == name:
                groups.setdefault(f"{row.threshold} {row.budget} {row.off_water_threshold}", []).append(row)
        yield from sorted(groups.values(), key=lambda rows: rows[0].threshold)


def within(row: ShipResult, threshold: float) -> bool:
    """Whether an episode reaches its goal within the threshold, and within its own of steps off water."""
    beyond = row.off_water_cost > row.off_water_threshold  # False where there is none
    return bool(row.success) and row.cost <= threshold and not beyond


def _column(rows: Sequence[ShipResult], name: str) -> np.ndarray:
    return np.array([getattr(row, name) for row in rows])
