"""`bcrl ship evaluate`: trained policies and the experts in the congested test scenarios."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from bcrl.budget import Execution
from bcrl.cli.arguments import numbers
from bcrl.errors import BCRLError

if TYPE_CHECKING:
    from rich.table import Table

    from bcrl.assess.statistics import Estimate
    from bcrl.ship.evaluate import Line


@dataclass
class Command:
    """Sail the congested fifth of the test scenarios: distance from the expert, close quarters, success."""

    policies: Annotated[tyro.conf.Positional[tuple[Path, ...]], tyro.conf.arg(metavar="POLICY_OR_RUN...")]
    """Policy files or folders of runs, each a line of the table; none shows the experts alone."""
    scenarios: Path
    """A scenario file of bcrl ship data."""
    budgets: str = "0.25,0.5,1"
    """Allowed costs, with commas, as shares of the median expert's cost in these scenarios."""
    episodes: int = 100
    """Scenarios per training seed, drawn without repetition; as many as there are at most."""
    execution: Execution = "finite-horizon"
    """How the budget is tracked while acting; soft is the rule the paper's theorem covers."""
    prune: int = 0
    """Draw this many actions each step and take the best of those the cost critic allows; 0 is off."""
    frame: Literal["ego", "world"] = "ego"
    """The frame of the log that the policies learned from."""
    limit: int | None = None
    """Steps after which every episode ends (default: twice those of its expert; the original's is 1000)."""
    seed: int = 0
    """Decides which scenarios are drawn."""
    out: Path | None = None
    """File for one row per episode, .csv."""

    def run(self) -> None:
        from rich.console import Console

        from bcrl.cli.out import check_file
        from bcrl.policy import load_learned
        from bcrl.ship import load_scenarios
        from bcrl.ship.evaluate import evaluate_ships, table_lines
        from bcrl.train.folder import policy_files

        if self.out is not None:
            check_file(self.out, (".csv",), overwrite=True)
        budgets = numbers("budgets", self.budgets)
        scenarios = load_scenarios(self.scenarios)
        runs = {}
        for place in self.policies:
            name = place.resolve().stem if place.is_file() else place.resolve().name
            if name in runs:
                raise BCRLError(f"{place}: two of the runs are called {name!r}; rename one folder")
            runs[name] = [load_learned(file) for file in policy_files(place)]
        results = evaluate_ships(
            runs,
            scenarios,
            budgets=budgets,
            episodes=self.episodes,
            seed=self.seed,
            frame=self.frame,
            execution=self.execution,
            prune=self.prune,
            limit=self.limit,
        )
        if self.out is not None:
            results.save(self.out)
        # A narrower table would lose digits: the terminal may wrap it.
        Console(width=max(Console().width, 130)).print(_table(table_lines(results), str(self.scenarios)))
        if self.out is not None:
            print(f"{len(results)} episodes: {self.out}")


def _table(lines: "list[Line]", title: str) -> "Table":
    from rich.table import Table

    from bcrl.assess.statistics import KEPT_MEANS

    table = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold")
    table.add_column("")
    for name in (
        "budget",
        "ADE m",
        "GC-ADE m",
        "close quarters",
        "accel. m/s²",
        "speed m/s",
        "success",
        "cost",
        "kept?",
    ):
        table.add_column(name, justify="right", no_wrap=True)
    for line in lines:
        m = line.measures
        budget = "" if line.threshold == float("inf") else f"{line.budget:g} = {line.threshold:g}"
        table.add_row(
            line.run,
            budget,
            _plus_minus(m["ade"], 0),
            _plus_minus(m["gc_ade"], 1),
            _plus_minus(m["close_quarters"], 3),
            _plus_minus(m["acceleration"], 4),
            _plus_minus(m["speed"], 2),
            _plus_minus(m["success"], 2),
            _plus_minus(m["cost"], 1),
            line.kept or "",
        )
    table.caption = (
        "mean ± standard error over seeds and episodes; budget: share of the median expert's cost;\n"
        "ADE: mean distance to the expert at the same time; GC-ADE: the paper's, which falls with the length"
        f";\n{KEPT_MEANS}"
    )
    table.caption_justify = "left"
    return table


def _plus_minus(value: "Estimate", digits: int) -> str:
    return f"{value.mean:.{digits}f} ± {value.error:.{digits}f}"
