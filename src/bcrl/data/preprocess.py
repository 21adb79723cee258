"""DSRL's filters: functions from a log to a smaller, misleading or noisy log.

They follow DSRL's `pre_process_data`; docs/data.md lists the differences and the reasons. Random ones take a
seed, and the same seed gives the same log.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bcrl.data._checks import fault
from bcrl.data._dataset import Dataset, Floats, Ints

OUTLIER_REWARD = 1.5
"""Factor on the rewards of an outlier, as in DSRL."""


@dataclass(frozen=True)
class Grid:
    """A grid over the costs and returns of episodes; the defaults are DSRL's."""

    cost_cells: int = 10
    return_cells: int = 50
    most_per_cell: int = 5
    """From a cell with more episodes, this many are sampled."""
    sparse_cell: int = 2
    """A cell with this many episodes or fewer is dropped."""


@dataclass(frozen=True)
class Box:
    """A rectangle of costs and returns, in fractions of their ranges in the log."""

    cost_from: float
    cost_to: float
    return_from: float
    return_to: float


def thin(data: Dataset, grid: Grid, seed: int) -> Dataset:
    """At most `grid.most_per_cell` episodes of each cell, and none of sparse cells, in the log's order."""
    for name, least in {"cost_cells": 1, "return_cells": 1, "most_per_cell": 1, "sparse_cell": 0}.items():
        if getattr(grid, name) < least:
            raise fault(data.source, f"{name} is {getattr(grid, name)}; give {least} or more")
    costs, returns = _costs(data), data.episode_returns
    drawn = draw_by_cell(
        (_fractions(costs, costs), grid.cost_cells),
        (_fractions(returns, returns), grid.return_cells),
        np.random.default_rng(seed),
    )
    kept = drawn.episode[(drawn.turn < grid.most_per_cell) & (drawn.cell_size > grid.sparse_cell)]
    if not kept.size:
        raise fault(data.source, f"every cell has {grid.sparse_cell} episodes or fewer; take fewer cells")
    return data.select_episodes(np.sort(kept))


class Drawn(NamedTuple):
    """Episodes cell by cell, in random order within each cell."""

    episode: Ints
    turn: Ints
    """How many episodes of its cell come before it."""
    cell_size: Ints
    """How many episodes its cell has."""


def draw_by_cell(rows: tuple[Floats, int], columns: tuple[Floats, int], random: np.random.Generator) -> Drawn:
    """Episodes cell by cell of a grid; `rows` and `columns` are places from 0 to 1 and numbers of cells."""
    cells = _cells(*rows) * columns[1] + _cells(*columns)
    shuffled = random.permutation(len(cells))
    episode = shuffled[np.argsort(cells[shuffled], kind="stable")]
    _, starts, sizes = np.unique(cells[episode], return_index=True, return_counts=True)
    return Drawn(episode, np.arange(len(episode)) - np.repeat(starts, sizes), np.repeat(sizes, sizes))


def inpaint(data: Dataset, boxes: Sequence[Box], whole: Dataset | None = None) -> Dataset:
    """The log without the episodes inside any box, edges included.

    Fractions refer to the ranges of `whole`, the log before other filters; by default of `data`.
    """
    whole = data if whole is None else whole
    cost = _fractions(_costs(data), _costs(whole))
    reward = _fractions(data.episode_returns, whole.episode_returns)
    inside = np.zeros(data.episode_count, bool)
    for box in boxes:
        if not (0 <= box.cost_from <= box.cost_to <= 1 and 0 <= box.return_from <= box.return_to <= 1):
            raise fault(data.source, f"{box} is no box; give fractions from 0 to 1, the smaller one first")
        costs_fit = (box.cost_from <= cost) & (cost <= box.cost_to)
        inside |= costs_fit & (box.return_from <= reward) & (reward <= box.return_to)
    if inside.all():
        raise fault(data.source, "every episode lies inside the boxes; make them smaller")
    return data.select_episodes(~inside)


def drop_best(data: Dataset, threshold: float, margin: float, *, safe: bool) -> Dataset:
    """The log without the safe (or the unsafe) episodes within `margin` of the best return among them."""
    if not margin > 0:
        raise fault(data.source, f"margin is {margin:g}; give how far below the best is dropped, above 0")
    kind = _costs(data) <= threshold if safe else _costs(data) > threshold
    if not kind.any():
        words = "at most" if safe else "more than"
        raise fault(data.source, f"no episode costs {words} {threshold:g}; give another threshold")
    returns = data.episode_returns
    dropped = kind & (returns >= returns[kind].max() - margin)
    if dropped.all():
        raise fault(data.source, f"margin {margin:g} drops every episode; give a smaller one")
    return data.select_episodes(~dropped)


def add_outliers(data: Dataset, share: float, threshold: float, seed: int) -> Dataset:
    """The log with some costly, rewarding episodes changed to look safe and still more rewarding.

    They are sampled from the episodes with at least half of the largest cost and half of the largest return;
    their number is `share` of all episodes. Their rewards are multiplied by 1.5, and their costs become 1 at
    fewer than `threshold` steps and 0 elsewhere.
    """
    if not 0 < share <= 1:
        raise fault(data.source, f"share of outliers is {share:g}; give a fraction above 0, at most 1")
    if not threshold >= 0:
        raise fault(data.source, f"threshold is {threshold:g}; give 0 or more")
    random = np.random.default_rng(seed)
    costs, returns = _costs(data), data.episode_returns
    fit = np.flatnonzero((costs >= costs.max() / 2) & (returns >= returns.max() / 2))
    count = max(1, int(share * data.episode_count))
    if count > fit.size:
        raise fault(
            data.source,
            f"{count:,} outliers are asked for and {fit.size:,} episodes have half of the largest cost and "
            "return; give a smaller share",
        )
    rewards, step_costs = data.rewards.copy(), data.costs.copy()
    for episode in random.choice(fit, count, replace=False):
        rows = np.flatnonzero(data.episode == episode)
        most = min(max(int(threshold) - 1, 0), len(rows))
        costly = random.choice(rows, random.integers(most + 1), replace=False)
        rewards[rows] *= OUTLIER_REWARD
        step_costs[rows] = 0
        step_costs[costly] = 1
    return _replace(data, "outliers", rewards=rewards, costs=step_costs)


def add_noise(data: Dataset, scale: float, seed: int) -> Dataset:
    """The log with Gaussian noise on observations, of `scale` times their overall standard deviation.

    A next observation that equals the observation of the next row gets the same noise as that one.
    """
    if not scale > 0:
        raise fault(data.source, f"noise is {scale:g}; give a number above 0")
    random = np.random.default_rng(seed)
    deviation = scale * data.observations.std(dtype=np.float64)
    observations = data.observations + random.normal(0, deviation, data.observations.shape)
    following = data.next_observations + random.normal(0, deviation, data.observations.shape)
    rows = np.flatnonzero(~(data.terminals | data.timeouts)[:-1])
    rows = rows[(data.next_observations[rows] == data.observations[rows + 1]).all(axis=1)]
    following[rows] = observations[rows + 1]
    return _replace(data, "noise", observations=observations, next_observations=following)


def _costs(data: Dataset) -> Floats:
    if data.cost_count > 1:
        raise fault(data.source, f"has {data.cost_count} kinds of cost, and this filter is for one")
    return data.episode_costs.reshape(-1)


def _fractions(values: Floats, whole: Floats) -> Floats:
    """Values scaled so that the range of `whole` is 0 to 1; 0 if `whole` has one value only."""
    low, high = whole.min(), whole.max()
    return (values - low) / (high - low) if high > low else np.zeros_like(values)


def _cells(fractions: Floats, count: int) -> Ints:
    """The cell of each number from 0 to 1 among `count` equal ones; 1 is in the last one."""
    return np.minimum((fractions * count).astype(np.int64), count - 1)


def _replace(data: Dataset, label: str, **arrays: NDArray[Any]) -> Dataset:
    source = f"{data.source or 'data set'} ({label})"
    return Dataset.from_arrays(data.arrays() | arrays, source, **data.about._asdict())
