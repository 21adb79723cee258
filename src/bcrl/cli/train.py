"""`bcrl train`: learn policies from a log."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, TypeVar

import tyro

from bcrl.cli.arguments import numbers
from bcrl.errors import BCRLError
from bcrl.learn.method import METHODS, method_class
from bcrl.learn.presets import FAMILIES, PRESETS, Family, Preset, default_options

Options = TypeVar("Options")


@dataclass
class Command(Generic[Options]):
    """Learn policies from a log, one for each seed, all seeds as one program.

    Options of the method follow below; their defaults come from --preset and --family.
    """

    data: Path
    """The log: HDF5 in DSRL's layout or NPZ."""
    out: Path
    """Folder of the run: config, metrics, checkpoint, policies."""
    options: Annotated[Options, tyro.conf.arg(name="")]
    method: Literal["bcrl", "bc-all", "bc-safe"] = "bcrl"
    """What to train; its options follow below."""
    preset: Preset = "paper"
    """Size of networks, batch and steps: the paper's, or one that trains in minutes on two CPU cores."""
    family: Family = "bullet"
    """Kind of task, for the paper's hyperparameters."""
    seeds: str = "0"
    """Seeds with commas, such as 0,10,20."""
    steps: int = 100_000
    """Gradient steps (of each phase)."""
    resume: bool = False
    """Go on from the checkpoint in the folder, to the same result as without the stop."""
    cost_critics: Path | None = None
    """A BCRL policy whose cost critics are taken over and left as they are, for another reward."""
    log_every: int = 1_000
    """Steps between rows of metrics.csv."""
    checkpoint_every: int = 10_000
    """Steps between checkpoints."""
    tensorboard: bool = False
    """Write TensorBoard logs too (needs the extra bcrl[tensorboard])."""

    def run(self) -> None:
        from bcrl.data import load_data
        from bcrl.learn.run import fit
        from bcrl.policy import load

        seeds = tuple(int(x) for x in numbers("seeds", self.seeds, whole=True))
        run = fit(
            load_data(self.data),
            self.options,  # type: ignore[arg-type]
            seeds=seeds,
            steps=self.steps,
            out=self.out,
            resume=self.resume,
            log_every=self.log_every,
            checkpoint_every=self.checkpoint_every,
            cost_critics=None if self.cost_critics is None else load(self.cost_critics),
            tensorboard=self.tensorboard,
        )
        names = ", ".join(f"policy-{seed}.bcrl" for seed in run.seeds)
        print(f"trained {self.method} for {self.steps:,} steps: {names} in {self.out}")


def command_for(words: Sequence[str]) -> tuple[Any, Any]:
    """The command for the chosen method, with the defaults of the chosen preset and family.

    They are looked up before the other options are read, so that what the user gives always wins.
    """
    method = _choice(words, "method", METHODS, "bcrl")
    preset = _choice(words, "preset", PRESETS, "paper")
    family = _choice(words, "family", FAMILIES, "bullet")
    kind = method_class(method)
    defaults, steps = default_options(kind, preset, family)
    # An option with no sensible default (a threshold to train for) must come from the user.
    blank = object.__new__(kind)
    for field in dataclasses.fields(kind):
        object.__setattr__(blank, field.name, defaults.get(field.name, field.default))
    default = Command(
        data=tyro.MISSING,
        out=tyro.MISSING,
        options=blank,
        method=method,  # type: ignore[arg-type]
        preset=preset,  # type: ignore[arg-type]
        family=family,  # type: ignore[arg-type]
        steps=steps,
    )
    return Command[kind], default


def _choice(words: Sequence[str], name: str, known: dict[str, Any], default: str) -> str:
    value = default
    for i, word in enumerate(words):
        if word == f"--{name}" and i + 1 < len(words):
            value = words[i + 1]
        elif word.startswith(f"--{name}="):
            value = word.partition("=")[2]
    if value not in known:
        raise BCRLError(f"--{name} {value} is not known; known: {', '.join(known)}")
    return value
