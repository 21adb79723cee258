"""What a scenario file holds, in numbers: the counts that `bcrl ship data` prints."""

from typing import Any

import numpy as np

from bcrl.ship.rule import SECONDS
from bcrl.ship.scenario import Scenarios

PARTS = ("all", "congested fifth", "training", "test", "congested fifth of the test")


def summarise(scenarios: Scenarios) -> list[dict[str, Any]]:
    """A row for each of PARTS."""
    everything = np.arange(len(scenarios))
    chosen = {
        "all": everything,
        "congested fifth": scenarios.most_congested(everything),
        "training": scenarios.training,
        "test": np.flatnonzero(scenarios.test),
        "congested fifth of the test": scenarios.evaluation,
    }
    return [{"part": part, **_facts(scenarios, chosen[part])} for part in PARTS]


def _facts(scenarios: Scenarios, which: np.ndarray) -> dict[str, Any]:
    steps = scenarios.steps[which]
    metres = [
        float(np.hypot(*np.diff(scenarios.expert(index)[:, :2].astype(float), axis=0).T).sum())
        for index in which
    ]
    return {
        "ships": len(np.unique(scenarios.ship[scenarios.track[which]])),
        "scenarios": len(which),
        "transitions": int(steps.sum()),
        "until the goal": int(scenarios.steps_to_goal[which].sum()),
        "mean speed, m/s": float(sum(metres) / (SECONDS * steps.sum())),
        "close quarters": float((scenarios.close_quarters[which] * steps).sum() / steps.sum()),
        "other ships": float((scenarios.congestion[which] * (steps + 1)).sum() / (steps + 1).sum()),
        "median expert cost": float(np.median(scenarios.expert_cost[which])),
    }
