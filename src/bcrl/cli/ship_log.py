"""`bcrl ship log`: the transitions of experts and varied tracks as a log to learn from."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from bcrl.cli.terminal import next_step


@dataclass
class Command:
    """Write the experts' transitions until their goals, with the simulator's observations and costs."""

    scenarios: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="SCENARIOS")]
    """A scenario file of bcrl ship data."""
    out: Path
    """Log to write: .npz or .hdf5."""
    part: Literal["training", "fitting", "validation", "test", "congested"] = "training"
    """Which scenarios: the first four fifths by time, the rest (test), or the congested fifth of the rest.
    Fitting and validation are the training scenarios cut in two by time, to choose options on."""
    known_water: tyro.conf.FlagCreatePairsOff[bool] = False
    """Write two costs: close quarters, and each step that ends where few or no ships sailed before."""
    variations: int = 0
    """Varied tracks of each expert to add, at a changing pace and beside it, among the traffic of other
    times: they show what other ways would have cost."""
    frame: Literal["ego", "world"] = "ego"
    """Observations and actions around the ship with the goal ahead, or along the box as in the original."""
    overwrite: bool = False
    """Replace the file if it exists."""

    def run(self) -> None:
        import numpy as np

        from bcrl.cli.out import check_file
        from bcrl.data import FORMATS
        from bcrl.ship import expert_log, known_water, load_scenarios

        check_file(self.out, tuple(FORMATS), self.overwrite)
        scenarios = load_scenarios(self.scenarios)
        which = scenarios.evaluation if self.part == "congested" else scenarios.part(self.part)
        held = "validation" if self.part in ("fitting", "validation") else "test"
        water = known_water(scenarios, held) if self.known_water else None
        log = expert_log(
            scenarios,
            which,
            frame=self.frame,
            water=water,
            variations=self.variations,
            source=self.scenarios.name,
        )
        log.save(self.out)
        means = np.atleast_1d(log.episode_costs.mean(axis=0))
        print(
            f"{log.episode_count:,} episodes, {len(log):,} transitions, {log.observation_size} observations, "
            f"mean cost {' and '.join(f'{x:.1f}' for x in means)}: {self.out}"
        )
        next_step("bcrl", "train", "--data", self.out, "--out", "runs/ships", "--family", "ship")
