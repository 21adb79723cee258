"""The scenario file: an NPZ of plain arrays and a JSON header, checked on reading. numpy only, no pickle."""

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from bcrl.data import read_npz
from bcrl.errors import BCRLError, brief_repr
from bcrl.files import atomic_path
from bcrl.ship._rule import SECONDS, Box
from bcrl.ship._scenarios import Scenarios

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
LATEST = 253_402_300_800 // SECONDS
"""The clock at the end of the year 9999."""


def save_scenarios(scenarios: Scenarios, path: str | os.PathLike[str]) -> None:
    """Writes a scenario file, all or nothing."""
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


def load_scenarios(path: str | os.PathLike[str]) -> Scenarios:
    """The scenarios of a file; every name, type, shape, index and value is checked."""
    path = Path(path).expanduser()
    if not path.is_file():
        raise BCRLError(f"{path}: there is no such file; make it with bcrl ship data")
    with open(path, "rb") as file:
        if file.read(2) != b"PK":
            raise BCRLError(f"{path}: not a scenario file; make it with bcrl ship data")
    arrays = read_npz(path)
    header = _header(path, arrays.pop("header", np.zeros(0, np.uint8)))
    _check_arrays(path, arrays)
    scenarios = Scenarios(box=_box(path, header), about=header.get("about", {}), **arrays)
    if problem := _problem(scenarios):
        raise BCRLError(f"{path}: {problem}; {AGAIN}")
    return scenarios


def _header(path: Path, raw: np.ndarray) -> dict[str, Any]:
    try:
        header = json.loads(raw.tobytes()) if raw.dtype == np.uint8 else None
    except (ValueError, RecursionError):
        header = None
    if not isinstance(header, dict) or header.get("format") != "bcrl-scenarios":
        raise BCRLError(f"{path}: not a scenario file; make it with bcrl ship data")
    if header.get("version") != VERSION:
        raise BCRLError(
            f"{path}: format version is {brief_repr(header.get('version'))}, this bcrl reads {VERSION}; "
            f"{AGAIN}"
        )
    if not isinstance(header.get("about", {}), dict):
        raise BCRLError(f"{path}: the header's field about is damaged; {AGAIN}")
    return header


def _box(path: Path, header: dict[str, Any]) -> Box:
    try:
        return Box(**{name: float(value) for name, value in header["box"].items()})
    except (KeyError, TypeError, ValueError, OverflowError, AttributeError, BCRLError) as error:
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
        raise BCRLError(f"{path}: {unknown[0]!r} is unknown; {AGAIN}")


def _problem(s: Scenarios) -> str:
    """What does not fit together: lengths, indices, times, tracks that leave the box; empty if all does."""
    size = np.array(s.box.size, np.float32)
    tracks, scenarios, samples = len(s.first), len(s.track), len(s.samples)
    if s.samples.shape[1:] != (4,):
        return f"samples has shape {s.samples.shape}, expected 4 columns"
    if len(s.offsets) != tracks + 1 or len(s.ship) != tracks or tracks == 0:
        return f"offsets, first and ship do not have the same number of tracks, {tracks:,}"
    inside = (s.offsets >= 0) & (s.offsets <= samples)  # differences of others could overflow
    if not inside.all() or s.offsets[0] != 0 or s.offsets[-1] != samples or (np.diff(s.offsets) < 2).any():
        return "offsets do not cut samples into tracks of two or more"
    if (s.ship < 0).any() or (s.ship >= len(s.ships)).any() or len(s.kinds) != len(s.ships):
        return "ship names a vessel that is not in ships"
    if (s.first < 0).any() or (s.first > LATEST).any():
        return "first has a time outside the years 1970 to 9999"
    if scenarios == 0 or any(len(getattr(s, name)) != scenarios for name in SCORES):
        return f"track, {', '.join(SCORES)} do not have the same number of scenarios"
    if (s.track < 0).any() or (s.track >= tracks).any() or (np.diff(s.first[s.track]) < 0).any():
        return "track names a track that is not there, or is not in order of time"
    if (s.samples[:, :2] < -1).any() or (s.samples[:, :2] > size + 1).any():
        return "samples leave the box"
    if (s.expert_cost < 0).any():
        return "expert_cost is negative"
    if not s.test.any() or s.test.all():
        return "test leaves nothing to learn from, or nothing to test"
    return ""
