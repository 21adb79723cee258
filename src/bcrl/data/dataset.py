"""A log of transitions, cut into episodes. numpy only, so that it loads on a bare machine."""

import hashlib
import os
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bcrl.data.checks import FIELDS, check_values, clean, fault, rows_in_complete_episodes

Floats = NDArray[np.floating[Any]]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """N transitions of E complete episodes, back to back; checked on the way in and read-only after.

    The last transition of each episode has `terminals` (the world ended it: no value after it) or `timeouts`
    (the clock ended it: the state after it has a value) set. Sums over episodes are float64.
    """

    observations: Floats
    """(N, d) float32."""
    actions: Floats
    """(N, a) float32, each in [-1, 1]."""
    rewards: Floats
    """(N,) float32."""
    costs: Floats
    """(N,) float32, or (N, k) with k kinds of cost; each ≥ 0."""
    next_observations: Floats
    """(N, d) float32."""
    terminals: Bools
    """(N,) bool."""
    timeouts: Bools
    """(N,) bool."""
    source: str = ""
    """The file or a description; error messages begin with it."""

    def __post_init__(self) -> None:
        arrays = clean({name: getattr(self, name) for name in FIELDS}, self.source)
        check_values(arrays, self.source)
        rows, complete = len(arrays["rewards"]), rows_in_complete_episodes(arrays, self.source)
        if complete < rows:
            raise fault(
                self.source,
                f"timeouts: the {rows - complete:,} rows from row {complete:,} on are no complete episode; "
                "set timeouts to 1 in the last row or pass drop_incomplete=True to Dataset.from_arrays",
            )
        for name, array in arrays.items():
            object.__setattr__(self, name, array)

    @classmethod
    def from_arrays(
        cls, arrays: Mapping[str, ArrayLike], source: str = "", *, drop_incomplete: bool = False
    ) -> "Dataset":
        """From anything numpy can read; names outside the seven fields are ignored.

        `drop_incomplete` cuts off rows after the last episode end and warns; without it they are an error.
        """
        cleaned = clean(arrays, source)
        if not drop_incomplete:
            return cls(**cleaned, source=source)
        rows, complete = len(cleaned["rewards"]), rows_in_complete_episodes(cleaned, source)
        dataset = cls(**{name: array[:complete] for name, array in cleaned.items()}, source=source)
        if complete < rows:  # after the checks, so that a refused file gives one line, not two
            warnings.warn(
                f"{source or 'data set'}: dropped the last {rows - complete:,} of {rows:,} rows, "
                "which come after the last episode end",
                stacklevel=2,
            )
        return dataset

    def __len__(self) -> int:
        return len(self.rewards)

    def __repr__(self) -> str:
        return (
            f"Dataset({self.source!r}: {len(self):,} transitions, {self.episode_count:,} episodes, "
            f"{self.observation_size} observations, {self.action_size} actions, {self.cost_count} cost"
            f"{'s' if self.cost_count > 1 else ''})"
        )

    @property
    def observation_size(self) -> int:
        return self.observations.shape[1]

    @property
    def action_size(self) -> int:
        return self.actions.shape[1]

    @property
    def cost_count(self) -> int:
        """k, the number of kinds of cost."""
        return self.costs_2d.shape[1]

    @property
    def costs_2d(self) -> Floats:
        """(N, k) whatever k is; a view."""
        return self.costs.reshape(len(self), -1)

    @cached_property
    def ends(self) -> Ints:
        """(E,) row of each episode's last transition."""
        return np.flatnonzero(self.terminals | self.timeouts)

    @cached_property
    def starts(self) -> Ints:
        """(E,) row of each episode's first transition."""
        return np.concatenate([[0], self.ends[:-1] + 1])

    @property
    def episode_count(self) -> int:
        """E."""
        return len(self.ends)

    @cached_property
    def episode_lengths(self) -> Ints:
        """(E,)."""
        return self.ends - self.starts + 1

    @cached_property
    def episode(self) -> Ints:
        """(N,) the episode each transition belongs to."""
        return np.repeat(np.arange(self.episode_count), self.episode_lengths)

    @cached_property
    def steps(self) -> Ints:
        """(N,) time t of each transition in its episode, from 0."""
        return np.arange(len(self)) - self.starts[self.episode]

    @cached_property
    def episode_returns(self) -> Floats:
        """(E,) undiscounted."""
        return np.add.reduceat(self.rewards, self.starts, dtype=np.float64)

    @cached_property
    def episode_costs(self) -> Floats:
        """(E,) or (E, k), undiscounted: what a threshold κ is compared with."""
        return np.add.reduceat(self.costs, self.starts, axis=0, dtype=np.float64)

    @property
    def initial_observations(self) -> Floats:
        """(E, d)."""
        return self.observations[self.starts]

    @property
    def horizon(self) -> int:
        """Length of the longest episode."""
        return int(self.episode_lengths.max())

    @cached_property
    def max_cost(self) -> Floats:
        """(k,) the largest cost of one step."""
        return self.costs_2d.max(axis=0)

    def select_episodes(self, which: ArrayLike) -> "Dataset":
        """The episodes of a mask (E,), such as `data.episode_costs <= 20`, or of indices, in their order."""
        chosen = np.asarray(which)
        if chosen.dtype == np.bool_:
            if chosen.shape != (self.episode_count,):
                raise fault(
                    self.source,
                    f"select_episodes got a mask of shape {chosen.shape}; give one entry for each "
                    f"of the {self.episode_count:,} episodes",
                )
            chosen = np.flatnonzero(chosen)
        if not chosen.size:
            raise fault(
                self.source,
                f"select_episodes chose none of the {self.episode_count:,} episodes; loosen the condition",
            )
        if chosen.ndim != 1 or chosen.dtype.kind not in "iu":
            raise fault(
                self.source,
                f"select_episodes got {chosen.dtype} values of shape {chosen.shape}; "
                "give a mask or a list of whole numbers",
            )
        outside = (chosen < 0) | (chosen >= self.episode_count)
        if outside.any():
            raise fault(
                self.source,
                f"select_episodes got index {chosen[outside][0]}; "
                f"the {self.episode_count:,} episodes are numbered from 0",
            )
        lengths = self.episode_lengths[chosen]
        # Row j of the result lies j rows after the start of the result; shift each episode to where it was.
        shift = self.starts[chosen] - (np.cumsum(lengths) - lengths)
        rows = np.arange(lengths.sum()) + np.repeat(shift, lengths)
        label = f"{self.source or 'data set'} ({len(chosen):,} of {self.episode_count:,} episodes)"
        return Dataset(**{name: getattr(self, name)[rows] for name in FIELDS}, source=label)

    def fingerprint(self) -> str:
        """SHA-256 of names, shapes and values, not of `source`: the same in every format and machine."""
        digest = hashlib.sha256()
        for name in FIELDS:
            array = getattr(self, name)
            array = array.astype(array.dtype.newbyteorder("<"), copy=False)
            digest.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
            digest.update(array.data)
        return digest.hexdigest()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the format that the suffix of `path` names: .hdf5, .h5, .npz or .minari (a folder)."""
        from bcrl.data.files import save_data

        save_data(self, path)
