"""From reports to chunks: reports of one ship in order of time, without jumps and without long gaps."""

from collections import Counter
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bcrl.ship._ais import Reports
from bcrl.ship._rule import MAX_SPEED, Box, Rule

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Chunks:
    """Clean reports, sorted by ship and time. Chunk i has the rows `starts[i]` to `starts[i + 1]`."""

    ship: NDArray[np.int64]
    time: NDArray[np.int64]
    x: Floats
    y: Floats
    speed: Floats
    """m/s; NaN where missing or above MAX_SPEED."""
    heading: Floats
    """Radians anticlockwise from east; NaN where missing."""
    starts: NDArray[np.int64]
    """One more than there are chunks: the last is the number of rows."""
    bad: Counter[str]
    """Rows left out, by reason."""


def clean(reports: Reports, box: Box, rule: Rule) -> Chunks:
    """Every row of `reports` is either in a chunk or counted in `bad` under the first reason against it."""
    bad = Counter(reports.bad)
    around = box.grown(rule.margin)
    inside = (reports.lon >= around.west) & (reports.lon <= around.east)
    inside &= (reports.lat >= around.south) & (reports.lat <= around.north)
    bad["outside the box"] += int((~inside).sum())
    keep = _drop(inside, reports.time < 0, "impossible time", bad)  # before 1970
    if rule.under_way_only and (reports.status >= 0).any():
        keep = _drop(keep, reports.status != 0, "not under way", bad)
    if rule.under_way_only and np.isfinite(reports.heading).any():
        keep = _drop(keep, np.isnan(reports.heading), "no heading", bad)

    rows = np.flatnonzero(keep)
    rows = rows[np.lexsort((reports.time[rows], reports.ship[rows]))]
    ship, time = reports.ship[rows], reports.time[rows]
    first = np.ones(len(rows), bool)
    first[1:] = (ship[1:] != ship[:-1]) | (time[1:] != time[:-1])
    bad["repeated"] += int((~first).sum())
    rows = rows[first]

    ship, time = reports.ship[rows], reports.time[rows]
    x, y = box.to_metres(reports.lon[rows], reports.lat[rows])
    kept = _reachable(ship, time, x, y, rule.gap)
    bad[f"jump above {MAX_SPEED:g} m/s"] += int((~kept).sum())
    rows, ship, time, x, y = rows[kept], ship[kept], time[kept], x[kept], y[kept]

    chunk = _number_chunks(ship, time, rule.gap)
    enough = np.bincount(chunk, minlength=1)[chunk] >= rule.min_reports if len(chunk) else np.zeros(0, bool)
    bad["alone between gaps"] += int((~enough).sum())
    rows, ship, time, x, y = rows[enough], ship[enough], time[enough], x[enough], y[enough]
    starts = np.flatnonzero(np.diff(chunk[enough], prepend=-1))
    speed = reports.speed[rows]
    return Chunks(
        ship,
        time,
        x,
        y,
        speed=np.where(speed <= MAX_SPEED, speed, np.nan),
        heading=np.mod(np.pi / 2 - np.radians(reports.heading[rows]), 2 * np.pi),
        starts=np.append(starts, len(rows)),
        bad=+bad,
    )


def _drop(keep: Bools, unwanted: Bools, reason: str, bad: Counter[str]) -> Bools:
    bad[reason] += int((keep & unwanted).sum())
    return keep & ~unwanted


def _number_chunks(ship: NDArray[np.int64], time: NDArray[np.int64], gap: int) -> NDArray[np.int64]:
    """The number of each row's chunk, from 0; one ends where the ship changes or is silent for too long."""
    new = np.ones(len(ship), bool)
    new[1:] = (ship[1:] != ship[:-1]) | (np.diff(time) > gap)
    return np.cumsum(new) - 1


def _reachable(ship: NDArray[np.int64], time: NDArray[np.int64], x: Floats, y: Floats, gap: int) -> Bools:
    """Which rows their ship could reach from its last kept row; after a gap any place is possible.

    When a chunk's first row is the wrong one, the true ones are in reach again after `gap` seconds at most.
    """
    kept = np.ones(len(ship), bool)
    far = np.hypot(np.diff(x), np.diff(y)) > MAX_SPEED * np.diff(time)
    suspects = np.flatnonzero(far & (ship[1:] == ship[:-1]) & (np.diff(time) <= gap)) + 1
    done = 0
    for suspect in suspects:
        if suspect < done:
            continue  # done with an earlier suspect
        last, row = suspect - 1, suspect
        # Usually one row; a run of them lasts until a row is within reach again.
        while row < len(ship) and ship[row] == ship[last] and time[row] - time[last] <= gap:
            if np.hypot(x[row] - x[last], y[row] - y[last]) <= MAX_SPEED * (time[row] - time[last]):
                break
            kept[row] = False
            row += 1
        done = row + 1
        # The row after the gap may again be out of reach of the next one, which is a suspect of its own.
    return kept
