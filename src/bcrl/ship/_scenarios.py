"""Scenarios: tracks of one ship each, with the traffic around them, the split and the scores. numpy only."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from bcrl.errors import BCRLError
from bcrl.ship._rule import SECONDS, Box

GOAL_METRES = 200.0
"""The goal is reached within this distance."""
CLOSE_METRES = 555.0
"""Three cables: nearer than this to another vessel is a close-quarters situation."""
TEST_SHARE = 0.2
"""Of the scenarios, the last by start; and of the training scenarios those to choose options on."""
Part = Literal["training", "fitting", "validation", "test"]
Held = Literal["validation", "test"]
"""The parts that policies are evaluated on."""
CONGESTED_SHARE = 0.2


@dataclass(frozen=True, eq=False)
class Scenarios:
    """All tracks in a box, and which of them are scenarios: to sail from the first to the last sample."""

    box: Box
    samples: NDArray[np.float32]
    """(N, 4) of all tracks, one after another: x, y, speed, heading."""
    offsets: NDArray[np.int64]
    """(tracks + 1,) track k has the samples offsets[k] to offsets[k + 1]."""
    first: NDArray[np.int64]
    """(tracks,) the clock at its first sample, in steps of 10 s since 1970."""
    ship: NDArray[np.int32]
    """(tracks,) the ship of each, a row of `ships`."""
    ships: NDArray[np.uint64]
    """(ships,) hashed identities."""
    kinds: NDArray[np.int8]
    """(ships,) 0 unknown, 1 cargo, 2 tanker, 3 other."""
    track: NDArray[np.int32]
    """(scenarios,) the track each is made of, in order of their start."""
    congestion: NDArray[np.float32]
    """(scenarios,) other ships in the box, mean over the expert's samples."""
    close_quarters: NDArray[np.float32]
    """(scenarios,) share of the expert's steps that end within 555 m of another ship."""
    expert_cost: NDArray[np.int32]
    """(scenarios,) the number of such steps until the goal is reached."""
    test: NDArray[np.bool_]
    """(scenarios,) the last fifth by start."""
    about: Mapping[str, Any] = field(default_factory=dict)
    """Source, rule, and the numbers of rows read and left out."""

    def __len__(self) -> int:
        return len(self.track)

    def __repr__(self) -> str:
        source, test = self.about.get("source", ""), int(self.test.sum())
        return f"Scenarios({source!r}: {len(self):,}, {test:,} of them test, {len(self.ships)} ships)"

    @cached_property
    def steps(self) -> NDArray[np.int64]:
        """(scenarios,) steps of the expert's whole track."""
        return np.diff(self.offsets)[self.track] - 1

    def expert(self, scenario: int) -> NDArray[np.float32]:
        """(steps + 1, 4) the samples of a scenario's own track."""
        track = self.track[scenario]
        return self.samples[self.offsets[track] : self.offsets[track + 1]]

    @cached_property
    def steps_to_goal(self) -> NDArray[np.int64]:
        """(scenarios,) steps until the expert is first within 200 m of the goal."""
        counts = np.empty(len(self), np.int64)
        for scenario in range(len(self)):
            place = self.expert(scenario)[:, :2]
            reached = np.hypot(*(place[1:] - place[-1]).T) < GOAL_METRES
            counts[scenario] = 1 + np.argmax(reached)
        return counts

    @cached_property
    def training(self) -> NDArray[np.int64]:
        """The scenarios to learn from."""
        return np.flatnonzero(~self.test)

    @cached_property
    def validation(self) -> NDArray[np.int64]:
        """To choose options on: the last fifth of `training`, less what lasts into the test."""
        late = self.training[-max(1, round(TEST_SHARE * len(self.training))) :]
        return late[self._end(late) < self._start(np.flatnonzero(self.test))]

    @cached_property
    def fitting(self) -> NDArray[np.int64]:
        """To learn from while options are chosen: what of `training` ends before validation begins."""
        return self.training[self._end(self.training) < self._start(self.validation)]

    @cached_property
    def evaluation(self) -> NDArray[np.int64]:
        """The congested fifth of the test scenarios."""
        return self.congested("test")

    def part(self, name: Part) -> NDArray[np.int64]:
        """The scenarios of a part, at least one."""
        found = np.flatnonzero(self.test) if name == "test" else getattr(self, name)
        if not len(found):
            raise BCRLError(
                f"none of {len(self.training)} training scenarios is left for {name}: those of fitting end "
                "before validation begins, those of validation before the test; take a longer log"
            )
        return found

    def congested(self, part: Held) -> NDArray[np.int64]:
        """The fifth of a part on which policies are evaluated."""
        return self.most_congested(self.part(part))

    def _start(self, which: NDArray[np.int64]) -> int:
        """The clock when the first of these scenarios begins."""
        return int(self.first[self.track[which]].min()) if len(which) else 0

    def _end(self, which: NDArray[np.int64]) -> NDArray[np.int64]:
        """The clock at the last sample of each."""
        return self.first[self.track[which]] + self.steps[which]

    def check(self, scenario: int) -> None:
        """Refuses a number that no scenario has."""
        if not 0 <= scenario < len(self):
            raise BCRLError(
                f"there is no scenario {scenario}; they are 0 to {len(self) - 1}, "
                f"such as {self.evaluation[0]} of the test"
            )

    def most_congested(self, among: NDArray[np.int64]) -> NDArray[np.int64]:
        """The fifth (at least one) of these scenarios with the most traffic, in their order."""
        count = max(1, round(CONGESTED_SHARE * len(among)))
        order = np.argsort(-self.congestion[among], kind="stable")
        return np.sort(among[order[:count]])


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
