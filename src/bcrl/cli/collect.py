"""`bcrl collect`: record a log in a built-in world."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import tyro

from bcrl.errors import BCRLError

if TYPE_CHECKING:
    from bcrl.worlds import World


@dataclass
class Command:
    """Record a log in a built-in world: an agent learns there while told to mind costs more or less."""

    world: tyro.conf.Positional[str]
    """point-circle, point-run or point-goal."""
    out: Path
    """File to write; its suffix, .npz or .hdf5, chooses the format."""
    transitions: int = 200_000
    """About how many steps to keep; whole episodes are kept."""
    seed: int = 0
    """The same seed gives the same log."""
    noise: float = 0.0
    """Standard deviation of the error the actuators add to each action, whose range is -1 to 1."""
    overwrite: bool = False
    """Replace the file if it exists."""

    def run(self) -> None:
        from bcrl.worlds import make_world

        world = make_world(self.world, self.noise)
        check_recording(world, self.transitions, self.seed)
        out = self.out.expanduser()
        self._check_writable(out)

        from bcrl.worlds.collect import collect

        dataset = collect(world, self.transitions, self.seed)
        dataset.save(out)
        safe = (dataset.episode_costs <= 20).mean()
        print(
            f"{len(dataset.episode_costs):,} episodes, {len(dataset):,} transitions, "
            f"{safe:.0%} of episodes with cost ≤ 20: {out}"
        )

    def _check_writable(self, out: Path) -> None:
        """Refuses what could only fail after the work is done."""
        from bcrl.data.files import FORMATS

        if out.suffix.lower() not in FORMATS:
            raise BCRLError(f"--out {out}: unknown suffix {out.suffix!r}; known: {', '.join(FORMATS)}")
        if os.path.isdir(out):
            raise BCRLError(f"--out {out} is a folder; name a file in it")
        if os.path.exists(out) and not self.overwrite:
            raise BCRLError(f"--out {out} exists; choose another name or give --overwrite")
        try:
            out.parent.mkdir(parents=True, exist_ok=True)
            writable = os.access(out.parent, os.W_OK | os.X_OK)
        except OSError:
            writable = False
        if not writable:
            raise BCRLError(f"--out {out}: the folder {out.parent} cannot be written; choose another place")


def check_recording(world: "World", transitions: int, seed: int) -> None:
    """Refuses what no log can be recorded with; the demo records one too."""
    if transitions < world.horizon:
        raise BCRLError(
            f"--transitions {transitions} is less than one episode of {world.name}; "
            f"give {world.horizon} or more"
        )
    if seed < 0:
        raise BCRLError(f"--seed {seed} is negative; give 0 or more")
