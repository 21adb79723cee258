"""Green, amber or red: whether an estimate may be trusted, with reasons in plain words."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

T = TypeVar("T")
NUMBER = re.compile(r"\d+(?:\.\d+)?(?:e[+-]?\d+)?%?")


class Light(StrEnum):
    """What an estimate is worth."""

    GREEN = "green"
    """No check found anything."""
    AMBER = "amber"
    """Look at the reasons; the floor of the interval is doubled."""
    RED = "red"
    """Do not use it."""


ORDER = (Light.GREEN, Light.AMBER, Light.RED)

# The largest value that is still green, and that is still amber.
CUTOFFS = {
    # Costs were right at shares of .1 to .4 on point worlds and real logs; far above, little is known.
    "fallback": (0.40, 0.70),
    "far": (0.02, 0.10),
    # By point worlds: at most .11 for logs with and without noise, at least .26 with shuffled actions.
    "replay": (0.12, 0.24),
    "spread": (0.10, 0.30),
    "clipped": (0.01, 0.05),
}

REASONS = {
    "fallback": "the fallback decides {:.0%} of the steps",
    "far": "{:.1%} of the visited states and actions are far from all in the log",
    "replay": "replays of held-out episodes miss the logged cost by {:.0%}",
    "spread": "the members of the model differ by {:.0%} of the threshold",
    "clipped": "{:.1%} of the predictions left the range of the log",
}


@dataclass(frozen=True)
class Verdict:
    """A light and why it is not green."""

    light: Light
    reasons: tuple[str, ...]

    def joined(self, light: Light, reason: str) -> "Verdict":
        """With one more reason; the worse light counts."""
        return Verdict(max(self.light, light, key=ORDER.index), (*self.reasons, reason))


def judge(checks: dict[str, float]) -> Verdict:
    """The light of these checks, by name as in `CUTOFFS`; the worst counts."""
    verdict = Verdict(Light.GREEN, ())
    for name, value in checks.items():
        green, amber = CUTOFFS[name]
        if not value <= green:
            light = Light.AMBER if value <= amber else Light.RED
            verdict = verdict.joined(light, REASONS[name].format(value))
    return verdict


def outside_log(verdict: Verdict, threshold: float, least: float, largest: float) -> Verdict:
    """Adds what the log's own episode costs, from `least` to `largest`, say about a told threshold."""
    if threshold < least:
        verdict = verdict.joined(
            Light.AMBER,
            f"no logged episode costs less than {least:g}: thresholds under {least:g} are extrapolation",
        )
    if threshold > largest:
        verdict = verdict.joined(Light.AMBER, f"no logged episode costs more than {largest:g}")
    return verdict


def overspent(verdict: Verdict, threshold: float, mean: float, low: float) -> Verdict:
    """Adds that the policy is estimated to cost more than it was told."""
    if mean <= threshold:
        return verdict
    light = Light.RED if low > threshold else Light.AMBER
    return verdict.joined(light, f"the estimated cost, {mean:.3g}, is above the threshold")


def grouped(reasons: Iterable[tuple[T, str]]) -> list[tuple[list[T], str]]:
    """Reasons that differ in their numbers alone as one, after all that they are for.

    The one has the smallest and the largest of each number.
    """
    groups: dict[tuple[str, ...], list[tuple[T, str]]] = {}
    for at, reason in reasons:
        groups.setdefault(tuple(NUMBER.split(reason)), []).append((at, reason))
    found = []
    for parts, same in groups.items():
        text = parts[0]
        numbers = zip(*(NUMBER.findall(reason) for _, reason in same), strict=True)
        for column, part in zip(numbers, parts[1:], strict=True):
            low, high = (pick(column, key=lambda number: float(number.rstrip("%"))) for pick in (min, max))
            text += (low if low == high else f"{low} to {high}") + part
        found.append(([at for at, _ in same], text))
    return found
