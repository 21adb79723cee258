"""The policy behind the server. Nothing else in this package knows what computes its actions."""

import hashlib
import os
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from bcrl import runtime
from bcrl.progress import progress
from bcrl.serve.fields import LARGEST as LARGEST_NUMBER

FAR = 1e6
"""A reading so many times larger than all in the log is in another unit, or from a broken sensor."""


class Running(Protocol):
    """A running episode, as `policy.start` returns it."""

    def act(self, observation: Any) -> np.ndarray: ...

    def observe(self, cost: Any, reward: Any = None) -> None: ...

    @property
    def slack(self) -> np.ndarray: ...

    @property
    def fallback(self) -> np.ndarray: ...


@dataclass(frozen=True)
class Engine:
    """A policy and what its clients must know."""

    policy: Any
    """Has `start(threshold=, budget=, horizon=, execution=, candidates=, calibrated=, seed=)`."""
    name: str
    digest: str
    """SHA-256 of the file."""
    observation_size: int
    observation_limit: float
    """No reading is larger than this."""
    action_size: int
    discrete: bool
    cost_count: int
    horizon: int
    """Of the log, the default of an episode."""
    longest: int
    """The largest horizon."""
    needs_reward: bool
    executions: tuple[str, ...]
    """Empty where the policy tracks no budget."""
    candidates: tuple[int, ...]
    """The numbers of candidates that an episode may ask for."""
    calibration: Any
    """The table of a calibrated policy, or None."""

    def start(self, goal: dict[str, Any]) -> Running:
        """Begins an episode."""
        return self.policy.start(**goal)

    def warm_up(self) -> None:
        """Compiles every program that an episode can ask for, so that none waits; numpy needs none."""
        if isinstance(self.policy, runtime.Policy):
            return
        rules = [{}]
        if self.executions:
            rules = [{"execution": e, "candidates": c} for e, c in product(self.executions, self.candidates)]
        with progress("compiling", len(rules), "rules") as tick:
            for rule in rules:
                threshold = [1.0] * self.cost_count if self.cost_count > 1 else 1.0
                episode = self.start({"threshold": threshold, "seed": 0, **rule})
                episode.act(np.zeros(self.observation_size))
                episode.observe(np.zeros(self.cost_count), 0.0)
                tick()


def load_engine(path: str | os.PathLike, candidates: tuple[int, ...]) -> Engine:
    """The engine of a policy file. Calibrated policies may be asked for their table's candidates too."""
    policy, mean, std, needs_reward = _load(path)
    table, tracks = policy.calibration, policy.tracks_budgets
    offered = {0, *(candidates if tracks else ()), *(() if table is None else (table.candidates,))}
    return Engine(
        policy=policy,
        name=policy.name,
        digest=hashlib.sha256(Path(path).read_bytes()).hexdigest(),
        observation_size=policy.spec.observation_size,
        observation_limit=min(float(FAR * (np.abs(mean) + std).max()), LARGEST_NUMBER),
        action_size=policy.spec.action_size,
        discrete=policy.spec.discrete,
        cost_count=policy.spec.cost_count,
        horizon=policy.spec.horizon,
        longest=policy.longest or runtime.LARGEST,
        needs_reward=needs_reward,
        executions=runtime.EXECUTIONS if tracks else (),
        candidates=tuple(sorted(offered)),
        calibration=table,
    )


def _load(path: str | os.PathLike) -> tuple[Any, np.ndarray, np.ndarray, bool]:
    """A policy, mean and deviation of the log's observations, and whether it must be told rewards.

    By numpy alone where it can be: a tenth of JAX's memory, and nothing to compile.
    """
    try:
        policy = runtime.load(path)
        return policy, policy.actor.mean.astype(float), policy.actor.std.astype(float), False
    except runtime.UnknownMethod:
        from bcrl.policy import load_learned

        policy = load_learned(path)
        normaliser: Any = policy.learned.normaliser  # type: ignore[attr-defined]
        mean, std = np.asarray(normaliser.mean, float), np.asarray(normaliser.std, float)
        return policy, mean, std, policy.actor.needs_reward
