"""Results sorted into curves: what is drawn in one colour and gets one table."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields

import numpy as np

from bcrl.assess.results import Result
from bcrl.assess.statistics import Summary, summarise
from bcrl.errors import BCRLError, printable

# Results that agree in all of these are episodes of the same thing; the label names those that differ.
KINDS = ("method", "tracking", "criterion", "execution", "world", "data")


NAMES = {"reward": "normalised reward", "episode_return": "return"}
"""What a curve may earn: the field of a summary, and its name on axes and in sentences."""


@dataclass(frozen=True)
class Curve:
    """One way of acting, over all thresholds and seeds."""

    label: str
    results: tuple[Result, ...]
    summaries: tuple[Summary, ...]
    """A line for each threshold, in order."""
    overall: Summary
    """The line over all thresholds; with one threshold, that one."""

    @property
    def earned(self) -> str:
        """The key of `NAMES`: the return where the world has no reference returns."""
        return "reward" if self.overall.normalised else "episode_return"

    @property
    def thresholds(self) -> np.ndarray:
        return self.column("threshold")

    def column(self, name: str) -> np.ndarray:
        """A field of every summary."""
        return np.array([getattr(summary, name) for summary in self.summaries], float)

    def mean(self, name: str) -> np.ndarray:
        return np.array([getattr(summary, name).mean for summary in self.summaries])

    def interval(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """The ends of the 95 % intervals."""
        both = [(getattr(s, name).low, getattr(s, name).high) for s in self.summaries]
        low, high = np.array(both).T
        return low, high


def curves(results: Sequence[Result]) -> list[Curve]:
    """The curves in the order in which they first appear."""
    if not results:
        raise BCRLError("the results hold no episode: run bcrl evaluate with --out first")
    check_finite(results)
    groups: dict[tuple[str, ...], list[Result]] = {}
    for result in results:
        groups.setdefault(tuple(getattr(result, kind) for kind in KINDS), []).append(result)
    differ = [len(set(values)) > 1 for values in zip(*groups, strict=True)]
    differ[0] = True  # a curve is known by its method in any case
    return [
        _curve(curve_label(word for word, shown in zip(kind, differ, strict=True) if shown and word), rows)
        for kind, rows in groups.items()
    ]


def curve_label(words: Iterable[str]) -> str:
    """A name for legends, from which matplotlib leaves out those that begin with an underscore."""
    text = printable(", ".join(words))
    return f" {text}" if text.startswith("_") else text


def earned_by(lines: Sequence[Curve]) -> str:
    """The key of `NAMES` by which curves are drawn together: normalised only if all of them are."""
    return "reward" if all(line.earned == "reward" for line in lines) else "episode_return"


def _curve(label: str, rows: list[Result]) -> Curve:
    try:
        summaries = summarise(rows)
    except BCRLError as error:
        raise BCRLError(f"results of {label}: {error}") from None
    lines = tuple(summary for summary in summaries if summary.threshold is not None)
    return Curve(label, tuple(rows), lines, summaries[-1])


def check_finite(results: Sequence[Result]) -> None:
    """Refuses results with a number that is none."""
    numbers = [field.name for field in fields(Result) if field.type is float]
    for result in results:
        for name in numbers:
            value = getattr(result, name)
            if not np.isfinite(value) and not (name == "normalised_reward" and np.isnan(value)):
                raise BCRLError(
                    f"results: {name.rstrip('_')} of episode {result.episode} at threshold "
                    f"{result.threshold:g} is {value}, but must be a finite number"
                )
