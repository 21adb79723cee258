"""The maritime table: the paper's numbers beside those of results of `evaluate_ships`."""

import math
from collections.abc import Sequence
from typing import Any

from bcrl.paper.published import NAMES, ship_table
from bcrl.ship import ShipResult, table_lines

# Heading, column of the paper's table, our measure, digits.
COLUMNS = (
    ("GC-ADE m ↓", "ade_m", "gc_ade", 2),
    ("close quarters ↓", "close_quarters_rate", "close_quarters", 2),
    ("acceleration m/s²", "acceleration_m_s2", "acceleration", 4),
    ("speed m/s", "speed_m_s", "speed", 2),
    ("success ↑", "success_rate", "success", 2),
)
LEGEND = (
    "Paper / here; here ± is the standard error over seeds and episodes. Budget: share of the median "
    "expert's cost. GC-ADE: the paper's formula, which falls with the length of an episode; ADE: the mean "
    "distance to the expert."
)
NOTHING = "–"


def ship_rows(results: Sequence[ShipResult]) -> list[list[str]]:
    """The heading, a row for each of our lines, and one for each method that only the paper has."""
    paper = ship_table()
    method_of = {result.run: result.method for result in results}
    rows = [["", "budget", *(column[0] for column in COLUMNS), "ADE m, here only"]]
    for line in table_lines(results):
        method = method_of[line.run]
        name = NAMES.get(method, method)
        alone = sum(other == method for other in method_of.values()) == 1
        cells = []
        for _, theirs, ours, digits in COLUMNS:
            mine = line.measures[ours]
            cells.append(
                f"{_published(paper.get(method), theirs, digits)} / {_number(mine.mean, mine.error, digits)}"
            )
        ade = line.measures["ade"]
        rows.append([
            name if alone else f"{name}, {line.run}",
            line.allowed,
            *cells,
            _number(ade.mean, ade.error, 0),
        ])  # fmt: skip
    for method, numbers in paper.items():
        if method not in method_of.values():
            cells = [f"{_published(numbers, theirs, digits)} / {NOTHING}" for _, theirs, _, digits in COLUMNS]
            rows.append([NAMES.get(method, method), "", *cells, ""])
    return rows


def ship_data(results: Sequence[ShipResult]) -> list[dict[str, Any]]:
    """A row for each of our lines: every measure with its error, and the paper's."""
    paper = ship_table()
    method_of = {result.run: result.method for result in results}
    rows = []
    for line in table_lines(results):
        method = method_of[line.run]
        row: dict[str, Any] = {"run": line.run, "method": method, "budget": line.allowed}
        row |= {"threshold": line.threshold, "episodes": line.episodes, "kept": str(line.kept or "")}
        for name, measure in line.measures.items():
            row |= {name: measure.mean, f"{name}_error": measure.error}
        for _, theirs, ours, _ in COLUMNS:
            row[f"paper_{ours}"] = paper.get(method, {}).get(theirs, math.nan)
        rows.append(row)
    return rows


def _published(numbers: dict[str, float] | None, column: str, digits: int) -> str:
    return NOTHING if numbers is None else _number(numbers[column], numbers[f"{column}_std"], digits)


def _number(mean: float, error: float, digits: int) -> str:
    """`mean ± error`, or the mean alone if there is no error."""
    return f"{mean:.{digits}f}" + ("" if math.isnan(error) else f" ± {error:.{digits}f}")
