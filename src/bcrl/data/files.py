"""Reading and writing logs; the suffix of the file chooses the format. A Minari data set is a folder."""

import os
import tokenize
import zipfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from bcrl.data import hdf5, minari, npz
from bcrl.data.checks import FIELDS, fault, one_line
from bcrl.data.dataset import Dataset
from bcrl.errors import BCRLError
from bcrl.files import atomic_path

Arrays = Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class Format:
    """A new format is one small module with these two functions and a line in FORMATS."""

    name: str
    read: Callable[[Path, str], Arrays]
    """(path, source for messages) -> the fields as they lie in the file, unchecked."""
    write: Callable[[Path, Arrays], None]
    folder: bool = False
    """Is a folder, and writes it all or nothing by itself."""


_HDF5 = Format("HDF5", hdf5.read, hdf5.write)
_MINARI = Format("Minari", minari.read, minari.write, folder=True)
FORMATS = {
    ".hdf5": _HDF5,
    ".h5": _HDF5,
    ".npz": Format("NPZ", npz.read, npz.write),
    minari.SUFFIX: _MINARI,
}

# What the libraries raise on damaged bytes; anything else is a fault of ours and keeps its traceback.
_DAMAGE = (
    OSError,
    EOFError,
    ValueError,
    KeyError,
    TypeError,
    RuntimeError,
    SyntaxError,
    tokenize.TokenError,
    zipfile.BadZipFile,
    zlib.error,
)


def load_data(path: str | os.PathLike[str], *, cost_key: str = minari.COST_KEY) -> Dataset:
    """Reads and checks a log; drops rows after the last episode end with a warning. Never unpickles.

    `path` is a file, the folder of a Minari data set, or minari:ID for one in Minari's own store; of those,
    `cost_key` names the infos that hold the costs.
    """
    path, form = _place(path)
    source = one_line(path)
    if os.path.isdir(path) and not minari.is_data_set(path):
        raise fault(source, "is a folder and no Minari data set; give the file inside it")
    if not os.path.exists(path):
        kind = "data set" if form is _MINARI else "file"
        raise fault(source, f"there is no such {kind}; check the path")
    if form is None:
        raise _unknown(path, source)
    if not os.path.isdir(path) if form.folder else not os.path.isfile(path):
        kind = "folder" if form.folder else "plain file"
        raise fault(source, f"is not a {kind}; save the log as {form.name} first")
    read = partial(minari.read, cost_key=cost_key) if form is _MINARI else form.read
    try:
        if not form.folder and not os.path.getsize(path):
            raise fault(source, "is empty (0 bytes); copy or record it again")
        arrays = read(path, source)
    except BCRLError:
        raise
    except PermissionError:
        raise fault(source, "permission denied; allow reading it (chmod u+r)") from None
    except MemoryError:
        raise fault(
            source, "its arrays do not fit into memory; split the file or use a larger machine"
        ) from None
    except _DAMAGE as error:
        reason = one_line(error)[:200] or type(error).__name__
        raise fault(
            source, f"{form.name} is damaged or cut short ({reason}); copy or record it again"
        ) from None
    return Dataset.from_arrays(arrays, source, drop_incomplete=True)


def save_data(dataset: Dataset, path: str | os.PathLike[str]) -> None:
    """Writes `dataset` at `path`, all or nothing; minari:ID puts it into Minari's own store."""
    path, form = _place(path)
    source = one_line(path)
    if form is None:
        raise _unknown(path, source)
    arrays = {name: getattr(dataset, name) for name in FIELDS}
    try:
        if form.folder:
            form.write(path, arrays)
            return
        with atomic_path(path) as temporary:
            form.write(temporary, arrays)
    except OSError as error:
        raise fault(source, f"cannot be written ({error.strerror or error}); choose another place") from None


def _place(path: str | os.PathLike[str]) -> tuple[Path, Format | None]:
    """Where a log lies, and its format where that can be told."""
    if minari.is_id(path):
        return minari.folder_of(path), _MINARI
    path = Path(path).expanduser()
    if os.path.isdir(path) and minari.is_data_set(path):
        return path, _MINARI
    return path, FORMATS.get(path.suffix.lower())


def _unknown(path: Path, source: str) -> BCRLError:
    return fault(
        source, f"cannot tell the format from suffix {path.suffix!r}; known suffixes: {', '.join(FORMATS)}"
    )
