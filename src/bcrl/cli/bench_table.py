"""`bcrl bench table`: the tables of a benchmark from its store."""

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
            write_tables(store, self.out)


def write_tables(store: "Store", out: Path, works: "Sequence[Work]" = ()) -> None:
    """The files, and the table in the paper's form on the screen."""
    from bcrl.assess import write_results
    from bcrl.bench.formats import latex, markdown, markdown_table
    from bcrl.bench.scores import results, scores
    from bcrl.bench.tables import over_tasks, paper_form
    from bcrl.files import write_text

    found = scores(store, works)
    if not found:
        raise BCRLError(f"{store.path}: has no results yet")
    rows = results(found)
    write_results(rows, out / "results.csv")
    write_text(out / "table.md", markdown(found))
    write_text(out / "table.tex", latex(found))
    print(f"\n{markdown_table(paper_form(found))}\n\n{markdown_table(over_tasks(found))}\n")
    print(f"{len(rows):,} episodes: {out / 'results.csv'}; tables: {out / 'table.md'}, {out / 'table.tex'}")
