"""A cell of a benchmark: one policy at one threshold, with a key made of everything that determines it."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from bcrl.budget import Execution
from bcrl.train.jobs import Job, digest


@dataclass(frozen=True)
class Protocol:
    """How a policy is judged."""

    episodes: int = 20
    """Episodes per seed and threshold."""
    execution: Execution = "finite-horizon"
    """How the budget is tracked while acting."""
    candidates: int = 0
    """Actions drawn in each step, of which the best safe one is taken; 0: the policy's own."""
    episode_seed: int = 0
    """Decides starts and noise of the episodes."""
    best: bool = False
    """Judge the best policy of the training instead of the last."""


@dataclass(frozen=True)
class Cell:
    """The identity of one result. The fields are columns of the store."""

    key: str
    """A digest of all that determines the result."""
    setting: str
    """The same without seed and threshold: the cells of one setting make one line of a table."""
    label: str
    """The name of the column in tables."""
    method: str
    options: str
    """Every option of the method, as JSON; those of acting as the policy acted by them."""
    task: str
    data_sha256: str
    steps: int
    seed: int
    threshold: float
    policy: str
    """`final`, `best`, or `step N` of the way."""
    episodes: int
    execution: str
    episode_seed: int
    reported: int
    """1 in tables; 0 for a trial that only chooses the best policy."""
    candidates: int = 0


@dataclass(frozen=True)
class Work:
    """One training of a benchmark and what it is judged at. Works may share a training."""

    label: str
    job: Job
    log: Path
    thresholds: tuple[float, ...]
    protocol: Protocol
    acting: dict[str, Any] = field(default_factory=dict)
    """Options by which the trained policy acts, where they are not those of the training."""

    @property
    def name(self) -> str:
        """For messages."""
        at = f" at {self.thresholds[0]:g}" if len(self.thresholds) == 1 else ""
        return f"{self.job.task}, {self.label}{at}"

    def reported(self, seed: int) -> list[Cell]:
        """The cells of a seed that tables show."""
        return self.cells(seed, "best" if self.protocol.best else "final", reported=True)

    def cells(self, seed: int, policy: str, *, reported: bool) -> list[Cell]:
        """A cell for each threshold."""
        job, protocol = self.job, self.protocol
        if not reported:
            # Chosen on other episodes than it is shown with, so that luck is not reported as skill.
            protocol = replace(protocol, episode_seed=protocol.episode_seed + 1)
        judged = {
            "policy": policy,
            "episodes": protocol.episodes,
            "execution": protocol.execution,
            "episode_seed": protocol.episode_seed,
        }
        # Only where they are there, so that results from before them are found again.
        judged |= {"candidates": protocol.candidates} if protocol.candidates else {}
        judged |= {"acting": self.acting} if self.acting else {}
        # A method that trains for one threshold has as many options as thresholds, all of one setting.
        options = {name: value for name, value in job.identity["options"].items() if name != "threshold"}
        setting = digest({**job.identity, "options": options, **judged})
        return [
            Cell(
                key=digest({**job.identity, **judged, "seed": seed, "threshold": threshold}),
                setting=setting,
                label=self.label,
                method=job.method,
                options=json.dumps(job.options | self.acting),
                task=job.task,
                data_sha256=job.data_sha256,
                steps=job.steps,
                seed=seed,
                threshold=threshold,
                policy=policy,
                episodes=protocol.episodes,
                execution=protocol.execution,
                episode_seed=protocol.episode_seed,
                reported=int(reported),
                candidates=protocol.candidates,
            )
            for threshold in self.thresholds
        ]


@dataclass(frozen=True)
class Evaluation:
    """One policy file and the cells that are wanted of it; they differ in the threshold alone."""

    work: Work
    policy: Path
    cells: tuple[Cell, ...]


def missing(cells: Sequence[Cell], done: set[str]) -> tuple[Cell, ...]:
    return tuple(cell for cell in cells if cell.key not in done)


def facts(provenance: dict[str, Any], seconds: float) -> str:
    """Versions, device and time of a result, which do not determine it, as JSON."""
    names = ("bcrl", "jax", "device", "step")
    known = {name: provenance[name] for name in names if name in provenance}
    return json.dumps({**known, "seconds": round(seconds, 3)})
