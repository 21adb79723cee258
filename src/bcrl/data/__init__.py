"""Logs of transitions: the `Dataset`, its checks, readers and writers. Importing this needs numpy only."""

from bcrl.data._checks import FIELDS
from bcrl.data._dataset import Dataset
from bcrl.data._episodes import Account
from bcrl.data._fetch import fetch_files
from bcrl.data._files import FORMATS, load_data, place_of, save_data
from bcrl.data._from_table import from_frame, import_table, read_table
from bcrl.data._mapping import TableMap, read_map
from bcrl.data._minari import is_data_set as is_minari
from bcrl.data._npz import read_npz
from bcrl.data._picture import density_picture
from bcrl.data._schema import NO_SCHEMA, Schema
from bcrl.data._summary import outline, summarise

__all__ = [
    "FIELDS",
    "FORMATS",
    "NO_SCHEMA",
    "Account",
    "Dataset",
    "Schema",
    "TableMap",
    "density_picture",
    "fetch_files",
    "from_frame",
    "import_table",
    "is_minari",
    "load_data",
    "outline",
    "place_of",
    "read_map",
    "read_npz",
    "read_table",
    "save_data",
    "summarise",
]
