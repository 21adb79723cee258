"""`estimate`: what policies will cost and earn at each threshold, from the log alone."""

import csv
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any, overload

import numpy as np

from bcrl.assess.evaluation import identity
from bcrl.assess.results import read_columns
from bcrl.budget import Execution
from bcrl.data import Dataset
from bcrl.errors import BCRLError, brief_repr
from bcrl.estimates.ensemble import Model, fit_model
from bcrl.estimates.interval import Interval, interval, spread
from bcrl.estimates.light import Light, Verdict, judge, outside_log, overspent
from bcrl.estimates.log import check_policies, cost_scale, spaced, warn_of_another_log
from bcrl.estimates.model_world import Simulated, first_states, member_worlds, simulate
from bcrl.estimates.support import Support, replay
from bcrl.files import atomic_path
from bcrl.policy import Policy
from bcrl.progress import Tick, progress

STARTS = 128
"""Logged first states from which every policy is simulated, at most."""
CAUTION = 0.25
"""The part of the floor, never doubled, that calibration adds. Policies leave less than the whole floor
unspent, so with all of it a calibrated policy would earn less than one that is told the wanted threshold."""
ROUNDING = 1e-6
"""The model's costs are float32: ten steps of 0.1 are a little more than 1, but not over 1."""


@dataclass(frozen=True)
class ThresholdEstimate:
    """One policy at one threshold. The fields are the columns of estimates.csv."""

    method: str
    execution: str
    data: str
    seed: int
    threshold: float
    cost: float
    cost_low: float
    cost_high: float
    return_: float
    return_low: float
    return_high: float
    fallback_share: float
    light: str
    reasons: str
    over_share: float
    """Of the simulated episodes, those that cost more than the threshold. It has no interval."""


COLUMNS = [field.name.rstrip("_") for field in fields(ThresholdEstimate)]


class Estimates(Sequence[ThresholdEstimate]):
    """The rows of `estimate`, one per policy and threshold. `save` writes the CSV file, `load` reads it."""

    def __init__(self, rows: Iterable[ThresholdEstimate]):
        self._rows = tuple(rows)

    @overload
    def __getitem__(self, index: int) -> ThresholdEstimate: ...
    @overload
    def __getitem__(self, index: slice) -> "Estimates": ...
    def __getitem__(self, index: Any) -> Any:
        return Estimates(self._rows[index]) if isinstance(index, slice) else self._rows[index]

    def __len__(self) -> int:
        return len(self._rows)

    def __repr__(self) -> str:
        lights = [row.light for row in self]
        count = ", ".join(f"{lights.count(light)} {light}" for light in Light if light in lights)
        return f"Estimates({len(self)} rows: {count})"

    def save(self, path: str | os.PathLike) -> None:
        """Writes estimates.csv, all or nothing."""
        with atomic_path(path) as temporary, open(temporary, "w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(COLUMNS)
            writer.writerows([getattr(row, field.name) for field in fields(row)] for row in self)

    @classmethod
    def load(cls, path: str | os.PathLike) -> "Estimates":
        """The rows of an estimates.csv, checked."""
        if read_columns(path) != COLUMNS:
            raise BCRLError(f"{path}: not an estimates file (its columns are others): estimate again")
        rows = []
        with open(path, newline="", encoding="utf-8", errors="replace") as file:
            reader = csv.reader(file)
            next(reader)
            try:
                for line in reader:
                    pairs = zip(fields(ThresholdEstimate), line, strict=True)
                    row = ThresholdEstimate(*(field.type(text) for field, text in pairs))  # type: ignore[operator]
                    Light(row.light)
                    numbers = [getattr(row, f.name) for f in fields(row) if f.type is float]
                    if not np.isfinite(numbers).all() or min(row.threshold, row.cost_low, row.cost) < 0:
                        raise ValueError("a number is not finite, or a cost is negative")
                    for name in ("fallback_share", "over_share"):
                        if not 0 <= getattr(row, name) <= 1:
                            raise ValueError(f"{name} is {getattr(row, name):g}")
                    rows.append(row)
            except (ValueError, csv.Error) as error:
                raise BCRLError(
                    f"{path}: line {reader.line_num} is damaged ({error}): estimate again"
                ) from None
        return cls(rows)


@dataclass(frozen=True)
class Cell:
    """What the model says of one policy at one told threshold."""

    threshold: float
    cost: Interval
    cost_bound: float
    """The cost by which thresholds are calibrated: the mean and max(h, a part of the floor)."""
    earned: Interval
    fallback: float
    verdict: Verdict
    """Whether to trust it; whether the threshold is kept is another question."""
    returns: np.ndarray
    costs: np.ndarray
    """Of the simulated episodes, (members, starts)."""

    def over_share(self, threshold: float) -> float:
        """The share of the simulated episodes that cost more than `threshold`."""
        return float(np.mean(self.costs > threshold * (1 + ROUNDING)))


class Laboratory:
    """A learned model with its checks and its starts: all that does not depend on the policy."""

    def __init__(
        self,
        data: Dataset,
        model: Model | None = None,
        *,
        horizon: int | None = None,
        execution: Execution | None = None,
        candidates: int = 0,
        starts: int = STARTS,
        seed: int = 0,
    ):
        self.horizon = data.horizon if horizon is None else horizon
        if type(self.horizon) is not int or not 1 <= self.horizon <= data.horizon:
            raise BCRLError(
                f"horizon is {brief_repr(horizon)}, but must be from 1 to {data.horizon}: nothing is logged "
                "past that"
            )
        for name, value, least in (("starts", starts, 2), ("seed", seed, 0)):
            if type(value) is not int or not least <= value < 2**31:
                raise BCRLError(
                    f"{name} is {brief_repr(value)}, but must be a whole number, at least {least}, below 2³¹"
                )
        if not isinstance(model, Model | None):
            raise BCRLError(f"model is {brief_repr(model)}, but must be one: see bcrl.fit_model")
        self.data, self.candidates, self.seed = data, candidates, seed
        self.execution: Execution | None = execution
        self.model = fit_model(data, seed=seed) if model is None else model
        self.model.check(data)
        self.first = spaced(data.initial_observations, starts)
        with progress("checking the model", 3, "parts") as tick:
            self.replay = replay(self.model, data, tick)
            self.support = Support.of(self.model, data)
            tick()

    @property
    def largest(self) -> float:
        """c_max H, the largest cost that an episode can have."""
        return float(self.data.max_cost[0]) * self.horizon

    def episodes(self, thresholds: int) -> int:
        """How many episodes `cells` simulates."""
        return 2 * self.model.count * thresholds * len(self.first)

    def cells(self, policy: Policy, thresholds: Sequence[float] | np.ndarray, tick: Tick) -> list[Cell]:
        """The estimate at every told threshold."""
        mean, sampled = (
            simulate(
                policy,
                worlds,
                first_states(self.first, np.zeros((len(self.first), self.data.action_size))),
                thresholds,
                horizon=self.horizon,
                seed=self.seed,
                execution=self.execution,
                candidates=self.candidates,
                tick=tick,
            )
            for worlds in (member_worlds(self.model, False), member_worlds(self.model, True))
        )
        centre, other = (sampled, mean) if self.replay.sampled_is_better else (mean, sampled)
        return [self._cell(float(told), i, centre, other) for i, told in enumerate(thresholds)]

    def _cell(self, told: float, index: int, centre: Simulated, other: Simulated) -> Cell:
        costs, returns = centre.costs[:, index], centre.returns[:, index]
        usual = cost_scale(self.data)
        verdict = judge(
            {
                "fallback": float(centre.fallback[:, index].mean()),
                "far": self.support.far(np.concatenate(centre.visited[:, index])),
                "replay": self.replay.error,
                "spread": spread(costs) / max(told, 0.01 * usual),
                "clipped": float(centre.clipped[:, index].mean()),
            }
        )
        logged = self.data.episode_costs
        verdict = outside_log(verdict, told, float(logged.min()), float(logged.max()))
        doubt = 1.0 if verdict.light is Light.GREEN else 2.0
        floor = doubt * max(0.005 * usual, 0.05 * told)
        # Returns were off by 1 to 7 % where costs were right, by green lights too.
        least = 0.04 * max(abs(float(returns.mean())), float(self.data.episode_returns.std()))
        return Cell(
            told,
            interval(costs, other.costs[:, index], floor, least=0.0),
            float(costs.mean()) + max(spread(costs), CAUTION * floor / doubt),
            interval(returns, other.returns[:, index], least),
            float(centre.fallback[:, index].mean()),
            verdict,
            returns,
            costs,
        )


def estimate(
    policies: Policy | Sequence[Policy],
    data: Dataset,
    thresholds: Sequence[float],
    *,
    model: Model | None = None,
    horizon: int | None = None,
    execution: Execution | None = None,
    candidates: int = 0,
    starts: int = STARTS,
    seed: int = 0,
) -> Estimates:
    """What each policy will cost and earn at each threshold, estimated from the log alone.

    The policies act in a model learned from `data` (`model`, by default a new one: `bcrl.fit_model`), from
    the log's own first states. Intervals are 95 % by the spread of the model's members, never a guarantee:
    look at `light` and `reasons`. They hold for episodes that start as the log's do and have `horizon` steps,
    by default and at most those of the longest logged episode.
    """
    policies = list(policies) if isinstance(policies, Iterable) else [policies]
    chosen = check_thresholds(thresholds)
    check_policies(policies, data)
    warn_of_another_log(policies, data)
    laboratory = Laboratory(
        data, model, horizon=horizon, execution=execution, candidates=candidates, starts=starts, seed=seed
    )
    rows = []
    total = laboratory.episodes(len(chosen)) * len(policies)
    with progress("estimating", total, "episodes") as tick:
        for policy in policies:
            who = identity(policy, execution)
            who = {name: who[name] for name in ("method", "execution", "data", "seed")}
            for cell in laboratory.cells(policy, chosen, tick):
                rows.append(ThresholdEstimate(**who, **_columns(cell)))
    return Estimates(rows)


def _columns(cell: Cell) -> dict[str, Any]:
    verdict = overspent(cell.verdict, cell.threshold, cell.cost.mean, cell.cost.low)
    return {
        "threshold": cell.threshold,
        "cost": cell.cost.mean,
        "cost_low": cell.cost.low,
        "cost_high": cell.cost.high,
        "return_": cell.earned.mean,
        "return_low": cell.earned.low,
        "return_high": cell.earned.high,
        "fallback_share": cell.fallback,
        "light": str(verdict.light),
        "reasons": "; ".join(verdict.reasons),
        "over_share": cell.over_share(cell.threshold),
    }


def check_thresholds(thresholds: Sequence[float]) -> list[float]:
    """Thresholds as numbers, rising; refuses others."""
    try:
        chosen = [float(value) for value in thresholds]
    except (TypeError, ValueError, OverflowError):
        raise BCRLError(f"thresholds are {brief_repr(thresholds)}, but must be numbers from 0 up") from None
    if not chosen or min(chosen) < 0 or not np.all(np.isfinite(chosen)):
        raise BCRLError(f"thresholds are {thresholds}, but must be numbers from 0 up")
    if len(set(chosen)) < len(chosen):
        raise BCRLError(f"thresholds are {thresholds}, but one is there twice")
    return sorted(chosen)
