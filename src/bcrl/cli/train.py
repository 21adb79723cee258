"""`bcrl train`: learn policies from a log."""

import dataclasses
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any, Generic, Literal, TypeVar, cast

import numpy as np
import tyro

from bcrl.errors import BCRLError, did_you_mean
from bcrl.learn.protocol import Method
from bcrl.learn.registry import (
    FAMILIES,
    METHODS,
    PRESETS,
    Family,
    Preset,
    default_options,
    default_steps,
    find_method,
)

if TYPE_CHECKING:
    from bcrl.data import Dataset

Options = TypeVar("Options")
LONG = 500
"""Steps of an episode from which several steps in one backup are worth a trial (docs/results/promise.md)."""


@dataclass
class Command(Generic[Options]):
    """Learn policies from a log, one for each seed, all seeds as one program.

    Options of the method follow below; their defaults come from --preset and --family, or --world. Every
    method has its own: bcrl train --method caps --help.
    """

    # ---- what to train, and on what ----

    data: Path
    """The log: HDF5 in DSRL's layout, NPZ or Minari."""
    out: Path
    """Folder of the run: config, metrics, checkpoint, policies."""
    options: Annotated[Options, tyro.conf.arg(name="")]
    method: Literal[*METHODS] = "bcrl"  # type: ignore[valid-type]
    """What to train; its options follow below. bcrl is built on IQL, its instances on what they name."""
    preset: Preset = "paper"
    """Size of networks, batch and steps: the paper's, or one that trains in minutes on two CPU cores."""
    family: Family = "own"
    """The hyperparameters of one of the paper's benchmarks; a log of your own needs none."""
    world: str | None = None
    """The world the log is from, such as BallRun: brings its family."""
    seeds: tuple[int, ...] = (0,)
    """Seeds, such as 0,10,20, trained as one program."""
    steps: int = 100_000
    """Gradient steps (of each phase)."""

    sweep: tuple[str, ...] = ()
    """Values of options to try, such as tau_c=0.2,0.3 beta=1,3: a run for each combination, in a folder of
    --out that is named after it. They train at once where only numbers differ."""

    # ---- the run ----

    resume: bool = False
    """Go on with the run in --out, to the same result as without the stop. Its settings need not be given
    again, those of a sweep must; a finished run can be given more --steps."""
    overwrite: bool = False
    """Replace the run in --out."""
    cost_critics: Path | None = None
    """A BCRL policy whose cost critics are taken over and left as they are, for another reward."""
    log_every: int = 1_000
    """Steps between rows of metrics.csv."""
    checkpoint_every: int = 10_000
    """Steps between checkpoints."""
    storage: Literal["auto", "memory", "disk"] = "auto"
    """Where the log is kept: in memory, or on disk, with batches read ahead; auto takes the disk for a log of
    more than a quarter of memory. The batches are the same, so it may be another one with --resume."""
    tensorboard: bool = False
    """Write TensorBoard logs too (needs the extra bcrl[tensorboard])."""
    distributed: str | None = None
    """One of several processes that train together: HOST:PORT,COUNT,NUMBER with the address of the first, or
    auto under Slurm and Open MPI. The first writes."""

    @property
    def help_words(self) -> str:
        """Options are those of a method: help is to be asked for that one."""
        return "" if self.method == "bcrl" else f" --method {self.method}"

    def run(self) -> None:
        from bcrl.cli.terminal import next_step
        from bcrl.data import load_data
        from bcrl.learn.devices import join_processes
        from bcrl.policy import load_learned
        from bcrl.train.run import fit
        from bcrl.train.sweep import read_grid, settings, sweep

        if self.distributed is not None:
            join_processes(self.distributed)
        data, method = load_data(self.data, storage=self.storage), cast(Method, self.options)
        how: dict[str, Any] = {
            "seeds": self.seeds,
            "steps": self.steps,
            "out": self.out,
            "resume": self.resume,
            "overwrite": self.overwrite,
            "log_every": self.log_every,
            "checkpoint_every": self.checkpoint_every,
            "cost_critics": None if self.cost_critics is None else load_learned(self.cost_critics),
            "tensorboard": self.tensorboard,
        }
        if self.sweep:
            methods = settings(method, **read_grid(type(method), self.sweep))
            runs = sweep(data, methods, **how)
            print(f"trained {len(runs)} settings of {method.name} for {self.steps:,} steps: in {self.out}")
            if data.cost_count == 1 and len(runs) > 1:  # there are no estimates of several costs
                folders = f"{quote(str(self.out))}/*"
                if len(runs) < len(methods):  # one that diverged has no policy
                    folders = " ".join(quote(str(self.out / name)) for name in runs)
                return next_step(f"bcrl choose {folders} --data {quote(str(self.data))}")
            return None
        run = fit(data, method, **how)
        names = ", ".join(f"policy-{seed}.bcrl" for seed in run.seeds)
        print(f"trained {run.method.name} for {self.steps:,} steps: {names} in {self.out}")
        if self.family == "own" and (hint := hint_for_long_episodes(data, run.method)):
            print(hint)
        told = ",".join(f"{x:g}" for x in usual_thresholds(data, run.method.trained_for))
        if self.world is None and self.family == "own" and data.consecutive and told:
            words = ["--data", self.data, "--thresholds", told, "--out", "estimates.csv"]
            model = self.data.with_suffix(".model").name
            return next_step("bcrl", "estimate", self.out, *words, "--model", model)
        return next_step(
            "bcrl", "evaluate", self.out, "--world", self.world or "WORLD", "--out", "results.csv"
        )


def hint_for_long_episodes(data: "Dataset", method: Method) -> str:
    """What to try where one action hardly changes what follows; empty where that is not measured."""
    from bcrl.learn.bcrl import BCRL

    if not isinstance(method, BCRL) or method.n_step > 1 or not data.consecutive or data.schema.discrete:
        return ""
    if data.horizon < LONG or method.criterion == "episodic" or method.cost_regression != "expectile":
        return ""
    return f"episodes of {data.horizon:,} steps: compare with --n-step 10 --tau-c 0.03 (docs/faq.md)"


def usual_thresholds(data: "Dataset", own: float | None) -> list[float]:
    """Thresholds to try first: the method's own, or low to middling costs of the log's episodes.

    Empty where estimates are not made: with several kinds of cost, or none at all.
    """
    costs = data.episode_costs
    if data.cost_count > 1 or not costs.any():
        return []
    if own is not None:
        return [own]
    return sorted({float(f"{x:.1g}") for x in np.quantile(costs[costs > 0], (0.1, 0.3, 0.5))})


def command_for(words: Sequence[str]) -> tuple[Any, Any]:
    """The command for the chosen method, with the defaults of the chosen preset, and family or world.

    They are looked up before the other options are read, so that what the user gives always wins. A run to
    resume brings its own.
    """
    out = _given(words, "out")
    if "--resume" in words and out is not None and (Path(out) / "config.json").exists():
        return _command_of_run(Path(out))
    if "--resume" in words and out is not None and _given(words, "data") is None:
        raise BCRLError(
            f"{out}: holds no run to go on with (config.json is missing): give --data, or the folder of a run"
        )
    method = find_method(_given(words, "method") or "bcrl").name
    preset = _choice(words, "preset", PRESETS, "paper")
    world = _given(words, "world")
    family = _choice(words, "family", FAMILIES, "own" if world is None else _family_of(world))
    record = find_method(method)
    kind: Any = record.kind
    defaults = default_options(record, preset, family)
    if swept := _given_list(words, "sweep"):
        from bcrl.train.sweep import read_grid

        defaults |= {name: values[0] for name, values in read_grid(kind, swept).items()}
    default = Command(
        data=tyro.MISSING,
        out=tyro.MISSING,
        options=_blank(kind, defaults),
        method=method,
        preset=preset,  # type: ignore[arg-type]
        family=family,  # type: ignore[arg-type]
        world=world,
        steps=default_steps(method, preset, family),
    )
    return Command[kind], default


def _command_of_run(folder: Path) -> tuple[Any, Any]:
    """The command that trained the run in a folder."""
    from bcrl.policy import read_options
    from bcrl.train.folder import read_config

    config = read_config(folder)
    method: Any = read_options(config, folder / "config.json")
    how = config.get("how", {})
    pace = {name: how[name] for name in ("log_every", "checkpoint_every") if name in how}
    default = Command(
        data=Path(how["data"]) if "data" in how else tyro.MISSING,
        out=folder,
        options=method,
        method=method.name,
        seeds=tuple(config["seeds"]),
        steps=config["spec"].get("steps", 100_000),
        **pace,
    )
    return Command[type(method)], default


def _blank(kind: Any, defaults: dict[str, Any]) -> Any:
    """Options with these defaults, unchecked: the user may still give what is missing."""
    blank = object.__new__(kind)
    for field in dataclasses.fields(kind):
        value = defaults.get(field.name, field.default)
        # An option with no sensible default (a threshold to train for) must come from the user.
        missing = isinstance(value, float) and math.isnan(value)
        object.__setattr__(blank, field.name, tyro.MISSING if missing else value)
    return blank


def _family_of(name: str) -> str:
    """The family of a world."""
    from bcrl.worlds import WORLDS
    from bcrl.worlds.tasks import find_task

    if name in WORLDS:
        return "point"
    try:
        return find_task(name).family
    except BCRLError as error:
        raise BCRLError(f"{error}; built in are {', '.join(WORLDS)}; for others give --family") from None


def _choice(words: Sequence[str], name: str, known: dict[str, Any], default: str) -> str:
    given = _given(words, name)
    value = default if given is None else given
    if value not in known:
        hint = did_you_mean(value, known)
        raise BCRLError(f"--{name} {value} is not known{hint or ';'} known: {', '.join(known)}")
    return value


def _given(words: Sequence[str], name: str) -> str | None:
    """What the user gives for an option, before the options are read."""
    value = None
    for i, word in enumerate(words):
        if word == f"--{name}" and i + 1 < len(words):
            value = words[i + 1]
        elif word.startswith(f"--{name}="):
            value = word.partition("=")[2]
    return value


def _given_list(words: Sequence[str], name: str) -> list[str]:
    """The same for an option that is a list."""
    if (first := _given(words, name)) is None:
        return []
    after = next(i for i, word in enumerate(words) if word in (f"--{name}", f"--{name}={first}"))
    rest = words[after + 1 + (words[after] == f"--{name}") :]
    return [first, *itertools.takewhile(lambda word: not word.startswith("--"), rest)]
