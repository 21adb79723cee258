"""Episodes of an evaluation as a log, step by step: what `evaluate(record=...)` fills."""

import dataclasses
from typing import Any

import numpy as np

from bcrl.data import NO_SCHEMA, Dataset, Schema


class Recording:
    """Transitions of all episodes so far."""

    def __init__(self) -> None:
        self._episodes: list[list[tuple[Any, ...]]] = []

    def dataset(self, source: str = "", schema: Schema = NO_SCHEMA) -> Dataset:
        """The episodes as a log, in the order in which they were added; `schema` is the policy's."""
        steps = [step for episode in self._episodes for step in episode]
        observations, actions, rewards, costs, terminals, following = map(np.array, zip(*steps, strict=True))
        if schema.action_low:
            low, high = np.array(schema.action_low), np.array(schema.action_high)
            actions = np.clip(2 * (actions - low) / (high - low) - 1, -1.0, 1.0)
        ends = np.zeros(len(steps), bool)
        ends[np.cumsum([len(episode) for episode in self._episodes]) - 1] = True
        timeouts = ends & ~terminals
        columns = (observations, actions, rewards, costs, following, terminals, timeouts)
        # What was declared of the log need not hold in the world.
        return Dataset(*columns, source=source, schema=dataclasses.replace(schema, max_cost=()))

    def add_scan(
        self, rows: np.ndarray, seen: np.ndarray, actions: np.ndarray, terminal: np.ndarray, after: np.ndarray
    ) -> None:
        """Adds n episodes of a scan: arrays (steps, n, ...), with `rows` as `scan` returns them."""
        for episode, length in enumerate(rows[..., 2].sum(0).astype(int)):
            part = slice(length), episode
            columns = (seen[part], actions[part], *rows[part][:, :2].T, terminal[part], after[part])
            self._episodes.append(list(zip(*columns, strict=True)))

    def add_pool(self, episodes: list[list[tuple[Any, ...]]]) -> None:
        """Adds episodes of a pool, each a list of (s, a, r, c, terminal, s′)."""
        self._episodes += episodes
