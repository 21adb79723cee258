"""NPZ: numpy's zip of arrays, for machines without h5py."""

import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bcrl.data.checks import FIELDS, check_keys, fault


def read(path: Path, source: str) -> dict[str, NDArray[Any]]:
    arrays = {}
    with path.open("rb") as file:
        # Looked at first, because np.load takes other files too: .npy, and pickles if it were allowed to.
        if file.read(2) != b"PK":
            raise fault(source, "is not an NPZ file although its suffix says so; rename or convert it")
        file.seek(0)
        # Given the name instead, numpy leaves the file open when the zip is damaged.
        with np.load(file, allow_pickle=False) as archive:
            check_keys(archive.files, source)
            for name in FIELDS:
                try:
                    arrays[name] = archive[name]
                except (OSError, ValueError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
                    if "allow_pickle" in str(error):
                        raise fault(
                            source, f"{name} holds Python objects, which are never read; store it as float32"
                        ) from None
                    raise fault(source, f"{name} cannot be read ({error}); copy or record it again") from None
    return arrays


def write(path: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    with path.open("wb") as file:  # given a name, numpy would append .npz to one that ends in .NPZ
        np.savez_compressed(file, **arrays)  # pyright: ignore[reportArgumentType]
