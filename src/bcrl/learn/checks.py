"""Options outside their range end in one line that says what they may be."""

import dataclasses
import math
from typing import Any, Literal, get_args, get_origin, get_type_hints

from bcrl.errors import BCRLError

# name -> (low, high, whether low is allowed, whether high is)
RANGES: dict[str, tuple[float, float, bool, bool]] = {
    "tau_c": (0.0, 0.5, False, True),
    "tau_r": (0.5, 1.0, True, True),
    "gamma": (0.0, 1.0, True, True),
    "gamma_cost": (0.0, 1.0, False, True),
    "target_rate": (0.0, 1.0, True, True),
    "dropout": (0.0, 1.0, True, False),
    "fallback_below": (0.0, math.inf, True, False),
    "fallback_draws": (0.0, math.inf, True, False),
    "fallback_beta": (0.0, math.inf, True, False),
    "noise": (0.0, math.inf, True, False),
    "noise_limit": (0.0, math.inf, True, False),
    "unsafe_price": (0.0, math.inf, True, False),
}
POSITIVE = (
    "beta",
    "learning_rate",
    "clip_norm",
    "weight_limit",
    "temperature_c",
    "temperature_r",
    "exponent_limit",
    "greed",
    "max_budget",
    "batch_size",
    "budget_samples",
)
RANGES |= dict.fromkeys(POSITIVE, (0.0, math.inf, False, False))
WHOLE = ("batch_size", "budget_samples", "fallback_draws")


def check_options(options: Any) -> None:
    """Checks every option a method has, by name; a method adds only what is its own."""
    hints = get_type_hints(type(options))
    for field in dataclasses.fields(options):
        name, value = field.name, getattr(options, field.name)
        if get_origin(hints[name]) is Literal and value not in get_args(hints[name]):
            known = ", ".join(map(str, get_args(hints[name])))
            raise BCRLError(f"{name} is {value!r}, but must be one of {known}")
        if name in RANGES and value is not None:
            _check_range(name, value)
    hidden = getattr(options, "hidden", (1,))  # a transformer has no such option
    if (
        not isinstance(hidden, tuple)
        or not hidden
        or not all(isinstance(units, int) and units >= 1 for units in hidden)
    ):
        raise BCRLError(f"hidden is {hidden}, but must name at least one layer of one unit or more")


def _check_range(name: str, value: Any) -> None:
    low, high, low_allowed, high_allowed = RANGES[name]
    number = isinstance(value, int | float) and not isinstance(value, bool)
    above = number and (value >= low if low_allowed else value > low)
    below = number and (value <= high if high_allowed else value < high)
    if not (above and below) or (name in WHOLE and not isinstance(value, int)):
        kind = "a whole number" if name in WHOLE else "a number"
        start = f"{'from' if low_allowed else 'above'} {low:g}"
        end = "" if high == math.inf else f" {'to' if high_allowed else 'below'} {high:g}"
        raise BCRLError(f"{name} is {value}, but must be {kind} {start}{end}")
