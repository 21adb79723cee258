"""`bcrl ship plan`: what is possible in ship scenarios, by a planner that knows them."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from bcrl.cli.terminal import next_step


@dataclass
class Command:
    """Search the fewest steps in close quarters with which each ship still reaches its goal.

    The planner knows where every ship will be: it bounds what policies can be asked for.
    """

    scenarios: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="SCENARIOS")]
    """A scenario file of bcrl ship data."""
    out: Path
    """File for one row per scenario, .csv, for bcrl ship evaluate --anchor."""
    part: Literal["test", "validation"] = "test"
    """The congested fifth of which scenarios."""
    off_water: float | None = None
    """Steps off known water that a plan may make (default: as many as it likes)."""
    max_speed: float | None = None
    """m/s that every ship can sail (default: what 99 % of logged steps keep; its expert's own if faster)."""
    population: int = 64
    """Plans per iteration of the search."""
    iterations: int = 40
    """Iterations of a search."""
    restarts: int = 2
    """Searches per scenario, of which the best counts."""
    seed: int = 0
    """Decides the random numbers of the search."""
    overwrite: tyro.conf.FlagCreatePairsOff[bool] = False
    """Replace the file if it exists."""

    def run(self) -> None:
        import numpy as np

        from bcrl.cli.out import check_file
        from bcrl.ship import load_scenarios, plan_ships
        from bcrl.worlds.planning import Search

        check_file(self.out, (".csv",), self.overwrite)
        how = Search(self.population, max(2, self.population // 8), self.iterations, self.restarts)
        scenarios = load_scenarios(self.scenarios)
        plans = plan_ships(
            scenarios,
            part=self.part,
            off_water=self.off_water,
            max_speed=self.max_speed,
            how=how,
            seed=self.seed,
        )
        plans.save(self.out)
        success, cost, speed = np.mean([(plan.success, plan.cost, plan.speed) for plan in plans], axis=0)
        experts = np.mean([scenarios.expert_cost[plan.scenario] for plan in plans])
        print(
            f"{len(plans)} plans: {success:.0%} reach the goal, mean cost {cost:.1f} "
            f"(experts {experts:.1f}), {speed:.1f} m/s: {self.out}"
        )
        words = ["bcrl", "ship", "evaluate", "RUN", "--scenarios", self.scenarios, "--anchor", self.out]
        next_step(*words, *(["--part", self.part] if self.part != "test" else []))
