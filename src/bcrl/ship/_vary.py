"""Varied tracks: from the same start to the same goal as an expert's, at a changing pace and beside it.

Experts alone show one way to sail in each state. What another one would have cost is known all the same: the
other ships are recorded, and they do not react. numpy only.
"""

from collections.abc import Sequence

import numpy as np

from bcrl.ship._rule import MAX_SPEED, SECONDS

PACE = 0.35  # standard deviation of the logarithm of the pace at any place
PACE_WAVES = np.arange(2, 6)  # along the track; none for all of it, so a ship that hurried slows down again
ASIDE = 250.0  # metres, standard deviation of the first wave of the way beside the expert's
WAVES = np.arange(1, 4)
SLOWEST, FASTEST = 0.55, 2.0  # an episode may have twice its expert's steps
TRIES = 8  # each with half of the variation of the one before; then the expert's own track
LONGEST = MAX_SPEED * SECONDS - 0.1  # metres of a step; less than an action can do, since tracks are float32


def varied_tracks(tracks: Sequence[np.ndarray], count: int, size: tuple[float, float]) -> list[np.ndarray]:
    """`count` variations of each track (n, 4): all first ones, then all second ones, and so on.

    A variation leaves the box of this `size` or exceeds the greatest speed only if its expert does.
    """
    random = np.random.default_rng(0)  # the same log from the same scenarios
    return [_varied(track, size, random) for _ in range(count) for track in tracks]


def _varied(track: np.ndarray, size: tuple[float, float], random: np.random.Generator) -> np.ndarray:
    """The track at a smoothly changing pace, plus waves of two coordinates that are 0 at both ends."""
    pace = random.normal(0, PACE, (2, len(PACE_WAVES))) / np.sqrt(len(PACE_WAVES))
    aside = random.normal(0, ASIDE, (2, len(WAVES))) / WAVES
    for share in 0.5 ** np.arange(TRIES):
        when = _when(len(track) - 1, share * pace)
        place = np.stack([np.interp(when, np.arange(len(track)), x) for x in track[:, :2].T], axis=1)
        place += share * (np.sin(np.pi * when[:, None] / when[-1] * WAVES) @ aside.T)
        step = np.diff(place, axis=0)
        metres = np.hypot(*step.T)
        if np.all((place >= 0) & (place <= size)) and metres.max() <= LONGEST:
            heading = np.mod(np.arctan2(step[:, 1], step[:, 0]), 2 * np.pi)
            motion = np.vstack([track[0, 2:], np.column_stack([metres / SECONDS, heading])])
            return np.column_stack([place, motion]).astype(track.dtype)
    return track


def _when(steps: int, pace: np.ndarray) -> np.ndarray:
    """The expert's time, in steps, at each step of the variation: from 0 to `steps`."""
    when = [0.0]
    while when[-1] < steps:
        angle = 2 * np.pi * when[-1] / steps * PACE_WAVES
        wave = float(np.sum(pace * [np.sin(angle), np.cos(angle)]))
        when.append(min(when[-1] + float(np.clip(np.exp(wave), SLOWEST, FASTEST)), steps))
    return np.array(when)
