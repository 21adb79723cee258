"""Checks of a model's arrays; every message names the state and the action. And short reprs."""

from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
from scipy import sparse

from bcrl.errors import BCRLError

# scipy's sparse arrays have no usable static types; the name is for the reader.
Sparse = Any
# Rows of probabilities may miss 1 by this much (tables printed with nine digits); they are rescaled.
ROW_TOLERANCE = 1e-8


def show(values: np.ndarray) -> str:
    """Numbers for a message: 0.25 or (0.25, 0.5)."""
    text = [f"{value:.6g}" for value in np.atleast_1d(values)]
    return text[0] if len(text) == 1 else f"({', '.join(text)})"


class ShortRepr:
    """Gives a dataclass a repr of one or two lines: shapes of arrays, names of nested results."""

    def __repr__(self) -> str:
        assert is_dataclass(self)
        parts = (f"{field.name}={_brief(getattr(self, field.name))}" for field in fields(self))
        return f"{type(self).__name__}({', '.join(parts)})"


def _brief(value: object) -> str:
    if isinstance(value, np.ndarray):
        return show(value) if value.ndim <= 1 and value.size <= 4 else f"array{value.shape}"
    if isinstance(value, tuple):
        return f"{len(value)} of {type(value[0]).__name__}" if value else "none"
    return f"{value:.6g}" if isinstance(value, float) else repr(value)


def as_floats(name: str, values: Any) -> np.ndarray:
    try:
        return np.array(values, float)
    except (TypeError, ValueError):
        raise BCRLError(f"{name} must be numbers") from None


def as_integers(name: str, values: Any) -> np.ndarray:
    array = np.asarray(values)
    if array.ndim != 1 or not len(array) or not np.issubdtype(array.dtype, np.integer):
        raise BCRLError(f"{name} must be a row of integers, not shape {array.shape} of {array.dtype}")
    if array.min() < 0:
        raise BCRLError(f"{name}[{int(array.argmin())}] is {array.min()}; numbering starts at 0")
    return array.astype(np.int64)


def check_shape(name: str, array: np.ndarray, shape: tuple[int, ...]) -> None:
    if array.shape != shape:
        raise BCRLError(f"{name} must have shape {shape}, not {array.shape}")


def canonical_rows(
    transitions: Any, states: int, actions: int, terminal: np.ndarray, available: np.ndarray
) -> Sparse:
    """The transition rows in canonical form: terminal states self-loop, unavailable actions are empty."""
    if not sparse.issparse(transitions):
        dense = as_floats("transitions", transitions)
        if dense.shape != (states, actions, states):
            raise BCRLError(f"transitions must have shape {(states, actions, states)}, not {dense.shape}")
        transitions = dense.reshape(states * actions, states)
    rows = sparse.csr_array(transitions, dtype=float, copy=True)
    if rows.shape != (states * actions, states):
        raise BCRLError(f"transitions must have shape {(states * actions, states)}, not {rows.shape}")
    rows.sum_duplicates()
    rows.eliminate_zeros()
    bad = ~np.isfinite(rows.data) | (rows.data < 0)
    if bad.any():
        entry = int(np.flatnonzero(bad)[0])
        row = int(np.searchsorted(rows.indptr, entry, side="right")) - 1
        raise BCRLError(
            f"state {row // actions}, action {row % actions}: the probability of state "
            f"{rows.indices[entry]} is {rows.data[entry]:g}"
        )
    sums = np.asarray(rows.sum(axis=1)).ravel()
    expected = available.ravel().astype(float)
    of_terminal = np.repeat(terminal, actions)
    # A terminal state may have empty rows or self-loops; anything else is an error.
    leaves = np.diff(rows.indptr) > 0
    loops = _loops(rows, states, actions)
    wrong = np.where(of_terminal, leaves & (np.abs(loops - 1) > ROW_TOLERANCE), False)
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        raise BCRLError(f"terminal state {row // actions}, action {row % actions} leads to another state")
    wrong = ~of_terminal & (np.abs(sums - expected) > ROW_TOLERANCE)
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        raise BCRLError(
            f"state {row // actions}, action {row % actions}: the probabilities sum to {sums[row]:.9g}, "
            f"not {expected[row]:g}" + ("" if expected[row] else " (the action is marked as not available)")
        )
    nothing = ~available.any(1)
    if nothing.any():
        raise BCRLError(
            f"state {int(np.flatnonzero(nothing)[0])} is not terminal and has no available action"
        )
    # Sums that differ from 1 by rounding stay, so that a saved model loads bit for bit.
    close = (np.abs(sums - 1) < 1e-14) | (sums == 0)
    scale = np.where(of_terminal, 0.0, 1.0 / np.where(close, 1.0, sums))
    ends = np.flatnonzero(terminal)
    loop_rows = (ends[:, None] * actions + np.arange(actions)).ravel()
    loop = sparse.csr_array(
        (np.ones(len(loop_rows)), (loop_rows, np.repeat(ends, actions))), shape=rows.shape
    )
    rows = sparse.csr_array(sparse.diags_array(scale) @ rows + loop)
    rows.eliminate_zeros()
    rows.sort_indices()
    return rows


def _loops(rows: Sparse, states: int, actions: int) -> np.ndarray:
    """The probability that (s, a) stays in s, for every row."""
    row = np.repeat(np.arange(states * actions), np.diff(rows.indptr))
    return np.bincount(row, np.where(rows.indices == row // actions, rows.data, 0.0), states * actions)


def check_signals(
    rewards: np.ndarray, costs: np.ndarray, terminal: np.ndarray, available: np.ndarray
) -> None:
    for name, signal in (("reward", rewards), *((f"cost {i}", cost) for i, cost in enumerate(costs))):
        bad = ~np.isfinite(signal) & available
        if name != "reward":
            bad |= (signal < 0) & available
        if bad.any():
            state, action = np.argwhere(bad)[0]
            need = "a finite number" if name == "reward" else "finite and at least 0"
            raise BCRLError(
                f"state {state}, action {action}: the {name} is {signal[state, action]:g}; it must be {need}"
            )
        paid = terminal[:, None] & (signal != 0)
        if paid.any():
            state, action = np.argwhere(paid)[0]
            raise BCRLError(
                f"terminal state {state}, action {action}: the {name} is {signal[state, action]:g}; "
                "put it on the step that enters the state"
            )


def start_distribution(start: Any, states: int) -> np.ndarray:
    start = np.asarray(start)
    if start.ndim == 0:
        state = int(start)
        if not 0 <= state < states:
            raise BCRLError(f"the start is state {state}, but there are {states} states")
        return np.eye(1, states, state).ravel()
    start = as_floats("start", start)
    check_shape("start", start, (states,))
    if not np.all(np.isfinite(start)) or np.any(start < 0):
        state = int(np.flatnonzero(~(start >= 0) | ~np.isfinite(start))[0])
        raise BCRLError(f"start[{state}] is {start[state]:g}; it must be a probability")
    if abs(start.sum() - 1) > ROW_TOLERANCE:
        raise BCRLError(f"the start probabilities sum to {start.sum():.9g}, not 1")
    return start if abs(start.sum() - 1) < 1e-14 else start / start.sum()
