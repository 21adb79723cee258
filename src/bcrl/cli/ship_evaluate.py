"""`bcrl ship evaluate`: trained policies and the experts in congested scenarios."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from bcrl.budget import Execution
from bcrl.cli.terminal import next_step
from bcrl.errors import BCRLError, printable

if TYPE_CHECKING:
    from rich.table import Table

    from bcrl.assess.statistics import Estimate
    from bcrl.ship import Difference, Line, Possible

LOOK: Any = {"box": None, "pad_edge": False, "padding": (0, 1, 0, 0), "header_style": "bold"}
# Heading, measure, digits.
COLUMNS = (
    ("ADE\nm", "ade", 0),
    ("GC-ADE\nm", "gc_ade", 1),
    ("close\nquarters", "close_quarters", 3),
    ("accel.\nm/s²", "acceleration", 4),
    ("speed\nm/s", "speed", 2),
    ("\nsuccess", "success", 2),
    ("\ncost", "cost", 1),
    ("off\nwater", "off_water", 3),
)


@dataclass
class Command:
    """Sail the congested fifth of held-out scenarios: distance from the expert, close quarters, success."""

    policies: Annotated[tyro.conf.Positional[tuple[Path, ...]], tyro.conf.arg(metavar="POLICY_OR_RUN...")]
    """Policy files or folders of runs, each a line of the table; none shows the experts alone."""
    scenarios: Path
    """A scenario file of bcrl ship data."""
    part: Literal["test", "validation"] = "test"
    """Validation is to choose options on, with policies trained on bcrl ship log --part fitting."""
    budgets: tuple[float, ...] = (0.25, 0.5, 1.0)
    """Allowed costs, as shares of the median expert's cost in these scenarios."""
    thresholds: tuple[float, ...] | None = None
    """Allowed costs, such as 5,10, in place of --budgets."""
    off_water: float = 2.0
    """Steps off known water that policies of two costs (bcrl ship log --known-water) are allowed."""
    episodes: int = 100
    """Scenarios per training seed, drawn without repetition; as many as there are at most."""
    execution: Execution = "finite-horizon"
    """How the budget is tracked while acting; soft is the rule the paper's theorem covers."""
    candidates: int = 0
    """Draw this many actions each step and take the best of those the cost critic allows; 0 is off."""
    frame: Literal["ego", "world"] = "ego"
    """The frame of the log that the policies learned from."""
    limit: int | None = None
    """Steps after which every episode ends (default: twice those of its expert; the original's is 1000)."""
    reference: str | None = None
    """Run that the others are compared with in the same scenarios (default: the first of BC-All, else the
    experts)."""
    anchor: Path | None = None
    """Plans of bcrl ship plan: adds which budgets can be kept by one who knows the scenarios."""
    seed: int = 0
    """Decides which scenarios are drawn."""
    out: Path | None = None
    """File for one row per episode, .csv."""
    overwrite: tyro.conf.FlagCreatePairsOff[bool] = False
    """Replace the file if it exists."""

    def run(self) -> None:
        from rich.console import Console

        from bcrl.assess import read_results
        from bcrl.cli.out import check_file
        from bcrl.cli.ship_policies import load_runs
        from bcrl.ship import (
            EXPERT,
            ShipResult,
            differences,
            evaluate_ships,
            load_scenarios,
            possible_budgets,
            reference_run,
            table_lines,
        )

        if self.out is not None:
            check_file(self.out, (".csv",), self.overwrite)
        plans = None if self.anchor is None else read_results(self.anchor, ShipResult)
        runs = load_runs(self.policies)
        if self.reference not in (None, EXPERT, *runs):  # before an hour of sailing
            raise BCRLError(f"--reference is {self.reference!r}, but the runs are {', '.join(runs)}")
        results = evaluate_ships(
            runs,
            load_scenarios(self.scenarios),
            part=self.part,
            budgets=self.budgets,
            thresholds=self.thresholds,
            off_water=self.off_water,
            episodes=self.episodes,
            seed=self.seed,
            frame=self.frame,
            execution=self.execution,
            candidates=self.candidates,
            limit=self.limit,
        )
        # Before what may fail.
        console = Console(width=max(Console().width, 80))
        title = f"{self.scenarios}, {self.part}"
        lines = table_lines(results)
        console.print(_table(lines, title))
        if self.out is not None:
            results.save(self.out)
        if reference := reference_run(results, self.reference):
            console.print()
            console.print(_paired_table(differences(results, reference), reference))
        if plans is not None:
            console.print()
            console.print(_possible_table(possible_budgets(plans, results, lines), str(self.anchor)))
        if self.out is None:
            next_step("the same with --out ships.csv, to keep the episodes for bcrl report")
        else:
            print(f"{len(results)} episodes: {self.out}")
            words = ["bcrl", "report", self.out, "--scenarios", self.scenarios]
            words += ["--policies", *self.policies] if self.policies else []
            next_step(*words, "--out", "report.html")


def _table(lines: "Sequence[Line]", title: str) -> "Table":
    """A table that fits into 80 columns: errors stand below their means."""
    from rich.table import Table
    from rich.text import Text

    from bcrl.assess.statistics import KEPT_MEANS

    table = Table(title=Text(title), title_justify="left", **LOOK)
    table.add_column("", overflow="fold")
    for name in ("\nbudget", *(column[0] for column in COLUMNS), "\nkept?"):
        table.add_column(name, justify="right", no_wrap=True)
    for line in lines:
        cells = [_plus_minus(line.measures[measure], digits) for _, measure, digits in COLUMNS]
        table.add_row(Text(line.run), _allowed(line), *cells, _verdict(line))
    table.caption = (
        "Below each mean its standard error over seeds and episodes. budget: share of the median expert's "
        "cost. ADE: mean distance to the expert at the same time; GC-ADE: the paper's, which falls with the "
        f"length. off water: share of steps where few or no ships sailed before; off 2 allows 2 such steps. "
        f"{KEPT_MEANS}"
    )
    table.caption_justify = "left"
    return table


def _paired_table(found: "Sequence[Difference]", reference: str) -> "Table":
    """Differences from the reference with their intervals below them, within 80 columns."""
    from rich.table import Table
    from rich.text import Text

    from bcrl.ship import PAIRED

    title = Text(f"minus {printable(reference)}, in the same scenarios")
    table = Table(title=title, title_justify="left", **LOOK)
    table.add_column("", overflow="fold")
    shown = [
        (heading.replace("\n", " "), name, digits) for heading, name, digits in COLUMNS if name in PAIRED
    ]
    for name in ("budget", *(heading.strip() for heading, _, _ in shown), "pairs"):
        table.add_column(name, justify="right", no_wrap=True)
    for one in found:
        cells = [_interval(one.measures[name], digits) for _, name, digits in shown]
        table.add_row(Text(one.line.run), _allowed(one.line), *cells, str(one.pairs))
    table.caption = (
        "Below each mean difference its 95 % interval: a bootstrap over training seeds and the scenarios "
        "inside them, each paired with the same scenario of the reference."
    )
    table.caption_justify = "left"
    return table


def _possible_table(found: "Sequence[Possible]", title: str) -> "Table":
    """Which budgets a planner that knows the scenarios keeps."""
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(f"possible, by {title}"), title_justify="left", **LOOK)
    for name in ("budget", "threshold", "scenarios within", "mean cost of the plans", "in the mean"):
        table.add_column(name, justify="right", no_wrap=True)
    for one in found:
        cost = f"{one.cost.mean:.1f} ({one.cost.low:.1f} to {one.cost.high:.1f})"
        table.add_row(one.line.allowed, f"{one.line.threshold:g}", f"{one.share:.0%}", cost, one.kept)
    table.caption = (
        "scenarios within: share in which a planner that knows the scenario reaches the goal within the "
        "budget, as far as its search found; in the mean: whether the mean cost of its plans keeps the "
        "threshold."
    )
    table.caption_justify = "left"
    return table


def _allowed(line: "Line") -> str:
    """The budget and, below it, the cost; or the cost alone; then the steps off known water."""
    words = [line.allowed]
    if line.allowed and not math.isnan(line.budget):
        words.append(f"cost {line.threshold:g}")
    return "\n".join(words + ([] if line.kept_water is None else [f"off {line.off_water:g}"]))


def _verdict(line: "Line") -> str:
    """Whether the budget is kept and, below it, that of steps off known water."""
    return "\n".join(filter(None, (line.kept, line.kept_water)))


def _interval(value: "Estimate", digits: int) -> str:
    """Signed, since the sign is what matters."""
    return f"{value.mean:+.{digits}f}\n{value.low:+.{digits}f} to {value.high:+.{digits}f}"


def _plus_minus(value: "Estimate", digits: int) -> str:
    """The mean and, below it, its error; one episode has none."""
    if math.isnan(value.mean):
        return ""
    error = "" if math.isnan(value.error) else f"\n±{value.error:.{digits}f}"
    return f"{value.mean:.{digits}f}{error}"
