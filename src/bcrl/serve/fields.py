"""Checks of what a client or a journal says, field by field."""

import math
from collections.abc import Collection
from typing import Any

from bcrl.errors import BCRLError, brief_repr, did_you_mean

LARGEST = 1e15
"""Of all numbers that are given, so that sums and squares of them stay in the range of float32."""
KEY_LENGTH = 64


def only(body: Any, required: Collection[str], optional: Collection[str] = ()) -> dict[str, Any]:
    """An object with these fields and no others."""
    known = [*required, *optional]
    if not isinstance(body, dict):
        raise BCRLError(f"the body is {brief_repr(body)}, but must be an object with {', '.join(known)}")
    for name in body:
        if name not in known:
            hint = did_you_mean(name, known) or f"; known: {', '.join(known)}"
            raise BCRLError(f"there is no field {brief_repr(name)} here{hint}")
    for name in required:
        if name not in body:
            raise BCRLError(f"{name} is missing: give {', '.join(required)}")
    return body


def whole(name: str, value: Any, low: int, high: int) -> int:
    """A whole number in a range. JSON knows one kind of number: 3.0 is whole too."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if type(value) is not int or not low <= value <= high:
        raise BCRLError(f"{name} is {brief_repr(value)}, but must be a whole number from {low} to {high}")
    return value


def number(name: str, value: Any, low: float = -LARGEST, high: float = LARGEST) -> float:
    """A finite number of sensible size."""
    if type(value) not in (int, float) or not low <= value <= high:
        raise BCRLError(f"{name} is {brief_repr(value)}, but must be a number from {low:g} to {high:g}")
    return float(value)


def numbers(name: str, value: Any, count: int, low: float = -LARGEST, high: float = LARGEST) -> list[float]:
    """A list of that many numbers."""
    if not isinstance(value, list) or len(value) != count:
        found = f"has {len(value):,}" if isinstance(value, list) else f"is {brief_repr(value)}"
        raise BCRLError(f"{name} {found}, but must be a list of {count:,} numbers")
    return [number(f"{name}[{index}]", one, low, high) for index, one in enumerate(value)]


def costs(name: str, value: Any, count: int) -> float | list[float]:
    """What is given for costs: a number, or a list where the policy bounds several."""
    return number(name, value, 0.0) if count == 1 else numbers(name, value, count, 0.0)


def choice(name: str, value: Any, known: Collection[Any]) -> Any:
    """One of a few words or whole numbers."""
    same = [one for one in known if type(value) in (str, int, float) and one == value]
    if not same:
        listed = ", ".join(map(str, known)) or "nothing: this policy has no choice"
        raise BCRLError(f"{name} is {brief_repr(value)}, but must be one of {listed}")
    return same[0]


def truth(name: str, value: Any) -> bool:
    if type(value) is not bool:
        raise BCRLError(f"{name} is {brief_repr(value)}, but must be true or false")
    return value


def key(value: Any) -> str:
    """A word by which a client marks a request that it may repeat."""
    plain = isinstance(value, str) and value.isascii() and value.isprintable()
    if not plain or not 1 <= len(value) <= KEY_LENGTH:
        raise BCRLError(f"key is {brief_repr(value)}, but must be 1 to {KEY_LENGTH} printable ASCII letters")
    return value


def plain(value: Any) -> Any:
    """Numbers of a policy as JSON has them: infinity and NaN are null."""
    if isinstance(value, list):
        return [plain(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
