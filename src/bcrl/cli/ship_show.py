"""`bcrl ship show`: one scenario on a map, with the expert, the traffic and what policies make of it."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from bcrl.budget import Execution
from bcrl.cli.arguments import numbers
from bcrl.errors import BCRLError

if TYPE_CHECKING:
    from bcrl.ship.rollout import Voyages
    from bcrl.ship.scenario import Scenarios
    from bcrl.ship.simulator import Frame


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
    budgets: str = "0.5"
    """Allowed costs, with commas, as shares of the median expert's in the congested test scenarios."""
    execution: Execution = "finite-horizon"
    """How the budget is tracked while acting; soft is the rule the paper's theorem covers."""
    frame: Literal["ego", "world"] = "ego"
    """The frame of the log that the policies learned from."""
    seed: int = 0
    """Decides what a policy that draws its actions draws."""
    coastline: Path | None = None
    """A GeoJSON file of lines or polygons in degrees, drawn as far as it is inside the box."""

    def run(self) -> None:
        from bcrl.cli.out import check_file
        from bcrl.report.ship.coastline import read_coastline
        from bcrl.report.ship.map import told, write_map
        from bcrl.report.ship.tracks import make_map
        from bcrl.ship import load_scenarios

        check_file(self.out, (".html",), overwrite=True)
        if self.png is not None:
            self._check_png(self.png)
        scenarios = load_scenarios(self.scenarios)
        check_scenario(self.scenario, scenarios, self.scenarios)
        coast = None if self.coastline is None else read_coastline(self.coastline, scenarios.box)
        sailed, note = sail_all(
            self.policies,
            scenarios,
            [self.scenario],
            self.budgets,
            execution=self.execution,
            frame=self.frame,
            seed=self.seed,
        )
        drawn = make_map(scenarios, self.scenario, sailed)
        write_map(self.out, scenarios, drawn, coastline=coast, note=note)
        if self.png is not None:
            from bcrl.report import save_figure
            from bcrl.report.ship.picture import draw_map

            save_figure(draw_map(scenarios, drawn, coastline=coast), self.png)
        for line in told(drawn):
            end = "reaches the goal" if line.reached else "does not reach the goal"
            print(f"{line.name}: {line.close} of {line.steps} steps in close quarters, {end}")
        print(f"{self.out}{f', {self.png}' if self.png else ''}")

    def _check_png(self, png: Path) -> None:
        """What could only fail after the work is done."""
        from bcrl.report.figure import matplotlib

        matplotlib()
        if png.suffix.lower() != ".png" or png.is_dir():
            raise BCRLError(f"--png is {str(png)!r}, but must be a file that ends in .png")


def check_scenario(scenario: int, scenarios: "Scenarios", file: Path) -> None:
    if not 0 <= scenario < len(scenarios):
        raise BCRLError(
            f"{file}: there is no scenario {scenario}; "
            f"they are 0 to {len(scenarios) - 1}, such as {scenarios.evaluation[0]} of the test"
        )


def sail_all(
    places: Sequence[Path],
    scenarios: "Scenarios",
    which: Sequence[int],
    budgets: str,
    *,
    execution: Execution,
    frame: "Frame",
    seed: int,
) -> tuple[dict[str, "Voyages"], str]:
    """What each policy does in these scenarios at each budget, and a sentence about what it was allowed."""
    import numpy as np

    from bcrl.policy import load_learned
    from bcrl.ship.rollout import sail
    from bcrl.ship.simulator import make_ship_world
    from bcrl.train.folder import policy_files

    shares = np.array(numbers("budgets", budgets))
    if not np.isfinite(shares).all() or shares.min() < 0 or len(set(shares)) < len(shares):
        raise BCRLError(f"--budgets is {budgets!r}, but must be different shares from 0 up")
    if not places:
        return {}, ""
    thresholds = shares * float(np.median(scenarios.expert_cost[scenarios.evaluation]))
    world = make_ship_world(scenarios, frame=frame)
    sailed = {}
    for place in places:
        name = run_name(place)
        if name in ("expert", *sailed):
            raise BCRLError(f"{place}: another on the map is called {name!r} already; rename the folder")
        policy = load_learned(policy_files(place)[0])
        sailed[name] = sail(
            policy,
            world,
            np.repeat(which, len(thresholds)),
            np.tile(thresholds, len(which)),
            seed=seed,
            execution=execution,
        )
    allowed = " or ".join(f"{threshold:g}" for threshold in thresholds)
    of_median = " or ".join(f"{share:g}" for share in shares)
    return sailed, (
        f"The policies were allowed a cost of {allowed} ({of_median} of the median expert's): "
        "a step in close quarters costs 1."
    )


def run_name(place: Path) -> str:
    """A run by its folder; a policy file by its folder and its own name, since all runs call theirs alike."""
    place = place.resolve()
    return f"{place.parent.name}/{place.stem}" if place.is_file() else place.name
