"""A tabular CMDP ⟨S, A, T, r, c, γ, μ₀⟩, checked on entry."""

import operator
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from bcrl.cmdp._checks import (
    Sparse,
    as_floats,
    canonical_rows,
    check_shape,
    check_signals,
    show,
    start_distribution,
)
from bcrl.data import read_npz
from bcrl.errors import BCRLError
from bcrl.files import atomic_path

FORMAT = "bcrl-cmdp-1"


@dataclass(frozen=True, eq=False, init=False, repr=False)
class CMDP:
    """A constrained Markov decision process with S states, A actions and N costs.

    `transitions` may be given as an array (S, A, S) or sparse (S·A, S) with row s·A + a; `costs` as (S, A) or
    (N, S, A); `start` as a state or a distribution. Terminal states are absorbing, without reward and cost.
    Actions with `available[s, a]` false do not exist (a fitted model has some).
    """

    transitions: Sparse
    rewards: np.ndarray
    costs: np.ndarray
    gamma: float
    start: np.ndarray
    terminal: np.ndarray
    available: np.ndarray
    counts: np.ndarray | None
    """Number of times each (state, action) occurs in the log that the model was fitted to."""

    def __init__(
        self,
        transitions: Any,
        rewards: Any,
        costs: Any,
        gamma: float,
        start: Any = 0,
        terminal: Any = None,
        available: Any = None,
        counts: Any = None,
    ):
        rewards = as_floats("rewards", rewards)
        if rewards.ndim != 2 or 0 in rewards.shape:
            raise BCRLError(f"rewards must have shape (states, actions), not {rewards.shape}")
        states, actions = rewards.shape
        costs = as_floats("costs", costs)
        costs = costs[None] if costs.ndim == 2 else costs
        if costs.ndim != 3 or costs.shape[1:] != (states, actions) or not len(costs):
            raise BCRLError(f"costs must have shape (costs, {states}, {actions}), not {costs.shape}")
        if not 0 <= gamma < 1:
            raise BCRLError(f"gamma must lie in [0, 1), not {gamma}")
        terminal = np.zeros(states, bool) if terminal is None else np.array(terminal, bool)
        check_shape("terminal", terminal, (states,))
        available = np.ones((states, actions), bool) if available is None else np.array(available, bool)
        check_shape("available", available, (states, actions))
        available = available | terminal[:, None]
        transitions = canonical_rows(transitions, states, actions, terminal, available)
        check_signals(rewards, costs, terminal, available)
        if counts is not None:
            counts = np.array(counts, np.int64)
            check_shape("counts", counts, (states, actions))
        for name, field in (
            ("transitions", transitions),
            ("rewards", np.where(available, rewards, 0.0)),
            ("costs", np.where(available, costs, 0.0)),
            ("gamma", float(gamma)),
            ("start", start_distribution(start, states)),
            ("terminal", terminal),
            ("available", available),
            ("counts", counts),
        ):
            object.__setattr__(self, name, field)

    def __repr__(self) -> str:
        costs = f"{len(self.costs)} cost{'s' * (len(self.costs) > 1)}"
        return f"CMDP({self.states:,} states, {self.actions} actions, {costs}, gamma {self.gamma:g})"

    @property
    def states(self) -> int:
        return self.rewards.shape[0]

    @property
    def actions(self) -> int:
        return self.rewards.shape[1]

    @cached_property
    def deterministic(self) -> bool:
        """Whether every available action of a state has one outcome."""
        return bool(np.all(np.diff(self.transitions.indptr) <= 1))

    def with_start(self, start: Any) -> "CMDP":
        """The same model from another start."""
        fields = (self.transitions, self.rewards, self.costs, self.gamma, start)
        return CMDP(*fields, self.terminal, self.available, self.counts)

    def budget_vector(self, budget: float | Sequence[float] | np.ndarray) -> np.ndarray:
        """`budget` as one number per cost, checked."""
        vector = np.atleast_1d(as_floats("the budget", budget))
        if vector.shape != (len(self.costs),):
            raise BCRLError(f"the model has {len(self.costs)} cost(s) but {vector.size} budget(s) were given")
        if not np.all(np.isfinite(vector)) or np.any(vector < 0):
            raise BCRLError(f"a budget must be a finite number of at least 0, not {show(vector)}")
        return vector

    def check_state(self, state: Any) -> int:
        """`state` as an int, if it is one of the model's."""
        try:
            number = operator.index(state)
        except TypeError:
            raise BCRLError(f"a state is a whole number from 0 to {self.states - 1}, not {state!r}") from None
        if not 0 <= number < self.states:
            raise BCRLError(f"state {number} is not one of the model's {self.states} states")
        return number

    def arrays(self) -> dict[str, np.ndarray]:
        """The arrays that files keep; `from_arrays` makes the same model of them, bit for bit."""
        return {
            "indptr": self.transitions.indptr,
            "indices": self.transitions.indices,
            "probabilities": self.transitions.data,
            "rewards": self.rewards,
            "costs": self.costs,
            "gamma": np.array(self.gamma),
            "start": self.start,
            "terminal": self.terminal,
            "available": self.available,
        }

    def save(self, path: str | os.PathLike) -> None:
        """Writes the model as one NPZ file, all or nothing."""
        arrays = {"format": np.array(FORMAT), **self.arrays()}
        if self.counts is not None:
            arrays["counts"] = self.counts
        # An open file, because numpy appends .npz to a name without it.
        with atomic_path(path) as temporary, open(temporary, "wb") as file:
            np.savez_compressed(file, **arrays)  # pyright: ignore[reportArgumentType]

    @classmethod
    def load(cls, path: str | os.PathLike) -> "CMDP":
        """Reads what `save` wrote, or an NPZ with `transitions` (S, A, S), `rewards`, `costs` and `gamma`."""
        path = Path(path)
        if not path.is_file():
            raise BCRLError(f"{path}: there is no such file")
        arrays = read_npz(path)
        try:
            return cls.from_arrays(arrays)
        except BCRLError as error:
            raise BCRLError(f"{path}: {error}") from None
        except (ValueError, TypeError, OverflowError) as error:  # arrays of other types than a model's
            raise BCRLError(f"{path}: its arrays do not make a model ({error}); write it with save") from None

    @classmethod
    def from_arrays(cls, arrays: dict[str, np.ndarray]) -> "CMDP":
        """The model of the arrays of a file, checked; transitions dense or as three sparse arrays."""
        found = str(arrays.get("format", FORMAT))
        if found != FORMAT:
            raise BCRLError(f"the format is {found!r}, this version reads {FORMAT!r}")
        sparse_names = ("indptr", "indices", "probabilities")
        wanted = ["rewards", "costs", "gamma"]
        wanted += ["transitions"] if "transitions" in arrays else list(sparse_names)
        missing = [name for name in wanted if name not in arrays]
        if missing:
            raise BCRLError(f"the array {missing[0]!r} is missing (found: {', '.join(arrays) or 'none'})")
        if arrays["gamma"].size != 1:
            raise BCRLError(f"gamma must be one number, not shape {arrays['gamma'].shape}")
        if "transitions" in arrays:
            transitions = arrays["transitions"]
        else:
            indptr, indices, data = (arrays[name] for name in sparse_names)
            try:
                shape = (len(indptr) - 1, arrays["rewards"].shape[0])
                transitions = sparse.csr_array((data, indices, indptr), shape=shape)
                transitions.check_format()
            except (ValueError, IndexError, TypeError) as error:
                raise BCRLError(f"indptr, indices and probabilities do not fit ({error})") from None
        optional = {
            name: arrays[name] for name in ("start", "terminal", "available", "counts") if name in arrays
        }
        gamma = float(arrays["gamma"].reshape(()))
        return cls(transitions, arrays["rewards"], arrays["costs"], gamma, **optional)
