"""Defaults by size of training and by family of tasks. An option that is given always wins over them."""

import dataclasses
from typing import Any, Literal

from bcrl.errors import BCRLError
from bcrl.learn.method import Method, method_class

Preset = Literal["paper", "cpu"]
Family = Literal["bullet", "safety-gym", "metadrive", "point", "ship"]
Instance = Literal["iql", "xql", "sparse", "td3bc"]

# The networks and steps of the paper's table, and a size that trains in minutes on two CPU cores.
PRESETS: dict[str, dict[str, Any]] = {
    "paper": {"steps": 100_000},
    "cpu": {
        "steps": 20_000,
        "hidden": (64, 64),
        "vae_hidden": (64, 64),
        "width": 64,
        "layers": 2,
        "batch_size": 256,
    },
}

# What a family changes for every method; what it changes for one is that method's `family_options`.
FAMILIES: dict[str, dict[str, Any]] = {
    "bullet": {},
    "safety-gym": {},
    "metadrive": {"steps": 200_000},
    "point": {},
    "ship": {},
}

# BCRL's instantiations: the method that does it, and the options that make it this one.
INSTANCES: dict[str, tuple[str, dict[str, Any]]] = {
    "iql": ("bcrl", {"cost_regression": "expectile", "reward_regression": "expectile"}),
    "xql": ("bcrl", {"cost_regression": "gumbel", "reward_regression": "gumbel"}),
    "sparse": ("bcrl", {"cost_regression": "sparse", "reward_regression": "sparse"}),
    "td3bc": ("bcrl-td3bc", {}),
}


# The methods that track a budget while acting, and whose options the published code sets by task.
BCRL_METHODS = tuple(dict.fromkeys(method for method, _ in INSTANCES.values()))


def default_options(kind: type, preset: str, family: str) -> tuple[dict[str, Any], int]:
    """The defaults a method has options for, and the number of steps."""
    for word, table in ((preset, PRESETS), (family, FAMILIES)):
        if word not in table:
            raise BCRLError(f"{word!r} is not known here; known: {', '.join(table)}")
    # A preset's size wins over a family's: --preset cpu means small whatever the task.
    own = getattr(kind, "family_options", {}).get(family, {})
    defaults = {**PRESETS["paper"], **FAMILIES[family], **own}
    if preset != "paper":
        defaults |= PRESETS[preset]
    steps = defaults.pop("steps")
    known = {field.name for field in dataclasses.fields(kind)}
    return {name: value for name, value in defaults.items() if name in known}, steps


def instantiated(name: str, instance: str | None) -> tuple[str, dict[str, Any]]:
    """The name of the method and the options that an instance of BCRL stands for."""
    if instance is None:
        return name, {}
    if name != "bcrl":
        raise BCRLError(f"instance is {instance!r}, but {name} has none: instances are for bcrl")
    if instance not in INSTANCES:
        raise BCRLError(f"instance is {instance!r}, but must be one of {', '.join(INSTANCES)}")
    return INSTANCES[instance]


def make_method(name: str, preset: str, family: str, options: dict[str, Any]) -> tuple[Method, int]:
    """The method with its defaults filled in, and the number of steps. `options` win over all defaults.

    Among them may be an `instance` of BCRL, which stands for others and wins over none of them.
    """
    options = dict(options)
    name, chosen = instantiated(name, options.pop("instance", None))
    kind = method_class(name)
    defaults, steps = default_options(kind, preset, family)
    known = {field.name for field in dataclasses.fields(kind)}
    for option in options:
        if option not in known:
            raise BCRLError(f"{name} has no option {option!r}; it has {', '.join(sorted(known))}")
    values = defaults | chosen | options
    return kind(**{k: tuple(v) if isinstance(v, list) else v for k, v in values.items()}), steps
