"""A log of transitions, cut into episodes. numpy only, so that it loads on a bare machine."""

import hashlib
import os
import warnings
from collections.abc import Mapping
from dataclasses import InitVar, dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bcrl.data._checks import FIELDS, check_keys, clean, fault, rows_in_complete_episodes
from bcrl.data._schema import NO_SCHEMA, PLAIN, About, Schema
from bcrl.data._transitions import Transitions, check_transitions, examine
from bcrl.data.blocks import blocks, is_on_disk, take
from bcrl.data.mapped import subset
from bcrl.errors import BCRLError

Floats = NDArray[np.floating[Any]]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """N transitions of E complete episodes, back to back; checked on construction, read-only afterwards.

    The last transition of each episode has `terminals` set (no value is bootstrapped after it) or `timeouts`
    (the state after it has a value). Inside an episode `next_observations[t]` must be `observations[t + 1]`.
    Sums over episodes are float64.
    """

    observations: Floats
    """(N, d) float32."""
    actions: Floats
    """(N, a) float32, each in [-1, 1]; of discrete actions 1 in the column of the label, else 0."""
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
    consecutive: bool = True
    """False for a log whose rows do not follow one another, such as a sample of transitions: then
    `next_observations` are not compared with the next row. Files keep it."""
    schema: Schema = NO_SCHEMA
    """Names, units, bounds or labels of the actions. Files keep it."""
    drop_incomplete: InitVar[bool] = False
    """Drop rows after the last episode end with a warning, instead of an error."""

    def __post_init__(self, drop_incomplete: bool) -> None:
        arrays = clean({name: getattr(self, name) for name in FIELDS}, self.source)
        rows, complete = len(arrays["rewards"]), rows_in_complete_episodes(arrays, self.source)
        if complete < rows and not drop_incomplete:
            raise fault(
                self.source,
                f"timeouts: the {rows - complete:,} rows from row {complete:,} on are no complete episode; "
                "set timeouts to 1 in the last row or pass drop_incomplete=True",
            )
        for name, array in arrays.items():
            object.__setattr__(self, name, array[:complete])
        self.check_schema()
        self.check_transitions()
        if complete < rows:  # after the checks, so that a refused log gives one line
            self._warn(f"dropped the last {rows - complete:,} of {rows:,} rows, after the last episode end")

    def check_schema(self) -> None:
        """Refuses a schema that does not fit the arrays."""
        try:
            self.schema.check(self.observation_size, self.action_size, self.cost_count)
        except BCRLError as error:
            raise fault(self.source, str(error)) from None
        if self.schema.discrete and not is_one_hot(self.actions):
            raise fault(
                self.source, "actions are labels, so each row must have 1 in one column and 0 in the others"
            )
        most = self.costs_2d.max(axis=0)
        for cost, (declared, largest) in enumerate(zip(self.schema.max_cost, most, strict=False)):
            if largest > declared * (1 + 1e-6):
                raise fault(
                    self.source,
                    f"max_cost is declared as {declared:g}, but cost {cost} of a step reaches {largest:g}; "
                    "declare a larger one",
                )

    def check_transitions(self) -> None:
        """Refuses next observations that are mostly not what came next, and warns of a few such."""
        for phrase in check_transitions(self.arrays(), self.source) if self.consecutive else []:
            self._warn(f"{phrase}; values are bootstrapped through these states")

    @classmethod
    def from_arrays(
        cls,
        arrays: Mapping[str, ArrayLike],
        source: str = "",
        *,
        consecutive: bool = True,
        drop_incomplete: bool = False,
        schema: Schema = NO_SCHEMA,
    ) -> "Dataset":
        """A data set from a mapping of anything numpy can read; other names than the seven are ignored."""
        check_keys(arrays, source)
        fields: dict[str, Any] = {name: arrays[name] for name in FIELDS}
        return cls(
            **fields,
            source=source,
            consecutive=consecutive,
            schema=schema,
            drop_incomplete=drop_incomplete,
        )

    @classmethod
    def of_checked(cls, arrays: Mapping[str, NDArray[Any]], source: str, about: About = PLAIN) -> "Dataset":
        """A data set of arrays that `clean` returned, or of whole episodes of them: not checked again."""
        dataset = object.__new__(cls)
        for name in FIELDS:
            arrays[name].flags.writeable = False
            object.__setattr__(dataset, name, arrays[name])
        object.__setattr__(dataset, "source", source)
        for name, value in about._asdict().items():
            object.__setattr__(dataset, name, value)
        return dataset

    def _warn(self, message: str) -> None:
        warnings.warn(f"{self.source or 'data set'}: {message}", stacklevel=4)

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

    @property
    def on_disk(self) -> bool:
        """Whether states and actions are read from disk when they are asked for, as of a very large log."""
        return is_on_disk(self.observations)

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
        """(N,) the number of the episode of each transition."""
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
        return take(self.observations, self.starts)

    @property
    def horizon(self) -> int:
        """Length of the longest episode."""
        return int(self.episode_lengths.max())

    @property
    def transitions(self) -> Transitions:
        """How many next observations match the next row. Computed on each call."""
        return examine(self.arrays())

    @property
    def about(self) -> About:
        """What files keep beside the arrays."""
        return About(self.consecutive, self.schema)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The seven fields by name."""
        return {name: getattr(self, name) for name in FIELDS}

    def sums_to_go(self, values: ArrayLike, gamma: float = 1.0) -> Floats:
        """(N,) or (N, k) float64: Σ gamma^i values[t + i] from each row t to the end of its episode."""
        values = np.asarray(values)
        if len(values) != len(self):
            raise fault(self.source, f"sums_to_go got {len(values):,} rows for {len(self):,} transitions")
        sums = np.zeros(values.shape)
        to_go = np.zeros((self.episode_count, *values.shape[1:]))
        for step in reversed(range(self.horizon)):
            running = step < self.episode_lengths
            rows = self.starts[running] + step
            to_go[running] = values[rows] + gamma * to_go[running]
            sums[rows] = to_go[running]
        return sums

    @cached_property
    def max_cost(self) -> Floats:
        """(k,) the largest cost of one step: the declared one, or else that of the log."""
        return np.array(self.schema.max_cost or self.costs_2d.max(axis=0), np.float64)

    def select_episodes(self, which: ArrayLike) -> "Dataset":
        """The episodes where a mask (E,) such as `data.episode_costs <= 20` is true, or those of indices."""
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
        # Row j of the result is row j + shift of the log, with one shift for each episode.
        shift = self.starts[chosen] - (np.cumsum(lengths) - lengths)
        rows = np.arange(lengths.sum()) + np.repeat(shift, lengths)
        label = f"{self.source or 'data set'} ({len(chosen):,} of {self.episode_count:,} episodes)"
        arrays = {name: subset(array, rows, label) for name, array in self.arrays().items()}
        return Dataset.of_checked(arrays, label, self.about)

    def fingerprint(self) -> str:
        """SHA-256 of names, shapes and values, not of `source`: the same in every format and machine."""
        digest = hashlib.sha256()
        for name, array in self.arrays().items():
            array = array.astype(array.dtype.newbyteorder("<"), copy=False)
            digest.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
            for at in blocks(array):
                digest.update(array[at].data)
        if self.schema:
            digest.update(f"schema {self.schema.to_json()}\n".encode())
        return digest.hexdigest()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the log in the format of the suffix: .hdf5, .h5, .npz or .minari (a folder)."""
        from bcrl.data._files import save_data

        save_data(self, path)


def is_one_hot(actions: Floats) -> bool:
    """Whether each row has 1 in one column and 0 in the others."""
    return all(
        bool(np.isin(actions[at], (0.0, 1.0)).all() and (actions[at].sum(axis=1) == 1).all())
        for at in blocks(actions)
    )
