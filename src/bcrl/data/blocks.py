"""Arrays on disk, mapped into memory and gone through block by block, so that little of them is resident.

The same functions take arrays in memory, with the same results.
"""

import mmap
from collections.abc import Iterator
from contextlib import suppress
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

BLOCK_BYTES = 2**26
"""What is read at once of one array."""
ROWS_AT_ONCE = 2**12
"""Rows that are gathered at once: each may map 64 KiB of the file, so 256 MiB at most."""


def is_on_disk(array: NDArray[Any]) -> bool:
    """Whether an array is a mapped file."""
    return _mapping(array) is not None


def blocks(*arrays: NDArray[Any]) -> Iterator[slice]:
    """Rows of arrays of one length, as slices of at most `BLOCK_BYTES` of the widest.

    A block that came from disk no longer counts as resident memory once the next is asked for.
    """
    rows = max(BLOCK_BYTES // max(array.dtype.itemsize * prod(array.shape[1:]) for array in arrays), 1)
    for first in range(0, len(arrays[0]), rows):
        yield slice(first, first + rows)
        for array in arrays:
            release(array[first : first + rows])


def release(array: NDArray[Any]) -> None:
    """Gives up the resident pages of a mapped array; a later access reads them again."""
    if (found := _mapping(array)) and array.size and hasattr(mmap, "MADV_DONTNEED"):
        mapping, start = found
        first = start // mmap.PAGESIZE * mmap.PAGESIZE
        mapping.madvise(mmap.MADV_DONTNEED, first, start + array.nbytes - first)


def take(array: NDArray[Any], rows: NDArray[Any]) -> NDArray[Any]:
    """`array[rows]`, read in the order of the file, with many reads under way at a time."""
    if not is_on_disk(array):
        return array[rows]
    order = np.argsort(rows, kind="stable")
    rows = rows[order].astype(np.int64)  # a place in the file is beyond int32
    found = np.empty((len(rows), *array.shape[1:]), array.dtype)
    _announce(array, rows[:ROWS_AT_ONCE])
    for first in range(0, len(rows), ROWS_AT_ONCE):
        after = first + ROWS_AT_ONCE
        _announce(array, rows[after : after + ROWS_AT_ONCE])
        some = rows[first:after]
        found[order[first:after]] = np.take(array, some, axis=0)
        release(array[some[0] : some[-1] + 1])
    return found


def _announce(array: NDArray[Any], rows: NDArray[Any]) -> None:
    """Asks the system to read these sorted rows, without waiting."""
    if (found := _mapping(array)) is None or not len(rows) or not hasattr(mmap, "MADV_WILLNEED"):
        return
    mapping, start = found
    size, page = array.strides[0], mmap.PAGESIZE
    first = (start + rows * size) // page
    after = (start + (rows + 1) * size - 1) // page + 1
    gaps = np.flatnonzero(first[1:] > after[:-1])
    firsts = first[np.concatenate([[0], gaps + 1])] * page
    lengths = after[np.concatenate([gaps, [len(rows) - 1]])] * page - firsts
    with suppress(OSError):  # it is advice: without it rows are read one after another
        for at, length in zip(firsts.tolist(), lengths.tolist(), strict=True):
            mapping.madvise(mmap.MADV_WILLNEED, at, min(length, len(mapping) - at))


def random_access(array: NDArray[Any]) -> NDArray[Any]:
    """The array, of whose file nothing is read beyond what is asked for."""
    if (found := _mapping(array)) and hasattr(mmap, "MADV_RANDOM"):
        found[0].madvise(mmap.MADV_RANDOM)
    return array


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
