"""All tracks on one clock as a dense table, so that the traffic of any moment is one row."""

import heapq

import numpy as np
from numpy.typing import NDArray

from bcrl.ship._scenarios import Scenarios

HISTORY = 5
"""Samples of the past, the present one included, that an observation shows."""
ABSENT = -1.0


def slots(scenarios: Scenarios) -> NDArray[np.int32]:
    """A column for each track, as few as possible, such that no two tracks meet in one.

    A ship that is gone for less than HISTORY samples keeps its column, so that its past is found there.
    """
    first, last = scenarios.first, scenarios.first + np.diff(scenarios.offsets) - 1
    order = np.lexsort((first, scenarios.ship))
    again = np.zeros(len(order), bool)
    again[1:] = np.diff(scenarios.ship[order]) == 0
    again[1:] &= first[order[1:]] - last[order[:-1]] < HISTORY
    stay = np.empty(len(order), np.int64)
    stay[order] = np.cumsum(~again) - 1  # tracks with short breaks between them are one stay
    begin, end = np.full(stay.max() + 1, np.iinfo(np.int64).max), np.zeros(stay.max() + 1, np.int64)
    np.minimum.at(begin, stay, first)
    np.maximum.at(end, stay, last)
    column = np.zeros(len(begin), np.int32)
    busy: list[tuple[int, int]] = []  # (last sample, column)
    free: list[int] = []
    for number in np.argsort(begin, kind="stable"):
        while busy and busy[0][0] < begin[number]:
            heapq.heappush(free, heapq.heappop(busy)[1])
        column[number] = heapq.heappop(free) if free else len(busy)
        heapq.heappush(busy, (int(end[number]), int(column[number])))
    return column[stay]


def make_scene(
    scenarios: Scenarios, *, after: int | NDArray[np.int64] = 0, at_least: int = 1
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """The table (moments, slots, 5) of x, y, speed, heading and ship, and each track's first moment in it.

    The ship is a row of `scenarios.ships`, or -1 where the slot is empty. `after` is how many moments an
    episode may last beyond the end of its track: one number, or one for each track. Around every track there
    are HISTORY - 1 moments before it and `after` behind it. Times that lie around no track are left out, so
    the table grows with the samples, not with the time they span. It has `at_least` slots or more.
    """
    column = slots(scenarios)
    counts = np.diff(scenarios.offsets)
    first = _without_silence(scenarios.first, counts + after)
    moments = int((first + counts + after).max())
    width = max(int(column.max()) + 1, at_least)
    scene = np.zeros((moments, width, 5), np.float32)
    scene[..., 4] = ABSENT
    moment = np.repeat(first - scenarios.offsets[:-1], counts) + np.arange(len(scenarios.samples))
    place = moment, np.repeat(column, counts)
    scene[(*place, slice(0, 4))] = scenarios.samples
    scene[(*place, 4)] = np.repeat(scenarios.ship, counts)
    return scene, first


def _without_silence(first: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """The first moments of tracks on a clock that skips the time around no track."""
    order = np.argsort(first, kind="stable")
    begin = first[order] - (HISTORY - 1)
    end = np.maximum.accumulate(first[order] + lengths[order])
    silence = np.maximum(begin[1:] - end[:-1], 0)
    moved = np.empty_like(first)
    moved[order] = first[order] - np.cumsum([begin[0], *silence])
    return moved


def distances(
    scene: NDArray[np.float32], moments: NDArray[np.int64], place: NDArray[np.floating], ship: int
) -> NDArray[np.floating]:
    """(n, slots) metres from each place to the other ships at its moment, infinite for empty slots."""
    rows = scene[moments]
    away = np.hypot(rows[..., 0] - place[:, None, 0], rows[..., 1] - place[:, None, 1])
    other = (rows[..., 4] != ABSENT) & (rows[..., 4] != ship)
    return np.where(other, away, np.inf)
