"""Checks on entry: a bad log is refused here in one line, not hours later by a diverging loss."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bcrl.errors import BCRLError

FIELDS = ("observations", "actions", "rewards", "costs", "next_observations", "terminals", "timeouts")
MATRICES = ("observations", "actions", "next_observations")
FLAGS = ("terminals", "timeouts")

ACTION_ROUNDING = 1e-6
"""How far outside [-1, 1] an action may lie: eight float32 steps at 1, so rounding, never another scale."""


def fault(source: str, message: str) -> BCRLError:
    return BCRLError(f"{one_line(source) or 'data set'}: {one_line(message)}")


def one_line(text: object) -> str:
    """File names and library messages may hold line breaks; error messages may not."""
    return " ".join(str(text).split())


def check_keys(keys: Iterable[str], source: str) -> None:
    """A separate check, so that readers can make it before they read gigabytes."""
    present = list(keys)
    missing = [name for name in FIELDS if name not in present]
    if missing:
        shown = ", ".join(present[:10]) or "nothing"
        more = f" and {len(present) - 10} more" if len(present) > 10 else ""
        raise fault(source, f"{', '.join(missing)} missing; found {shown}{more}; add or rename it")


def clean(arrays: Mapping[str, Any], source: str) -> dict[str, NDArray[Any]]:
    """The seven fields with the right dtype, rank and length: float32 or bool, (N,) or (N, width)."""
    check_keys(arrays, source)
    raw = {name: _numbers(name, arrays[name], source) for name in FIELDS}
    shaped = {name: _shape(name, array, source) for name, array in raw.items()}
    rows = len(shaped["observations"])
    for name, array in shaped.items():
        if len(array) != rows:
            raise fault(
                source,
                f"{name} has {len(array):,} rows but observations has {rows:,}; "
                "every field needs one row per transition",
            )
    widths = shaped["observations"].shape[1], shaped["next_observations"].shape[1]
    if widths[0] != widths[1]:
        raise fault(
            source,
            f"next_observations has {widths[1]} columns but observations has {widths[0]}; "
            "record both from the same sensor",
        )
    return {name: _cast(name, array, source) for name, array in shaped.items()}


def check_values(arrays: Mapping[str, NDArray[Any]], source: str) -> None:
    """What no learner can use: negative costs and actions outside the box the policies act in."""
    costs, actions = arrays["costs"], arrays["actions"]
    negative = costs < 0
    if negative.any():
        where, value = _first(negative, costs)
        raise fault(source, f"costs {where} is {value:g}; costs must be ≥ 0: shift or clip them")
    outside = np.abs(actions) > 1 + ACTION_ROUNDING
    if outside.any():
        where, value = _first(outside, actions)
        raise fault(
            source,
            f"actions {where} is {value:.7g}, outside [-1, 1] (1e-6 is allowed for rounding); "
            "scale actions to [-1, 1]",
        )


def rows_in_complete_episodes(arrays: Mapping[str, NDArray[Any]], source: str) -> int:
    """The number of rows up to and with the last episode end."""
    ends = np.flatnonzero(arrays["terminals"] | arrays["timeouts"])
    if not ends.size:
        raise fault(
            source,
            f"terminals and timeouts are 0 in all {len(arrays['timeouts']):,} rows, so no episode ends; "
            "set timeouts to 1 at the last step of each episode",
        )
    return int(ends[-1]) + 1


def _numbers(name: str, values: Any, source: str) -> NDArray[Any]:
    try:
        array = np.asarray(values)
    except ValueError:  # nested lists of unequal length
        raise fault(source, f"{name} has rows of different lengths; make it a rectangular array") from None
    if array.dtype.kind not in "biuf":
        raise fault(source, f"{name} holds {array.dtype} values, not real numbers; store it as float32")
    return array


def _shape(name: str, array: NDArray[Any], source: str) -> NDArray[Any]:
    if name not in MATRICES and array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    ranks = {"costs": (1, 2)}.get(name, (2,) if name in MATRICES else (1,))
    if array.ndim not in ranks:
        wanted = {"costs": "(N,) or (N, costs)"}.get(name, "(N, width)" if name in MATRICES else "(N,)")
        raise fault(source, f"{name} has shape {array.shape}; reshape it to {wanted}")
    if not len(array):
        raise fault(source, f"{name} has no rows; record at least one complete episode")
    if array.ndim == 2 and not array.shape[1]:
        raise fault(source, f"{name} has shape {array.shape}, which is no columns; record at least one")
    return array


def _cast(name: str, array: NDArray[Any], source: str) -> NDArray[Any]:
    if name in FLAGS:
        if array.dtype != np.bool_:
            neither = (array != 0) & (array != 1)
            if neither.any():
                where, value = _first(neither, array)
                raise fault(source, f"{name} {where} is {value:g}; use 0 or 1")
        result = array.astype(np.bool_, copy=False)
    else:
        with np.errstate(over="ignore"):  # what overflows becomes infinite and is named below
            result = array.astype(np.float32, copy=False)
        bad = ~np.isfinite(result)
        if bad.any():
            where, value = _first(bad, array)
            raise fault(
                source, f"{name} {where} is {value:g}, not a finite float32; mend or drop that episode"
            )
    # Read-only, because what is derived from it is cached; a view, so that the caller's stays writable.
    result = np.ascontiguousarray(result).view()
    result.flags.writeable = False
    return result


def _first(bad: NDArray[np.bool_], array: NDArray[Any]) -> tuple[str, Any]:
    """Where the first offending entry stands, in words, and what it is."""
    place = np.unravel_index(int(np.argmax(bad)), bad.shape)
    words = f"row {place[0]}" + (f" column {place[1]}" if len(place) > 1 else "")
    return words, array[place]
