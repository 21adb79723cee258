"""Several steps of the log as one transition: (s_t, a_t, Σ γ^i r, Σ γ_C^i c, s_{t+n}).

In long episodes one action hardly changes what follows, and a critic's error hides it. Over n steps of the
same behaviour the difference is larger, and a value is backed up through fewer bootstraps.
"""

from dataclasses import dataclass

import numpy as np

from bcrl.data import Dataset
from bcrl.errors import BCRLError


@dataclass(frozen=True)
class Stretches:
    """For each row, what follows until n steps later, or until the episode ends before that."""

    rewards: np.ndarray
    """(N,) discounted sums."""
    costs: np.ndarray
    """(N, k) discounted sums."""
    lengths: np.ndarray
    """(N,) steps, from 1 to n."""

    def last(self, at: slice) -> np.ndarray | slice:
        """The last rows of the stretches that begin at these rows."""
        return np.arange(at.start, at.stop) + self.lengths[at] - 1


@dataclass(frozen=True)
class OneStep(Stretches):
    """The log as it is."""

    def last(self, at: slice) -> slice:
        return at


def one_step(data: Dataset) -> Stretches:
    """The log as it is, copying nothing."""
    return OneStep(data.rewards, data.costs_2d, np.broadcast_to(1, len(data)))


def stretches(data: Dataset, n: int, gamma: float, gamma_cost: float) -> Stretches:
    """Stretches of n steps; shorter ones at the end of an episode."""
    if n == 1:
        return one_step(data)
    if not data.consecutive:
        raise BCRLError(
            f"{data.source or 'the log'}: rows do not follow one another, but n_step is {n}: use n_step 1, "
            "and a tau_c for it, such as 0.2"
        )
    left = data.episode_lengths[data.episode] - data.steps
    lengths = np.minimum(left, n)
    after = np.minimum(np.arange(len(data)) + lengths, len(data) - 1)
    goes_on = left > n

    def summed(values: np.ndarray, discount: float) -> np.ndarray:
        to_go = data.sums_to_go(values, discount)
        rest = np.where(goes_on.reshape(-1, *[1] * (to_go.ndim - 1)), to_go[after], 0.0)
        return (to_go - discount**n * rest).astype(np.float32)

    return Stretches(summed(data.rewards, gamma), summed(data.costs_2d, gamma_cost), lengths)
