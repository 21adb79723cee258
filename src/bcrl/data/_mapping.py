"""Which column of a table is what: read from options or TOML, and checked."""

import dataclasses
import os
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_origin

from bcrl.data._checks import fault, one_line
from bcrl.errors import BCRLError, brief_repr, did_you_mean

MISSING_WORDS = ("NA", "N/A", "n/a", "#N/A", "nan", "NaN", "NAN", "NaT", "null", "NULL", "None")
"""Texts that stand for no value, beside an empty cell."""
MOST_MAP = 2**22
"""Bytes of a map; a longer one is refused unread."""
CHOICES = {
    "ends": ("timeout", "terminal"),
    "last_row": ("next", "keep"),
    "missing": ("drop", "forward", "error"),
    "duplicates": ("error", "first", "last"),
    "decimal": ("", ".", ","),
}
REQUIRED = ("observations", "actions", "reward", "costs")


@dataclass(frozen=True)
class TableMap:
    """The columns of a table by their role, and what is done about what is missing or odd.

    The fields are the keys of a map in TOML and the keywords of `from_frame` and `read_table`.
    """

    observations: tuple[str, ...]
    """Columns; `x1..x5` are x1, x2, x3, x4, x5, and `speed..heading` all columns from one to the other."""
    actions: tuple[str, ...]
    reward: str
    costs: tuple[str, ...]
    episode: str = ""
    """The column that says which episode a row belongs to. Without one, episodes end where flags say so."""
    time: str = ""
    """Numbers, or ISO dates and times. Without it the order of the rows is the order in time."""
    next_observations: tuple[str, ...] = ()
    """The state after the action, where the table has it; otherwise it is taken from the following row."""
    terminal: str = ""
    """A column of 0 and 1: 1 where the world ended the episode."""
    timeout: str = ""
    """A column of 0 and 1: 1 where a time limit ended it."""
    ends: str = "timeout"
    """What the last row of an episode is where no column says so: `timeout` or `terminal`."""
    last_row: str = "next"
    """The last row of an episode that goes on has no next state. `next`: it only is the next state of the row
    before. `keep`: it is kept, with its own state as the next."""
    discrete: bool = False
    """The actions are labels in one column."""
    action_labels: tuple[str, ...] = ()
    """The labels in their order; by default those of the table, sorted."""
    action_bounds: Mapping[str, Sequence[float]] = field(default_factory=dict)
    """Low and high by column; by default the smallest and largest of the table."""
    categories: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Observation columns that are not numbers, each with its values; none: those of the table, sorted."""
    missing: str = "drop"
    """What a missing value does. `drop`: its episode is left out. `forward`: the last value of the episode is
    taken. `error`: the table is refused."""
    fill: Mapping[str, Any] = field(default_factory=dict)
    """The same by column, or a number to put in the place of a missing one."""
    missing_words: tuple[str, ...] = ()
    """More texts that stand for no value."""
    max_cost: Mapping[str, float] = field(default_factory=dict)
    """The largest cost that a step can have, by column."""
    units: Mapping[str, str] = field(default_factory=dict)
    """Units by column."""
    duplicates: str = "error"
    """Rows of the same episode and time: an error, or the `first` or `last` of them is kept."""
    split_gap: float | None = None
    """An episode is cut where more time than this passes between two rows: seconds for dates and times."""
    separator: str = ""
    """Of a CSV file; found by itself if not given."""
    decimal: str = ""
    """The decimal sign of a CSV file, `.` or `,`; found by itself if not given."""

    def __post_init__(self) -> None:
        for part in dataclasses.fields(self):
            object.__setattr__(self, part.name, _typed(part, getattr(self, part.name)))
        for name in REQUIRED:
            if not getattr(self, name):
                raise BCRLError(f"{name} is not given; name the column{'s'[: name.endswith('s')]}")
        for name, known in CHOICES.items():
            if getattr(self, name) not in known:
                said = brief_repr(getattr(self, name))
                raise BCRLError(f"{name} is {said}; known: {', '.join(filter(None, known))}")
        if len(self.separator.encode()) > 1:
            raise BCRLError(f"separator is {brief_repr(self.separator)}, but must be one character")
        if self.separator and self.separator == self.decimal:
            raise BCRLError(f"separator and decimal are both {self.separator!r}; they must differ")
        if self.split_gap is not None and not self.split_gap > 0:
            raise BCRLError(f"split_gap is {self.split_gap:g}, but must be above 0")
        if self.split_gap is not None and not self.time:
            raise BCRLError("split_gap needs the column of the time; give time")
        if self.action_labels and not self.discrete:
            object.__setattr__(self, "discrete", True)
        self._check_tables()

    def _check_tables(self) -> None:
        for name, pair in self.action_bounds.items():
            two = isinstance(pair, Sequence) and len(pair) == 2 and all(map(_finite, pair))
            if not two or not pair[0] < pair[1]:
                raise BCRLError(f"action_bounds of {name} is {brief_repr(pair)}, but must be low, high")
        if self.discrete and self.action_bounds:
            raise BCRLError("discrete actions are labels, which have no action_bounds; leave them out")
        for name, rule in self.fill.items():
            if rule not in CHOICES["missing"] and not _finite(rule):
                known = ", ".join(CHOICES["missing"])
                raise BCRLError(f"fill of {name} is {brief_repr(rule)}; give a number, or one of {known}")
        for name, most in self.max_cost.items():
            if not _finite(most) or not most > 0:
                raise BCRLError(f"max_cost of {name} is {brief_repr(most)}, but must be a number above 0")
        for table in ("categories", "units"):
            for name, value in getattr(self, table).items():
                texts = (value,) if table == "units" else value
                if not isinstance(texts, list | tuple) or not all(isinstance(text, str) for text in texts):
                    raise BCRLError(f"{table} of {name} is {brief_repr(value)}, but must be text")
                if len(set(texts)) < len(texts):
                    raise BCRLError(f"{table} of {name} is {brief_repr(value)}, but names one thing twice")

    @property
    def columns(self) -> list[str]:
        """Every column that is used, once."""
        single = (self.reward, self.episode, self.time, self.terminal, self.timeout)
        every = (*self.observations, *self.next_observations, *self.actions, *self.costs, *single)
        return list(dict.fromkeys(name for name in every if name))

    def rule(self, column: str) -> Any:
        """What is done about a missing value of a column."""
        return self.fill.get(column, self.missing)

    def resolve(self, columns: Sequence[str], source: str) -> "TableMap":
        """The map with ranges written out, after checking that a table of these columns has them all."""
        lists = ("observations", "next_observations", "actions", "costs")
        whole = {name: _expand(getattr(self, name), columns, source) for name in lists}
        resolved = dataclasses.replace(self, **whole)
        for name in lists:
            _check_once(name, whole[name], source)
        counts = {name: columns.count(name) for name in resolved.columns}
        for name, count in counts.items():
            if not count:
                raise _no_column(name, columns, source)
            if count > 1:
                raise fault(source, f"{count} columns are named {name}; rename all but one")
        for table, allowed in (
            ("action_bounds", resolved.actions),
            ("categories", resolved.observations),
            ("max_cost", resolved.costs),
            ("fill", (*resolved.observations, *resolved.actions, *resolved.costs, resolved.reward)),
            ("units", (*columns, "reward")),
        ):
            for name in getattr(self, table):
                if name not in allowed:
                    said = f"{table} names {name}, which is none of {_shown(allowed)}"
                    raise fault(source, f"{said}{did_you_mean(name, allowed)}")
            if table == "fill" and any(_finite(self.fill.get(name)) for name in self.categories):
                raise fault(source, "fill gives a number for a category; give forward, drop or error")
        resolved._check_sizes(source)
        return resolved

    def _check_sizes(self, source: str) -> None:
        if self.next_observations and len(self.next_observations) != len(self.observations):
            raise fault(
                source,
                f"there are {len(self.next_observations)} next_observations for {len(self.observations)} "
                "observations; give one for each, in the same order",
            )
        if self.discrete and len(self.actions) > 1:
            raise fault(
                source,
                f"discrete actions are labels in one column, and actions names {len(self.actions)}; "
                "join them into one column",
            )
        for table, names in (("action_bounds", self.actions), ("max_cost", self.costs)):
            left = [name for name in names if name not in getattr(self, table)]
            if left and getattr(self, table):
                raise fault(source, f"{table} is not given for {_shown(left)}; give it for each, or for none")


def read_map(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The keys of a map in TOML."""
    source = one_line(path)
    try:
        if Path(path).stat().st_size > MOST_MAP:
            raise fault(source, f"is larger than {MOST_MAP:,} bytes; a map is a short text")
        parts = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise fault(source, f"cannot be read ({error.strerror or error}); check the path") from None
    except (ValueError, RecursionError) as error:
        raise fault(source, f"is no TOML ({one_line(error)})") from None
    known = [part.name for part in dataclasses.fields(TableMap)]
    for name in parts:
        if name not in known:
            raise fault(
                source, f"there is no key {name}{did_you_mean(name, known)} known: {', '.join(known)}"
            )
    return parts


def make_map(parts: Mapping[str, Any], source: str = "") -> TableMap:
    """A map from keys; what is not given is not there."""
    known = [part.name for part in dataclasses.fields(TableMap)]
    for name in parts:
        if name not in known:
            raise BCRLError(
                f"there is no option {name}{did_you_mean(name, known) or ';'} known: {', '.join(known)}"
            )
    nothing: dict[str, Any] = {"observations": (), "actions": (), "reward": "", "costs": ()}
    try:
        return TableMap(**(nothing | dict(parts)))
    except BCRLError as error:
        raise fault(source, str(error)) if source else error from None


def _typed(part: Any, value: Any) -> Any:
    """The value of a field: a single name may stand for a list of one; anything else is refused."""
    kind = part.type
    if kind == tuple[str, ...]:
        value = (value,) if isinstance(value, str) else value
        if isinstance(value, list | tuple) and all(isinstance(text, str) and text for text in value):
            return tuple(value)
        raise BCRLError(f"{part.name} is {brief_repr(value)}, but must be names of columns")
    if get_origin(kind) is Mapping:
        if isinstance(value, Mapping) and all(isinstance(name, str) for name in value):
            return dict(value)
        raise BCRLError(f"{part.name} is {brief_repr(value)}, but must be a table by column")
    if kind in (str, bool):
        value = "" if value is None and kind is str else value
        if isinstance(value, kind):
            return value
        raise BCRLError(
            f"{part.name} is {brief_repr(value)}, but must be {'text' if kind is str else 'true or false'}"
        )
    if value is not None and not _finite(value):
        raise BCRLError(f"{part.name} is {brief_repr(value)}, but must be a number")
    return value


def _expand(names: Iterable[str], columns: Sequence[str], source: str) -> tuple[str, ...]:
    """Names with `a..b` written out. A column of that very name goes first."""
    whole: list[str] = []
    for name in names:
        first, dots, last = name.partition("..")
        if not dots or name in columns:
            whole.append(name)
            continue
        ends = [re.fullmatch(r"(.*?)(\d+)", end) for end in (first, last)]
        if ends[0] and ends[1] and ends[0][1] == ends[1][1]:
            low, high = int(ends[0][2]), int(ends[1][2])
            if not low <= high < low + 1_000_000:
                raise fault(
                    source, f"{name} counts from {low} to {high}; the first must not be above the last"
                )
            width = len(ends[0][2]) if ends[0][2].startswith("0") else 0
            whole += [f"{ends[0][1]}{number:0{width}d}" for number in range(low, high + 1)]
            continue
        for end in (first, last):
            if end not in columns:
                raise _no_column(end, columns, source)
        places = columns.index(first), columns.index(last)
        if places[0] > places[1]:
            raise fault(source, f"{name}: column {first} comes after {last}; exchange them")
        whole += columns[places[0] : places[1] + 1]
    return tuple(whole)


def _check_once(role: str, names: Sequence[str], source: str) -> None:
    seen = set()
    for name in names:
        if name in seen:
            raise fault(source, f"{role} names {name} twice; name it once")
        seen.add(name)


def _no_column(name: str, columns: Sequence[str], source: str) -> BCRLError:
    hint = did_you_mean(name, columns)
    if not hint and len(columns) == 1:
        hint = "; if these are several columns, give their --separator"
    return fault(source, f"there is no column {name}{hint}; found {_shown(columns)}")


def _shown(names: Sequence[str]) -> str:
    more = f" and {len(names) - 8:,} more" if len(names) > 8 else ""
    return (", ".join(one_line(name)[:40] or "''" for name in names[:8]) or "nothing") + more


def _finite(number: Any) -> bool:
    """Whether it is a number that float32 can hold."""
    return isinstance(number, int | float) and not isinstance(number, bool) and abs(number) < 1e30
