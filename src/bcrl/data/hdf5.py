"""DSRL's layout of HDF5: seven arrays at the root, gzip, episodes back to back."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from bcrl.data.checks import FIELDS, check_keys, fault
from bcrl.errors import BCRLError


def read(path: Path, source: str) -> dict[str, NDArray[Any]]:
    h5py = _h5py()
    with path.open("rb"):  # for its PermissionError: is_hdf5 only says False
        pass
    if not h5py.is_hdf5(path):
        raise fault(source, "is not an HDF5 file although its suffix says so; rename or convert it")
    arrays = {}
    with h5py.File(path, "r") as file:
        check_keys(file, source)
        for name in FIELDS:
            try:
                arrays[name] = _array(file[name], h5py, name, source)
            except (OSError, RuntimeError, ValueError, TypeError, KeyError) as error:
                raise fault(source, f"{name} cannot be read ({error}); copy or record it again") from None
    return arrays


def _array(node: Any, h5py: Any, name: str, source: str) -> NDArray[Any]:
    if not isinstance(node, h5py.Dataset):
        raise fault(source, f"{name} is a group, not an array; store it as one array at the root")
    if node.shape is None:
        raise fault(source, f"{name} is empty; store one row per transition")
    return node[()]


def write(path: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    h5py = _h5py()
    with h5py.File(path, "w") as file:
        for name, array in arrays.items():
            # Shuffling bytes first makes floats compress better; every HDF5 library undoes it.
            file.create_dataset(name, data=array, compression="gzip", shuffle=True)


def _h5py() -> Any:
    """Imported on use: `import bcrl.data` must work where only numpy is installed."""
    try:
        import h5py
    except ImportError:
        raise BCRLError(
            "HDF5 files need h5py, which is not installed; pip install h5py, or use .npz"
        ) from None
    return h5py
