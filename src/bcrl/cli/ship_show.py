"""`bcrl ship show`: one scenario on a map, with the expert, the traffic and the routes of policies."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from bcrl.budget import Execution
from bcrl.errors import BCRLError, printable


@dataclass
class Command:
    """Write a map of one scenario: an HTML file to open in a browser, offline, and a picture of it."""

    scenario: Annotated[tyro.conf.Positional[int], tyro.conf.arg(metavar="SCENARIO")]
    """Its number in the file, from 0; those of bcrl ship evaluate --out are in the column scenario."""
    scenarios: Path
    """A scenario file of bcrl ship data."""
    out: Path
    """The map to write, such as map.html."""
    png: Path | None = None
    """Write a still picture too, such as map.png (needs the extra report)."""
    policies: tuple[Path, ...] = ()
    """Policy files or folders of runs to sail the scenario; of a run, the policy of its first seed."""
    budgets: tuple[float, ...] = (0.5,)
    """Allowed costs, as shares of the median expert's in the congested test scenarios."""
    thresholds: tuple[float, ...] | None = None
    """Allowed costs, with commas, such as 5,10, in place of --budgets."""
    execution: Execution = "finite-horizon"
    """How the budget is tracked while acting; soft is the rule the paper's theorem covers."""
    frame: Literal["ego", "world"] = "ego"
    """The frame of the log that the policies learned from."""
    seed: int = 0
    """Decides what a policy that draws its actions draws."""
    coastline: Path | None = None
    """A GeoJSON file of lines or polygons in degrees, drawn as far as it is inside the box."""
    overwrite: tyro.conf.FlagCreatePairsOff[bool] = False
    """Replace files that exist."""

    def run(self) -> None:
        from bcrl.cli.out import check_file
        from bcrl.cli.ship_policies import sail_runs
        from bcrl.report.ship import describe_routes, draw_map, make_map, read_coastline, write_map
        from bcrl.ship import load_scenarios

        check_file(self.out, (".html",), self.overwrite)
        if self.png is not None:
            self._check_png(self.png)
            check_file(self.png, (".png",), self.overwrite, option="--png")
        scenarios = load_scenarios(self.scenarios)
        scenarios.check(self.scenario)
        coast = None if self.coastline is None else read_coastline(self.coastline, scenarios.box)
        sailed, note = sail_runs(
            self.policies,
            scenarios,
            [self.scenario],
            self.budgets,
            self.thresholds,
            execution=self.execution,
            frame=self.frame,
            seed=self.seed,
        )
        drawn = make_map(scenarios, self.scenario, sailed)
        write_map(self.out, scenarios, drawn, coastline=coast, note=note)
        if self.png is not None:
            from bcrl.report import save_figure

            save_figure(draw_map(scenarios, drawn, coastline=coast), self.png)
        for route in describe_routes(drawn):
            end = "reaches the goal" if route.reached else "does not reach the goal"
            print(f"{printable(route.name)}: {route.close} of {route.steps} steps in close quarters, {end}")
        print(f"{self.out}{f', {self.png}' if self.png else ''}")

    def _check_png(self, png: Path) -> None:
        """What could only fail after the work is done."""
        from bcrl.report.figure import matplotlib

        matplotlib()
        if png.suffix.lower() != ".png" or png.is_dir():
            raise BCRLError(f"--png is {str(png)!r}, but must be a file that ends in .png")
