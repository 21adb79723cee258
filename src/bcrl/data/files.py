"""Reading and writing logs; the suffix of the file chooses the format."""

import os
import tokenize
import zipfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from bcrl.data import hdf5, npz
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


_HDF5 = Format("HDF5", hdf5.read, hdf5.write)
FORMATS = {".hdf5": _HDF5, ".h5": _HDF5, ".npz": Format("NPZ", npz.read, npz.write)}

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


def load_data(path: str | os.PathLike[str]) -> Dataset:
    """Reads and checks a log; drops rows after the last episode end with a warning. Never unpickles."""
    path = Path(path).expanduser()
    source = one_line(path)
    if os.path.isdir(path):
        raise fault(source, "is a folder; give the file inside it")
    if not os.path.exists(path):
        raise fault(source, "there is no such file; check the path")
    form = _format(path, source)
    if not os.path.isfile(path):
        raise fault(source, f"is not a plain file; save the log as {form.name} first")
    try:
        if not os.path.getsize(path):
            raise fault(source, "is empty (0 bytes); copy or record it again")
        arrays = form.read(path, source)
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
    """Writes `dataset` at `path`, all or nothing."""
    path = Path(path).expanduser()
    source = one_line(path)
    form = _format(path, source)
    try:
        with atomic_path(path) as temporary:
            form.write(temporary, {name: getattr(dataset, name) for name in FIELDS})
    except OSError as error:
        raise fault(source, f"cannot be written ({error.strerror or error}); choose another place") from None


def _format(path: Path, source: str) -> Format:
    form = FORMATS.get(path.suffix.lower())
    if form is None:
        raise fault(
            source,
            f"cannot tell the format from suffix {path.suffix!r}; known suffixes: {', '.join(FORMATS)}",
        )
    return form
