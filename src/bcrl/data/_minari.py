"""Minari's data sets: a folder with `data/metadata.json` and one HDF5 group for each episode.

Read and written with h5py, not with the `minari` package, which refuses folders of versions it does not list
and may import the code of the environment that a folder names. The tests compare both.
"""

import ctypes
import errno
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

from bcrl.data._checks import FIELDS, check_size, clean, fault, one_line
from bcrl.data._hdf5 import AGAIN, array_node, h5py, member, open_hdf5, read_node
from bcrl.data._schema import About, Schema
from bcrl.errors import BCRLError
from bcrl.files import temporary_name
from bcrl.progress import progress

PREFIX = "minari:"
SUFFIX = ".minari"
COST_KEY = "cost"
METADATA, MAIN = "metadata.json", "main_data.hdf5"
SCHEMA = "bcrl_schema"
"""A key of the metadata that only logs with a schema have."""
MOST_METADATA = 10_000_000
"""Bytes of metadata; a larger file is refused unread."""
VERSION = "0.5.0"
"""The version of Minari whose layout is written; every 0.5 reads it."""
_ID = re.compile(r"(?:[-\w]+/)*[-\w]+-v\d+")
_EPISODE = re.compile(r"episode_(\d+)")


def is_id(path: str | os.PathLike[str]) -> bool:
    """Whether a log is named as in Minari's own store: minari:point/circle-v0."""
    return os.fspath(path).startswith(PREFIX)


def folder_of(path: str | os.PathLike[str]) -> Path:
    """The folder of a data set in Minari's store: in MINARI_DATASETS_PATH, else in ~/.minari/datasets."""
    name = os.fspath(path).removeprefix(PREFIX)
    if not _ID.fullmatch(name):
        raise BCRLError(
            f"{one_line(path)}: the name of a Minari data set ends in -v and a number, "
            "such as minari:point/circle-v0"
        )
    return _store() / name


def is_data_set(folder: Path) -> bool:
    return _data_folder(folder) is not None


def read(path: Path, source: str, cost_key: str = COST_KEY) -> tuple[dict[str, NDArray[Any]], About]:
    """The fields of all episodes back to back, checked; costs are the infos of the name `cost_key`."""
    folder = _data_folder(path)
    if folder is None:
        raise fault(source, f"has no data/{METADATA}, so it is no Minari data set; give the log itself")
    count, schema = _metadata(folder, source)
    if not (folder / MAIN).is_file():
        raise fault(source, f"{MAIN} is missing or not a plain file; copy or download the data set again")
    damaged = f"{MAIN} is damaged or cut short; copy or download the data set again"
    with open_hdf5(folder / MAIN, source, damaged) as file, progress("reading", count, "episodes") as tick:
        names = sorted(filter(_EPISODE.fullmatch, file), key=lambda name: int(name.partition("_")[2]))
        if len(names) != count or not names:
            raise fault(
                source,
                f"{MAIN} has {len(names):,} episodes but {METADATA} says {count:,}; "
                "copy or download the data set again",
            )
        stored = (folder / MAIN).stat().st_size
        episodes = []
        for name in names:
            episodes.append(_episode(file, name, cost_key, stored, f"{source} {name}"))
            tick()
    _check_alike(episodes, names, source)
    _end_open_episodes(episodes, source)
    arrays = {name: np.concatenate([episode[name] for episode in episodes]) for name in FIELDS}
    return arrays, About(True, schema)


def write(path: Path, arrays: Mapping[str, NDArray[Any]], about: About) -> None:
    """Makes or replaces the folder, all or nothing."""
    source = one_line(path)
    over = arrays["terminals"] | arrays["timeouts"]
    _check_consecutive(arrays, over, source)
    ends = np.flatnonzero(over)
    starts = np.concatenate([[0], ends[:-1] + 1])
    with _whole_folder(path, source) as temporary:
        folder = temporary / "data"
        folder.mkdir()
        with (
            h5py().File(folder / MAIN, "w", track_order=True) as file,
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
        if about.schema:
            metadata[SCHEMA] = about.schema.to_dict()
        (folder / METADATA).write_text(json.dumps(metadata), encoding="utf-8")


def _episode(file: Any, number: str, cost_key: str, stored: int, where: str) -> dict[str, NDArray[Any]]:
    """The fields of one episode, checked."""
    group = member(file, number, number, where, AGAIN)
    costs = f"infos/{cost_key}"
    names = ("rewards", "observations", "actions", "terminations", "truncations")
    nodes: dict[str, Any] = {name: array_node(group, name, where, "record it") for name in names}
    remedy = "record infos (DataCollector(..., record_infos=True)) or name another with --cost-key"
    nodes[costs] = array_node(group, costs, where, remedy)
    for name, node in nodes.items():
        if not node.shape:
            raise fault(where, f"{name} is one value or none; store one row per step")
    steps = nodes["rewards"].shape[0]
    if not steps:
        raise fault(where, "rewards has no rows; drop the episode")
    if nodes["observations"].shape[0] != steps + 1:
        raise fault(
            where,
            f"observations has {nodes['observations'].shape[0]:,} rows and rewards has {steps:,}; "
            "Minari keeps one observation more than steps",
        )
    # The first cost may be of the reset, before any action.
    for name, rows in (("costs", nodes[costs].shape[0]), ("actions", nodes["actions"].shape[0])):
        if rows != steps and not (name == "costs" and rows == steps + 1):
            raise fault(where, f"{name} has {rows:,} rows and rewards has {steps:,}; record one per step")
    check_size(nodes.values(), stored, where)
    found = {name: read_node(node, name, where) for name, node in nodes.items()}
    cleaned = clean(
        {
            "observations": found["observations"][:-1],
            "actions": found["actions"],
            "rewards": found["rewards"],
            "costs": found[costs][-steps:],
            "next_observations": found["observations"][1:],
            "terminals": found["terminations"],
            "timeouts": found["truncations"],
        },
        where,
    )
    early = np.flatnonzero((cleaned["terminals"] | cleaned["timeouts"])[:-1])
    if early.size:
        raise fault(
            where,
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


def _end_open_episodes(episodes: list[dict[str, NDArray[Any]]], source: str) -> None:
    """Sets the timeout of episodes that end with neither flag, with a warning: the recording stopped them."""
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


def _metadata(folder: Path, source: str) -> tuple[int, Schema]:
    """The number of episodes, and the schema."""
    try:
        if (folder / METADATA).stat().st_size > MOST_METADATA:
            raise ValueError(f"more than {MOST_METADATA:,} bytes")
        metadata = json.loads((folder / METADATA).read_text(encoding="utf-8"))
        form, count = metadata.get("data_format", "hdf5"), int(metadata["total_episodes"])
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise fault(
            source, f"{METADATA} cannot be read ({type(error).__name__}: {error}); copy or download it again"
        ) from None
    if form != "hdf5":
        raise fault(source, f"data_format is {form!r}, but only 'hdf5' is read; record it with that format")
    return count, Schema.from_dict(metadata.get(SCHEMA, {}))


def _check_consecutive(arrays: Mapping[str, NDArray[Any]], over: NDArray[np.bool_], source: str) -> None:
    """Refuses what Minari cannot keep: it has T + 1 observations of an episode, and no next observations."""
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
        # As Minari records infos: the first one comes from reset.
        f"infos/{COST_KEY}": np.concatenate([np.zeros_like(rows["costs"][:1]), rows["costs"]]),
    }
    for name, array in contents.items():
        # Without a maximum size, because Minari appends to data sets.
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
    return next((place for place in (folder / "data", folder) if os.path.isfile(place / METADATA)), None)


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


def _in_the_way(path: Path) -> bool:
    """Whether something other than a Minari data set is at `path`."""
    try:
        return os.path.lexists(path) and not (is_data_set(path) and os.listdir(path) == ["data"])
    except OSError:
        return True


@contextmanager
def _whole_folder(path: Path, source: str) -> Iterator[Path]:
    """Yields an empty folder beside `path`; on success it takes its place. As `atomic_path` for a file."""
    # Asked again: another thread may exchange the folder while it is being looked at.
    if all(_in_the_way(path) for _ in range(10)):
        raise fault(
            source, "is in the way and holds other things than a Minari data set; choose another name"
        )
    temporary = temporary_name(path)
    temporary.mkdir(parents=True)
    try:
        yield temporary
        for file in (temporary / "data").iterdir():
            with file.open("rb") as handle:
                os.fsync(handle.fileno())
        _take_place(temporary, path)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)  # after a swap: the old data set


def _take_place(new: Path, path: Path) -> None:
    """Renames `new` to `path`. A data set that is there is swapped with it, so that one is always there."""
    for _ in range(100):  # another writer may come in between the look and the act
        try:
            if os.path.lexists(path):
                _swap(new, path)
            else:
                os.rename(new, path)
            return
        except (FileNotFoundError, FileExistsError):
            if not new.exists():
                raise
        except OSError as error:
            if error.errno != errno.ENOTEMPTY:
                raise
    raise OSError(errno.EBUSY, "other programs keep replacing it", str(path))


def _swap(first: Path, second: Path) -> None:
    """Exchanges two folders in one step on Linux; elsewhere in three, with a moment without `second`."""
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None) if os.name == "posix" else None
    if rename is not None:
        current_folder, exchange = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
        if not rename(current_folder, os.fsencode(first), current_folder, os.fsencode(second), exchange):
            return
        number = ctypes.get_errno()
        if number not in (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP):  # file systems that cannot exchange
            raise OSError(number, os.strerror(number), str(second))
    aside = temporary_name(second)
    os.rename(second, aside)
    try:
        os.rename(first, second)
    except OSError:
        os.rename(aside, second)
        raise
    os.rename(aside, first)
