"""A summary of a log as plain numbers, for printing and JSON."""

from dataclasses import asdict
from typing import Any

import numpy as np

from bcrl.data._dataset import Dataset, Floats
from bcrl.data._doubts import find_doubts

THRESHOLDS = (10, 20, 40, 80)
"""The paper's thresholds κ."""
QUANTILES = (0.1, 0.25, 0.5, 0.75, 0.9)
MEDIAN_ROWS = 100_000
"""Rows of which a median of each column is taken at most."""


def summarise(dataset: Dataset) -> dict[str, Any]:
    """Sizes, ranges, returns and costs; entries about costs are lists with one item per kind of cost."""
    costs = dataset.episode_costs.reshape(dataset.episode_count, -1).T
    return {
        "file": dataset.source,
        "sha256": dataset.fingerprint(),
        **outline(dataset),
        "observation_size": dataset.observation_size,
        "action_size": dataset.action_size,
        "cost_count": dataset.cost_count,
        "episodes_ended_by_terminal": float(dataset.terminals[dataset.ends].mean()),
        "episodes_ended_by_timeout": float(dataset.timeouts[dataset.ends].mean()),
        "consecutive": dataset.consecutive,
        "next_observations": asdict(dataset.transitions),
        "schema": dataset.schema.to_dict(),
        "doubts": find_doubts(dataset),
        "observation": _range(dataset.observations),
        "named_observations": _named(dataset),
        "action": _range(dataset.actions),
        "reward": _range(dataset.rewards),
        "cost": [_range(column) for column in dataset.costs_2d.T],
        "share_of_episodes_within": [
            {str(threshold): float((column <= threshold).mean()) for threshold in THRESHOLDS}
            for column in costs
        ],
    }


def outline(dataset: Dataset) -> dict[str, Any]:
    """The part of the summary that goes into the files of policies: sizes, returns and costs of episodes."""
    costs = dataset.episode_costs.reshape(dataset.episode_count, -1).T
    return {
        "transitions": len(dataset),
        "episodes": dataset.episode_count,
        "horizon": dataset.horizon,
        "shortest_episode": int(dataset.episode_lengths.min()),
        "episode_return": _spread(dataset.episode_returns),
        "episode_cost": [_spread(column) for column in costs],
    }


def _named(dataset: Dataset) -> list[dict[str, Any]]:
    """The range of each named observation, and its median: of a long log, of evenly spaced rows."""
    if not dataset.schema.observation_names:
        return []
    rows = dataset.observations
    low, high = rows.min(axis=0).tolist(), rows.max(axis=0).tolist()
    middle = np.median(rows[:: -(-len(rows) // MEDIAN_ROWS)], axis=0).tolist()
    named = zip(dataset.schema.observation_names, low, middle, high, strict=True)
    return [{"name": name, "min": a, "q50": b, "max": c} for name, a, b, c in named]


def _range(values: Floats) -> dict[str, float]:
    return {
        "min": float(values.min()),
        "mean": float(values.mean(dtype=np.float64)),
        "max": float(values.max()),
    }


def _spread(values: Floats) -> dict[str, float]:
    quantiles = np.quantile(values, QUANTILES)
    named = {f"q{round(100 * q)}": float(value) for q, value in zip(QUANTILES, quantiles, strict=True)}
    return _range(values) | named
