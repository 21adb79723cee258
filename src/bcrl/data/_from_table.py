"""Logs from tables: files and frames."""

import os
import warnings
from collections.abc import Mapping
from contextlib import closing
from typing import Any

import numpy as np

from bcrl.data import _hdf5
from bcrl.data._checks import FLAGS
from bcrl.data._dataset import Dataset
from bcrl.data._episodes import Account
from bcrl.data._files import place_of, save_data
from bcrl.data._import import TableImport
from bcrl.data._mapping import TableMap, make_map, read_map
from bcrl.data._schema import About
from bcrl.data._table import FrameTable, Table, open_table
from bcrl.data._transitions import examine, refuse
from bcrl.files import atomic_path

Place = str | os.PathLike[str]


def to_dataset(table: Table, mapping: TableMap) -> tuple[Dataset, Account]:
    """The log of a table, in memory, and the account of it."""
    made = TableImport(table, mapping)
    shapes = made.shapes()
    arrays = {name: np.empty(shape, bool if name in FLAGS else np.float32) for name, shape in shapes.items()}
    done = 0
    for block in made.blocks():
        for name, values in block.items():
            arrays[name][done : done + len(values)] = values
        done += len(block["rewards"])
    return Dataset.from_arrays(arrays, table.source, schema=made.schema), made.account


def to_hdf5(table: Table, mapping: TableMap, path: Place) -> Account:
    """Writes the log of a table as HDF5, a block at a time, so that it need not fit into memory."""
    with atomic_path(path) as temporary:
        made = TableImport(table, mapping, temporary.parent)
        with (
            closing(made.records),
            _hdf5.Writer(temporary, made.shapes(), About(True, made.schema)) as writer,
        ):
            found = None
            for block in made.blocks():
                writer.append(block)
                if made.mapping.next_observations:
                    found = examine(block) if found is None else found + examine(block)
        if found is not None:
            made.account.notes += [f"{phrase}." for phrase in refuse(found, table.source)]
    return made.account


def read_table(path: Place, map: Place | None = None, **parts: Any) -> Dataset:
    """The log in a CSV (plain or gzip) or Parquet file.

    `parts` say which column is what, as the fields of `TableMap` do: observations, actions, reward, costs,
    episode, time and more; `map` is a TOML file of the same. What is left out or filled is one warning.
    """
    mapping = make_map((read_map(map) if map is not None else {}) | parts)
    return _told(to_dataset(open_table(path, mapping), mapping))


def from_frame(frame: Any, map: Place | None = None, **parts: Any) -> Dataset:
    """The log in a frame of pandas or polars; see `read_table`."""
    mapping = make_map((read_map(map) if map is not None else {}) | parts)
    return _told(to_dataset(FrameTable(frame, "frame"), mapping))


def import_table(path: Place, parts: Mapping[str, Any], out: Place) -> Account:
    """Writes the log in a table to a file; HDF5 is streamed."""
    mapping = make_map(parts)
    table = open_table(path, mapping)
    place, form = place_of(out)
    if form is not None and form.name == "HDF5":
        return to_hdf5(table, mapping, place)
    dataset, account = to_dataset(table, mapping)
    save_data(dataset, out)
    return account


def _told(made: tuple[Dataset, Account]) -> Dataset:
    dataset, account = made
    said = [f"{count:,} {what}" for count, what in account.repairs]
    if said:
        warnings.warn(f"{account.source}: {'; '.join(said)}", stacklevel=3)
    return dataset
