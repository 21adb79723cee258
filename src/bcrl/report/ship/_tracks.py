"""One scenario as arrays for a map: the expert, the traffic around it, and any roll-outs, on one clock."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from bcrl.ship import CLOSE_METRES, GOAL_METRES, SECONDS, Box, Scenarios, Voyages, distances, make_scene


@dataclass(frozen=True)
class Route:
    """Where one ship was. Places where `present` is False are undefined."""

    place: np.ndarray
    """(moments, 2) metres from the south-west corner."""
    present: np.ndarray
    """(moments,) bool."""
    close: np.ndarray
    """(moments,) bool: within 555 m of another ship."""
    reached: bool
    """Whether it came within 200 m of the goal."""
    policy: str = ""
    """The name of the policy, without the threshold."""


@dataclass(frozen=True)
class Map:
    """A scenario and the routes sailed in it."""

    box: Box
    scenario: int
    start: np.ndarray
    """(2,)."""
    goal: np.ndarray
    """(2,)."""
    seconds: np.ndarray
    """(moments,) since the start."""
    expert: Route
    neighbours: np.ndarray
    """(ships, moments, 2)."""
    neighbours_present: np.ndarray
    """(ships, moments)."""
    routes: dict[str, Route]
    """By name; where a name sailed at several thresholds, the threshold is added to it."""


def make_map(scenarios: Scenarios, scenario: int, sailed: Mapping[str, Voyages] | None = None) -> Map:
    """The map until the expert and all roll-outs have ended; `sailed` may hold other scenarios too."""
    rows = [
        (name, voyages, row)
        for name, voyages in (sailed or {}).items()
        for row in np.flatnonzero(voyages.scenario == scenario)
    ]
    expert = scenarios.expert(scenario)
    moments = max([len(expert), *(int(voyages.lengths[row]) + 1 for _, voyages, row in rows)])
    track = scenarios.track[scenario]
    after = np.zeros(len(scenarios.first), np.int64)
    after[track] = moments - len(expert)
    scene, first = make_scene(scenarios, after=after)
    clock = first[track] + np.arange(moments)
    ship = int(scenarios.ship[track])

    def route(place: np.ndarray, policy: str = "") -> Route:
        filled = np.zeros((moments, 2))
        filled[: len(place)] = place
        present = np.arange(moments) < len(place)
        close = distances(scene, clock, filled, ship).min(axis=1) < CLOSE_METRES
        reached = (np.hypot(*(place[1:] - expert[-1, :2]).T) < GOAL_METRES).any()
        return Route(filled, present, close & present, bool(reached), policy)

    routes = {}
    for name, voyages, row in rows:
        several = (voyages.scenario == scenario).sum() > 1
        label = f"{name}, threshold {voyages.threshold[row]:g}" if several else name
        routes[label] = route(voyages.path[row, : voyages.lengths[row] + 1, :2], name)
    window = scene[clock]
    others = [int(number) for number in np.unique(window[..., 4]) if number >= 0 and number != ship]
    neighbours = np.zeros((len(others), moments, 2), np.float32)
    present = np.zeros((len(others), moments), bool)
    for index, number in enumerate(others):
        moment, slot = np.nonzero(window[..., 4] == number)
        neighbours[index, moment] = window[moment, slot, :2]
        present[index, moment] = True
    return Map(
        box=scenarios.box,
        scenario=scenario,
        start=expert[0, :2],
        goal=expert[-1, :2],
        seconds=SECONDS * np.arange(moments),
        expert=route(expert[:, :2]),
        neighbours=neighbours,
        neighbours_present=present,
        routes=routes,
    )
