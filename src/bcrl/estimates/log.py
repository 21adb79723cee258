"""What the model reads off a log: whether it can be simulated, its held-out episodes, its steady columns."""

import numpy as np

from bcrl.data import Dataset
from bcrl.errors import BCRLError, brief_repr

HELD_OUT = 0.1
"""Share of the episodes that no member is trained on."""
FEWEST_EPISODES = 5


def check_log(data: Dataset) -> None:
    """Refuses logs from which no episode can be simulated."""
    if not isinstance(data, Dataset):
        raise BCRLError(f"data is {brief_repr(data)}, but must be a Dataset: bcrl.load_data(path) reads one")
    name = data.source or "data set"
    if data.cost_count > 1:
        raise BCRLError(f"{name}: has {data.cost_count} kinds of cost; estimates are for one")
    if not data.consecutive:
        raise BCRLError(f"{name}: its rows do not follow one another, so no episode can be replayed")
    if data.episode_count < FEWEST_EPISODES:
        raise BCRLError(
            f"{name}: has {data.episode_count} episodes, an estimate needs at least {FEWEST_EPISODES}"
        )
    if not float(data.max_cost[0]) > 0:
        raise BCRLError(f"{name}: every cost is 0, so nothing can be learned about cost; check costs")


def held_out(data: Dataset, seed: int) -> np.ndarray:
    """(E,) a mask of the episodes that no member is trained on."""
    mask = np.zeros(data.episode_count, bool)
    count = max(1, round(HELD_OUT * data.episode_count))
    mask[np.random.default_rng([seed, 1]).permutation(data.episode_count)[:count]] = True
    return mask


def actions_before(data: Dataset) -> np.ndarray:
    """(N, a) the action of the row before; 0 at the first of an episode."""
    before = np.concatenate([np.zeros_like(data.actions[:1]), data.actions[:-1]])
    before[data.starts] = 0.0
    return before


def steady_columns(data: Dataset) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The columns that no step changes, and those of the others that have two values."""
    before, after = data.observations, data.next_observations
    low, high = before.min(axis=0), before.max(axis=0)
    constant = (before == after).all(axis=0)
    two = np.all([((x == low) | (x == high)).all(axis=0) for x in (before, after)], axis=0)
    return tuple(np.flatnonzero(constant).tolist()), tuple(np.flatnonzero(two & ~constant).tolist())


def spaced(values: np.ndarray, most: int) -> np.ndarray:
    """At most this many of the values, evenly spaced."""
    return values[np.linspace(0, len(values) - 1, min(most, len(values))).astype(int)]
