"""`choose`: ranks policies by what they will earn within thresholds, from the log alone."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from bcrl.budget import Execution
from bcrl.data import Dataset
from bcrl.errors import BCRLError, brief_repr
from bcrl.estimates.calibrating import Choice, calibration_episodes, choose_told, refusals
from bcrl.estimates.ensemble import Model
from bcrl.estimates.estimating import STARTS, Laboratory, check_thresholds
from bcrl.estimates.interval import Interval, spread
from bcrl.estimates.log import check_policies, warn_of_another_log
from bcrl.policy import Policy
from bcrl.progress import progress


@dataclass(frozen=True)
class Ranked:
    """One policy of a ranking."""

    name: str
    score: float
    """Mean lower return at the told thresholds, over the wanted ones that it keeps; NaN if it keeps none."""
    choices: tuple[Choice, ...]
    behind: Interval | None
    """What it earns less than the first, paired by member and start; None for the first, and where the two
    keep no threshold in common."""

    @property
    def refused(self) -> tuple[float, ...]:
        """The wanted thresholds that it does not keep."""
        return tuple(choice.wanted for choice in self.choices if choice.cell is None)

    @property
    def indistinguishable(self) -> bool:
        """Whether it may be as good as the first."""
        return self.behind is not None and self.behind.low <= 0 <= self.behind.high


def choose(
    policies: Mapping[str, Policy],
    data: Dataset,
    thresholds: Sequence[float] | None = None,
    *,
    model: Model | None = None,
    horizon: int | None = None,
    execution: Execution | None = None,
    candidates: int = 0,
    starts: int = STARTS // 2,
    seed: int = 0,
) -> list[Ranked]:
    """The policies, best first: by how many thresholds each refuses, then by its score.

    Each policy is told what `bcrl.calibrate` would tell it. All meet the same members, starts and random
    numbers. `thresholds` default to the quartiles of the log's episode costs. Other arguments as for
    `bcrl.estimate`. If every policy refuses every threshold, that is an error.
    """
    if not isinstance(policies, Mapping):
        raise BCRLError(f"policies are {brief_repr(policies)}, but must be a dict of policies by name")
    check_policies(policies.values(), data)
    warn_of_another_log(policies.values(), data)
    wanted = check_thresholds(quartiles(data) if thresholds is None else thresholds)
    laboratory = Laboratory(
        data, model, horizon=horizon, execution=execution, candidates=candidates, starts=starts, seed=seed
    )
    found = []
    with progress("choosing", calibration_episodes(laboratory, wanted) * len(policies), "episodes") as tick:
        for name, policy in policies.items():
            choices = tuple(choose_told(laboratory, policy, wanted, tick))
            kept = [choice.cell.earned.low for choice in choices if choice.cell is not None]
            found.append(Ranked(name, float(np.mean(kept)) if kept else float("nan"), choices, None))
    found.sort(key=lambda one: (len(one.refused), -np.nan_to_num(one.score)))
    first = found[0]
    if len(first.refused) == len(wanted):
        told = ",".join(f"{threshold:g}" for threshold in wanted)
        why = refusals(choice for one in found for choice in one.choices)
        raise BCRLError(f"no policy could be judged to keep any of the thresholds {told}: {why}")
    return [first, *(Ranked(x.name, x.score, x.choices, _behind(first, x)) for x in found[1:])]


def _behind(first: Ranked, other: Ranked) -> Interval | None:
    gaps = [
        ours.cell.returns - theirs.cell.returns
        for ours, theirs in zip(first.choices, other.choices, strict=True)
        if ours.cell is not None and theirs.cell is not None
    ]
    if not gaps:
        return None
    gap = np.mean(gaps, axis=0)
    mean, half = float(gap.mean()), spread(gap)
    return Interval(mean, mean - half, mean + half)


def quartiles(data: Dataset) -> list[float]:
    """The quartiles of the log's episode costs, to two digits."""
    found = {float(f"{value:.2g}") for value in np.quantile(data.episode_costs, [0.25, 0.5, 0.75])}
    return sorted(found - {0.0}) or [float(data.episode_costs.max())]
