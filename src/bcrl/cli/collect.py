"""`bcrl collect`: record a log in a world."""

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import tyro

from bcrl.errors import BCRLError

if TYPE_CHECKING:
    from bcrl.data import Dataset
    from bcrl.worlds import World
    from bcrl.worlds.tasks import Task


@dataclass
class Command:
    """Record a log in a world: an agent learns there while told to mind costs more or less.

    In a world outside bcrl a recording that was stopped goes on when the same command is given again.
    """

    world: tyro.conf.Positional[str]
    """A built-in world, a DSRL task (`bcrl worlds` lists them), or gym:ID."""
    out: Path
    """File to write; its suffix, .npz or .hdf5, chooses the format."""
    transitions: int | None = None
    """About how many steps to keep; whole episodes are kept (default: 200,000, and at least 500 episodes of a
    world outside bcrl)."""
    steps: int | None = None
    """Steps to play and learn from, of which the log is a part (default: by world, see docs/worlds.md)."""
    cost_cap: float | None = None
    """Episodes that cost more are left out (default: three times the world's loosest threshold)."""
    seed: int = 0
    """The same seed gives the same log, on the same kind of machine."""
    noise: float = 0.0
    """Standard deviation of the error the actuators of a built-in world add to each action."""
    python: str | None = None
    """The Python that has the environment of gym:ID (default: this one)."""
    workers: int | None = None
    """Processes that step a world outside bcrl (default: one per core); they do not change the log."""
    overwrite: bool = False
    """Replace the file if it exists."""

    def run(self) -> None:
        from bcrl.cli.terminal import next_step
        from bcrl.worlds import make_world

        world = make_world(self.world, self.noise, self.python)
        out = self.out.expanduser()
        self._check(world, out)
        dataset = self._built_in() if world.engine == "scan" else self._remote(world, out)  # type: ignore[arg-type]
        dataset.save(out)
        shutil.rmtree(_partial(out), ignore_errors=True)
        limits = " / ".join(f"{threshold:g}" for threshold in world.thresholds)
        shares = " / ".join(f"{(dataset.episode_costs <= k).mean():.0%}" for k in world.thresholds)
        print(
            f"{dataset.episode_count:,} episodes, {len(dataset):,} transitions, "
            f"{shares} of episodes with cost ≤ {limits}: {out}"
        )
        if self.transitions is not None and len(dataset) < self.transitions:
            print(
                f"fewer than the {self.transitions:,} asked for: no more steps were recorded in episodes "
                "within the cost cap; raise --steps or --cost-cap"
            )
        known = {"scan": ("--family", "point", "--preset", "cpu"), "pool": ("--world", world.name)}
        given = () if world.family == "gym" else known[world.engine]
        next_step("bcrl", "train", "--data", out, "--out", f"runs/{out.stem}", *given)

    def _built_in(self) -> "Dataset":
        from bcrl.worlds import built_in_world
        from bcrl.worlds import collect as module

        return module.collect(
            built_in_world(self.world, self.noise),
            self.transitions or module.TRANSITIONS,
            self.seed,
            steps=self.steps or module.STEPS,
            cost_cap=module.COST_CAP if self.cost_cap is None else self.cost_cap,
        )

    def _remote(self, task: "Task", out: Path) -> "Dataset":
        from bcrl.worlds.remote.collect import collect_remote

        return collect_remote(
            task,
            self.transitions,
            self.seed,
            steps=self.steps,
            cost_cap=self.cost_cap,
            workers=self.workers,
            folder=_partial(out),
        )

    def _check(self, world: "World", out: Path) -> None:
        """Refuses what no log can be recorded with, and what could only fail after the work is done."""
        from bcrl.cli.out import check_file
        from bcrl.data import FORMATS

        if self.transitions is not None and self.transitions < world.horizon:
            raise BCRLError(
                f"--transitions {self.transitions} is less than one episode of {world.name}; "
                f"give {world.horizon} or more"
            )
        if self.seed < 0:
            raise BCRLError(f"--seed {self.seed} is negative; give 0 or more")
        for name in ("steps", "workers"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise BCRLError(f"--{name} {value}, but must be at least 1")
        check_file(out, FORMATS, self.overwrite)


def _partial(out: Path) -> Path:
    """Where a recording keeps what it needs to go on after a stop: beside the log."""
    return out.with_name(f".{out.name}.partial")
