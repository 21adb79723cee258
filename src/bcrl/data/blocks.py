"""Arrays on disk, mapped into memory and gone through block by block, so that little of them is resident.

The same functions take arrays in memory, with the same results.
"""

import mmap
import os
import weakref
from collections.abc import Iterator
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

BLOCK_BYTES = 2**26
"""What is read at once of one array."""
ROWS_AT_ONCE = 2**12
"""Rows of which the system is told ahead."""


def is_on_disk(array: NDArray[Any]) -> bool:
    """Whether an array is a mapped file."""
    return _mapping(array) is not None


def blocks(*arrays: NDArray[Any]) -> Iterator[slice]:
    """Rows of arrays of one length, as slices of at most `BLOCK_BYTES` of the widest.

    What came from disk no longer counts as resident memory once the next block is asked for.
    """
    rows = max(BLOCK_BYTES // max(array.dtype.itemsize * prod(array.shape[1:]) for array in arrays), 1)
    for first in range(0, len(arrays[0]), rows):
        yield slice(first, first + rows)
        for array in arrays:  # from the first row on: a system may have mapped what lay before the block
            release(array[: first + rows])


def release(array: NDArray[Any]) -> None:
    """Gives up the resident pages of a mapped array; a later access reads them again."""
    if (found := _mapping(array)) and array.size and hasattr(mmap, "MADV_DONTNEED"):
        mapping, start = found
        first = start // mmap.PAGESIZE * mmap.PAGESIZE
        mapping.madvise(mmap.MADV_DONTNEED, first, start + array.nbytes - first)


def map_file(file: Any, shape: tuple[int, ...], start: int = 0) -> NDArray[np.float32]:
    """The float32 array in an open file, from byte `start` on."""
    array = np.memmap(file, "<f4", "r", start, shape)
    if found := _mapping(array):
        mapping, place = found
        handle = os.dup(file.fileno())
        _files[mapping] = handle, start - place
        weakref.finalize(mapping, os.close, handle)
    return array


_files: weakref.WeakKeyDictionary[mmap.mmap, tuple[int, int]] = weakref.WeakKeyDictionary()
"""The file behind a mapping, and the byte of it at which the mapping begins."""


def take(array: NDArray[Any], rows: NDArray[Any]) -> NDArray[Any]:
    """`array[rows]`; of a file, read in its order, with many reads under way at a time.

    Not through the mapping: a row there makes resident what surrounds it, up to some MB.
    """
    found = _mapping(array)
    if found is None or found[0] not in _files or not hasattr(os, "preadv"):
        return array[rows]
    (mapping, place), size = found, array.strides[0]
    handle, start = _files[mapping]
    order = np.argsort(rows, kind="stable")
    places = (start + place + rows[order].astype(np.int64) * size).tolist()  # beyond int32
    taken = np.empty((len(rows), *array.shape[1:]), array.dtype)
    target = taken.reshape(-1).view(np.uint8).data
    read = 0
    _announce(handle, places[:ROWS_AT_ONCE], size)
    for number, (at, goal) in enumerate(zip(places, (order * size).tolist(), strict=True)):
        if number % ROWS_AT_ONCE == 0:
            _announce(handle, places[number + ROWS_AT_ONCE : number + 2 * ROWS_AT_ONCE], size)
        read += os.preadv(handle, [target[goal : goal + size]], at)
    if read < taken.nbytes:
        raise OSError(f"{taken.nbytes - read:,} bytes of a mapped file are gone")
    return taken


def _announce(handle: int, places: list[int], size: int) -> None:
    """Asks the system to read what begins at these bytes, without waiting."""
    if hasattr(os, "posix_fadvise"):
        for place in places:
            os.posix_fadvise(handle, place, size, os.POSIX_FADV_WILLNEED)


def moments(array: NDArray[Any]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean and standard deviation of each column; the same for an array on disk as for one in memory."""
    mean = sum(array[at].sum(axis=0, dtype=np.float64) for at in blocks(array)) / len(array)
    squares = sum(np.square(array[at] - mean).sum(axis=0) for at in blocks(array))
    return np.asarray(mean), np.sqrt(squares / len(array))


def extremes(array: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """The least and the largest of each column."""
    found = [(array[at].min(axis=0), array[at].max(axis=0)) for at in blocks(array)]
    return np.min([low for low, _ in found], axis=0), np.max([high for _, high in found], axis=0)


def _mapping(array: Any) -> tuple[mmap.mmap, int] | None:
    """The mapped file behind an array, and the byte of it at which the array begins; None in memory."""
    base = array
    while isinstance(base, np.ndarray):
        base = base.base
    if not isinstance(base, mmap.mmap):
        return None
    return base, array.ctypes.data - np.frombuffer(base, np.uint8).ctypes.data
