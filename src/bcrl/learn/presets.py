"""Defaults by size of training and by family of tasks. An option that is given always wins over them."""

import dataclasses
from typing import Any, Literal

from bcrl.errors import BCRLError
from bcrl.learn.method import Method, method_class

Preset = Literal["paper", "cpu"]
Family = Literal["bullet", "safety-gym", "metadrive", "point"]

# The networks and steps of the paper's table, and a size that trains in minutes on two CPU cores.
PRESETS: dict[str, dict[str, Any]] = {
    "paper": {"steps": 100_000},
    "cpu": {"steps": 20_000, "hidden": (64, 64), "batch_size": 256},
}

# The paper's table of hyperparameters by family; MetaDrive's network and dropout are the published code's.
FAMILIES: dict[str, dict[str, Any]] = {
    "bullet": {"tau_c": 0.2, "tau_r": 0.5, "beta": 3.0},
    "safety-gym": {"tau_c": 0.3, "tau_r": 0.6, "beta": 3.0},
    "metadrive": {
        "steps": 200_000,
        "tracking": "direct",
        "tau_c": 0.4,
        "tau_r": 0.6,
        "beta": 8.0,
        "hidden": (256, 256),
        "dropout": 0.0,
    },
    # The built-in point tasks: as Bullet, with a reward value nearer the best (chosen on circle and run).
    "point": {"tau_c": 0.2, "tau_r": 0.7, "beta": 3.0},
}


def default_options(kind: type, preset: str, family: str) -> tuple[dict[str, Any], int]:
    """The defaults a method has options for, and the number of steps."""
    for word, table in ((preset, PRESETS), (family, FAMILIES)):
        if word not in table:
            raise BCRLError(f"{word!r} is not known here; known: {', '.join(table)}")
    # A preset's size wins over a family's: --preset cpu means small whatever the task.
    defaults = {**PRESETS["paper"], **FAMILIES[family]}
    if preset != "paper":
        defaults |= PRESETS[preset]
    steps = defaults.pop("steps")
    known = {field.name for field in dataclasses.fields(kind)}
    return {name: value for name, value in defaults.items() if name in known}, steps


def make_method(name: str, preset: str, family: str, options: dict[str, Any]) -> tuple[Method, int]:
    """The method with its defaults filled in, and the number of steps. `options` win over all defaults."""
    kind = method_class(name)
    defaults, steps = default_options(kind, preset, family)
    known = {field.name for field in dataclasses.fields(kind)}
    for option in options:
        if option not in known:
            raise BCRLError(f"{name} has no option {option!r}; it has {', '.join(sorted(known))}")
    values = defaults | options
    return kind(**{k: tuple(v) if isinstance(v, list) else v for k, v in values.items()}), steps
