"""One experiment as four files: NAME.md, NAME.tex, NAME.png and NAME.csv."""

import csv
import io
import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bcrl.bench.formats import escape_latex, latex_table, markdown_table
from bcrl.bench.tables import Table
from bcrl.errors import BCRLError
from bcrl.files import write_text
from bcrl.paper.experiments import Experiment
from bcrl.report.figure import save_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Page:
    """What an experiment gave."""

    experiment: Experiment
    cautions: Sequence[str]
    """Sentences that stand on every file: which logs, and what is smaller than the paper's."""
    tables: Sequence[tuple[str, Table, str]]
    """Heading, table, and how to read it."""
    data: Sequence[dict[str, Any]]
    """Rows of the CSV file."""
    figure: "Figure"
    command: str
    """What makes it again."""


def write_page(page: Page, folder: Path) -> list[Path]:
    """Writes the four files into the folder and returns their paths."""
    if not page.data:
        raise BCRLError(f"{page.experiment.name}: has no results yet")
    paths = [folder / f"{page.experiment.name}{suffix}" for suffix in (".md", ".tex", ".png", ".csv")]
    write_text(paths[0], markdown(page))
    write_text(paths[1], latex(page))
    # The picture can be shown alone, so it says what the page says.
    words = textwrap.fill(" ".join(page.cautions), int(15 * page.figure.get_figwidth()))
    page.figure.supxlabel(words, x=0.01, ha="left", size=9)
    save_figure(page.figure, paths[2])
    write_text(paths[3], _csv(page.data))
    return paths


def markdown(page: Page) -> str:
    """The page."""
    name = page.experiment.name
    parts = [
        f"# {page.experiment.title}",
        f"The paper: {page.experiment.place}.",
        *(f"> {caution}" for caution in page.cautions),
        f"```sh\n{page.command}\n```",
        f"![{page.experiment.title}]({name}.png)",
    ]
    for heading, table, legend in page.tables:
        parts += [f"## {heading}", markdown_table(table), legend]
    return "\n\n".join([*parts, f"Data: [{name}.csv]({name}.csv)."]) + "\n"


def latex(page: Page) -> str:
    """The tables, each with what must be said beside it."""
    cautions = " ".join(page.cautions)
    return "\n".join(
        f"% {page.experiment.name}: {heading}\n{latex_table(table)}\n"
        f"\\par\\noindent\\footnotesize {escape_latex(f'{legend} {cautions}')}\n"
        for heading, table, legend in page.tables
    )


def _csv(rows: Sequence[dict[str, Any]]) -> str:
    """Numbers to six digits; empty where there is none."""
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({name: _cell(value) for name, value in row.items()})
    return text.getvalue()


def _cell(value: Any) -> Any:
    if not isinstance(value, float):
        return value
    return "" if math.isnan(value) else f"{value:.6g}"
