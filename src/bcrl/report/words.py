"""What the results say, in sentences. Every number comes from the summaries."""

from collections.abc import Sequence

from bcrl.assess.statistics import Estimate, Kept, Summary
from bcrl.learn.registry import METHODS
from bcrl.report.curves import NAMES, Curve

TOLD = {name for name, record in METHODS.items() if record.threshold == "at run time"}
"""Methods whose policies are told the threshold when they act."""


def headline(lines: Sequence[Curve]) -> str:
    """The result in one sentence."""
    if len(lines) > 1:
        thresholds = {threshold for line in lines for threshold in line.thresholds}
        return f"{len(lines)} ways of acting, compared at {count(len(thresholds), 'threshold')}."
    (line,) = lines
    seeds = len({result.seed for result in line.results})
    what, spends, earns = ("One policy", "it spends", "earns")
    if seeds > 1:
        what, spends, earns = (f"{seeds} policies from {seeds} training seeds", "they spend", "earn")
    if all(result.method in TOLD for result in line.results):
        what += ", told at run time how much an episode may cost"
    middle = line.summaries[len(line.summaries) // 2]
    return (
        f"{what}: at a threshold of {middle.threshold:g} "
        f"{spends} {middle.episode_cost.mean:.1f} on average and {earns} "
        f"a {NAMES[line.earned]} of {middle.earned.mean:.2f}."
    )


def verdict(line: Curve) -> str:
    """Which thresholds were kept by the mean cost, and how many single episodes cost more."""
    found = kept_words([(f"{summary.threshold:g}", summary.kept) for summary in line.summaries])
    share = line.overall.violation_rate
    over = f"{percent(share) if share else 'none'} of the {line.overall.episodes:,} single episodes"
    return f"Thresholds {found}. {over[0].upper()}{over[1:]} cost more than the threshold."


def kept_words(found: Sequence[tuple[str, Kept]]) -> str:
    """Which of these are kept, open and broken: "kept: 5 and 10; open: 20; broken: none"."""
    return "; ".join(
        f"{state}: {listed([name for name, kept in found if kept is state] or ['none'])}" for state in Kept
    )


def describe(panel: str, lines: Sequence[Curve]) -> str:
    """A panel in words, for those who do not see it."""
    told = {"reward": _reward, "cost": _cost, "log": _log}[panel]
    return " ".join(f"{line.label}: {'; '.join(told(s) for s in line.summaries)}." for line in lines)


def _reward(summary: Summary) -> str:
    name = "reward" if summary.normalised else "return"
    return f"at threshold {summary.threshold:g} {name} {interval(summary.earned, 2)}"


def _cost(summary: Summary) -> str:
    return f"at threshold {summary.threshold:g} cost {interval(summary.episode_cost, 1)}"


def _log(summary: Summary) -> str:
    return (
        f"at threshold {summary.threshold:g} mean cost {summary.episode_cost.mean:.1f} "
        f"and mean return {summary.episode_return.mean:.1f}"
    )


def interval(value: Estimate, digits: int) -> str:
    """A mean and its 95 % interval."""
    return f"{value.mean:.{digits}f} ({value.low:.{digits}f} to {value.high:.{digits}f})"


def percent(share: float) -> str:
    """Never rounds to 0 % or 100 % what is neither."""
    if 0 < share < 0.01:
        return "<1\N{NO-BREAK SPACE}%"
    if 0.99 < share < 1:
        return ">99\N{NO-BREAK SPACE}%"
    return f"{100 * share:.0f}\N{NO-BREAK SPACE}%"


def count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def listed(words: Sequence[str]) -> str:
    """a, b and c."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
