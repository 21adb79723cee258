"""`bcrl paper run NAME`: one experiment of the paper, its numbers beside the published ones."""

import dataclasses
import shlex
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from bcrl.cli.bench_options import BenchOptions
from bcrl.errors import BCRLError, did_you_mean, need

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from bcrl.bench.cells import Work
    from bcrl.bench.plan import Plan
    from bcrl.bench.store import Store
    from bcrl.bench.tables import Table
    from bcrl.paper.experiments import Experiment
    from bcrl.report.paper import Page

OUT = Path("runs/paper")
Name = Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="NAME")]


@dataclass(kw_only=True)
class Command(BenchOptions):
    """Run an experiment of the paper and write NAME.md, NAME.tex, NAME.png and NAME.csv.

    With DSRL's files in --logs it is the paper's experiment. Without them it runs on the logs that are
    there, or on logs of two built-in worlds, and says so on every page. Run again, it goes on where it
    stopped; experiments in one folder share their trainings.
    """

    name: Name
    """The experiment; bcrl paper list shows them."""
    out: Path = OUT
    """Folder for the pages, the store (results.sqlite) and the runs."""
    tasks: tuple[str, ...] = ()
    """Tasks, built-in worlds or families (default: the paper's that have a log, else all that have one, else
    point-circle,point-run)."""
    columns: tuple[str, ...] = ()
    """Columns of its table, such as caps,bcrl (default: all; bcrl paper list shows them)."""
    thresholds: tuple[float, ...] = ()
    """Episode costs to keep (default: each task's own three)."""
    preset: Literal["paper", "cpu"] | None = None
    """Size of networks, batch and steps (default: paper if every log is DSRL's, else cpu)."""

    def run(self) -> None:
        from bcrl.bench.experiment import choose_tasks, plan_of
        from bcrl.bench.plan import works

        experiment = find_experiment(self.name)
        need("matplotlib", extra="report")
        plan = plan_of(
            experiment,
            choose_tasks(experiment, self.tasks, self.logs),
            self.logs,
            columns=self.columns,
            seeds=self.seeds,
            thresholds=self.thresholds,
            episodes=self.episodes,
            preset=self.preset,
            steps=self.steps,
        )
        self.ask(plan)
        self.carry_out(
            lambda: works(plan, self.logs),
            lambda store, wanted: finish(self._page(experiment, plan, store, wanted), self.out),
            train_only=experiment.kind == "feasible",
        )

    def _page(
        self, experiment: "Experiment", plan: "Plan", store: "Store", works: "Sequence[Work]"
    ) -> "Page":
        from bcrl.bench.experiment import cautions
        from bcrl.report.paper import Page
        from bcrl.train.jobs import RUNS

        if experiment.kind == "feasible":
            content = _feasible(works, self.out / RUNS)
        elif experiment.kind == "time":
            content = _times(works, store, self.out / RUNS)
        else:
            content = _scores(experiment, works, store)
        return Page(experiment, cautions(experiment, plan, works), *content, command_line(self))


def command_for(words: Sequence[str]) -> tuple[Any, Any]:
    """The command of the experiment that is named; ships and grids have options of their own."""
    from bcrl.cli import paper_maritime, paper_synthetic

    special = {"maritime": paper_maritime.Command, "synthetic": paper_synthetic.Command}
    return next((special[word] for word in words if word in special), Command), None


def find_experiment(name: str) -> "Experiment":
    """The experiment of this name; an unknown one is answered with the nearest."""
    from bcrl.paper.experiments import EXPERIMENTS

    if name not in EXPERIMENTS:
        hint = did_you_mean(name, EXPERIMENTS) or ";"
        raise BCRLError(f"there is no experiment {name!r}{hint} known: {', '.join(EXPERIMENTS)}")
    return EXPERIMENTS[name]


def finish(page: "Page", out: Path) -> None:
    """Writes the files of a page, and shows its first table and what must be said of it."""
    from bcrl.bench.formats import column_blocks
    from bcrl.report.paper import write_page

    paths = write_page(page, out)
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 10_000
    print(f"\n{column_blocks(page.tables[0][1], width, 1)}\n")
    for caution in page.cautions:
        print(caution)
    print(", ".join(map(str, paths)))


def command_line(command: Any) -> str:
    """The command that makes a page again: the experiment and every option that is not at its default."""
    words = ["bcrl", "paper", "run", command.name]
    for field in dataclasses.fields(command):
        value = getattr(command, field.name)
        if field.name == "name" or value == field.default:
            continue
        words.append(f"--{field.name.replace('_', '-')}")
        if isinstance(value, tuple):
            words.append(",".join(f"{x:g}" if isinstance(x, float) else str(x) for x in value))
        elif value is not True:
            words.append(str(value))
    return shlex.join(words)


Content = tuple["list[tuple[str, Table, str]]", list[dict[str, Any]], "Figure"]
"""Tables with heading and legend, rows of data, and the picture."""


def _scores(experiment: "Experiment", works: "Sequence[Work]", store: "Store") -> Content:
    from bcrl.bench.experiment import as_dicts, beside, rows_beside, wanted_scores
    from bcrl.bench.formats import LEGEND, PAPER, THRESHOLDS
    from bcrl.bench.tables import by_threshold, paper_form
    from bcrl.report.paper import draw_dots

    found = wanted_scores(store, works)
    if not found:
        raise BCRLError(f"{experiment.name}: nothing could be trained and evaluated; see above")
    rows = rows_beside(experiment, found, works)
    legend = LEGEND.format(safe="bold", best="marked ★ (blue in LaTeX)", hides="† (a dagger)")
    tables = [
        ("Beside the paper", beside(rows), f"{PAPER} The last column counts thresholds."),
        ("In the paper's form", paper_form(found), legend),
        ("At each threshold", by_threshold(found), THRESHOLDS),
    ]
    return tables, as_dicts(rows), draw_dots(rows)


def _times(works: "Sequence[Work]", store: "Store", runs: Path) -> Content:
    from bcrl.bench.experiment import time_columns, times
    from bcrl.report.paper import draw_times

    rows = times(works, store, runs)
    legend = "Minutes, paper / here, means over tasks. Device: of the training here."
    return [("Time", time_columns(rows), legend)], rows, draw_times(rows)


def _feasible(works: "Sequence[Work]", runs: Path) -> Content:
    from bcrl.bench.feasible import share_columns, shares_of
    from bcrl.report.paper import draw_shares

    rows = shares_of(works, runs)
    legend = "Share of the log's (s, a) with Q_C(s, a) ≤ δ, by the larger of two critics; means over seeds."
    return [("Feasible actions", share_columns(rows), legend)], rows, draw_shares(rows)
