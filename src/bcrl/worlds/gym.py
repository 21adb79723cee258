"""The worlds as Gymnasium environments, for other libraries; importing this registers them.

bcrl itself runs the pure functions, thousands of episodes at a time; these environments run one.
"""

from typing import Any

import equinox as eqx
import gymnasium
import jax
import jax.numpy as jnp
import numpy as np

from bcrl.worlds import WORLDS, built_in_world
from bcrl.worlds._base import JaxWorld, State, Step


class WorldEnv(gymnasium.Env[np.ndarray, np.ndarray]):
    """One episode of a world at a time; `info["cost"]` is the cost of the step, truncation the horizon."""

    metadata = {"render_modes": []}  # noqa: RUF012 (Gymnasium's own declaration)

    def __init__(self, world: JaxWorld | str, noise: float = 0.0):
        """`noise` is for a world given by name; a `JaxWorld` has its own."""
        self.world = built_in_world(world, noise) if isinstance(world, str) else world
        bound = self.world.observation_bound
        self.observation_space = gymnasium.spaces.Box(
            -bound, bound, (self.world.observation_size,), np.float32
        )
        self.action_space = gymnasium.spaces.Box(-1.0, 1.0, (self.world.action_size,), np.float32)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self._key = jax.random.key(int(self.np_random.integers(2**31)))
        self._key, key = jax.random.split(self._key)
        self._steps = 0
        self._state, observation = _reset(self.world, key)
        return np.asarray(observation), {"cost": 0.0}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self._key, key = jax.random.split(self._key)
        (self._state, reward, cost, terminal), observation = _step(
            self.world, self._state, jnp.asarray(action, jnp.float32), key
        )
        self._steps += 1
        truncated = self._steps >= self.world.horizon
        return np.asarray(observation), float(reward), bool(terminal), truncated, {"cost": float(cost)}


@eqx.filter_jit
def _reset(world: JaxWorld, key: jax.Array) -> tuple[State, jax.Array]:
    state = world.reset(key)
    return state, world.observe(state)


@eqx.filter_jit
def _step(world: JaxWorld, state: State, action: jax.Array, key: jax.Array) -> tuple[Step, jax.Array]:
    step = world.step(state, action, key)
    return step, world.observe(step[0])


def register() -> None:
    """Makes every built-in world known to `gymnasium.make`: point-circle is "bcrl/PointCircle-v0"."""
    for name in WORLDS:
        identity = f"bcrl/{name.title().replace('-', '')}-v0"
        if identity not in gymnasium.registry:
            gymnasium.register(identity, entry_point="bcrl.worlds.gym:WorldEnv", kwargs={"world": name})


register()
