"""The scenario file: an NPZ of plain arrays and a JSON header, checked on reading. numpy only, no pickle."""

import json
import os
import zipfile
import zlib
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from bcrl.errors import BCRLError
from bcrl.files import atomic_path
from bcrl.ship.rule import Box
from bcrl.ship.scenario import Scenarios

VERSION = 1
AGAIN = "make it again with bcrl ship data"
ARRAYS = {
    "samples": (np.float32, 2),
    "offsets": (np.int64, 1),
    "first": (np.int64, 1),
    "ship": (np.int32, 1),
    "ships": (np.uint64, 1),
    "kinds": (np.int8, 1),
    "track": (np.int32, 1),
    "congestion": (np.float32, 1),
    "close_quarters": (np.float32, 1),
    "expert_cost": (np.int32, 1),
    "test": (np.bool_, 1),
}
"""Name of each array, its type and rank."""
SCORES = ("congestion", "close_quarters", "expert_cost", "test")


def write(scenarios: Scenarios, path: str | os.PathLike[str]) -> None:
    """The file, all or nothing."""
    header = {
        "format": "bcrl-scenarios",
        "version": VERSION,
        "box": asdict(scenarios.box),
        "about": dict(scenarios.about),
    }
    arrays = {name: getattr(scenarios, name) for name in ARRAYS}
    arrays["header"] = np.frombuffer(json.dumps(header).encode(), np.uint8)
    with atomic_path(path) as temporary, open(temporary, "wb") as file:
        np.savez_compressed(file, **arrays)  # pyright: ignore[reportArgumentType]


def read(path: str | os.PathLike[str]) -> Scenarios:
    """The scenarios of a file; every name, type, shape, index and value is checked."""
    path = Path(path).expanduser()
    if not path.is_file():
        raise BCRLError(f"{path}: there is no such file; make it with bcrl ship data")
    try:
        with open(path, "rb") as file:
            if file.read(2) != b"PK":
                raise BCRLError(f"{path}: not a scenario file; make it with bcrl ship data")
            file.seek(0)
            with np.load(file, allow_pickle=False) as archive:
                arrays = {name: archive[name] for name in archive.files}
    except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile, zlib.error) as error:
        raise BCRLError(f"{path}: damaged or cut short ({error}); {AGAIN}") from None
    header = _header(path, arrays.pop("header", np.zeros(0, np.uint8)))
    _check_arrays(path, arrays)
    scenarios = Scenarios(box=_box(path, header), about=header.get("about", {}), **arrays)
    _check_meaning(path, scenarios)
    return scenarios


def _header(path: Path, raw: np.ndarray) -> dict[str, Any]:
    try:
        header = json.loads(raw.astype(np.uint8).tobytes().decode())
    except ValueError:
        header = None
    if not isinstance(header, dict) or header.get("format") != "bcrl-scenarios":
        raise BCRLError(f"{path}: not a scenario file; make it with bcrl ship data")
    if header.get("version") != VERSION:
        raise BCRLError(
            f"{path}: format version is {header.get('version')!r}, this bcrl reads {VERSION}; {AGAIN}"
        )
    if not isinstance(header.get("about", {}), dict):
        raise BCRLError(f"{path}: the header's field about is damaged; {AGAIN}")
    return header


def _box(path: Path, header: dict[str, Any]) -> Box:
    try:
        return Box(**{name: float(value) for name, value in header["box"].items()})
    except (KeyError, TypeError, ValueError, AttributeError, BCRLError) as error:
        raise BCRLError(f"{path}: the header's box is damaged ({error}); {AGAIN}") from None


def _check_arrays(path: Path, arrays: dict[str, np.ndarray]) -> None:
    for name, (kind, rank) in ARRAYS.items():
        if name not in arrays:
            raise BCRLError(f"{path}: {name} is missing; {AGAIN}")
        found = arrays[name]
        if found.dtype != kind or found.ndim != rank:
            raise BCRLError(
                f"{path}: {name} is {found.dtype} of rank {found.ndim}, "
                f"expected {np.dtype(kind)} of rank {rank}; {AGAIN}"
            )
        if found.dtype.kind == "f" and not np.isfinite(found).all():
            raise BCRLError(f"{path}: {name} holds NaN or infinity; {AGAIN}")
    unknown = sorted(arrays.keys() - ARRAYS.keys())
    if unknown:
        raise BCRLError(f"{path}: {unknown[0]} is unknown; {AGAIN}")


def _check_meaning(path: Path, s: Scenarios) -> None:
    """That the numbers belong together: lengths, indices, tracks that never leave the box."""
    size = np.array(s.box.size, np.float32)
    tracks, scenarios = len(s.first), len(s.track)
    problem = ""
    if s.samples.shape[1:] != (4,):
        problem = f"samples has shape {s.samples.shape}, expected 4 columns"
    elif len(s.offsets) != tracks + 1 or len(s.ship) != tracks or tracks == 0:
        problem = f"offsets, first and ship do not tell the same number of tracks, {tracks:,}"
    elif s.offsets[0] != 0 or s.offsets[-1] != len(s.samples) or (np.diff(s.offsets) < 2).any():
        problem = "offsets do not cut samples into tracks of two or more"
    elif (s.ship < 0).any() or (s.ship >= len(s.ships)).any() or len(s.kinds) != len(s.ships):
        problem = "ship names a vessel that is not in ships"
    elif (s.first < 0).any() or int(s.first.max() - s.first.min()) > 10_000_000:
        problem = "first spans more than three years"  # a damaged time would ask for terabytes
    elif scenarios == 0 or any(len(getattr(s, name)) != scenarios for name in SCORES):
        problem = f"track, {', '.join(SCORES)} do not tell the same number of scenarios"
    elif (s.track < 0).any() or (s.track >= tracks).any() or (np.diff(s.first[s.track]) < 0).any():
        problem = "track names a track that is not there, or is not in order of time"
    elif (s.samples[:, :2] < -1).any() or (s.samples[:, :2] > size + 1).any():
        problem = "samples leave the box"
    elif not s.test.any() or s.test.all():
        problem = "test leaves nothing to learn from, or nothing to test"
    if problem:
        raise BCRLError(f"{path}: {problem}; {AGAIN}")
