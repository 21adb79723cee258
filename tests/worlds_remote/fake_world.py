"""A tiny environment for the tests of workers, with every fault a real one can have. Not a test itself."""

import os
import time

import gymnasium
import numpy as np


class FakeEnv(gymnasium.Env):
    """A point that drifts at random; drawing from np.random, too, as old environments do."""

    def __init__(self, crash=None, always=False, slow=0.0, cost=True, bound=1.0, edge=2.5):
        self.observation_space = gymnasium.spaces.Box(-10, 10, (6,), np.float32)
        self.action_space = gymnasium.spaces.Box(-bound, bound, (2,), np.float32)
        self.crash, self.always, self.slow, self.cost, self.edge = crash, always, slow, cost, edge

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = self.np_random.normal(size=6)
        self.steps = 0
        return self.place.astype(np.float32), {}

    @staticmethod
    def _first(mark):
        """Whether no one was here before; of two workers at the same moment one is the first."""
        try:
            os.close(os.open(mark, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return False
        return True

    def step(self, action):
        print("noise on standard output must not reach the pipe")
        self.steps += 1
        if self.crash and self.steps == 7 and self._first(self.crash):
            os.abort()
        if self.always:
            os.abort()
        time.sleep(self.slow)
        self.place[:2] += 0.1 * np.asarray(action)
        self.place += 0.1 * self.np_random.normal(size=6) + 0.1 * np.random.normal(size=6)  # noqa: NPY002
        cost = float(self.place[0] > 0)
        ended = bool(self.place[2] > self.edge)
        info = {"cost": cost} if self.cost else {}
        return self.place.astype(np.float32), float(action[0] + self.place[1]), ended, False, info


gymnasium.register("Fake-v0", entry_point=FakeEnv, max_episode_steps=20)
gymnasium.register("Short-v0", entry_point=FakeEnv, max_episode_steps=20, kwargs={"edge": 0.5})
gymnasium.register("Endless-v0", entry_point=FakeEnv)
gymnasium.register("Wide-v0", entry_point=FakeEnv, kwargs={"bound": 2.0})
