"""DSRL's layout of HDF5: seven arrays at the root, gzip, episodes back to back."""

from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bcrl.data._checks import DAMAGE, FIELDS, FLAGS, MATRICES, check_keys, check_layout, check_size, fault
from bcrl.data._schema import NO_SCHEMA, About, Schema
from bcrl.data.blocks import blocks
from bcrl.data.mapped import Storage, lay_down, stays_on_disk
from bcrl.errors import BCRLError

CONSECUTIVE = "consecutive"
"""An attribute of the file that only logs with `consecutive=False` have."""
SCHEMA = "schema"
"""An attribute of text, that only logs with a schema have."""
CHUNK_BYTES = 2**18
"""Size of the pieces in which arrays are compressed."""
NO_HDF5 = "is not an HDF5 file although its suffix says so; rename or convert it"
AGAIN, COPY = "copy or record it again", "copy the values into this file"


def read(path: Path, source: str, storage: Storage = "memory") -> tuple[dict[str, NDArray[Any]], About]:
    """The seven fields of a log, and what the file says of them."""
    with open_hdf5(path, source) as file:
        check_keys(file, source)
        nodes = {name: array_node(file, name, source) for name in FIELDS}
        for name, node in nodes.items():
            if node.shape is None:
                raise fault(source, f"{name} is empty; store one row per transition")
        check_layout(nodes, source)
        on_disk = stays_on_disk(nodes.values(), storage)
        check_size(nodes.values(), path.stat().st_size, source, in_memory=not on_disk)
        about = About(bool(file.attrs.get(CONSECUTIVE, True)), _schema(file.attrs.get(SCHEMA), source))
        mapped = MATRICES if on_disk else ()
        return {
            name: (_unpack if name in mapped else read_node)(node, name, source)
            for name, node in nodes.items()
        }, about


def _unpack(node: Any, name: str, source: str) -> NDArray[np.float32]:
    """The array of a node, left on disk: HDF5 compresses in pieces, which cannot be mapped."""
    return lay_down(lambda at: read_node(node, name, source, at), node.shape, source, f"unpacking {name}")


def _schema(text: Any, source: str) -> Schema:
    """The schema of a log; an empty one where the file has none."""
    if text is None:
        return NO_SCHEMA
    if not isinstance(text, str):
        raise fault(source, f"the attribute schema is a {type(text).__name__}; store text, or leave it out")
    return Schema.from_json(text)


def write(path: Path, arrays: Mapping[str, NDArray[Any]], about: About) -> None:
    with Writer(path, {name: array.shape for name, array in arrays.items()}, about) as writer:
        for at in blocks(*arrays.values()):
            writer.append({name: array[at] for name, array in arrays.items()})


class Writer:
    """Writes a log of known size block by block."""

    def __init__(self, path: Path, shapes: Mapping[str, tuple[int, ...]], about: About):
        self._file = h5py().File(path, "w")
        self._done = 0
        for name, shape in shapes.items():
            kind = np.dtype(bool if name in FLAGS else np.float32)
            rows = min(max(CHUNK_BYTES // (prod(shape[1:]) * kind.itemsize), 1), shape[0])
            # Shuffling bytes first makes floats compress better; every HDF5 library undoes it.
            self._file.create_dataset(
                name, shape, kind, chunks=(rows, *shape[1:]), compression="gzip", shuffle=True
            )
        if not about.consecutive:
            self._file.attrs[CONSECUTIVE] = False
        if about.schema:
            self._file.attrs[SCHEMA] = about.schema.to_json()

    def append(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        count = len(arrays["rewards"])
        for name, array in arrays.items():
            self._file[name][self._done : self._done + count] = array
        self._done += count

    def __enter__(self) -> "Writer":
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


def open_hdf5(path: Path, source: str, otherwise: str = NO_HDF5) -> Any:
    """The open file; the error for another kind of file says `otherwise`."""
    with path.open("rb"):  # for its PermissionError: is_hdf5 only returns False
        pass
    if not h5py().is_hdf5(path):
        raise fault(source, otherwise)
    return h5py().File(path, "r")


def array_node(group: Any, name: str, source: str, remedy: str = AGAIN) -> Any:
    """The array `name` (or `inner/name`) of `group`, unread, after checking that this file holds it."""
    node = group
    for part in name.split("/"):
        node = member(node, part, name, source, remedy)
    if not isinstance(node, h5py().Dataset):
        found = ", ".join(node) or "nothing"
        raise fault(source, f"{name} is a group of {found}, not an array; flatten it into one array")
    try:
        elsewhere = "a virtual data set" if node.is_virtual else "external storage" if node.external else ""
        if elsewhere:
            raise fault(source, f"{name} is {elsewhere}: its values lie in another file; {COPY}")
        _ = node.shape, node.dtype  # a damaged header shows here
        if h5py().check_enum_dtype(node.dtype) is not None:
            raise fault(source, f"{name} holds names of an enumeration, not numbers; store it as float32")
    except DAMAGE as error:
        raise fault(source, f"{name} cannot be read ({error}); {AGAIN}") from None
    return node


def member(group: Any, part: str, name: str, source: str, remedy: str) -> Any:
    """The entry `part` of `group`, which is (a part of) `name`.

    Links are refused without following them: through them, as through external storage and virtual data sets,
    a log could read any other file, or wait for ever on a pipe.
    """
    if not isinstance(group, h5py().Group):
        raise fault(source, f"{name} cannot be read (an array lies where a group must be); {AGAIN}")
    try:
        link = group.get(part, getlink=True)
        if link is None:
            found = ", ".join(group) or "nothing"
            raise fault(source, f"{name} missing; found {found} there; {remedy}")
        if isinstance(link, h5py().ExternalLink):
            raise fault(source, f"{name} is an external link to {link.filename}; {COPY}")
        if isinstance(link, h5py().SoftLink):
            raise fault(
                source, f"{name} cannot be read (it is a link to {link.path}); store the array itself"
            )
        return group[part]
    except DAMAGE as error:
        raise fault(source, f"{name} cannot be read ({error}); {AGAIN}") from None


def read_node(node: Any, name: str, source: str, rows: Any = ()) -> NDArray[Any]:
    try:
        return node[rows]
    except DAMAGE as error:
        raise fault(source, f"{name} cannot be read ({error}); {AGAIN}") from None


def h5py() -> Any:
    """The package, imported on use: `import bcrl.data` must work where only numpy is installed."""
    try:
        import h5py as package
    except ImportError:
        raise BCRLError(
            "HDF5 files need h5py, which is not installed; pip install h5py, or use .npz"
        ) from None
    return package
