"""What the rows of a results file say: means with their uncertainty, per threshold and over all."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from bcrl.assess.results import Result
from bcrl.errors import BCRLError


@dataclass(frozen=True, repr=False)
class Estimate:
    """A mean, its standard error, and a 95 % bootstrap interval."""

    mean: float
    error: float
    low: float
    high: float

    def __repr__(self) -> str:
        return f"{self.mean:.3g} ({self.low:.3g} to {self.high:.3g})"


class Kept(StrEnum):
    """Whether a threshold is kept, by the 95 % interval of the mean cost."""

    KEPT = "kept"
    """The interval is at most the threshold."""
    OPEN = "open"
    """It contains the threshold: more episodes would decide."""
    BROKEN = "broken"
    """It lies above the threshold."""


KEPT_MEANS = (
    "kept: the 95 % interval of the mean cost is at most the threshold; "
    "open: it contains the threshold; broken: it lies above"
)
"""For captions."""


def kept(cost: Estimate, threshold: float) -> Kept:
    """The one meaning of "kept" in every table and page."""
    if cost.high <= threshold:
        return Kept.KEPT
    return Kept.BROKEN if cost.low > threshold else Kept.OPEN


@dataclass(frozen=True, repr=False)
class Summary:
    """One line of a table; `threshold` is None for the line over all thresholds."""

    threshold: float | None
    reward: Estimate
    """Normalised; NaN in a world without reference returns."""
    cost: Estimate
    """Normalised."""
    episode_return: Estimate
    episode_cost: Estimate
    violation_rate: float
    fallback_share: float
    episodes: int

    def __repr__(self) -> str:
        what = "all thresholds" if self.threshold is None else f"threshold {self.threshold:g}"
        earned = f"{'reward' if self.normalised else 'return'} {self.earned}"
        return f"Summary({what}: {earned}, cost {self.cost}, {self.kept}, {self.episodes:,} episodes)"

    @property
    def kept(self) -> Kept:
        """Whether the threshold is kept; over all thresholds, the normalised threshold 1."""
        return kept(self.cost, 1.0)

    @property
    def normalised(self) -> bool:
        """Whether there is a normalised reward; if not, tables show the return."""
        return not np.isnan(self.reward.mean)

    @property
    def earned(self) -> Estimate:
        """The normalised reward, or the return where there is none."""
        return self.reward if self.normalised else self.episode_return


def estimate(
    values: np.ndarray, seeds: np.ndarray, strata: np.ndarray | None = None, draws: int = 2000
) -> Estimate:
    """Mean over rows. The bootstrap draws seeds first and episodes inside them, since both vary.

    Thresholds (`strata`) are not drawn: they were chosen, and each keeps its share.
    """
    strata = np.zeros(len(values)) if strata is None else strata
    cells = [
        [values[(seeds == seed) & (strata == stratum)] for stratum in np.unique(strata)]
        for seed in np.unique(seeds)
    ]
    if len({len(rows) for row in cells for rows in row}) != 1:
        raise BCRLError("every seed and threshold must have equally many episodes: use the same --episodes")
    table = np.array(cells)  # (seeds, strata, episodes)
    count, kinds, episodes = table.shape
    random = np.random.default_rng(0)
    seed = random.integers(0, count, (draws, count, 1, 1))
    episode = random.integers(0, episodes, (draws, count, kinds, episodes))
    means = table[seed, np.arange(kinds)[:, None], episode].mean(axis=(1, 2, 3))
    low, high = np.quantile(means, [0.025, 0.975])
    error = float(means.std(ddof=1)) if len(values) > 1 else float("nan")  # one episode tells no spread
    return Estimate(float(values.mean()), error, float(low), float(high))


def summarise(results: Sequence[Result]) -> list[Summary]:
    """A line per threshold, and one over all where there are several."""
    thresholds = sorted({result.threshold for result in results})
    groups: list[tuple[float | None, list[Result]]] = [
        (threshold, [r for r in results if r.threshold == threshold]) for threshold in thresholds
    ]
    if len(thresholds) > 1:
        groups.append((None, list(results)))
    return [_summary(threshold, rows) for threshold, rows in groups]


def _summary(threshold: float | None, rows: Sequence[Result]) -> Summary:
    def column(name: str) -> np.ndarray:
        return np.array([getattr(row, name) for row in rows], float)

    seeds, thresholds = column("seed"), column("threshold")
    return Summary(
        threshold=threshold,
        reward=estimate(column("normalised_reward"), seeds, thresholds),
        cost=estimate(column("normalised_cost"), seeds, thresholds),
        episode_return=estimate(column("return_"), seeds, thresholds),
        episode_cost=estimate(column("cost"), seeds, thresholds),
        violation_rate=float(np.mean(column("cost") > column("threshold"))),
        fallback_share=float(column("fallback_share").mean()),
        episodes=len(rows),
    )


def interquartile_mean(values: np.ndarray) -> np.ndarray:
    """The mean along the last axis without its lowest and its highest quarter: outliers do not move it."""
    cut = values.shape[-1] // 4
    return np.sort(values, axis=-1)[..., cut : values.shape[-1] - cut].mean(axis=-1)


def aggregate(scores: Sequence[np.ndarray], draws: int = 2000) -> Estimate:
    """The interquartile mean of runs on several tasks, one array of runs for each task.

    The bootstrap draws runs within each task: tasks were chosen, runs could have come out otherwise.
    """
    random = np.random.default_rng(0)
    drawn = [runs[random.integers(0, len(runs), (draws, len(runs)))] for runs in scores]
    means = interquartile_mean(np.concatenate(drawn, axis=1))
    low, high = np.quantile(means, [0.025, 0.975])
    value = float(interquartile_mean(np.concatenate(scores)))
    return Estimate(value, float(means.std(ddof=1)), float(low), float(high))
