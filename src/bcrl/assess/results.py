"""The results file: one row per episode, so that any table can be made from it."""

import csv
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np

from bcrl.assess.remote import runner
from bcrl.budget import Execution
from bcrl.errors import BCRLError
from bcrl.files import atomic_path
from bcrl.policy import Policy
from bcrl.worlds import World
from bcrl.worlds.tasks import Task


@dataclass(frozen=True)
class Result:
    """One episode. The fields are the columns of results.csv."""

    method: str
    tracking: str
    criterion: str
    execution: str
    world: str
    data: str
    seed: int
    threshold: float
    episode: int
    return_: float
    cost: float
    normalised_reward: float
    normalised_cost: float
    length: int
    fallback_share: float


COLUMNS = [field.name.rstrip("_") for field in fields(Result)]
_WHICH = ("method", "tracking", "criterion", "execution", "world", "data", "seed", "threshold", "episode")
"""What tells the episodes of a file apart."""


def normalised_cost(cost: np.ndarray, threshold: float) -> np.ndarray:
    """DSRL's: C/κ, and (C + 1)/(κ + 1) when κ = 0. At most 1 keeps the promise."""
    shift = 1.0 if threshold == 0 else 0.0
    return (cost + shift) / (threshold + shift)


def evaluate(
    policies: Sequence[Policy],
    world: World | Task,
    thresholds: Sequence[float] | None = None,
    *,
    episodes: int = 20,
    execution: Execution | None = None,
    prune: int = 0,
    seed: int = 0,
    workers: int | None = None,
) -> list[Result]:
    """Every policy at every threshold. Policies of different training seeds meet different episodes.

    `workers` is for worlds in other processes: how many to start (by default one per core).
    """
    thresholds = tuple(world.thresholds if thresholds is None else thresholds)
    if not thresholds or min(thresholds) < 0 or not np.all(np.isfinite(thresholds)):
        raise BCRLError(f"thresholds are {thresholds}, but must be numbers from 0 up")
    if episodes < 1:
        raise BCRLError(f"episodes is {episodes}, but must be at least 1")
    results = []
    with runner(policies, world, len(thresholds) * episodes, workers) as roll:
        for policy in policies:
            trained = int(policy.provenance.get("seed", 0))
            outcome = roll(
                policy,
                thresholds=thresholds,
                episodes=episodes,
                seed=seed * 1_000_003 + trained,
                execution=execution,
                prune=prune,
            )
            results += _rows(policy, world, thresholds, outcome, execution or "finite-horizon", trained)
    return results


def _rows(policy, world, thresholds, outcome, execution, seed) -> Iterable[Result]:
    world_name = f"{world.name} noise {world.noise:g}" if world.noise else world.name
    for i, threshold in enumerate(thresholds):
        earned = world.normalise(outcome.returns[i])
        spent = normalised_cost(outcome.costs[i], threshold)
        for episode in range(len(earned)):
            yield Result(
                method=policy.method.name,
                tracking=getattr(policy.method, "tracking", ""),
                criterion=getattr(policy.method, "criterion", ""),
                execution=execution,
                world=world_name,
                data=policy.provenance.get("data", ""),
                seed=seed,
                threshold=float(threshold),
                episode=episode,
                return_=float(outcome.returns[i, episode]),
                cost=float(outcome.costs[i, episode]),
                normalised_reward=float(earned[episode]),
                normalised_cost=float(spent[episode]),
                length=int(outcome.lengths[i, episode]),
                fallback_share=float(outcome.fallback_share[i, episode]),
            )


def write_results(results: Sequence[Result], path: str | os.PathLike) -> None:
    """results.csv, all or nothing."""
    with atomic_path(path) as temporary, open(temporary, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        for result in results:
            writer.writerow([getattr(result, field.name) for field in fields(Result)])


def read_results(path: str | os.PathLike) -> list[Result]:
    """The rows of a results.csv, checked."""
    path = Path(path)
    if not path.is_file():
        raise BCRLError(f"{path}: there is no such file")
    with open(path, newline="", encoding="utf-8", errors="replace") as file:
        reader = csv.reader(file)
        header = next(reader, [])
        if header != COLUMNS:
            odd = next((name for name in COLUMNS if name not in header), "the order of columns")
            raise BCRLError(
                f"{path}: not a results file ({odd} is missing): write it with bcrl evaluate --out"
            )
        results, lines = [], {}
        for number, row in enumerate(reader, start=2):
            try:
                values = [field.type(text) for field, text in zip(fields(Result), row, strict=True)]  # type: ignore[operator]
            except ValueError as error:
                raise BCRLError(f"{path}: line {number} is damaged ({error}): evaluate again") from None
            result = Result(*values)
            first = lines.setdefault(tuple(getattr(result, name) for name in _WHICH), number)
            if first != number:
                raise BCRLError(
                    f"{path}: line {number} is of the same episode as line {first}: keep results of two "
                    "evaluations that differ in nothing but options in files of their own"
                )
            results.append(result)
    return results
