"""Whether `next_observations` are what came next: values bootstrap through exactly these states."""

from collections.abc import Mapping
from dataclasses import astuple, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bcrl.data._checks import fault
from bcrl.data.blocks import blocks, extremes, moments, take

TOLERANCE = 1e-3
"""Largest difference that counts as equal, in standard deviations of the observation's column."""
MOST_BROKEN = 0.05
"""Largest share of rows inside episodes that may not match the next row; a log with more is refused."""
MOST_SHIFTED = 0.5
"""Largest share of timeouts whose next observation may begin the following episode."""
FEWEST_TIMEOUTS = 3
"""With fewer timeouts before another episode none is counted as shifted: a match may be chance."""


@dataclass(frozen=True)
class Transitions:
    """Counts of next observations that match the next row, and of those that must not but do."""

    inside: int
    """Rows that are not the last of their episode."""
    broken: int
    """Of these, rows whose next observation is not the observation of the next row."""
    timeouts: int
    """Episodes that end by a timeout and are followed by another episode."""
    shifted: int
    """Of these, episodes whose last next observation is the first observation of the following episode."""

    def __add__(self, other: "Transitions") -> "Transitions":
        return Transitions(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))

    @property
    def broken_share(self) -> float:
        return self.broken / max(self.inside, 1)

    @property
    def shifted_share(self) -> float:
        return self.shifted / max(self.timeouts, 1)

    def faults(self) -> list[str]:
        """What is wrong, one phrase per kind; empty for a log as it should be."""
        found = []
        if self.broken:
            found.append(
                f"next_observations differ from the next row's observations in {self.broken:,} of "
                f"{self.inside:,} rows inside episodes ({self.broken_share:.2%})"
            )
        if self.shifted:
            found.append(
                "next_observations are the first observation of the following episode at "
                f"{self.shifted:,} of {self.timeouts:,} timeouts ({self.shifted_share:.2%})"
            )
        return found


def examine(arrays: Mapping[str, NDArray[Any]]) -> Transitions:
    """Compares each next observation with the row below it."""
    observations, following = arrays["observations"], arrays["next_observations"]
    ends = (arrays["terminals"] | arrays["timeouts"])[:-1]
    equal = _equal_below(observations, following)
    at_timeout = np.flatnonzero(arrays["timeouts"][:-1] & ~arrays["terminals"][:-1])
    shifted = int(equal[at_timeout].sum())
    firsts = np.flatnonzero(np.concatenate([[True], ends]))
    if shifted:
        by_chance = _matches_by_chance(take(following, at_timeout), take(observations, firsts), shifted)
        shifted = shifted if shifted > 2 * by_chance + 3 * by_chance**0.5 else 0
    return Transitions(
        inside=int((~ends).sum()),
        broken=int((~ends & ~equal).sum()),
        timeouts=len(at_timeout),
        shifted=shifted if len(at_timeout) >= FEWEST_TIMEOUTS else 0,
    )


def check_transitions(arrays: Mapping[str, NDArray[Any]], source: str) -> list[str]:
    """Refuses a log whose next observations are mostly wrong; returns what is wrong with a few of them."""
    return refuse(examine(arrays), source)


def refuse(found: Transitions, source: str) -> list[str]:
    """Refuses counts of mostly wrong next observations; returns what is wrong with a few of them."""
    if found.broken_share > MOST_BROKEN or found.shifted_share > MOST_SHIFTED:
        raise fault(
            source,
            f"{' and '.join(found.faults())}; store the state that each action led to, taken before any "
            "reset; if rows do not follow one another (a sample of transitions, or one run cut into pieces), "
            "say so with consecutive=False or bcrl data convert --not-consecutive",
        )
    return found.faults()


def _equal_below(observations: NDArray[Any], following: NDArray[Any]) -> NDArray[np.bool_]:
    """(N - 1,) whether next observation t is observation t + 1, up to rounding."""
    pair = following[:-1], observations[1:]
    equal = np.empty(len(pair[0]), bool)
    for at in blocks(*pair):
        equal[at] = (pair[0][at] == pair[1][at]).all(axis=1)
    rows = np.flatnonzero(~equal)
    if rows.size:
        size = np.abs(extremes(observations)).max(axis=0).astype(np.float64)
        allowed = TOLERANCE * moments(observations)[1] + 4 * np.finfo(np.float32).eps * size
        for at in blocks(*pair):
            here = np.flatnonzero(~equal[at])
            difference = np.abs(pair[0][at][here].astype(np.float64) - pair[1][at][here])
            equal[at.start + here] = (difference <= allowed).all(axis=1)
    return equal


def _matches_by_chance(last: NDArray[Any], firsts: NDArray[Any], shifted: int) -> float:
    """How many of `last` would match the first row of another episode drawn at random.

    In a world with few states or one start that is many, and then a match says nothing.
    """
    _, codes = np.unique(np.concatenate([last, firsts]), axis=0, return_inverse=True)
    codes = codes.ravel()
    counts = np.bincount(codes[len(last) :], minlength=codes.max() + 1)
    others = max(float(counts[codes[: len(last)]].sum() - shifted), 0.0)
    return others / max(len(firsts) - 1, 1)
