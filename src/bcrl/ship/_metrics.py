"""The measures of the paper's table, one number per episode. numpy only."""

from dataclasses import dataclass

import numpy as np

from bcrl.ship._rollout import Voyages
from bcrl.ship._rule import SECONDS
from bcrl.ship._scenarios import Held, Scenarios
from bcrl.ship._water import known_water, off_water


@dataclass(frozen=True)
class Measures:
    """(episodes,) each."""

    ade: np.ndarray
    """Metres: mean distance to the expert at the same step, while both sail."""
    gc_ade: np.ndarray
    """The paper's and the original's: the root of the summed squares of these distances over their number.

    It is not a mean: it shrinks with the length of the episode."""
    close_quarters: np.ndarray
    """Share of steps within 555 m of another ship."""
    acceleration: np.ndarray
    """m/s², the mean with its sign."""
    speed: np.ndarray
    """m/s, mean."""
    success: np.ndarray
    """1 if the goal was reached, else 0."""
    cost: np.ndarray
    """Steps within 555 m of another ship."""
    off_water: np.ndarray
    """Share of steps that end off known water."""
    off_water_cost: np.ndarray
    """Steps that end off known water."""
    length: np.ndarray
    """Steps."""
    fallback: np.ndarray
    """Share of steps on which the fallback acted."""


def measure(voyages: Voyages, scenarios: Scenarios, part: Held = "test") -> Measures:
    """The measures of these episodes; known is the water that ships sailed before the part began."""
    lengths = voyages.lengths
    off = off_water(known_water(scenarios, part), scenarios.box, voyages.path[:, 1:, :2]) & voyages.sailing
    off_cost = off.sum(axis=1)
    rows = [
        _one(scenarios.expert(index)[:, :2], voyages.path[i, : lengths[i] + 1])
        for i, index in enumerate(voyages.scenario)
    ]
    ade, gc_ade, acceleration, speed = np.array(rows).T
    cost = voyages.cost.sum(axis=1)
    return Measures(
        ade=ade,
        gc_ade=gc_ade,
        close_quarters=cost / lengths,
        acceleration=acceleration,
        speed=speed,
        success=voyages.success.astype(float),
        cost=cost,
        off_water=off_cost / lengths,
        off_water_cost=off_cost.astype(float),
        length=lengths,
        fallback=voyages.fallback.sum(axis=1) / lengths,
    )


def _one(expert: np.ndarray, path: np.ndarray) -> tuple[float, float, float, float]:
    """ADE, GC-ADE, acceleration and speed of one episode; `path` has one row more than there are steps."""
    both = min(len(expert), len(path))
    error = np.hypot(*(path[1:both, :2].astype(float) - expert[1:both]).T)
    speed = np.hypot(path[:, 2], path[:, 3])
    return (
        float(error.mean()),
        float(np.sqrt(np.square(error).sum()) / len(error)),
        float(np.diff(speed).mean() / SECONDS),
        float(speed[1:].mean()),
    )
