"""A Gymnasium environment of the caller as a world: one episode at a time, in this process."""

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import gymnasium
import numpy as np

from bcrl.errors import BCRLError, brief
from bcrl.worlds.remote._worker import Environment, vector
from bcrl.worlds.remote.pool import Outcome, sizes
from bcrl.worlds.tasks import THRESHOLDS, Task


@dataclass(frozen=True)
class EnvWorld(Task):
    """A `World` around an environment object; no worker process is started."""

    env: Any = field(default=None, hash=False, compare=False)

    def open(self, slots: int, workers: int | None = None) -> "OneEnv":
        """The one environment, whatever `slots` and `workers` are."""
        return OneEnv(self)


def live_world(env: gymnasium.Env) -> EnvWorld:
    """The world of this environment, whose `info["cost"]` is the cost of a step."""
    name = type(env.unwrapped).__name__ if env.spec is None else env.spec.id
    try:
        known = sizes(name, _Given(env).describe())
    except RuntimeError as error:
        raise BCRLError(f"{name}: {error}") from None
    return EnvWorld(
        name=name,
        family="gym",
        env_id=name,
        **known,  # type: ignore[arg-type]
        reference_returns=None,
        thresholds=THRESHOLDS["gym"],
        env=env,
    )


class OneEnv:
    """One slot: an environment in this process, seeded and stepped as a worker does it.

    The global random generators, which some environments draw from, are restored at the end.
    """

    slots = 1

    def __init__(self, world: EnvWorld):
        self.name, self.size, self.env = world.name, world.observation_size, _Given(world.env)

    def __enter__(self) -> "OneEnv":
        self.before = random.getstate(), np.random.get_state()  # noqa: NPY002
        return self

    def __exit__(self, *_: object) -> None:
        random.setstate(self.before[0])
        np.random.set_state(self.before[1])  # noqa: NPY002

    def round(self, resets: Mapping[int, int], actions: Mapping[int, np.ndarray]) -> Outcome:
        """As `Pool.round`; nothing is ever lost."""
        outcome = Outcome({}, {}, [])
        try:
            for slot, seed in resets.items():
                outcome.seen[slot] = vector(self.env.reset(seed), self.size)
            for slot, action in actions.items():
                seen, reward, cost, terminal, timeout = self.env.step(action)
                outcome.seen[slot] = vector(seen, self.size)
                outcome.stepped[slot] = (float(reward), float(cost), bool(terminal), bool(timeout))
        except Exception as error:  # of the caller's own code: its traceback is kept
            raise BCRLError(f"{self.name}: {brief(error, 1000) or type(error).__name__}") from error
        return outcome


class _Given(Environment):
    """An environment that exists already."""

    def make(self, env_id: gymnasium.Env, config: Any) -> gymnasium.Env:
        return env_id

    def __init__(self, env: gymnasium.Env):
        super().__init__(env, None)
