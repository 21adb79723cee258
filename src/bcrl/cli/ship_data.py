"""`bcrl ship data`: AIS logs to a scenario file."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from bcrl.cli.terminal import next_step
from bcrl.errors import BCRLError

if TYPE_CHECKING:
    from bcrl.ship import Scenarios


@dataclass
class Command:
    """Turn AIS logs into scenarios: clean, interpolate to 10 s, cut into tracks, score and split."""

    logs: Annotated[tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="ny-harbor|FILE...")]
    """ny-harbor (1-7 December 2020, from the package tracktable-data), or AIS files (.csv, .parquet) of
    MarineCadastre, of the Danish Maritime Authority, or in the original simulator's columns."""
    out: Path
    """Scenario file to write, such as ny-harbor.npz."""
    box: tuple[float, ...] | None = None
    """west,south,east,north in degrees (default: New York's Upper Bay for ny-harbor, the Singapore Strait for
    files in the original's columns)."""
    rule: Literal["moving", "original"] = "moving"
    """moving: split at gaps of 5 minutes, only ships that move; original: as the original simulator."""
    types: tuple[str, ...] = ()
    """Only scenarios of these kinds of vessel: cargo, tanker, other. All kinds are traffic."""
    overwrite: bool = False
    """Replace the file if it exists."""

    def run(self) -> None:
        from bcrl.cli.out import check_file
        from bcrl.ship import NEW_YORK, RULES, Box, make_scenarios, read_reports, save_scenarios

        check_file(self.out, (".npz",), self.overwrite)
        rule = RULES[self.rule]
        box = None
        if self.box is not None:
            if len(self.box) != 4:
                shown = ",".join(f"{edge:g}" for edge in self.box)
                raise BCRLError(f"--box is {shown!r}, but must be west,south,east,north in degrees")
            box = Box(*self.box)
        if self.logs == ("ny-harbor",):
            from bcrl.ship import NEW_YORK_SOURCE, read_new_york

            reports, box, source = read_new_york(), box or NEW_YORK, NEW_YORK_SOURCE
        elif self.logs:
            reports, box = read_reports(self.logs, box, rule.margin)
            source = ", ".join(Path(log).name for log in self.logs)
        else:
            raise BCRLError("name AIS files, or ny-harbor")
        scenarios = make_scenarios(reports, box, rule, kinds=self.types, source=source)
        save_scenarios(scenarios, self.out)
        show(scenarios)
        print(f"{len(scenarios):,} scenarios: {self.out}")
        next_step("bcrl", "ship", "log", self.out, "--variations", "3", "--out", "train.npz")


def show(scenarios: "Scenarios") -> None:
    """The counts, and what was left out of the log and why."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from bcrl.ship import summarise

    about = scenarios.about
    title = Text(str(about.get("source", "")))  # a file name is not markup
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    rows = summarise(scenarios)
    table.add_column("")
    for row in rows:
        table.add_column(row["part"], justify="right")
    for name in [key for key in rows[0] if key != "part"]:
        table.add_row(name, *(_number(row[name]) for row in rows))
    console = Console(highlight=False, width=max(Console().width, 80))
    console.print(table)
    console.print(
        f"{len(scenarios.ships):,} ships made {len(scenarios.first):,} tracks in the box. "
        f"{about.get('rows', 0):,} rows were read; left out:",
        soft_wrap=True,
    )
    left_out = about.get("left_out", {})
    for reason, count in sorted(left_out.items(), key=lambda item: -item[1]):
        console.print(f"  {count:>12,}  {reason}")
    if not left_out:
        console.print("  none")
    for what in ("speed", "course"):
        if count := about.get(f"{what}_from_positions", 0):
            console.print(f"  {count:>12,}  rows without a {what}, which is taken from the positions")


def _number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:.2f}"
