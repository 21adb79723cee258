"""Checks of a log's arrays: a bad log is refused in one line before any training."""

import os
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from math import prod
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from bcrl.data.blocks import blocks
from bcrl.errors import BCRLError

FIELDS = ("observations", "actions", "rewards", "costs", "next_observations", "terminals", "timeouts")
MATRICES = ("observations", "actions", "next_observations")
FLAGS = ("terminals", "timeouts")

ACTION_ROUNDING = 1e-6
"""How far outside [-1, 1] an action may lie: eight float32 steps at 1, so rounding, never another scale."""
MOST_COMPRESSION = 2000
"""Bytes in memory for one byte of file. Deflate reaches 1032; a file that asks for more holds no log."""

# What h5py, numpy and zipfile raise on damaged bytes. Anything else is a bug and keeps its traceback.
DAMAGE = (
    OSError,
    EOFError,
    ValueError,
    KeyError,
    TypeError,
    RuntimeError,
    SyntaxError,
    OverflowError,
    struct.error,
    tokenize.TokenError,
    zipfile.BadZipFile,
    zlib.error,
)


class Layout(Protocol):
    """What is known of an array before it is read. numpy's arrays and h5py's data sets are layouts."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> np.dtype[Any]: ...


def fault(source: str, message: str) -> BCRLError:
    return BCRLError(f"{one_line(source) or 'data set'}: {one_line(message)}")


def one_line(text: object) -> str:
    """`text` on one line and printable; file names and library messages may hold control characters."""
    shown = " ".join(str(text).split())
    return "".join(x if x.isprintable() else x.encode("unicode_escape").decode() for x in shown)


@contextmanager
def reading(source: str, form: str) -> Iterator[None]:
    """Turns what the libraries raise on a damaged file into one line."""
    try:
        yield
    except PermissionError:
        raise fault(source, "permission denied; allow reading it (chmod u+r)") from None
    except MemoryError:
        raise fault(
            source, "its arrays do not fit into memory; split the file or use a larger machine"
        ) from None
    except DAMAGE as error:
        reason = one_line(error)[:200] or type(error).__name__
        raise fault(source, f"{form} is damaged or cut short ({reason}); copy or record it again") from None


def check_keys(keys: Iterable[str], source: str) -> None:
    """Refuses a file without all seven fields; made before anything is read."""
    present = list(keys)
    missing = [name for name in FIELDS if name not in present]
    if missing:
        shown = ", ".join(present[:10]) or "nothing"
        more = f" and {len(present) - 10} more" if len(present) > 10 else ""
        raise fault(source, f"{', '.join(missing)} missing; found {shown}{more}; add or rename it")


def check_layout(fields: Mapping[str, Layout], source: str) -> None:
    """Refuses types, shapes and row counts that no log has. Needs no values, so it comes before reading."""
    for name in FIELDS:
        check_numbers(name, fields[name], source)
        _check_shape(name, tuple(fields[name].shape), source)
    rows = fields["observations"].shape[0]
    for name in FIELDS:
        if fields[name].shape[0] != rows:
            raise fault(
                source,
                f"{name} has {fields[name].shape[0]:,} rows but observations has {rows:,}; "
                "every field needs one row per transition",
            )
    widths = fields["observations"].shape[1], fields["next_observations"].shape[1]
    if widths[0] != widths[1]:
        raise fault(
            source,
            f"next_observations has {widths[1]} columns but observations has {widths[0]}; "
            "record both from the same sensor",
        )


def check_size(fields: Iterable[Layout], stored: int, source: str, in_memory: bool = True) -> None:
    """Refuses arrays that are too large for this machine, or for the `stored` bytes they come from."""
    asked = sum(prod(field.shape) * field.dtype.itemsize for field in fields)
    if in_memory:
        check_memory(asked, source, "split the file or use a larger machine")
    if asked > MOST_COMPRESSION * stored + 2**20:
        raise fault(
            source,
            f"its arrays take {asked:,} bytes and the file has {stored:,}, more than any log is compressed; "
            "copy or record it again",
        )


def check_memory(asked: int, source: str, remedy: str) -> None:
    """Refuses arrays of `asked` bytes where the machine has less memory."""
    memory = machine_memory()
    if asked > memory:
        raise fault(
            source,
            f"its arrays take {asked / 1e9:,.1f} GB and this machine has {memory / 1e9:,.1f} GB; {remedy}",
        )


def machine_memory() -> int:
    """Bytes of memory of this machine or container; where the system does not say, more than any has."""
    found = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 2**40]
    for limit in ("memory.max", "memory/memory.limit_in_bytes"):  # of a container, old and new kernels
        with suppress(OSError, ValueError), open(f"/sys/fs/cgroup/{limit}") as file:
            found.append(int(file.read()))
    return min(found)


def clean(arrays: Mapping[str, Any], source: str) -> dict[str, NDArray[Any]]:
    """The seven fields, checked and read-only: float32 or bool, (N,) or (N, width)."""
    check_keys(arrays, source)
    raw = {name: _array(name, arrays[name], source) for name in FIELDS}
    check_layout(raw, source)
    cleaned = {name: _cast(name, array, source) for name, array in raw.items()}
    _check_values(cleaned, source)
    return cleaned


def rows_in_complete_episodes(arrays: Mapping[str, NDArray[Any]], source: str) -> int:
    """The number of rows up to and including the last episode end."""
    ends = np.flatnonzero(arrays["terminals"] | arrays["timeouts"])
    if not ends.size:
        raise fault(
            source,
            f"terminals and timeouts are 0 in all {len(arrays['timeouts']):,} rows, so no episode ends; "
            "set timeouts to 1 at the last step of each episode",
        )
    return int(ends[-1]) + 1


def check_numbers(name: str, array: Layout, source: str) -> None:
    if array.dtype.kind == "O":
        raise fault(source, f"{name} holds Python objects, which are never read; store it as float32")
    if array.dtype.kind not in "biuf":
        raise fault(source, f"{name} holds {array.dtype} values, not real numbers; store it as float32")


def _array(name: str, values: Any, source: str) -> NDArray[Any]:
    try:
        return np.asarray(values)
    except ValueError:  # nested lists of unequal length
        raise fault(source, f"{name} has rows of different lengths; make it a rectangular array") from None


def _check_shape(name: str, shape: tuple[int, ...], source: str) -> None:
    column = len(shape) == 2 and shape[1] == 1
    ranks = (2,) if name in MATRICES else (1, 2) if name == "costs" or column else (1,)
    if len(shape) not in ranks:
        wanted = {"costs": "(N,) or (N, costs)"}.get(name, "(N, width)" if name in MATRICES else "(N,)")
        raise fault(source, f"{name} has shape {shape}; reshape it to {wanted}")
    if not shape[0]:
        raise fault(source, f"{name} has no rows; record at least one complete episode")
    if len(shape) == 2 and not shape[1]:
        raise fault(source, f"{name} has shape {shape}, which is no columns; record at least one")


def _cast(name: str, array: NDArray[Any], source: str) -> NDArray[Any]:
    if name not in MATRICES and array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if name in FLAGS:
        if array.dtype != np.bool_ and (found := _first(lambda x: (x != 0) & (x != 1), array)):
            where, value = found
            raise fault(source, f"{name} {where} is {value:g}; use 0 or 1")
        result = array.astype(np.bool_, copy=False)
    else:
        with np.errstate(over="ignore"):  # an overflow becomes infinite and is reported below
            result = array.astype(np.float32, copy=False)
        if found := _first(lambda x: ~np.isfinite(x), result, array):
            where, value = found
            raise fault(
                source, f"{name} {where} is {value:g}, not a finite float32; correct or drop that episode"
            )
    # Read-only, because derived arrays are cached; a view, so that the caller's array stays writable.
    result = np.ascontiguousarray(result).view()
    result.flags.writeable = False
    return result


def _check_values(arrays: Mapping[str, NDArray[Any]], source: str) -> None:
    """Refuses negative costs and actions outside the box in which policies act."""
    costs, actions = arrays["costs"], arrays["actions"]
    if found := _first(lambda x: x < 0, costs):
        where, value = found
        way = "if it stands for a missing value, leave its episode out; else shift all costs"
        raise fault(source, f"costs {where} is {value:g}; costs must be ≥ 0: {way}")
    if found := _first(lambda x: np.abs(x) > 1 + ACTION_ROUNDING, actions):
        where, value = found
        raise fault(
            source,
            f"actions {where} is {value:.7g}, outside [-1, 1] (1e-6 is allowed for rounding); "
            "scale actions to [-1, 1]",
        )


def _first(
    is_bad: Callable[[NDArray[Any]], NDArray[np.bool_]],
    array: NDArray[Any],
    shown: NDArray[Any] | None = None,
) -> tuple[str, Any] | None:
    """The place of the first bad entry, in words, and its value (in `shown`); None without one."""
    for at in blocks(array):
        bad = is_bad(array[at])
        if bad.any():
            row, *column = np.unravel_index(int(np.argmax(bad)), bad.shape)
            words = f"row {at.start + row}" + (f" column {column[0]}" if column else "")
            return words, (array if shown is None else shown)[(at.start + row, *column)]
    return None
