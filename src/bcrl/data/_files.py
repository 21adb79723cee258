"""Reading and writing logs; the suffix of the file chooses the format. A Minari data set is a folder."""

import os
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from bcrl.data import _hdf5, _minari, _npz
from bcrl.data._checks import fault, one_line, reading
from bcrl.data._dataset import Dataset
from bcrl.data.mapped import Storage
from bcrl.errors import BCRLError, brief_repr
from bcrl.files import atomic_path


@dataclass(frozen=True)
class Format:
    """A kind of file. A new one is a small module with these two functions, and a line in FORMATS."""

    name: str
    read: Callable[..., Any]
    """(path, source for messages, storage) -> the fields as stored, and what the file says of them."""
    write: Callable[..., None]
    """(path, fields, what to say of them); `path` is temporary and renamed afterwards."""


_HDF5 = Format("HDF5", _hdf5.read, _hdf5.write)
# A folder, so it differs: `read` checks each episode, `write` renames by itself.
_MINARI = Format("Minari", _minari.read, _minari.write)
FORMATS = {
    ".hdf5": _HDF5,
    ".h5": _HDF5,
    ".npz": Format("NPZ", _npz.read, _npz.write),
    _minari.SUFFIX: _MINARI,
}
TABLES = (".csv", ".csv.gz", ".parquet")
"""Suffixes of what `import_table` reads."""


def load_data(
    path: str | os.PathLike[str],
    *,
    cost_key: str = _minari.COST_KEY,
    consecutive: bool | None = None,
    storage: Storage = "auto",
) -> Dataset:
    """The log at `path`, checked; rows after the last episode end are dropped with a warning.

    `path` is a file, the folder of a Minari data set, or minari:ID for one in Minari's own store; `cost_key`
    is the name of the costs in a Minari data set's infos. `consecutive=False` accepts a log whose rows do not
    follow one another; by default the file says so. Nothing is ever unpickled.

    With `storage="disk"`, by default for a log of more than a quarter of the machine's memory, states and
    actions stay on disk: uncompressed NPZ files are mapped, other files unpacked into the cache folder for as
    long as the program runs. A Minari data set is always read into memory.
    """
    path, form = place_of(path)
    source = one_line(path)
    if os.path.isdir(path) and not _minari.is_data_set(path):
        raise fault(source, "is a folder and no Minari data set; give the file inside it")
    if not os.path.exists(path):
        raise fault(source, f"there is no such {'data set' if form is _MINARI else 'file'}; check the path")
    if form is None:
        table = path.name.lower().endswith(TABLES)
        way = f"; a table is imported first: bcrl data import {shlex.quote(path.name)} --out log.npz ..."
        raise _unknown(path, source, way if table else "")
    if not os.path.isdir(path) if form is _MINARI else not os.path.isfile(path):
        kind = "folder" if form is _MINARI else "plain file"
        raise fault(source, f"is not a {kind}; save the log as {form.name} first")
    with reading(source, form.name):
        if form is _MINARI:
            arrays, about = _minari.read(path, source, cost_key)
            dataset = Dataset.of_checked(arrays, source, about._replace(consecutive=consecutive is not False))
            dataset.check_transitions()
            return dataset
        if not os.path.getsize(path):
            raise fault(source, "is empty (0 bytes); copy or record it again")
        arrays, about = form.read(path, source, storage)
    rows_follow = about.consecutive if consecutive is None else consecutive
    return Dataset.from_arrays(
        arrays, source, consecutive=rows_follow, drop_incomplete=True, schema=about.schema
    )


def save_data(dataset: Dataset, path: str | os.PathLike[str], *, compressed: bool = True) -> None:
    """Writes `dataset` at `path`, all or nothing; minari:ID puts it into Minari's own store.

    `compressed=False`, for NPZ alone, makes a file that `load_data` need not unpack to leave it on disk.
    """
    path, form = place_of(path)
    source = one_line(path)
    if form is None:
        raise _unknown(path, source)
    if not compressed and form is not FORMATS[".npz"]:
        raise fault(source, "only .npz can be written without compression; choose that suffix")
    try:
        if form is _MINARI:
            form.write(path, dataset.arrays(), dataset.about)
            return
        with atomic_path(path) as temporary:
            write = form.write if compressed else partial(form.write, compressed=False)
            write(temporary, dataset.arrays(), dataset.about)
    except OSError as error:
        raise fault(source, f"cannot be written ({error.strerror or error}); choose another place") from None


def place_of(path: str | os.PathLike[str]) -> tuple[Path, Format | None]:
    """Where a log lies and its format; None for a suffix that is not in FORMATS."""
    if not isinstance(path, str | os.PathLike):
        raise BCRLError(f"a log is named by its path, such as log.npz, not by {brief_repr(path)}")
    if _minari.is_id(path):
        return _minari.folder_of(path), _MINARI
    path = Path(path).expanduser()
    if _minari.is_data_set(path):
        return path, _MINARI
    return path, FORMATS.get(path.suffix.lower())


def _unknown(path: Path, source: str, way: str = "") -> BCRLError:
    known = ", ".join(FORMATS)
    return fault(source, f"cannot tell the format from suffix {path.suffix!r}; known suffixes: {known}{way}")
