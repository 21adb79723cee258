"""Records of one size, laid down in one order and taken up in another."""

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bcrl.data._checks import fault

AT_ONCE = 2**14
"""Records that are gathered at once: each may map 64 KiB of the file into memory, so 1 GiB at most."""


class Records:
    """An array that grows: in memory, or in a file without a name in `folder`."""

    def __init__(self, kind: np.dtype[Any], folder: Path | None, source: str):
        self.kind, self._source, self._count = kind, source, 0
        self._pieces: list[NDArray[Any]] = []
        self._whole: NDArray[Any] | None = None
        self._file = None if folder is None else tempfile.TemporaryFile(dir=folder)  # noqa: SIM115

    def append(self, records: NDArray[Any]) -> None:
        self._count += len(records)
        if self._file is None:
            self._pieces.append(records)
            return
        try:
            records.tofile(self._file)
        except OSError as error:
            raise fault(
                self._source,
                f"its {self._file_size() / 1e9:,.1f} GB so far cannot be laid down beside the log "
                f"({error.strerror or error}); free some space or choose another --out",
            ) from None

    def take(self, rows: NDArray[np.int64]) -> NDArray[Any]:
        """The records of these rows."""
        if self._file is None:
            if self._whole is None:
                self._whole, self._pieces = np.concatenate(self._pieces), []
            return self._whole[rows]
        if rows[-1] - rows[0] == len(rows) - 1 and (np.diff(rows) == 1).all():
            self._file.seek(int(rows[0]) * self.kind.itemsize)
            return np.fromfile(self._file, self.kind, len(rows))
        pieces = []
        for first in range(0, len(rows), AT_ONCE):
            # A new mapping each time: what an old one has read stays resident.
            mapped = np.memmap(self._file, self.kind, "r", shape=(self._count,))
            pieces.append(np.asarray(mapped[rows[first : first + AT_ONCE]]))
            del mapped
        return np.concatenate(pieces)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def _file_size(self) -> int:
        return self._count * self.kind.itemsize
