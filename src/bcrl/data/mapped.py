"""Which logs stay on disk, and how arrays get there: files without a name in the cache folder."""

import shutil
import tempfile
from collections.abc import Callable, Iterable
from math import prod
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from bcrl.data._checks import Layout, fault, machine_memory
from bcrl.data.blocks import BLOCK_BYTES, is_on_disk, map_file, take
from bcrl.errors import BCRLError, brief_repr
from bcrl.files import cache_folder
from bcrl.progress import progress

Storage = Literal["auto", "memory", "disk"]
SHARE = 1 / 4
"""Of the machine's memory: larger logs stay on disk. Training holds a log about three times."""


def stays_on_disk(fields: Iterable[Layout], storage: Storage) -> bool:
    """Whether the arrays of a log are left in its file rather than read."""
    if storage not in ("auto", "memory", "disk"):
        raise BCRLError(f"storage is {brief_repr(storage)}, but must be auto, memory or disk")
    size = 4 * sum(prod(field.shape) for field in fields)
    return storage == "disk" or (storage == "auto" and size > SHARE * machine_memory())


def lay_down(
    read: Callable[[slice], NDArray[Any]], shape: tuple[int, ...], source: str, label: str
) -> NDArray[np.float32]:
    """An array on disk, float32, in a file without a name in the cache folder: it is gone with the program.

    `read` returns the rows of a slice; they are asked for one after another.
    """
    folder = cache_folder()
    size = 4 * prod(shape)
    remedy = "set BCRL_CACHE to a folder on a larger disk"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if (free := shutil.disk_usage(folder).free) < size:
            raise fault(
                source, f"needs {size / 1e9:,.1f} GB in {folder}, which has {free / 1e9:,.1f} GB; {remedy}"
            )
        rows = max(BLOCK_BYTES // (4 * prod(shape[1:])), 1)
        with tempfile.TemporaryFile(dir=folder) as file, progress(label[:30], shape[0], "rows") as tick:
            for first in range(0, shape[0], rows):
                last = min(first + rows, shape[0])
                with np.errstate(over="ignore"):  # an infinity is reported by the checks
                    file.write(np.ascontiguousarray(read(slice(first, last)), np.float32).data)
                tick(last - first)
            file.flush()
            array = map_file(file, shape)
    except OSError as error:
        raise fault(source, f"cannot be unpacked in {folder} ({error.strerror or error}); {remedy}") from None
    return array


def subset(array: NDArray[Any], rows: NDArray[Any], source: str) -> NDArray[Any]:
    """`array[rows]`, on disk if the array is."""
    if not is_on_disk(array):
        return array[rows]
    shape = (len(rows), *array.shape[1:])
    return lay_down(lambda at: take(array, rows[at]), shape, source, "choosing episodes")
