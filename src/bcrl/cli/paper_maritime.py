"""`bcrl paper run maritime`: the methods of the maritime table in ship scenarios."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from bcrl.cli.bench_options import BenchOptions
from bcrl.cli.paper_run import OUT, Name, command_line, find_experiment, finish
from bcrl.errors import BCRLError, need

if TYPE_CHECKING:
    from bcrl.bench.cells import Work
    from bcrl.paper.experiments import Experiment
    from bcrl.report.paper import Page
    from bcrl.ship import Scenarios, ShipResult

LOGS = "logs"
"""The folder of the experts' log, in --out."""


@dataclass(kw_only=True)
class Command(BenchOptions):
    """Train the methods of the maritime table on the experts' log of ship scenarios, and sail the congested.

    The paper's scenarios are not public: these are of any file of bcrl ship data, such as New York Harbor's.
    """

    name: Name
    """The experiment, maritime."""
    out: Path = OUT
    """Folder for the pages, the experts' log and the runs."""
    tasks: tuple[str, ...] = ("ny-harbor",)
    """The scenario file: NAME.npz in --logs, which bcrl ship data writes."""
    budgets: tuple[float, ...] = (0.25, 0.5, 1.0)
    """Allowed costs, as shares of the median expert's cost in these scenarios."""
    preset: Literal["paper", "cpu"] = "cpu"
    """Size of networks, batch and steps."""
    results: Path | None = None
    """Episodes that bcrl ship evaluate --out wrote, in place of training and evaluating."""

    def run(self) -> None:
        from bcrl.ship import load_scenarios

        experiment = find_experiment(self.name)
        need("matplotlib", extra="report")
        if self.results is not None:
            finish(_page(experiment, _read(self.results), [], command_line(self)), self.out)
            return
        if len(self.tasks) != 1:
            raise BCRLError(f"--tasks is {','.join(self.tasks)!r}, but maritime takes one scenario file")
        file = self.logs / f"{self.tasks[0]}.npz"
        if not file.is_file():
            raise BCRLError(f"{file}: there is no such file; bcrl ship data ny-harbor --out {file} makes one")
        scenarios = load_scenarios(file)
        self.carry_out(
            lambda: self._works(experiment, scenarios, file),
            lambda _, works: self._show(experiment, scenarios, works),
            train_only=True,
            logs=self.out / LOGS,
        )

    def _works(self, experiment: "Experiment", scenarios: "Scenarios", file: Path) -> "list[Work]":
        """A training for each method, on the experts' log; the ships have no cells in the store."""
        from bcrl.bench.cells import Protocol, Work
        from bcrl.data import load_data
        from bcrl.learn.registry import default_steps, make_method
        from bcrl.ship import expert_log
        from bcrl.train.jobs import Job

        log = self.out / LOGS / f"{file.stem}.npz"
        experts = expert_log(scenarios, source=file.name)
        if not log.is_file() or load_data(log).fingerprint() != experts.fingerprint():
            experts.save(log)
        works = []
        for column in experiment.columns:
            method = make_method(column.method, preset=self.preset, family="ship")
            steps = default_steps(column.method, self.preset, "ship") if self.steps is None else self.steps
            options = dataclasses.asdict(method)  # type: ignore[call-overload]
            seeds = self.seeds or (0, 10, 20)
            job = Job(file.stem, column.method, options, steps, seeds, experts.fingerprint())
            works.append(Work(column.label, job, log, (), Protocol()))
        return works

    def _show(self, experiment: "Experiment", scenarios: "Scenarios", works: "Sequence[Work]") -> None:
        from bcrl.policy import load_learned
        from bcrl.ship import evaluate_ships
        from bcrl.train.jobs import RUNS, policy_file

        runs = {}
        for work in works:
            files = [policy_file(work.job, self.out / RUNS, seed) for seed in work.job.seeds]
            if all(files):  # else its training failed, which was said
                runs[work.label] = [load_learned(path) for path in files if path is not None]
        episodes = 100 if self.episodes is None else self.episodes
        results = evaluate_ships(runs, scenarios, budgets=self.budgets, episodes=episodes)
        results.save(self.out / "maritime-episodes.csv")
        steps = " and ".join(f"{n:,}" for n in sorted({work.job.steps for work in works}))
        about = [
            f"Own scenarios: {scenarios.about.get('source', self.tasks[0])}. Trained here with {steps} "
            f"steps, preset {self.preset}, seeds {', '.join(map(str, works[0].job.seeds))}."
        ]
        finish(_page(experiment, results, about, command_line(self)), self.out)


def _read(path: Path) -> "Sequence[ShipResult]":
    from bcrl.assess import read_results
    from bcrl.ship import ShipResult

    results = read_results(path, ShipResult)
    if not results:
        raise BCRLError(f"{path}: has no episode; write it with bcrl ship evaluate --out")
    return results


def _page(
    experiment: "Experiment", results: "Sequence[ShipResult]", about: list[str], command: str
) -> "Page":
    from bcrl.bench.tables import Text
    from bcrl.paper.ships import LEGEND, ship_data, ship_rows
    from bcrl.report.paper import Page, draw_ships

    data = ship_data(results)
    table = ("Beside the paper", [[Text(cell) for cell in row] for row in ship_rows(results)], LEGEND)
    return Page(experiment, [*about, experiment.note], [table], data, draw_ships(data), command)
