"""A log of random steps, small enough to train on in a second."""

import numpy as np

from bcrl.data import Dataset

OBSERVATIONS, ACTIONS = 6, 2  # point-circle's sizes, so that policies can be evaluated there


def make_log(costs: int = 1, source: str = "tiny", observations: int = OBSERVATIONS) -> Dataset:
    """Eight episodes of 20 steps; one ends in a terminal state. Costs follow the first action."""
    rng = np.random.default_rng(7)
    rows = 160
    ends = np.arange(rows) % 20 == 19
    terminals = ends & (np.arange(rows) == 79)
    actions = rng.uniform(-1, 1, size=(rows, ACTIONS)).astype(np.float32)
    draws = rng.random((rows, costs)) < (1 + actions[:, :1]) / 2
    return Dataset(
        observations=rng.normal(size=(rows, observations)),
        actions=actions,
        rewards=actions[:, 0] + rng.normal(size=rows) / 10,
        costs=draws[:, 0] if costs == 1 else draws,
        next_observations=rng.normal(size=(rows, observations)),
        terminals=terminals,
        timeouts=ends & ~terminals,
        source=source,
        consecutive=False,  # the observations are random numbers
    )
