"""`bcrl paper table`: a table of the paper beside one's own numbers."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from bcrl.errors import BCRLError

if TYPE_CHECKING:
    from bcrl.ship import ShipResult

# Heading, column of the paper's table, our measure, digits.
SHIP_COLUMNS = (
    ("GC-ADE m ↓", "ade_m", "gc_ade", 2),
    ("close quarters ↓", "close_quarters_rate", "close_quarters", 2),
    ("acceleration m/s²", "acceleration_m_s2", "acceleration", 4),
    ("speed m/s", "speed_m_s", "speed", 2),
    ("success ↑", "success_rate", "success", 2),
)
NOTHING = "–"


@dataclass
class Command:
    """Print a table of the paper as Markdown: each cell is the paper's number / yours."""

    table: Annotated[tyro.conf.Positional[Literal["ships"]], tyro.conf.arg(metavar="ships")]
    """`ships`: the maritime task, experts and methods."""
    results: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RESULTS")]
    """The file that bcrl ship evaluate --out wrote."""

    def run(self) -> None:
        from bcrl.assess import read_results
        from bcrl.bench.formats import markdown_table
        from bcrl.bench.tables import Text
        from bcrl.ship import ShipResult

        results = read_results(self.results, ShipResult)
        if not results:
            raise BCRLError(f"{self.results}: has no episode; write it with bcrl ship evaluate --out")
        print(markdown_table([[Text(cell) for cell in row] for row in ship_rows(results)]))
        print(
            "\nPaper / here. The paper's are of the Singapore Strait, at a budget that it does not state; "
            "here ± is the standard error over seeds and episodes.\n"
            "Budget: share of the median expert's cost. GC-ADE: the paper's formula, "
            "which falls with the length of an episode; ADE: the mean distance to the expert."
        )


def ship_rows(results: "Sequence[ShipResult]") -> list[list[str]]:
    """The heading, a row for each of our lines, and one for each method that only the paper has."""
    from bcrl.paper.published import NAMES, ship_table
    from bcrl.ship import table_lines

    paper = ship_table()
    method_of = {result.run: result.method for result in results}
    rows = [["", "budget", *(column[0] for column in SHIP_COLUMNS), "ADE m, here only"]]
    lines = table_lines(results)
    for line in lines:
        method = method_of[line.run]
        name = NAMES.get(method, method)
        alone = sum(other == method for other in method_of.values()) == 1
        cells = []
        for _, theirs, ours, digits in SHIP_COLUMNS:
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
            cells = [
                f"{_published(numbers, theirs, digits)} / {NOTHING}" for _, theirs, _, digits in SHIP_COLUMNS
            ]
            rows.append([NAMES.get(method, method), "", *cells, ""])
    return rows


def _published(numbers: dict[str, float] | None, column: str, digits: int) -> str:
    return NOTHING if numbers is None else _number(numbers[column], numbers[f"{column}_std"], digits)


def _number(mean: float, error: float, digits: int) -> str:
    """`mean ± error`, or the mean alone if there is no error."""
    return f"{mean:.{digits}f}" + ("" if math.isnan(error) else f" ± {error:.{digits}f}")
