"""The grid world as a Gymnasium environment; the cost of a step is in `info`."""

from typing import Any

import gymnasium
import numpy as np

from bcrl.cmdp._gridworld import MOVES, GridWorld
from bcrl.cmdp._simulate import Sampler


class GridWorldEnv(gymnasium.Env[Any, Any]):
    """States and actions as in `GridWorld.cmdp`; `info["cost"]` is a number, or an array of several."""

    metadata = {"render_modes": ["ansi"], "render_fps": 4}  # noqa: RUF012

    def __init__(
        self,
        layout: str | GridWorld = "corridor",
        slip: float = 0.2,
        horizon: int = 200,
        render_mode: str | None = None,
    ):
        self.world = layout if isinstance(layout, GridWorld) else GridWorld.load(layout, slip)
        self.horizon, self.render_mode = horizon, render_mode
        self._model, self._draw = self.world.cmdp, Sampler(self.world.cmdp)
        self.observation_space = gymnasium.spaces.Discrete(self._model.states)
        self.action_space = gymnasium.spaces.Discrete(len(MOVES))
        self._state, self._steps = 0, 0

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[int, dict[str, Any]]:
        super().reset(seed=seed)
        self._state = int(self.np_random.choice(self._model.states, p=self._model.start))
        self._steps = 0
        return self._state, {}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        state, action = self._state, int(action)
        cost = self._model.costs[:, state, action]
        self._state = int(self._draw(np.array([state]), np.array([action]), self.np_random)[0])
        self._steps += 1
        terminated = bool(self._model.terminal[self._state])
        info = {"cost": float(cost[0]) if len(cost) == 1 else cost.copy()}
        reward = float(self._model.rewards[state, action])
        return self._state, reward, terminated, self._steps >= self.horizon, info

    def render(self) -> str | None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The map with the agent as @."""
        if self.render_mode != "ansi":
            return None
        cells = self.world.cells.copy()
        cells[tuple(self.world.positions[self._state])] = "@"
        return "\n".join("".join(row) for row in cells)
