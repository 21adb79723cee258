"""Scores as tables: in the paper's form, and what that form does not show. `formats.py` writes them."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bcrl.assess.statistics import Estimate, Kept, aggregate
from bcrl.bench.scores import Score
from bcrl.learn.registry import METHODS
from bcrl.paper.published import FAMILY_NAMES, find


@dataclass(frozen=True)
class Text:
    """A cell of a table."""

    text: str
    mark: str = ""
    """unsafe, safe or best, as in the paper; `average` for the head of such a line."""
    hides: bool = False
    """Safe on average but not at every threshold."""


Table = list[list[Text]]


def paper_form(scores: Sequence[Score]) -> Table:
    """A line per task and one per family; two columns per method."""
    columns = _columns(scores)
    head = [Text("")]
    for name in columns:
        shown = _display(next(score for score in scores if score.name == name))
        head += [Text(f"{shown} reward ↑"), Text(f"{shown} cost ↓")]
    table = [head]
    for family in dict.fromkeys(score.family for score in scores):
        members = [score for score in scores if score.family == family]
        for task in dict.fromkeys(score.task for score in members):
            line = {score.name: _whole(score) for score in members if score.task == task}
            table.append([Text(task), *_pairs(columns, line)])
        groups = {name: [score for score in members if score.name == name] for name in columns}
        averages = {name: _average(group) for name, group in groups.items() if group}
        count = len({score.task for score in members})
        if count > 1:
            title = f"{FAMILY_NAMES.get(family, family)} average ({count} tasks)"
            table.append([Text(title, "average"), *_pairs(columns, averages)])
    return table


@dataclass(frozen=True)
class _Pair:
    """Reward and cost of one column in one line, each with its spread."""

    reward: tuple[float, float]
    cost: tuple[float, float]
    parts: int
    """How many thresholds, or tasks, it is a mean over."""
    hides: bool = False


def _whole(score: Score) -> _Pair:
    return _Pair(score.reward, score.cost, len(score.lines), score.hides)


def _average(scores: Sequence[Score]) -> _Pair:
    """Mean of the tasks' means; the spread is that of all episodes of all tasks together."""

    def pooled(pairs: list[tuple[float, float]]) -> tuple[float, float]:
        means, spreads = np.array(pairs).T
        return float(means.mean()), float(np.sqrt((spreads**2).mean() + means.var()))

    return _Pair(pooled([s.reward for s in scores]), pooled([s.cost for s in scores]), len(scores))


def _pairs(columns: Sequence[str], line: dict[str, _Pair]) -> list[Text]:
    """The cells of a line. A mean over fewer thresholds or tasks than others is told, and never the best."""
    most = max(pair.parts for pair in line.values())
    safe = [pair.reward[0] for pair in line.values() if pair.cost[0] <= 1.0 and pair.parts == most]
    cells = []
    for name in columns:
        pair = line.get(name)
        if pair is None:
            cells += [Text("–"), Text("–")]
            continue
        whole = pair.parts == most
        mark = "unsafe" if pair.cost[0] > 1.0 else "safe"
        if mark == "safe" and whole and pair.reward[0] == max(safe):
            mark = "best"
        short = "" if whole else f" ({pair.parts} of {most})"
        cells += [
            Text(_plus_minus(pair.reward) + short, mark),
            Text(_plus_minus(pair.cost), mark, pair.hides),
        ]
    return cells


def by_threshold(scores: Sequence[Score]) -> Table:
    """A line per task, method and threshold, with intervals and whether it is kept."""
    names = ("task", "method", "seeds", "threshold", "reward", "cost", "kept?", "over", "fallback")
    table = [[Text(name) for name in names]]
    for score in scores:
        for line in score.lines:
            table.append(
                [
                    Text(score.task),
                    Text(_display(score)),
                    Text(str(score.seeds)),
                    Text(f"{line.threshold:g}"),
                    Text(_interval(line.reward)),
                    Text(_interval(line.cost)),
                    Text(line.kept),
                    Text(f"{line.violation_rate:.0%}"),
                    Text(f"{line.fallback_share:.0%}"),
                ]
            )
    return table


def over_tasks(scores: Sequence[Score]) -> Table:
    """A line per family and method: means, interquartile means, and how many thresholds were kept."""
    names = (
        "family",
        "method",
        "tasks",
        "reward",
        "reward IQM",
        "cost",
        "cost IQM",
        *Kept,
    )
    table = [[Text(name) for name in names]]
    for family in dict.fromkeys(score.family for score in scores):
        for name in _columns(scores):
            group = [score for score in scores if (score.family, score.name) == (family, name)]
            if not group:
                continue
            verdicts = [line.kept for score in group for line in score.lines]
            table.append(
                [
                    Text(FAMILY_NAMES.get(family, family)),
                    Text(_display(group[0])),
                    Text(str(len(group))),
                    Text(f"{np.mean([score.reward[0] for score in group]):.2f}"),
                    Text(_interval(aggregate([score.runs("normalised_reward") for score in group]))),
                    Text(f"{np.mean([score.cost[0] for score in group]):.2f}"),
                    Text(_interval(aggregate([score.runs("normalised_cost") for score in group]))),
                    *(Text(f"{verdicts.count(word)}/{len(verdicts)}") for word in Kept),
                ]
            )
    return table


def beside_paper(scores: Sequence[Score]) -> Table:
    """A line for each score the paper has a number for; the head alone where it has none."""
    table = [[Text(name) for name in ("task", "method", "reward", "cost", "reward here − paper's")]]
    for score in scores:
        theirs = find(score.task, score.method, best=score.best)
        if theirs is None:
            continue
        pairs = ((theirs.reward, score.reward[0]), (theirs.cost, score.cost[0]))
        table.append(
            [
                Text(score.task),
                Text(_display(score)),
                *(Text(f"{paper:.2f} / {here:.2f}") for paper, here in pairs),
                Text(f"{score.reward[0] - theirs.reward:+.2f}"),
            ]
        )
    return table


def _columns(scores: Sequence[Score]) -> list[str]:
    """The names of columns in the order of the alphabet, BCRL last, whichever was done first."""
    order = {score.name: (METHODS[score.method].budgets, score.label, score.best) for score in scores}
    return sorted(order, key=order.__getitem__)


def _display(score: Score) -> str:
    """The method's title; a column under a name of its own keeps it."""
    shown = METHODS[score.method].title if score.label == score.method else score.label
    return f"{shown}, best policy" if score.best else shown


def _plus_minus(pair: tuple[float, float]) -> str:
    return f"{pair[0]:.2f} ± {pair[1]:.2f}"


def _interval(value: Estimate) -> str:
    return f"{value.mean:.2f} ({value.low:.2f} to {value.high:.2f})"
