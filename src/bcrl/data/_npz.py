"""NPZ: numpy's zip of arrays, for machines without h5py."""

import zipfile
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from bcrl.data._checks import DAMAGE, FIELDS, MATRICES, check_keys, check_layout, check_size, fault, reading
from bcrl.data._schema import MOST_TEXT, NO_SCHEMA, About, Schema
from bcrl.data.blocks import map_file
from bcrl.data.mapped import Storage, lay_down, stays_on_disk
from bcrl.errors import BCRLError

CONSECUTIVE = "consecutive"
"""A member that only logs with `consecutive=False` have."""
SCHEMA = "schema"
"""A member of text, that only logs with a schema have."""


class Header(NamedTuple):
    """What a member of the zip says about its array."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    by_columns: bool
    length: int
    """Bytes before the values."""


class NPZ:
    """An open NPZ file: the headers of its arrays, and each array on demand.

    Not `np.load`, which allocates whatever a header asks for. Refuses what numpy does not write: encrypted
    members, other compressions, Python objects, headers that do not fit the bytes behind them.
    """

    def __init__(self, path: Path, source: str) -> None:
        self.source, self.stored, self._path = source, path.stat().st_size, path
        with path.open("rb") as file:
            if file.read(2) != b"PK":
                raise fault(source, "is not an NPZ file although its suffix says so; rename or convert it")
        self._zip = zipfile.ZipFile(path)
        self._members = {info.filename.removesuffix(".npy"): info for info in self._zip.infolist()}

    def __enter__(self) -> "NPZ":
        return self

    def __exit__(self, *_: object) -> None:
        self._zip.close()

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._members)

    def header(self, name: str) -> Header:
        member = self._members[name]
        if member.flag_bits & 1:
            raise fault(self.source, f"{name} is encrypted; store it without a password")
        if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise fault(
                self.source,
                f"{name} is compressed by method {member.compress_type}, which numpy does not write; "
                "save it with numpy.savez_compressed",
            )
        try:
            with self._zip.open(member) as stream:
                version = npy.read_magic(stream)
                if version not in ((1, 0), (2, 0)):
                    raise ValueError(f"its version is {version}")
                read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
                shape, by_columns, dtype = read(stream)
                length = stream.tell()
        except DAMAGE as error:
            raise self._unreadable(name, error) from None
        if not dtype.hasobject and length + prod(shape) * dtype.itemsize != member.file_size:
            raise self._unreadable(
                name, f"shape {shape} of {dtype} does not fit its {member.file_size:,} bytes"
            )
        return Header(shape, dtype, by_columns, length)

    def array(self, name: str) -> NDArray[Any]:
        """The array; its header must have been checked before."""
        try:
            with self._zip.open(self._members[name]) as stream:
                return npy.read_array(stream, allow_pickle=False)
        except DAMAGE as error:
            raise self._unreadable(name, error) from None

    def mapped(self, name: str) -> NDArray[np.float32]:
        """The array, left on disk: where it is, or unpacked. Its header must have been checked before."""
        member, header = self._members[name], self.header(name)
        if header.by_columns and len(header.shape) > 1:
            raise fault(
                self.source,
                f"{name} is stored column by column and cannot be read in pieces; save it in C order",
            )
        try:
            if member.compress_type == zipfile.ZIP_STORED and header.dtype == np.dtype("<f4"):
                with self._path.open("rb") as file:
                    return map_file(file, header.shape, _start(file, member.header_offset) + header.length)
            with self._zip.open(member) as stream:
                stream.read(header.length)
                width = prod(header.shape[1:])

                def read(at: slice) -> NDArray[Any]:
                    values = stream.read((at.stop - at.start) * width * header.dtype.itemsize)
                    return np.frombuffer(values, header.dtype).reshape(-1, *header.shape[1:])

                return lay_down(read, header.shape, self.source, f"unpacking {name}")
        except DAMAGE as error:
            raise self._unreadable(name, error) from None

    def _unreadable(self, name: str, reason: object) -> BCRLError:
        return fault(self.source, f"{name} cannot be read ({reason}); copy or record it again")


def read_npz(path: Path) -> dict[str, NDArray[Any]]:
    """All arrays of an NPZ file; sizes are checked before any is read, and damage is a BCRLError."""
    source = str(path)
    with reading(source, "NPZ"), NPZ(path, source) as file:
        headers = {name: file.header(name) for name in file.names}
        for name, header in headers.items():
            if header.dtype.hasobject:
                raise fault(source, f"{name} holds Python objects, which are never read; store numbers")
        check_size(headers.values(), file.stored, source)
        return {name: file.array(name) for name in headers}


def read(path: Path, source: str, storage: Storage = "memory") -> tuple[dict[str, NDArray[Any]], About]:
    """The seven fields of a log, and what the file says of them."""
    with NPZ(path, source) as file:
        check_keys(file.names, source)
        headers = {name: file.header(name) for name in FIELDS}
        check_layout(headers, source)
        on_disk = stays_on_disk(headers.values(), storage)
        check_size(headers.values(), file.stored, source, in_memory=not on_disk)
        # Files without the mark are consecutive; any value of it but 0 says the same.
        marked = CONSECUTIVE in file.names and file.header(CONSECUTIVE).shape == ()
        consecutive = not marked or bool(file.array(CONSECUTIVE))
        mapped = MATRICES if on_disk else ()
        arrays = {name: file.mapped(name) if name in mapped else file.array(name) for name in FIELDS}
        return arrays, About(consecutive, _schema(file))


def _schema(file: NPZ) -> Schema:
    """The schema of a log; an empty one where the file has none."""
    if SCHEMA not in file.names:
        return NO_SCHEMA
    shape, dtype, *_ = file.header(SCHEMA)
    if shape != () or dtype.kind != "U" or dtype.itemsize > 4 * MOST_TEXT:
        raise fault(file.source, f"schema has shape {shape} of {dtype}; store one short text")
    return Schema.from_json(str(file.array(SCHEMA)))


def _start(file: IO[bytes], header: int) -> int:
    """Where the bytes of a zip's member begin whose own header is at `header`."""
    file.seek(header)
    fixed = file.read(30)
    if fixed[:4] != b"PK\x03\x04":
        raise ValueError("it is not where the directory of the zip says")
    return header + 30 + int.from_bytes(fixed[26:28], "little") + int.from_bytes(fixed[28:30], "little")


def write(path: Path, arrays: Mapping[str, NDArray[Any]], about: About, compressed: bool = True) -> None:
    mark = {} if about.consecutive else {CONSECUTIVE: np.array(False)}
    if about.schema:
        mark[SCHEMA] = np.array(about.schema.to_json())
    with path.open("wb") as file:  # given a name, numpy would append .npz to one that ends in .NPZ
        save = np.savez_compressed if compressed else np.savez
        save(file, **arrays, **mark)  # pyright: ignore[reportArgumentType]
