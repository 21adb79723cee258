"""From reports to scenarios: clean, interpolate, number the ships, score and split."""

import dataclasses
import hashlib

import numpy as np
from numpy.typing import NDArray

from bcrl.errors import BCRLError
from bcrl.ship._ais import KINDS, UNKNOWN, Reports
from bcrl.ship._cleaning import Chunks, clean
from bcrl.ship._interpolate import Track, make_tracks
from bcrl.ship._rule import Box, Rule
from bcrl.ship._scenarios import CLOSE_METRES, TEST_SHARE, Scenarios
from bcrl.ship._scene import distances, make_scene


def make_scenarios(
    reports: Reports, box: Box, rule: Rule, *, kinds: tuple[str, ...] = (), source: str = ""
) -> Scenarios:
    """Every track in the box is traffic; those long enough, and of these kinds if given, are scenarios."""
    unknown = sorted(set(kinds) - KINDS.keys())
    if unknown:
        raise BCRLError(f"there is no kind of vessel {unknown[0]!r}; known: {', '.join(KINDS)}")
    chunks = clean(reports, box, rule)
    tracks = sorted(make_tracks(chunks, box, rule), key=lambda track: (track.first, track.ship))
    if not tracks:
        raise BCRLError(
            f"{source}: of {reports.rows:,} rows none is left as a track in the box "
            f"({_reasons(chunks)}); check the box"
        )
    identities, ship = np.unique([track.ship for track in tracks], return_inverse=True)
    kind = _kinds(reports, identities)
    allowed = np.isin(kind, [KINDS[name] for name in kinds]) if kinds else np.ones(len(kind), bool)
    long = np.array([_is_long(track, rule) for track in tracks])
    chosen = np.flatnonzero(long & allowed[ship])
    if len(chosen) < 2:
        raise BCRLError(
            f"{source}: {len(chosen)} scenarios, but a split needs two: of {len(tracks):,} tracks "
            f"{long.sum():,} are of {rule.min_steps} steps and {rule.min_metres:g} m or more"
            + (f", and few of those are {' or '.join(kinds)}" if kinds else "")
        )
    test = np.arange(len(chosen)) >= min(round((1 - TEST_SHARE) * len(chosen)), len(chosen) - 1)
    unscored = Scenarios(
        box=box,
        samples=np.concatenate([track.samples for track in tracks]),
        offsets=np.cumsum([0, *(len(track.samples) for track in tracks)]).astype(np.int64),
        first=np.array([track.first for track in tracks], np.int64),
        ship=ship.astype(np.int32),
        ships=_hashed(identities, reports),
        kinds=kind.astype(np.int8),
        track=chosen.astype(np.int32),
        congestion=np.zeros(len(chosen), np.float32),
        close_quarters=np.zeros(len(chosen), np.float32),
        expert_cost=np.zeros(len(chosen), np.int32),
        test=test,
        about={
            "source": source,
            "rule": dataclasses.asdict(rule),
            "kinds": list(kinds),
            "rows": reports.rows,
            "left_out": dict(chunks.bad),
            "speed_from_positions": int(np.isnan(chunks.speed).sum()),
            "course_from_positions": int(np.isnan(chunks.heading).sum()),
        },
    )
    return _scored(unscored)


def _is_long(track: Track, rule: Rule) -> bool:
    place = track.samples[:, :2]
    way = np.hypot(*(place[-1] - place[0]))
    return len(place) - 1 >= rule.min_steps and bool(way >= rule.min_metres)


def _kinds(reports: Reports, identities: NDArray[np.int64]) -> NDArray[np.int64]:
    """What most often is said of each ship, where anything is."""
    said = reports.kind != UNKNOWN
    row = np.searchsorted(identities, reports.ship[said])
    known = row < len(identities)
    row, kind = row[known], reports.kind[said][known]
    mine = identities[row] == reports.ship[said][known]
    votes = np.zeros((len(identities), len(KINDS) + 1), np.int64)
    np.add.at(votes, (row[mine], kind[mine]), 1)
    return np.where(votes.any(axis=1), votes.argmax(axis=1), UNKNOWN)


def _hashed(identities: NDArray[np.int64], reports: Reports) -> NDArray[np.uint64]:
    """Keyed hashes of the identities; the key is a hash of all reports, so only their owner can name ships.

    Without a key all MMSIs, fewer than 10^9, could be tried. With a random key the same reports
    would give another file each time.
    """
    digest = hashlib.sha256()
    for column in (reports.ship, reports.time, reports.lon, reports.lat):
        digest.update(np.ascontiguousarray(column.astype(column.dtype.newbyteorder("<"))).data)
    key = digest.digest()
    names = [
        hashlib.blake2b(int(ship).to_bytes(8, "little", signed=True), digest_size=8, key=key).digest()
        for ship in identities
    ]
    return np.frombuffer(b"".join(names), "<u8").astype(np.uint64)


def _scored(scenarios: Scenarios) -> Scenarios:
    """The same with congestion and close quarters, counted in the scene the simulator uses."""
    scene, first = make_scene(scenarios)
    fields = {item.name: getattr(scenarios, item.name) for item in dataclasses.fields(scenarios)}
    congestion = np.zeros(len(scenarios), np.float32)
    rate = np.zeros(len(scenarios), np.float32)
    cost = np.zeros(len(scenarios), np.int32)
    for scenario, track in enumerate(scenarios.track):
        place = scenarios.expert(scenario)[:, :2]
        moments = first[track] + np.arange(len(place))
        away = distances(scene, moments, place, int(scenarios.ship[track]))
        congestion[scenario] = np.isfinite(away).sum(axis=1).mean()
        close = away[1:].min(axis=1) < CLOSE_METRES
        rate[scenario] = close.mean()
        cost[scenario] = close[: scenarios.steps_to_goal[scenario]].sum()
    return Scenarios(**{**fields, "congestion": congestion, "close_quarters": rate, "expert_cost": cost})


def _reasons(chunks: Chunks) -> str:
    return ", ".join(f"{count:,} {reason}" for reason, count in chunks.bad.most_common()) or "all were usable"
