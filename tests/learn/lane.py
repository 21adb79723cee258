"""A small world with an answer known by heart, for the learning tests of the methods.

A body on a lane moves by up to 0.2 a step; the farther right, the more it earns; right of 0.5 each step costs
1. The best with no cost is to stand just left of 0.5, the best with any cost is to run to 1. The log is made
by drivers who do not look where they are, so cloning it earns little.
"""

import dataclasses
from contextlib import nullcontext
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from optimised import optimised

from bcrl.data import Dataset
from bcrl.learn.protocol import Method
from bcrl.train.run import Run, fit
from bcrl.worlds import JaxWorld

BORDER = 0.5


class Lane(JaxWorld):
    name: ClassVar[str] = "lane"
    observation_size: ClassVar[int] = 1
    action_size: ClassVar[int] = 1
    horizon: ClassVar[int] = 20
    thresholds: ClassVar[tuple[float, ...]] = (2.0, 6.0, 12.0)
    reference_returns: ClassVar[tuple[float, float]] = (0.0, 1.0)

    def reset(self, key):
        return jax.random.uniform(key, (1,), minval=-0.8, maxval=0.0)

    def observe(self, state):
        return state

    def move(self, state, action, key):
        state = jnp.clip(state + 0.2 * action, -1.0, 1.0)
        cost = (state[0] > BORDER).astype(jnp.float32)
        return state, state[0], cost, jnp.zeros((), bool)


def lane_log(episodes: int = 400, seed: int = 0) -> Dataset:
    """Each driver has a bias for the whole episode and trembles."""
    random = np.random.default_rng(seed)
    steps = Lane.horizon
    place = random.uniform(-1.0, 1.0, episodes)
    bias = random.uniform(-1.0, 1.0, episodes)
    places, actions = [place], []
    for _ in range(steps):
        action = np.clip(bias + random.normal(0, 0.7, episodes), -1, 1)
        place = np.clip(place + 0.2 * action, -1, 1)
        places.append(place)
        actions.append(action)
    after = np.stack(places[1:], 1)
    ends = np.zeros((episodes, steps), bool)
    ends[:, -1] = True
    return Dataset.from_arrays(
        {
            "observations": np.stack(places[:-1], 1).reshape(-1, 1),
            "actions": np.stack(actions, 1).reshape(-1, 1),
            "rewards": after.ravel(),
            "costs": (after > BORDER).astype(np.float32).ravel(),
            "next_observations": after.reshape(-1, 1),
            "terminals": np.zeros(episodes * steps, bool),
            "timeouts": ends.ravel(),
        },
        source="lane",
    )


def fit_lane(method: Method, *, long: bool = True, **how: Any) -> Run:
    """The method trained on the log. Its options were chosen for the lane's own unit of reward.

    A training that is not `long` takes less time than it would take to optimise its program.
    """
    with optimised() if long else nullcontext():
        return fit(lane_log(), dataclasses.replace(method, reward_unit=1.0), **how)  # type: ignore[type-var]
