"""Sweeps: many settings of a method as few programs, each setting a run of its own."""

import dataclasses
import itertools
import math
import os
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import NoneType
from typing import Any, get_args, get_origin, get_type_hints

from bcrl.data import Dataset
from bcrl.errors import BCRLError, brief_repr, did_you_mean
from bcrl.learn.protocol import Method
from bcrl.learn.traced import program_key
from bcrl.policy import Policy
from bcrl.train.folder import CONFIG
from bcrl.train.run import Run, Training
from bcrl.train.saver import Diverged, Pace


def settings(method: Method, /, **options: Sequence[Any]) -> dict[str, Method]:
    """The method with every combination of these values, by name.

    `settings(method, tau_c=(0.2, 0.3), beta=(1, 3))` has four, the first is "tau_c=0.2,beta=1".
    """
    known = [field.name for field in dataclasses.fields(method)]  # type: ignore[arg-type]
    for name, values in options.items():
        if name not in known:
            raise BCRLError(f"{method.name} has no option {name!r}{did_you_mean(name, known)}")
        if isinstance(values, str) or not isinstance(values, Sequence) or not values:
            raise BCRLError(f"{name} is {brief_repr(values)}, but a sweep needs a list of values")
    found = {}
    for values in itertools.product(*options.values()):
        setting = dict(zip(options, values, strict=True))
        words = ",".join(f"{name}={_word(value)}" for name, value in setting.items())
        if words in found:
            raise BCRLError(f"{words} is there twice: give each value once")
        found[words] = dataclasses.replace(method, **setting)  # type: ignore[type-var]
    return found


def sweep(
    data: Dataset,
    methods: Mapping[str, Method],
    *,
    seeds: Sequence[int] = (0,),
    steps: int = 100_000,
    out: str | os.PathLike | None = None,
    resume: bool = False,
    overwrite: bool = False,
    log_every: int = 1_000,
    checkpoint_every: int = 10_000,
    keep_every: int = 0,
    cost_critics: Policy | None = None,
    tensorboard: bool = False,
) -> dict[str, Run]:
    """Trains methods by name on a log, each for all seeds, and returns their runs; see `settings`.

    Methods that differ in traced options alone (docs/training.md) are one program. Each run is what `fit`
    gives, up to the order of float32 sums, and with `out` it is kept in OUT/NAME. The arguments are those of
    `fit`. A run that diverges is left out, with a warning; it is an error if all do.
    """
    if not methods:
        raise BCRLError("a sweep needs at least one method: bcrl.settings(method, beta=(1, 3)), say")
    if out is not None and (Path(out) / CONFIG).exists():
        raise BCRLError(f"{out}: holds a run, but a sweep needs a folder of its own: name another")
    groups: dict[Any, list[str]] = {}
    for name, method in methods.items():
        _check_name(name)
        groups.setdefault(program_key(method), []).append(name)
    trainings = [
        Training(
            data,
            [methods[name] for name in names],
            [None if out is None else Path(out) / name for name in names],
            seeds=seeds,
            steps=steps,
            resume=resume,
            overwrite=overwrite,
            pace=Pace(log_every, checkpoint_every, keep_every),
            cost_critics=cost_critics,
            tensorboard=tensorboard,
        )
        for names in groups.values()
    ]
    runs: dict[str, Run] = {}
    for number, names in enumerate(groups.values(), start=1):
        label = "training" if len(groups) == 1 else f"training {number}/{len(groups)}"
        try:
            trained = trainings.pop(0).run(label)
            if out is not None and trainings:  # the next program needs the memory; policies are in files
                for run in trained.values():
                    run.state = run.arrays = None
            runs |= {names[i]: run for i, run in trained.items()}
        except Diverged as error:
            if number == len(groups) and not runs:
                raise
            if len(names) == 1:  # of several, each has been reported
                warnings.warn(f"{names[0]}: {error}", stacklevel=2)
    return {name: runs[name] for name in methods if name in runs}


def read_grid(kind: type[Method], words: Sequence[str], flag: str = "--sweep") -> dict[str, list[Any]]:
    """The values of options from words such as tau_c=0.2 0.3 beta=1 3, or tau_c=0.2,0.3; tuples as 64x64."""
    hints = get_type_hints(kind)
    known = [field.name for field in dataclasses.fields(kind)]  # type: ignore[arg-type]
    grid: dict[str, list[Any]] = {}
    name = ""
    for word in itertools.chain.from_iterable(given.split(",") for given in words):
        option, equals, text = word.rpartition("=")
        if equals:
            name = option.replace("-", "_")
            if name not in known:
                raise BCRLError(f"{flag}: {kind.name} has no option {option!r}{did_you_mean(name, known)}")
            if name in grid:
                raise BCRLError(f"{flag}: {option} is there twice: give all its values at once")
        elif not name:
            raise BCRLError(f"{flag} is {word!r}, but must begin with an option, such as tau_c=0.2,0.3")
        try:
            grid.setdefault(name, []).append(_value(hints[name], text))
        except ValueError as error:
            raise BCRLError(f"{flag}: {name} is {text!r}, but must be {error}") from None
    return grid


def _value(hint: Any, text: str) -> Any:
    """The value that a word says; a ValueError says what it must be."""
    if NoneType in get_args(hint):
        if text == "None":
            return None
        (hint,) = (kind for kind in get_args(hint) if kind is not NoneType)
    if get_origin(hint) is tuple:
        return tuple(_value(get_args(hint)[0], word) for word in text.split("x"))
    if hint is bool:
        if text.lower() not in ("true", "false"):
            raise ValueError("true or false")
        return text.lower() == "true"
    if hint not in (int, float):
        return text
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number) or (hint is int and number != int(number)):
        raise ValueError("a whole number" if hint is int else "a number")
    return hint(number)


def _word(value: Any) -> str:
    """A value in the name of a folder."""
    if isinstance(value, tuple | list):
        return "x".join(map(_word, value))
    if isinstance(value, float):
        return short if float(short := f"{value:g}") == value else repr(value)
    return str(value)


def _check_name(name: str) -> None:
    """A name becomes a folder."""
    parts = Path(name).parts if isinstance(name, str) else ()
    if not parts or Path(name).is_absolute() or ".." in parts:
        raise BCRLError(f"{brief_repr(name)} cannot name a run of a sweep: give a plain name")
