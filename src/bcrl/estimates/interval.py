"""The model-based interval of a mean: from the spread of members and starts, with a floor."""

from dataclasses import dataclass

import numpy as np
from scipy.special import stdtrit


@dataclass(frozen=True)
class Interval:
    """A mean and what it may be. It rests on the learned model, so it is no guarantee."""

    mean: float
    low: float
    high: float


def standard_error(values: np.ndarray) -> float:
    """Of the mean of `values` (members, starts): √(s²_members (1 + 1/K) + s²_starts / E)."""
    members, starts = values.shape
    between = values.mean(axis=1).var(ddof=1) * (1 + 1 / members)
    within = values.mean(axis=0).var(ddof=1) / starts if starts > 1 else 0.0
    return float(np.sqrt(between + within))


def spread(values: np.ndarray) -> float:
    """h for the mean of `values` (members, starts): t(K − 1, .975) standard errors, 95 %."""
    return float(stdtrit(len(values) - 1, 0.975)) * standard_error(values)


def interval(values: np.ndarray, other: np.ndarray, floor: float, least: float = -np.inf) -> Interval:
    """The mean of `values` (members, starts); half-width max(h, |mean − mean of `other`|, floor).

    `other` are the same episodes with the other kind of transitions. No bound is below `least`.
    """
    mean = float(values.mean())
    half = max(spread(values), abs(mean - float(other.mean())), floor)
    return Interval(mean, max(mean - half, least), max(mean + half, least))
