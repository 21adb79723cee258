"""Minari's data sets: a folder with `data/metadata.json` and one HDF5 group for each episode.

Read and written with h5py, not through the `minari` package: the layout is simple, and the package refuses
folders of versions it does not list and may import the code of the environment that a folder names. The tests
hold both against each other.
"""

import json
import os
import re
import shutil
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bcrl.data.checks import FIELDS, check_values, clean, fault, one_line
from bcrl.data.hdf5 import _h5py
from bcrl.errors import BCRLError
from bcrl.progress import progress

PREFIX = "minari:"
SUFFIX = ".minari"
COST_KEY = "cost"
METADATA, MAIN = "metadata.json", "main_data.hdf5"
VERSION = "0.5.0"
"""The version of Minari whose layout is written; every 0.5 reads it."""
_ID = re.compile(r"(?:[-\w]+/)*[-\w]+-v\d+")
_EPISODE = re.compile(r"episode_(\d+)")


def is_id(path: str | os.PathLike[str]) -> bool:
    """Whether a log is named as in Minari's own store: minari:point/circle-v0."""
    return os.fspath(path).startswith(PREFIX)


def folder_of(path: str | os.PathLike[str]) -> Path:
    """Where Minari keeps the data set of this name: MINARI_DATASETS_PATH, else ~/.minari/datasets."""
    name = os.fspath(path).removeprefix(PREFIX)
    if not _ID.fullmatch(name):
        raise BCRLError(
            f"{one_line(path)}: the name of a Minari data set ends in -v and a number, "
            "such as minari:point/circle-v0"
        )
    return _store() / name


def is_data_set(folder: Path) -> bool:
    return _data_folder(folder) is not None


def read(path: Path, source: str, cost_key: str = COST_KEY) -> dict[str, NDArray[Any]]:
    """The episodes back to back; costs are the infos of the name `cost_key`."""
    h5py = _h5py()
    folder = _data_folder(path)
    if folder is None:
        raise fault(source, f"has no data/{METADATA}, so it is no Minari data set; give the log itself")
    count = _episode_count(folder, source)
    if not (folder / MAIN).is_file():
        raise fault(source, f"{MAIN} is missing; copy or download the data set again")
    with (folder / MAIN).open("rb"):  # for its PermissionError: is_hdf5 only says False
        pass
    if not h5py.is_hdf5(folder / MAIN):
        raise fault(source, f"{MAIN} is damaged or cut short; copy or download the data set again")
    episodes = []
    with h5py.File(folder / MAIN, "r") as file, progress("reading", count, "episodes") as tick:
        names = sorted(filter(_EPISODE.fullmatch, file), key=lambda name: int(name.partition("_")[2]))
        if len(names) != count or not names:
            raise fault(
                source,
                f"{MAIN} has {len(names):,} episodes but {METADATA} says {count:,}; "
                "copy or download the data set again",
            )
        for name in names:
            episodes.append(_episode(_Group(file[name], h5py, f"{source} {name}"), cost_key))
            tick()
    _check_alike(episodes, names, source)
    _warn_of_open_ends(episodes, source)
    return {name: np.concatenate([episode[name] for episode in episodes]) for name in FIELDS}


def write(path: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Makes or replaces the folder, all or nothing."""
    h5py = _h5py()
    source = one_line(path)
    over = arrays["terminals"] | arrays["timeouts"]
    _check_chain(arrays, over, source)
    ends = np.flatnonzero(over)
    starts = np.concatenate([[0], ends[:-1] + 1])
    with _whole_folder(path, source) as temporary:
        folder = temporary / "data"
        folder.mkdir()
        with (
            h5py.File(folder / MAIN, "w", track_order=True) as file,
            progress("writing", len(ends), "episodes") as tick,
        ):
            for number, (start, end) in enumerate(zip(starts, ends, strict=True)):
                rows = {name: array[start : end + 1] for name, array in arrays.items()}
                _write_episode(file.create_group(f"episode_{number}"), number, rows)
                tick()
        metadata = {
            "dataset_id": _name_of(path),
            "total_episodes": len(ends),
            "total_steps": len(over),
            "data_format": "hdf5",
            "observation_space": _box(arrays["observations"].shape[1], float("inf")),
            "action_space": _box(arrays["actions"].shape[1], 1.0),
            "dataset_size": round((folder / MAIN).stat().st_size / 1e6, 1),
            "minari_version": VERSION,
            "author": [],
            "author_email": [],
        }
        (folder / METADATA).write_text(json.dumps(metadata), encoding="utf-8")


class _Group:
    """An episode as it lies in the file. What is wrong with it is told with the episode's name."""

    def __init__(self, group: Any, h5py: Any, where: str) -> None:
        self.h5py, self.where = h5py, where
        if not isinstance(group, h5py.Group):
            raise fault(where, "is an array, not a group; copy or download the data set again")
        self.group = group

    def array(self, name: str, remedy: str = "record it") -> NDArray[Any]:
        if name not in self.group:
            inside = self.group
            for part in name.split("/")[:-1]:
                inside = inside.get(part, {})
            found = ", ".join(inside) or "nothing"
            raise fault(self.where, f"{name} missing; found {found} there; {remedy}")
        node = self.group[name]
        if not isinstance(node, self.h5py.Dataset):
            raise fault(self.where, f"{name} is a group of {', '.join(node)}; flatten it into one array")
        if not node.shape:
            raise fault(self.where, f"{name} is one value or none; store one row per step")
        try:
            return node[()]
        except (OSError, RuntimeError, ValueError, TypeError) as error:
            raise fault(self.where, f"{name} cannot be read ({error}); copy or record it again") from None


def _episode(group: _Group, cost_key: str) -> dict[str, NDArray[Any]]:
    rewards = group.array("rewards")
    steps = len(rewards)
    if not steps:
        raise fault(group.where, "rewards has no rows; drop the episode")
    observations = group.array("observations")
    if len(observations) != steps + 1:
        raise fault(
            group.where,
            f"observations has {len(observations):,} rows and rewards has {steps:,}; "
            "Minari keeps one observation more than steps",
        )
    costs = group.array(
        f"infos/{cost_key}",
        "record infos (DataCollector(..., record_infos=True)) or name another one with --cost-key",
    )
    if len(costs) == steps + 1:  # the first is of the reset, when nothing was done yet
        costs = costs[1:]
    arrays = {
        "observations": observations[:-1],
        "actions": group.array("actions"),
        "rewards": rewards,
        "costs": costs,
        "next_observations": observations[1:],
        "terminals": group.array("terminations"),
        "timeouts": group.array("truncations"),
    }
    cleaned = clean(arrays, group.where)
    check_values(cleaned, group.where)
    early = np.flatnonzero((cleaned["terminals"] | cleaned["timeouts"])[:-1])
    if early.size:
        raise fault(
            group.where,
            f"terminations or truncations is 1 in row {early[0]} of {steps:,}; "
            "an episode ends with its last row: split it there",
        )
    return cleaned


def _check_alike(episodes: list[dict[str, NDArray[Any]]], names: list[str], source: str) -> None:
    for field in FIELDS:
        widths = [episode[field].shape[1:] for episode in episodes]
        other = next((i for i, width in enumerate(widths) if width != widths[0]), None)
        if other is not None:
            shapes = episodes[other][field].shape, episodes[0][field].shape
            raise fault(
                f"{source} {names[other]}",
                f"{field} has shape {shapes[0]} but {names[0]} has {shapes[1]}; record both alike",
            )


def _warn_of_open_ends(episodes: list[dict[str, NDArray[Any]]], source: str) -> None:
    """An episode that ends in neither way was stopped by who recorded it: that is a timeout."""
    open_ended = [e for e in episodes if not (e["terminals"][-1] or e["timeouts"][-1])]
    for episode in open_ended:
        timeouts = episode["timeouts"].copy()
        timeouts[-1] = True
        episode["timeouts"] = timeouts
    if open_ended:
        warnings.warn(
            f"{source}: {len(open_ended):,} of {len(episodes):,} episodes end with neither termination nor "
            "truncation; they are taken for truncated",
            stacklevel=2,
        )


def _episode_count(folder: Path, source: str) -> int:
    try:
        metadata = json.loads((folder / METADATA).read_text(encoding="utf-8"))
        form, count = metadata.get("data_format", "hdf5"), int(metadata["total_episodes"])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise fault(
            source, f"{METADATA} cannot be read ({type(error).__name__}: {error}); copy or download it again"
        ) from None
    if form != "hdf5":
        raise fault(source, f"data_format is {form!r}, but only 'hdf5' is read; record it with that format")
    return count


def _check_chain(arrays: Mapping[str, NDArray[Any]], over: NDArray[np.bool_], source: str) -> None:
    """Minari keeps T + 1 observations of an episode: what comes after a step must be the next step's."""
    broken = (arrays["next_observations"][:-1] != arrays["observations"][1:]).any(axis=1) & ~over[:-1]
    if broken.any():
        row = int(np.argmax(broken))
        raise fault(
            source,
            f"next_observations row {row} is not observations row {row + 1}, and Minari keeps only one of "
            "them; write .hdf5 or .npz",
        )


def _write_episode(group: Any, number: int, rows: Mapping[str, NDArray[Any]]) -> None:
    steps = len(rows["rewards"])
    group.attrs["id"] = number
    group.attrs["total_steps"] = steps
    observations = np.concatenate([rows["observations"], rows["next_observations"][-1:]])
    contents = {
        "observations": observations,
        "actions": rows["actions"],
        "rewards": rows["rewards"],
        "terminations": rows["terminals"],
        "truncations": rows["timeouts"],
        # As Minari records infos: the first is of the reset.
        f"infos/{COST_KEY}": np.concatenate([np.zeros_like(rows["costs"][:1]), rows["costs"]]),
    }
    for name, array in contents.items():
        # Without a largest size, for Minari adds to what is there.
        group.create_dataset(
            name, data=array, maxshape=(None, *array.shape[1:]), compression="gzip", shuffle=True
        )


def _box(size: int, bound: float) -> str:
    space = {
        "type": "Box",
        "dtype": "float32",
        "shape": [size],
        "low": [-bound] * size,
        "high": [bound] * size,
    }
    return json.dumps(space)


def _data_folder(folder: Path) -> Path | None:
    """The folder with the files: `data` in the one that has the data set's name, or that one itself."""
    return next((place for place in (folder / "data", folder) if (place / METADATA).is_file()), None)


def _store() -> Path:
    return Path(os.environ.get("MINARI_DATASETS_PATH") or "~/.minari/datasets").expanduser()


def _name_of(path: Path) -> str:
    """The name in Minari's store, or one of Minari's form for a folder elsewhere."""
    try:
        name = path.absolute().relative_to(_store().absolute()).as_posix()
    except ValueError:
        name = path.name
    name = re.sub(r"[^-\w/]", "_", name.removesuffix(SUFFIX))
    return name if _ID.fullmatch(name) else f"{name}-v0"


@contextmanager
def _whole_folder(path: Path, source: str) -> Iterator[Path]:
    """Yields an empty folder beside `path`; on success it takes its place. As `atomic_path` for a file."""
    if os.path.lexists(path) and not (is_data_set(path) and os.listdir(path) == ["data"]):
        raise fault(
            source, "is in the way and holds other things than a Minari data set; choose another name"
        )
    temporary, old = (path.with_name(f".{path.name}.{os.getpid()}{end}") for end in ("", ".old"))
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    try:
        yield temporary
        for file in filter(Path.is_file, temporary.rglob("*")):
            with file.open("rb") as handle:
                os.fsync(handle.fileno())
        if path.exists():  # a folder cannot be renamed onto one that has something in it
            os.replace(path, old)
        os.replace(temporary, path)
        shutil.rmtree(old, ignore_errors=True)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
        if old.exists() and not path.exists():
            os.replace(old, path)
