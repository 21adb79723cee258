"""Water where ships sail, as cells of a grid: the log has no chart. numpy only."""

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bcrl.ship._rule import Box
from bcrl.ship._scenarios import Held, Scenarios

CELL = 50.0
"""Metres: the size of a cell, about a step of a ship."""
MOST_CELLS = 4_000_000
"""A box with more of them, 100 km by 100 km, has larger cells."""
KNOWN_SHARE = 0.002
"""Water is known if this share of the tracks, and two at least, came into its cell or one beside it.

With one track, no logged step would ever be off known water: a policy could not learn what that costs."""


def cell_size(box: Box) -> float:
    """Metres: CELL, or in a large box the multiple of it that makes about MOST_CELLS cells."""
    columns, rows = (np.ceil(metres / CELL) for metres in box.size)
    return CELL * float(np.ceil(np.sqrt(columns * rows / MOST_CELLS)))


def sailed_water(scenarios: Scenarios) -> NDArray[np.bool_]:
    """(rows, columns) from the south-west: cells in which any ship of the log ever was."""
    return _tracks_through(scenarios, np.ones(len(scenarios.samples), bool), 0) > 0


@lru_cache(maxsize=4)
def known_water(scenarios: Scenarios, part: Held = "test") -> NDArray[np.bool_]:
    """(rows, columns) from the south-west: the water known before the test or validation begins."""
    counts = np.diff(scenarios.offsets)
    clock = np.repeat(scenarios.first - scenarios.offsets[:-1], counts) + np.arange(len(scenarios.samples))
    begins = scenarios.first[scenarios.track[scenarios.part(part)]].min()
    tracks = int((scenarios.first < begins).sum())
    return _tracks_through(scenarios, clock < begins, 1) >= max(2, np.ceil(KNOWN_SHARE * tracks))


def off_water(water: NDArray[np.bool_], box: Box, place: NDArray[np.floating]) -> NDArray[np.bool_]:
    """Whether each place (..., 2), in metres, is off this water."""
    return ~water[cell_of(place, cell_size(box), water.shape)]


def cell_of(place: Any, cell: float, shape: tuple[int, ...]) -> tuple:
    """(row, column) of each place (..., 2); what is outside the box counts to the cell at its edge."""
    column, row = (place[..., axis] // cell for axis in (0, 1))
    return tuple(at.clip(0, most - 1).astype(int) for at, most in zip((row, column), shape, strict=True))


def _tracks_through(scenarios: Scenarios, chosen: NDArray[np.bool_], margin: int) -> NDArray[np.int64]:
    """(rows, columns) how many tracks have a chosen sample in the cell or at most `margin` cells away."""
    cell = cell_size(scenarios.box)
    columns, rows = (int(np.ceil(metres / cell)) for metres in scenarios.box.size)
    track = np.repeat(np.arange(len(scenarios.first)), np.diff(scenarios.offsets))[chosen]
    row, column = cell_of(scenarios.samples[chosen, :2], cell, (rows, columns))
    visits = np.unique((track * rows + row) * columns + column)  # a track counts once in a cell
    track, row, column = visits // (rows * columns), visits // columns % rows, visits % columns
    around = []
    for up in range(-margin, margin + 1):
        for right in range(-margin, margin + 1):
            inside = (row + up >= 0) & (row + up < rows) & (column + right >= 0) & (column + right < columns)
            around.append(((track * rows + row + up) * columns + column + right)[inside])
    visits = np.unique(np.concatenate(around))
    return np.bincount(visits % (rows * columns), minlength=rows * columns).reshape(rows, columns)
