"""`bcrl report`: the results of an evaluation, or estimates, as a page with pictures."""

import shlex
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from bcrl.budget import Execution
from bcrl.errors import BCRLError
from bcrl.progress import progress

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from bcrl.report.document import Part


@dataclass
class Command:
    """Turn results or estimates into one HTML file: what policies earn and cost at each threshold."""

    results: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RESULTS")]
    """The file bcrl evaluate, bcrl ship evaluate or bcrl estimate wrote with --out."""
    out: Path
    """The page to write, such as report.html."""
    data: Path | None = None
    """The log the policies were trained on, to show it beside what they made of it."""
    policies: tuple[Path, ...] = ()
    """Policy files or folders of runs: how they were trained, how to use them, and how they sail on a map."""
    truth: Path | None = None
    """For estimates: the file bcrl evaluate --out wrote of the same policies, not calibrated, to compare."""
    figure: Path | None = None
    """Write the picture to a file of its own too; its suffix, .svg, .pdf or .png, chooses the format."""
    scenarios: Path | None = None
    """A scenario file of bcrl ship data: adds a map on which the policies sail, as bcrl ship show does."""
    scenario: tuple[int, ...] = ()
    """Scenarios to show, a map each (default: one of the congested test with the median expert's cost)."""
    budgets: tuple[float, ...] = (0.5,)
    """What the policies may cost on the map, as shares of the median expert's."""
    thresholds: tuple[float, ...] | None = None
    """What the policies may cost on the map, in place of --budgets."""
    execution: Execution = "finite-horizon"
    """How the budget is tracked on the map; soft is the rule the paper's theorem covers."""
    frame: Literal["ego", "world"] = "ego"
    """The frame of the ship log that the policies learned from."""
    seed: int = 0
    """Decides what a policy that draws its actions draws on the map."""
    coastline: Path | None = None
    """A GeoJSON file of lines or polygons in degrees for the map, drawn as far as it is inside the box."""
    overwrite: tyro.conf.FlagCreatePairsOff[bool] = False
    """Replace files that exist."""

    def run(self) -> None:
        from bcrl.assess.results import read_columns, read_results
        from bcrl.cli.out import check_file
        from bcrl.data import load_data
        from bcrl.files import write_text
        from bcrl.policy import load_learned
        from bcrl.report import draw, report_page
        from bcrl.report.figure import matplotlib
        from bcrl.train.folder import policy_files

        if self.out.suffix.lower() not in (".html", ".htm"):
            raise BCRLError(f"--out {self.out} is a page: name it .html (for a picture alone: --figure)")
        check_file(self.out, (".html", ".htm"), self.overwrite)
        if self.figure is not None:
            check_file(self.figure, (".svg", ".pdf", ".png"), self.overwrite, option="--figure")
        if self.scenarios is None and (self.scenario or self.coastline is not None):
            raise BCRLError(
                "--scenario and --coastline are for a map: give --scenarios, a file of bcrl ship data"
            )
        matplotlib()  # what could only fail after the ships have sailed
        files = [file for place in self.policies for file in policy_files(place)]
        policies = []
        if files:
            with progress("reading policies", len(files), "files") as tick:
                for file in files:
                    policies.append(load_learned(file))
                    tick()
        known = {
            "dataset": None if self.data is None else load_data(self.data, storage="memory"),
            "policies": policies,
            "policy_file": files[0].name if files else "",
            "command": self._command(),
        }
        columns = read_columns(self.results)
        if "cost_low" in columns:
            self._estimates(known)
            return
        if self.truth is not None:
            raise BCRLError(f"--truth is for estimates, but {self.results} holds results: leave it out")
        if "scenario" in columns:
            from bcrl.report.ship import draw_budgets, run_names, ship_report_page
            from bcrl.ship import ShipResult

            results = read_results(self.results, ShipResult)
            page = partial(ship_report_page, results, more=self._map(run_names(results)), **known)
            picture = partial(draw_budgets, results)
        else:
            results = read_results(self.results)
            page = partial(report_page, results, more=self._map([]), **known)
            picture = partial(draw, results, known["dataset"])
        self._draw(lambda: write_text(self.out, page()), picture)
        print(f"{len(results):,} episodes: {self.out}{f', {self.figure}' if self.figure else ''}")

    def _estimates(self, known: dict[str, Any]) -> None:
        """The page about estimates."""
        from bcrl.assess.results import read_results
        from bcrl.estimates import Estimates
        from bcrl.report import draw_estimates, estimate_curves, learning_section, write_report
        from bcrl.train.folder import read_metrics

        if self.scenarios is not None:
            raise BCRLError(f"--scenarios is for results of ships, but {self.results} holds estimates")
        estimates = Estimates.load(self.results)
        truth = [] if self.truth is None else read_results(self.truth)
        learned = learning_section(
            {place.name: read_metrics(place) for place in self.policies if place.is_dir()}
        )
        more = [] if learned is None else [learned]

        def picture() -> "Figure":
            lines = estimate_curves(estimates, known["dataset"], known["policies"], truth)
            return draw_estimates(lines, known["dataset"], known["policies"])

        self._draw(partial(write_report, estimates, self.out, truth=truth, more=more, **known), picture)
        print(f"{len(estimates):,} estimates: {self.out}{f', {self.figure}' if self.figure else ''}")

    def _draw(self, write_page: Callable[[], None], picture: "Callable[[], Figure]") -> None:
        """Writes the page, and the picture if there is to be one."""
        from bcrl.report import save_figure

        with progress("drawing", 1 + (self.figure is not None), "files") as tick:
            write_page()
            tick()
            if self.figure is not None:
                save_figure(picture(), self.figure)
                tick()

    def _map(self, names: list[str]) -> "list[Part]":
        """The section with the maps, if there is to be one; `names` are runs in the order of the colours."""
        if self.scenarios is None:
            return []
        from bcrl.cli.ship_policies import sail_runs
        from bcrl.report.ship import map_section, read_coastline, typical_scenario
        from bcrl.ship import load_scenarios

        scenarios = load_scenarios(self.scenarios)
        which = list(dict.fromkeys(self.scenario)) or [typical_scenario(scenarios)]
        for scenario in which:
            scenarios.check(scenario)
        coast = None if self.coastline is None else read_coastline(self.coastline, scenarios.box)
        sailed, note = sail_runs(
            self.policies,
            scenarios,
            which,
            self.budgets,
            self.thresholds,
            execution=self.execution,
            frame=self.frame,
            seed=self.seed,
        )
        return [map_section(scenarios, which, sailed, policies=names, coastline=coast, note=note)]

    def _command(self) -> str:
        """How this page was made; folders are left out, since the reader may be somewhere else."""
        words = ["bcrl", "report", self.results.name, "--out", self.out.name]
        if self.data is not None:
            words += ["--data", self.data.name]
        if self.policies:
            words += ["--policies", *(place.name for place in self.policies)]
        if self.truth is not None:
            words += ["--truth", self.truth.name]
        if self.scenarios is not None:
            words += ["--scenarios", self.scenarios.name]
            words += ["--scenario", *map(str, self.scenario)] if self.scenario else []
            usual = Command(self.results, self.out)
            for name in ("budgets", "thresholds", "execution", "frame", "seed"):
                value = getattr(self, name)
                text = ",".join(f"{x:g}" for x in value) if isinstance(value, tuple) else str(value)
                words += [f"--{name}", text] if value != getattr(usual, name) else []
            words += ["--coastline", self.coastline.name] if self.coastline is not None else []
        return shlex.join(words)
