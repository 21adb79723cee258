"""From chunks of reports to tracks on one clock: a sample every 10 s, aligned to whole tens of seconds."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bcrl.progress import progress
from bcrl.ship._cleaning import Chunks
from bcrl.ship._rule import SECONDS, Box, Rule

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
STILL = 0.1
"""m/s. Below this no course is computed from positions: their error is larger than the distance."""
EDGE = 0.01
"""Metres inside the box where tracks end, so that rounding never puts a replayed expert outside it."""


@dataclass(frozen=True)
class Track:
    """One ship, without a break, inside the box."""

    ship: int
    first: int
    """The clock at the first sample: seconds since 1970 over 10."""
    samples: NDArray[np.float32]
    """(n, 4): x, y in metres from the south-west corner, speed in m/s, heading in radians from east."""


def make_tracks(chunks: Chunks, box: Box, rule: Rule) -> list[Track]:
    """The parts of all chunks that lie in the box and, if the rule says so, move; at least one step each."""
    size = np.array(box.size)
    tracks = []
    for low, high in _shown(chunks.starts):
        rows = slice(low, high)
        times, samples = interpolate(
            chunks.time[rows],
            chunks.x[rows],
            chunks.y[rows],
            chunks.speed[rows],
            chunks.heading[rows],
            skip_first_instant=rule.skip_first_instant,
        )
        if len(times) < 2:
            continue
        place = samples[:, :2]
        inside: Bools = np.all((place >= EDGE) & (place <= size - EDGE), axis=1)
        fast = np.hypot(*np.diff(place, axis=0).T) > rule.moving * SECONDS
        for start, end in _runs(inside[1:] & inside[:-1] & (fast | (rule.moving == 0))):
            part = samples[start : end + 1].astype(np.float32)
            tracks.append(Track(int(chunks.ship[low]), int(times[start]) // SECONDS, part))
    return tracks


def _shown(starts: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """First and one past the last row of each chunk, with a bar for logs that take long."""
    with progress("tracks", len(starts) - 1, "chunks") as tick:
        for low, high in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True):
            yield low, high
            tick()


def interpolate(
    time: NDArray[np.int64],
    x: Floats,
    y: Floats,
    speed: Floats,
    heading: Floats,
    *,
    skip_first_instant: bool = False,
) -> tuple[NDArray[np.int64], Floats]:
    """Grid times and samples (n, 4) between the first and the last report, linear between reports.

    Headings turn the shorter way round. Where a report on either side has no speed or no heading, it is
    computed from the step that led to the sample.
    """
    start = time[0] + 1 if skip_first_instant else time[0]
    grid = np.arange(-(-start // SECONDS), time[-1] // SECONDS + 1) * SECONDS
    place = np.stack([np.interp(grid, time, x), np.interp(grid, time, y)], axis=1)
    made_speed, made_course = _way_made(place)
    said_speed = np.interp(grid, time, speed)
    said_heading = np.interp(grid, time, _unwrapped(heading))
    samples = np.column_stack(
        [
            place,
            np.where(np.isnan(said_speed), made_speed, said_speed),
            np.mod(np.where(np.isnan(said_heading), made_course, said_heading), 2 * np.pi),
        ]
    )
    return grid, samples


def _way_made(place: Floats) -> tuple[Floats, Floats]:
    """Speed and course of the step that led to each sample; the first takes those of the step after it."""
    if len(place) < 2:
        return np.zeros(len(place)), np.zeros(len(place))
    step = np.diff(place, axis=0)
    speed = np.hypot(*step.T) / SECONDS
    course = np.arctan2(step[:, 1], step[:, 0])
    # A ship at rest keeps its last course, or takes its first one.
    moving = np.flatnonzero(speed > STILL)
    if len(moving):
        last = np.searchsorted(moving, np.arange(len(course)), side="right") - 1
        course = course[moving[np.maximum(last, 0)]]
    return np.insert(speed, 0, speed[0]), np.insert(course, 0, course[0])


def _unwrapped(angle: Floats) -> Floats:
    """The same directions without jumps of a full turn; missing ones stay NaN."""
    said = np.isfinite(angle)
    smooth = np.full_like(angle, np.nan)
    smooth[said] = np.unwrap(angle[said])
    return smooth


def _runs(marks: NDArray[np.bool_]) -> Iterator[tuple[int, int]]:
    """First and one past the last index of each run of True."""
    edges = np.diff(np.concatenate([[False], marks, [False]]).astype(np.int8))
    starts, ends = np.flatnonzero(edges == 1), np.flatnonzero(edges == -1)
    yield from zip(starts.tolist(), ends.tolist(), strict=True)
