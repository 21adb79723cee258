"""Logs of transitions: the `Dataset`, its checks, readers and writers. Importing this needs numpy only."""

from bcrl.data.checks import FIELDS
from bcrl.data.dataset import Dataset
from bcrl.data.files import load_data, save_data

__all__ = ["FIELDS", "Dataset", "load_data", "save_data"]
