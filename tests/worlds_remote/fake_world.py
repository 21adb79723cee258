"""A tiny environment for the tests of workers, with every fault a real one can have. Not a test itself."""

import contextlib
import json
import os
import struct
import time

import gymnasium
import numpy as np


class FakeEnv(gymnasium.Env):
    """A point that drifts at random; drawing from np.random, too, as old environments do."""

    def __init__(
        self,
        crash=None,
        always=False,
        slow=0.0,
        cost=True,
        bound=1.0,
        edge=2.5,
        spoil="",
        value=0.0,
        silent=False,
    ):
        self.observation_space = gymnasium.spaces.Box(-10, 10, (6,), np.float32)
        self.action_space = gymnasium.spaces.Box(-bound, bound, (2,), np.float32)
        self.crash, self.always, self.slow, self.cost, self.edge = crash, always, slow, cost, edge
        self.spoil, self.value, self.silent = spoil, float(value), silent

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

    @staticmethod
    def _answer(header):
        """Writes an answer of its own to whatever is open, as a library with a wild file descriptor may."""
        text = json.dumps(header).encode()
        for file in range(3, 10):
            with contextlib.suppress(OSError):
                os.write(file, struct.pack("<II", len(text), 0) + text)

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
        seen, reward = self.place.astype(np.float32), float(action[0] + self.place[1])
        if self.silent:
            raise AssertionError
        if self.spoil and self.steps == 3:
            cost = self.value if self.spoil == "cost" else cost
            reward = self.value if self.spoil == "reward" else reward
            seen = seen + self.value if self.spoil == "observation" else seen
            seen = seen[:1] if self.spoil == "shape" else seen
        if self.spoil in ("empty", "error"):
            self._answer({"error": 5} if self.spoil == "error" else {})
        return seen, reward, ended, False, {"cost": cost} if self.cost else {}


gymnasium.register("Fake-v0", entry_point=FakeEnv, max_episode_steps=20)
gymnasium.register("Short-v0", entry_point=FakeEnv, max_episode_steps=20, kwargs={"edge": 0.5})
gymnasium.register("Endless-v0", entry_point=FakeEnv)
gymnasium.register("Eternal-v0", entry_point=FakeEnv, max_episode_steps=2**31)
gymnasium.register("Wide-v0", entry_point=FakeEnv, kwargs={"bound": 2.0})
