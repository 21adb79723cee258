"""Options of methods: each is declared once, with its default, range and unit, and checked from there.

tau_c: float = option(0.2, above=0.0, most=0.5)
\"\"\"Expectile of the cost value.\"\"\"
"""

import dataclasses
import math
from dataclasses import dataclass
from types import NoneType
from typing import Any, ClassVar, Literal, get_args, get_origin, get_type_hints

from bcrl.errors import BCRLError, brief_repr

LARGEST = 1e300
LARGEST_WHOLE = 2**31  # JAX takes a Python int as int32, also where a float is wanted
MOST_ENTRIES = 64  # of a tuple: what a file asks for is bounded before memory is taken


@dataclass(frozen=True)
class Range:
    """What an option may be: the numbers, and the unit they are in ("" for a pure number)."""

    low: float
    high: float
    low_allowed: bool
    high_allowed: bool
    unit: str
    traced: bool = False
    """Whether training uses it in arithmetic alone, so that runs with different values can be one program:
    not for sizes, nor in Python's `if`, nor in `prepare`."""

    def __contains__(self, value: float) -> bool:
        above = value >= self.low if self.low_allowed else value > self.low
        return above and (value <= self.high if self.high_allowed else value < self.high)

    def __str__(self) -> str:
        if self.low == -math.inf and self.high == math.inf:
            return f"({self.unit})"
        text = f"{'from' if self.low_allowed else 'above'} {self.low:g}"
        if self.high != math.inf:
            text += f" {'to' if self.high_allowed else 'below'} {self.high:g}"
        elif self.low_allowed:
            text += " up"
        return text + (f" ({self.unit})" if self.unit else "")


def option(
    default: Any,
    *,
    least: float | None = None,
    above: float | None = None,
    most: float | None = None,
    below: float | None = None,
    unit: str = "",
    traced: bool = False,
) -> Any:
    """A field of a method's dataclass with its range. A subclass that changes the default keeps the range."""
    low, high = above if least is None else least, below if most is None else most
    limits = Range(
        -math.inf if low is None else low,
        math.inf if high is None else high,
        above is None,
        most is not None,
        unit,
        traced,
    )
    return dataclasses.field(default=default, metadata={"range": limits})


def range_of(kind: type, name: str) -> Range | None:
    """The declared range of an option, from the class that declares it or the nearest base that does."""
    for base in kind.__mro__:
        field = base.__dict__.get("__dataclass_fields__", {}).get(name)
        if field is not None and "range" in field.metadata:
            return field.metadata["range"]
    return None


@dataclass(frozen=True, repr=False)
class MethodOptions:
    """What every method has. Options are checked when a method is made."""

    name: ClassVar[str]
    acting: ClassVar[tuple[str, ...]] = ()
    """The options of acting: a trained policy can have others (`Policy.adjusted`)."""

    # ---- units -------------------------------------------------------------------------------------

    cost_unit: tuple[float, ...] | None = option(None, above=0.0)
    """The cost that counts as 1 in training, one for each cost; by default c_max, the largest of a step."""
    reward_unit: float | None = option(None, above=0.0)
    """The reward that counts as 1 in training; by default chosen so that returns spread as Bullet's do."""

    def __post_init__(self) -> None:
        hints = get_type_hints(type(self))
        for field in dataclasses.fields(self):
            _check(field.name, getattr(self, field.name), hints[field.name], range_of(type(self), field.name))

    def __repr__(self) -> str:
        """The options that differ from the defaults."""
        values = ((field, getattr(self, field.name)) for field in dataclasses.fields(self))
        own = [f"{field.name}={value!r}" for field, value in values if value != field.default]
        return f"{type(self).__name__}({', '.join(own)})"

    @property
    def instance(self) -> str:
        """Its own name."""
        return self.name

    @property
    def schedule(self) -> tuple[tuple[str, ...], ...]:
        """One phase of one part."""
        return (("all",),)

    @property
    def trained_for(self) -> float | None:
        """Training sees no threshold."""
        return None

    @property
    def in_task_units(self) -> bool:
        """Costs and rewards are scaled before training."""
        return False

    @property
    def budget_form(self) -> tuple[str, str]:
        """Training sees no budget."""
        return "", ""


def _check(name: str, value: Any, hint: Any, limits: Range | None) -> None:
    """Raises unless the value has the declared type and lies in the declared range."""
    choices = get_args(hint)
    if NoneType in choices:
        if value is None:
            return
        (hint,) = (kind for kind in choices if kind is not NoneType)
        choices = get_args(hint)
    if get_origin(hint) is Literal:
        if value not in choices:
            raise BCRLError(
                f"{name} is {brief_repr(value)}, but must be one of {', '.join(map(str, choices))}"
            )
    elif get_origin(hint) is tuple:
        _check_tuple(name, value, choices, limits)
    elif hint in (int, float):
        if not _is_number(value, hint) or (limits is not None and value not in limits):
            raise BCRLError(f"{name} is {brief_repr(value)}, but must be {_words(hint, limits)}")
    elif not isinstance(value, hint):
        raise BCRLError(f"{name} is {brief_repr(value)}, but must be of type {hint.__name__}")


def _check_tuple(name: str, value: Any, kinds: tuple[Any, ...], limits: Range | None) -> None:
    each = kinds[0]
    length = f"1 to {MOST_ENTRIES} numbers" if kinds[-1] is Ellipsis else f"{len(kinds)} numbers"
    lengths = range(1, MOST_ENTRIES + 1) if kinds[-1] is Ellipsis else (len(kinds),)
    fits = isinstance(value, tuple) and len(value) in lengths
    if not fits or not all(_is_number(x, each) and (limits is None or x in limits) for x in value):
        raise BCRLError(f"{name} is {brief_repr(value)}, but must be {length}, each {_words(each, limits)}")


def _is_number(value: Any, kind: type) -> bool:
    """Whether it is a finite number of this kind; files may hold anything."""
    allowed = int if kind is int else int | float
    if isinstance(value, bool) or not isinstance(value, allowed):
        return False
    return abs(value) < (LARGEST_WHOLE if isinstance(value, int) else LARGEST)


def _words(kind: type, limits: Range | None) -> str:
    noun = "a whole number" if kind is int else "a number"
    return noun if limits is None else f"{noun} {limits}"
