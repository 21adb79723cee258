"""What the columns of a log mean in the user's own terms: names, units, action bounds or labels."""

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bcrl.errors import BCRLError, brief_repr

MOST_TEXT = 2**22
"""Characters of a stored schema; a longer one is refused unread."""
NAMES = ("observation_names", "action_names", "cost_names", "action_labels")
NUMBERS = ("action_low", "action_high", "max_cost")


@dataclass(frozen=True)
class Schema:
    """The meaning of a log's columns. Every part may be left out; an empty one says nothing.

    Logs and policy files keep it. Actions of a log are always in [-1, 1]; `action_low` and `action_high` are
    the bounds in the user's unit to which −1 and 1 belong, and a policy answers in that unit. With
    `action_labels` the actions are discrete: a row of the log has 1 in the column of its label, else 0.
    """

    observation_names: tuple[str, ...] = ()
    action_names: tuple[str, ...] = ()
    cost_names: tuple[str, ...] = ()
    action_labels: tuple[str, ...] = ()
    action_low: tuple[float, ...] = ()
    action_high: tuple[float, ...] = ()
    max_cost: tuple[float, ...] = ()
    """The largest cost that a step can have, for each cost, where the user knows it."""
    units: Mapping[str, str] = field(default_factory=dict)
    """Units by the name of a column, and of "reward"."""

    def __post_init__(self) -> None:
        for name in NAMES:
            names = getattr(self, name)
            if not isinstance(names, tuple) or not all(isinstance(text, str) and text for text in names):
                raise BCRLError(f"{name} is {brief_repr(names)}, but must be texts that are not empty")
            if len(set(names)) < len(names):
                raise BCRLError(f"{name} is {brief_repr(names)}, but names one thing twice")
        for name in NUMBERS:
            numbers = getattr(self, name)
            if not isinstance(numbers, tuple) or not all(_is_finite(number) for number in numbers):
                raise BCRLError(f"{name} is {brief_repr(numbers)}, but must be finite numbers")
        if len(self.action_low) != len(self.action_high):
            raise BCRLError(
                f"action_low has {len(self.action_low)} numbers and action_high {len(self.action_high)}: "
                "give both for each action"
            )
        for low, high in zip(self.action_low, self.action_high, strict=True):
            if not low < high:
                raise BCRLError(f"an action is bounded by {low:g} and {high:g}, but low must be below high")
        if self.action_labels and self.action_low:
            raise BCRLError("action_labels make actions discrete, which have no action_low and action_high")
        if any(cost <= 0 for cost in self.max_cost):
            raise BCRLError(f"max_cost is {brief_repr(self.max_cost)}, but must be above 0")
        if not isinstance(self.units, Mapping) or not all(
            isinstance(text, str) for pair in self.units.items() for text in pair
        ):
            raise BCRLError(f"units is {brief_repr(self.units)}, but must be texts by name")

    def __bool__(self) -> bool:
        """Whether anything is said."""
        return any(getattr(self, part.name) for part in dataclasses.fields(self))

    @property
    def discrete(self) -> bool:
        """Whether actions are labels."""
        return bool(self.action_labels)

    def check(self, observations: int, actions: int, costs: int) -> None:
        """Refuses a schema of other sizes than the log's."""
        sizes = {
            "observation_names": observations,
            "action_names": 1 if self.discrete else actions,
            "action_labels": actions,
            "action_low": actions,
            "cost_names": costs,
            "max_cost": costs,
        }
        for name, size in sizes.items():
            given = len(getattr(self, name))
            if given not in (0, size):
                raise BCRLError(f"{name} has {given} entries, but the log has {size}")

    def to_unit_box(self, actions: ArrayLike) -> NDArray[Any]:
        """Actions in the user's unit, in [-1, 1]."""
        values = np.asarray(actions, np.float64)
        if not self.action_low:
            return values
        low, high = np.array(self.action_low), np.array(self.action_high)
        return 2 * (values - low) / (high - low) - 1

    def from_unit_box(self, actions: ArrayLike) -> NDArray[Any]:
        """Actions in [-1, 1], in the user's unit and inside its bounds."""
        values = np.asarray(actions, np.float64)
        if not self.action_low:
            return values
        low, high = np.array(self.action_low), np.array(self.action_high)
        return np.clip(low + (values + 1) / 2 * (high - low), low, high)

    def to_dict(self) -> dict[str, Any]:
        """What is said, as plain lists and texts."""
        parts = {part.name: getattr(self, part.name) for part in dataclasses.fields(self)}
        return {
            name: dict(value) if name == "units" else list(value) for name, value in parts.items() if value
        }

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), sort_keys=True)

    @classmethod
    def from_dict(cls, parts: Any) -> "Schema":
        """The schema that a file carries; anything else in it is an error."""
        known = {part.name for part in dataclasses.fields(cls)}
        if not isinstance(parts, dict) or not set(parts) <= known:
            raise BCRLError(f"the schema is damaged ({brief_repr(parts)}); known: {', '.join(sorted(known))}")
        for name, value in parts.items():
            if not isinstance(value, dict if name == "units" else list):
                raise BCRLError(f"the schema's {name} is damaged ({brief_repr(value)})")
        values: dict[str, Any] = {n: v if n == "units" else tuple(v) for n, v in parts.items()}
        return cls(**values)

    @classmethod
    def from_json(cls, text: str) -> "Schema":
        """The schema in a text that `to_json` wrote."""
        if len(text) > MOST_TEXT:
            raise BCRLError(f"the schema has {len(text):,} characters, and {MOST_TEXT:,} is the most")
        try:
            parts = json.loads(text)
        except (ValueError, RecursionError):
            raise BCRLError(f"the schema is no JSON ({brief_repr(text)})") from None
        return cls.from_dict(parts)


NO_SCHEMA = Schema()


class About(NamedTuple):
    """What a file says of a log beside its arrays."""

    consecutive: bool
    """Whether its rows follow one another."""
    schema: Schema


PLAIN = About(True, NO_SCHEMA)


def _is_finite(number: Any) -> bool:
    """Whether it is a number that float32 can hold, and its distance to another too."""
    return isinstance(number, int | float) and not isinstance(number, bool) and abs(number) < 1e30
