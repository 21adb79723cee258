"""Estimates sorted into curves, one per policy, with what was given beside them: calibration and truth."""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np

from bcrl.assess.results import LARGEST, Result
from bcrl.assess.statistics import Summary, summarise
from bcrl.data import Dataset
from bcrl.errors import BCRLError
from bcrl.estimates import ThresholdEstimate
from bcrl.policy import Policy
from bcrl.report.curves import check_finite, curve_label

WHO = ("method", "execution", "data", "seed")
"""The columns that say which policy acted, and how."""


@dataclass(frozen=True)
class EstimateCurve:
    """One policy at all thresholds that were estimated."""

    label: str
    rows: tuple[ThresholdEstimate, ...]
    """With rising thresholds."""
    calibrated: tuple[tuple[float, float], ...] = ()
    """(wanted, told)."""
    truth: tuple[Summary, ...] = ()
    """What the policy cost and earned in a world, by threshold."""

    @property
    def thresholds(self) -> np.ndarray:
        return self.column("threshold")

    def column(self, name: str) -> np.ndarray:
        return np.array([getattr(row, name) for row in self.rows])


def estimate_curves(
    estimates: Sequence[ThresholdEstimate],
    dataset: Dataset | None = None,
    policies: Sequence[Policy] = (),
    truth: Sequence[Result] = (),
) -> list[EstimateCurve]:
    """A curve per policy, in the order in which they first appear."""
    if dataset is not None and dataset.cost_count != 1:
        raise BCRLError(
            f"{dataset.source}: has {dataset.cost_count} kinds of cost, but estimates are of one: "
            "give the log that they were made from"
        )
    groups: dict[tuple, list[ThresholdEstimate]] = {}
    for row in estimates:
        _check(row)
        groups.setdefault(_who(row), []).append(row)
    if not groups:
        raise BCRLError("the estimates hold no row: run bcrl estimate with --out first")
    tables = _tables(groups, policies, dataset)
    truths = _truths(groups, truth)
    differ = [len(set(values)) > 1 for values in zip(*groups, strict=True)]
    differ[0] = True  # a curve is known by its method in any case
    curves = []
    for who, rows in groups.items():
        rows.sort(key=lambda row: row.threshold)
        words = [f"seed {word}" if name == "seed" else word for name, word in zip(WHO, who, strict=True)]
        name = curve_label(word for word, shown in zip(words, differ, strict=True) if shown and word)
        thresholds = [row.threshold for row in rows]
        if len(set(thresholds)) < len(thresholds):
            raise BCRLError(f"estimates of {name}: one threshold is there twice: give one estimate of each")
        curves.append(EstimateCurve(name, tuple(rows), tables.get(who, ()), truths.get(who, ())))
    return curves


def _who(row: ThresholdEstimate | Result) -> tuple:
    return tuple(getattr(row, name) for name in WHO)


def _check(row: ThresholdEstimate) -> None:
    for field in fields(row):
        value = getattr(row, field.name)
        if field.type is float and not abs(value) <= LARGEST:
            raise BCRLError(
                f"estimates: {field.name.rstrip('_')} at threshold {row.threshold:g} is {value}, "
                "but must be a finite number: estimate again"
            )


def _tables(groups: dict[tuple, list], policies: Sequence[Policy], dataset: Dataset | None) -> dict:
    """The calibration table of each policy that has one."""
    tables = {}
    for policy in policies:
        known = policy.calibration
        if known is None:
            continue
        who = (policy.method.name, known.execution, str(policy.provenance.get("data", "")))
        who = (*who, int(policy.provenance.get("seed", 0)))
        if who not in groups:
            raise BCRLError(
                f"the calibrated policy is of {_words(who)}, but the estimates are of "
                f"{'; '.join(map(_words, groups))}: give the estimates of that policy"
            )
        if dataset is not None and dataset.fingerprint() != known.data_sha256:
            raise BCRLError(f"{dataset.source}: the policy was calibrated with another log: give that one")
        tables[who] = known.table
    return tables


def _truths(groups: dict[tuple, list], truth: Sequence[Result]) -> dict[tuple, tuple[Summary, ...]]:
    """Summaries of the episodes of each policy, by threshold."""
    check_finite(truth)
    found: dict[tuple, list[Result]] = {}
    for result in truth:
        found.setdefault(_who(result), []).append(result)
    for who in found:
        if who not in groups:
            raise BCRLError(
                f"the truth is of {_words(who)}, but the estimates are of "
                f"{'; '.join(map(_words, groups))}: evaluate the policies that were estimated"
            )
    if len({result.world for result in truth}) > 1:
        raise BCRLError("the truth is of several worlds: give the results of one")
    return {
        who: tuple(summary for summary in summarise(rows) if summary.threshold is not None)
        for who, rows in found.items()
    }


def _words(who: tuple) -> str:
    return ", ".join(f"{name} {word}" for name, word in zip(WHO, who, strict=True))
