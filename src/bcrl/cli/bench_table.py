"""`bcrl bench table`: the tables of a benchmark from its store."""

import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from bcrl.errors import BCRLError

if TYPE_CHECKING:
    from bcrl.bench.cells import Work
    from bcrl.bench.store import Store


@dataclass
class Command:
    """Write results.csv, table.md and table.tex of a benchmark anew, also while it is under way."""

    out: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="BENCH")]
    """The folder that bcrl bench --out wrote."""

    def run(self) -> None:
        from bcrl.bench.store import FILE, Store

        if not (self.out / FILE).is_file():
            raise BCRLError(f"{self.out}: there is no {FILE}; bcrl bench --out {self.out} makes it")
        with Store(self.out / FILE) as store:
            show_tables(store, self.out)


def show_tables(store: "Store", out: Path, works: "Sequence[Work]" = ()) -> None:
    """Writes the files, and shows the table in the paper's form and that over tasks."""
    from bcrl.bench.formats import column_blocks, write_tables
    from bcrl.bench.scores import scores
    from bcrl.bench.tables import over_tasks, paper_form
    from bcrl.cli.terminal import next_step

    found = scores(store, works)
    if not found:
        raise BCRLError(f"{store.path}: has no results yet")
    write_tables(found, out)
    # A terminal would break wide lines; a pipe takes them.
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 10_000
    print(f"\n{column_blocks(paper_form(found), width, 1)}\n\n{column_blocks(over_tasks(found), width, 2)}\n")
    episodes = sum(len(score.rows) for score in found)
    print(f"{episodes:,} episodes: {out / 'results.csv'}; tables: {out / 'table.md'}, {out / 'table.tex'}")
    next_step("bcrl", "report", out / "results.csv", "--out", out / "report.html")
