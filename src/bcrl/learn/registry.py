"""The registry of methods: one record each, and the defaults of presets and families.

A record is read by the command line, plans, tables, the report and policy files. An option that the user
gives wins over every default here.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Literal

from bcrl.errors import BCRLError, brief_repr, did_you_mean
from bcrl.learn.protocol import Method

Preset = Literal["paper", "cpu"]
Family = Literal["own", "bullet", "safety-gym", "metadrive", "point", "ship"]
Threshold = Literal["at run time", "before training", "never"]
Options = dict[str, Any]


@dataclass(frozen=True)
class Record:
    """All that the package knows of a method outside its own file."""

    name: str
    title: str
    """Its name in tables and reports."""
    where: str
    """module:class, imported on demand."""
    threshold: Threshold
    """When its policies are told the threshold."""
    budgets: bool = False
    """Whether its policies track a budget: execution rules and candidates apply."""
    discrete: bool = False
    """Whether it learns from actions that are labels."""
    options: Options = field(default_factory=dict)
    """What makes it this instance of its class."""
    families: dict[str, Options] = field(default_factory=dict)
    """Its own hyperparameters in a family of tasks."""
    from_disk: bool = True
    """Whether it learns from a log that stays on disk."""

    @property
    def kind(self) -> type[Method]:
        """The class of its options."""
        module, attribute = self.where.split(":")
        return getattr(import_module(module), attribute)


# The paper's hyperparameters, but for two of safety-gym. MetaDrive's network and dropout are those of
# the published code.
_BCRL_FAMILIES: dict[str, Options] = {
    "bullet": {"tau_c": 0.2, "tau_r": 0.5, "beta": 3.0},
    # The paper's τ_C is 0.3 with n_step 1. Episodes have 500 and 1,000 steps (docs/results/promise.md).
    "safety-gym": {"tau_c": 0.01, "tau_r": 0.6, "beta": 3.0, "n_step": 10},
    "metadrive": {
        "tracking": "direct",
        "tau_c": 0.4,
        "tau_r": 0.6,
        "beta": 8.0,
        "hidden": (256, 256),
        "dropout": 0.0,
    },
    # The built-in point tasks: as Bullet, with a reward value nearer the best (chosen on circle and run).
    "point": {"tau_c": 0.2, "tau_r": 0.7, "beta": 3.0},
    # Ships: a reward of 100 at the goal asks for a small β; with a smaller fallback_beta more ships arrive.
    # The options of cost were chosen in the scenarios of validation (docs/results/ships.md).
    "ship": {
        "tau_c": 0.05,
        "tau_r": 0.7,
        "beta": 0.1,
        "n_step": 3,
        "gamma_cost": 0.95,
        "fallback_beta": 1.75,
        "fallback_ramp": 7.0,
        "steps": 30_000,
    },
}
# Extraction by gradient: smaller networks, fewer steps and a larger τ_R, chosen on five Bullet tasks
# (docs/results/extraction.md).
_GRADIENT_FAMILIES = _BCRL_FAMILIES | {
    "bullet": _BCRL_FAMILIES["bullet"] | {"tau_r": 0.9, "hidden": (256, 256), "steps": 40_000}
}
_CLONE_FAMILIES: dict[str, Options] = {
    "metadrive": {"hidden": (256, 256), "dropout": 0.0}
}  # as BCRL's policy


def _bcrl(
    name: str,
    title: str,
    families: dict[str, Options] = _BCRL_FAMILIES,
    *,
    discrete: bool = True,
    **options: Any,
) -> Record:
    where = "bcrl.learn.bcrl:BCRL"
    return Record(name, title, where, "at run time", True, discrete, options, families)


def _regressions(name: str) -> Options:
    return {"cost_regression": name, "reward_regression": name}


def _baseline(
    name: str,
    title: str,
    kind: str,
    threshold: Threshold,
    families: dict[str, Options] | None = None,
    *,
    discrete: bool = False,
    from_disk: bool = True,
) -> Record:
    where = f"bcrl.learn.baselines.{kind}"
    return Record(
        name, title, where, threshold, discrete=discrete, from_disk=from_disk, families=families or {}
    )


METHODS: dict[str, Record] = {
    record.name: record
    for record in (
        _bcrl("bcrl", "BCRL"),
        _bcrl("bcrl-xql", "BCRL (XQL)", **_regressions("gumbel")),
        _bcrl("bcrl-sparse", "BCRL (SparseQL)", **_regressions("sparse")),
        _bcrl(
            "bcrl-gradient",
            "BCRL (gradient)",
            _GRADIENT_FAMILIES,
            discrete=False,
            extraction="gradient",
            critic_norm=True,
        ),
        Record(
            "bcrl-td3bc",
            "BCRL (TD3+BC)",
            "bcrl.learn.bcrl_td3:BCRLTD3",
            "at run time",
            True,
            families=_BCRL_FAMILIES,
        ),
        _baseline("bc-all", "BC-All", "bc:BCAll", "never", _CLONE_FAMILIES, discrete=True),
        _baseline("bc-safe", "BC-Safe", "bc:BCSafe", "before training", _CLONE_FAMILIES, discrete=True),
        _baseline("bcq-lag", "BCQ-Lag", "bcq_lag:BCQLag", "before training"),
        _baseline("cpq", "CPQ", "cpq:CPQ", "before training"),
        _baseline("coptidice", "COptiDICE", "coptidice:COptiDICE", "before training", from_disk=False),
        _baseline("cdt", "CDT", "cdt:CDT", "at run time", from_disk=False),
        _baseline("caps", "CAPS", "caps:CAPS", "at run time", {"metadrive": {"tau_r": 0.5, "tau_c": 0.5}}),
        _baseline("ccac", "CCAC", "ccac:CCAC", "at run time"),
        _baseline(
            "lspc",
            "LSPC",
            "lspc:LSPC",
            "never",
            # The point tasks as Bullet.
            {"bullet": {"radius": 0.6}, "point": {"radius": 0.6}, "metadrive": {"cost_ceiling": 0.02}},
        ),
        _baseline("fisor", "FISOR", "fisor:FISOR", "never", {"metadrive": {"least_escape_weight": 1.0}}),
    )
}

# The networks and steps of the paper's table, and a size that trains in minutes on two CPU cores.
PRESETS: dict[str, Options] = {
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

# What a family of tasks changes for every method; what it changes for one is in its record. The published
# temperatures belong to the tasks' own unit of reward; for a log of one's own ("own") it is chosen.
_TASK_UNIT: Options = {"reward_unit": 1.0}
FAMILIES: dict[str, Options] = {
    "own": {},
    "bullet": _TASK_UNIT,
    "safety-gym": _TASK_UNIT,
    "metadrive": {"steps": 200_000, **_TASK_UNIT},
    "point": _TASK_UNIT,
    "ship": _TASK_UNIT,
}


def find_method(name: str) -> Record:
    """The record of a method; an unknown name is answered with the nearest."""
    if isinstance(name, str) and name in METHODS:
        return METHODS[name]
    hint = did_you_mean(str(name), METHODS)
    raise BCRLError(f"there is no method {brief_repr(name)}{hint or ';'} known: {', '.join(METHODS)}")


def acts_by(method: Method, options: Mapping[str, Any]) -> Method:
    """The method with other options of acting; any other option is refused."""
    able = method.acting
    for option in options:
        if option not in able:
            what = did_you_mean(option, able) or (f"; it has {', '.join(able)}" if able else "")
            raise BCRLError(f"{method.instance} has no option of acting {option!r}{what}")
    return dataclasses.replace(method, **options)  # type: ignore[type-var]


def check_discrete(method: Method, source: str) -> None:
    """Refuses a method that cannot learn from actions that are labels, as those of the log `source` are."""
    able = [record.name for record in METHODS.values() if record.discrete]
    if method.instance not in able:
        raise BCRLError(
            f"{source or 'the log'}: actions are labels, but {method.instance} knows continuous ones alone: "
            f"use {', '.join(able[:-1])} or {able[-1]}"
        )


OLD_VALUES = {"check_action": False, "label_values": "regressed", "safety_factor": 1.0, "n_step": 1}
"""Options that older files do not have and whose default was another when they were written."""


def with_old_values(options: Mapping[str, Any], kind: type[Method]) -> dict[str, Any]:
    """The options that a file holds, and those that it is too old for: as they were then, or the default."""
    fields = dataclasses.fields(kind)  # type: ignore[arg-type]
    return {field.name: OLD_VALUES.get(field.name, field.default) for field in fields} | dict(options)


def from_record(kind: type[Method], options: Mapping[str, Any]) -> Method:
    """A method of the options that a file holds."""
    values = with_old_values(options, kind).items()
    return kind(**{name: tuple(value) if isinstance(value, list) else value for name, value in values})


def check_from_disk(method: Method, source: str) -> None:
    """Refuses a method that needs all of the log in memory, for the log `source` that stays on disk."""
    able = [record.name for record in METHODS.values() if record.from_disk]
    if method.instance not in able:
        raise BCRLError(
            f"{source or 'the log'}: stays on disk, but {method.instance} needs it in memory: read it with "
            f"storage memory if it fits, select episodes, or use one of {', '.join(able)}"
        )


def make_method(name: str = "bcrl", *, preset: str = "paper", family: str = "own", **options: Any) -> Method:
    """The method of this name: `options` over the defaults of the preset and of the family of tasks.

    The number of steps that belongs to them is `default_steps(name, preset, family)`.
    """
    record = find_method(name)
    known = {field.name for field in dataclasses.fields(record.kind)}  # type: ignore[arg-type]
    for option in options:
        if option not in known:
            raise BCRLError(f"{name} has no option {option!r}; it has {', '.join(sorted(known))}")
    values = default_options(record, preset, family) | options
    return record.kind(**{k: tuple(v) if isinstance(v, list) else v for k, v in values.items()})


def default_options(record: Record, preset: str, family: str) -> Options:
    """The options in which a method differs from the defaults of its class."""
    known = {field.name for field in dataclasses.fields(record.kind)}  # type: ignore[arg-type]
    defaults = _defaults(record, preset, family) | record.options
    return {name: value for name, value in defaults.items() if name in known}


def default_steps(name: str = "bcrl", preset: str = "paper", family: str = "own") -> int:
    """The gradient steps of a training (of each phase)."""
    return _defaults(find_method(name), preset, family)["steps"]


def _defaults(record: Record, preset: str, family: str) -> Options:
    for word, table in ((preset, PRESETS), (family, FAMILIES)):
        if word not in table:
            raise BCRLError(f"{word!r} is not known here; known: {', '.join(table)}")
    # The size of a preset wins over a family's: preset cpu means small, whatever the task.
    sizes = PRESETS[preset] if preset != "paper" else {}
    return {**PRESETS["paper"], **FAMILIES[family], **record.families.get(family, {}), **sizes}
