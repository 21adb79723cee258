"""Damaged logs on the command line: exit status 2 and one line that names file, field and remedy."""

import pickle
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest

from bcrl.cli import main
from bcrl.data import FIELDS

Arrays = dict[str, np.ndarray]


def hdf5(path: Path, arrays: Arrays) -> None:
    with h5py.File(path, "w") as file:
        for name, array in arrays.items():
            file.create_dataset(name, data=array, compression="gzip" if array.ndim else None)


def npz(path: Path, arrays: Arrays) -> None:
    np.savez(path, **arrays)


WRITERS = {".hdf5": hdf5, ".npz": npz}


def without(name: str) -> Callable[[Arrays], object]:
    return lambda a: a.pop(name)


def put(name: str, place: object, value: float, dtype: type = np.float64) -> Callable[[Arrays], object]:
    def change(a: Arrays) -> None:
        a[name] = a[name].astype(dtype)
        a[name][place] = value

    return change


def replace(name: str, change: Callable[[np.ndarray], np.ndarray]) -> Callable[[Arrays], object]:
    return lambda a: a.update({name: change(a[name])})


def all_zero(a: Arrays) -> None:
    a["terminals"][:] = a["timeouts"][:] = False


def no_rows(a: Arrays) -> None:
    a.update({name: array[:0] for name, array in a.items()})


CONTENTS = {
    "missing costs": (without("costs"), ["costs missing", "found", "rewards", "rename"]),
    "missing timeouts": (without("timeouts"), ["timeouts missing", "found"]),
    "nothing inside": (lambda a: a.clear(), ["observations", "found nothing"]),
    "NaN": (put("observations", (7, 2), np.nan), ["observations row 7 column 2 is nan", "finite"]),
    "infinity": (put("rewards", 3, -np.inf), ["rewards row 3 is -inf"]),
    "too large for float32": (put("rewards", 3, 1e300), ["rewards row 3 is 1e+300"]),
    "NaN in next": (put("next_observations", (11, 0), np.nan), ["next_observations row 11 column 0 is nan"]),
    "NaN cost": (put("costs", 2, np.nan), ["costs row 2 is nan"]),
    "negative cost": (put("costs", 9, -0.5), ["costs row 9 is -0.5", "≥ 0"]),
    "action too large": (put("actions", (4, 1), 1.5), ["actions row 4 column 1 is 1.5", "[-1, 1]", "scale"]),
    "short rewards": (replace("rewards", lambda x: x[:9]), ["rewards has 9 rows", "observations has 12"]),
    "long flags": (replace("terminals", lambda x: np.r_[x, x]), ["terminals has 24 rows"]),
    "flat observations": (replace("observations", np.ravel), ["observations has shape (36,)", "reshape"]),
    "images": (replace("observations", lambda x: x[:, None]), ["observations has shape (12, 1, 3)"]),
    "square rewards": (replace("rewards", lambda x: np.stack([x, x], 1)), ["rewards has shape (12, 2)"]),
    "scalar cost": (replace("costs", lambda x: x[0]), ["costs has shape ()"]),
    "no columns": (replace("actions", lambda x: x[:, :0]), ["actions has shape (12, 0)"]),
    "no end": (all_zero, ["terminals and timeouts are 0 in all 12 rows", "set timeouts to 1"]),
    "no rows": (no_rows, ["observations has no rows"]),
    "flag of 2": (put("terminals", 6, 2), ["terminals row 6 is 2", "0 or 1"]),
    "flag of a half": (put("timeouts", 6, 0.5), ["timeouts row 6 is 0.5", "0 or 1"]),
    "flag of NaN": (put("timeouts", 1, np.nan), ["timeouts row 1 is nan"]),
    "text": (replace("rewards", lambda x: x.astype("S8")), ["rewards holds |S8", "float32"]),
    "complex": (replace("costs", lambda x: x.astype(complex)), ["costs holds complex128"]),
    "another width": (
        replace("next_observations", lambda x: x[:, :2]),
        ["next_observations has 2 columns", "observations has 3"],
    ),
}


def refuse(path: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """What the command line says about a file it must refuse."""
    with pytest.raises(SystemExit) as stop:
        main(["data", "info", str(path)])
    assert stop.value.code == 2
    said = capsys.readouterr()
    assert said.out == ""
    lines = said.err.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith(f"bcrl: {path}: ")
    assert "Traceback" not in lines[0]
    return lines[0]


@pytest.mark.parametrize("suffix", WRITERS)
@pytest.mark.parametrize("name", CONTENTS)
def test_damaged_contents(name, suffix, arrays, tmp_path, capsys):
    damage, words = CONTENTS[name]
    damage(arrays)
    path = tmp_path / f"log{suffix}"
    WRITERS[suffix](path, arrays)
    line = refuse(path, capsys)
    for word in words:
        assert word in line


def text_file(path: Path, arrays: Arrays) -> None:
    path.write_text("time,reward,cost\n" * 100)


def zero_bytes(path: Path, arrays: Arrays) -> None:
    path.touch()


def cut(path: Path, arrays: Arrays) -> None:
    WRITERS[path.suffix](path, arrays)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def other_format(path: Path, arrays: Arrays) -> None:
    {".hdf5": npz, ".npz": hdf5}[path.suffix](path.with_suffix(".other"), arrays)
    written = next(path.parent.iterdir())  # numpy appends .npz
    written.rename(path)


def folder(path: Path, arrays: Arrays) -> None:
    path.mkdir()


def nothing(path: Path, arrays: Arrays) -> None:
    pass


def a_group(path: Path, arrays: Arrays) -> None:
    del arrays["actions"]
    hdf5(path, arrays)
    with h5py.File(path, "a") as file:
        file.create_group("actions")


def null_dataset(path: Path, arrays: Arrays) -> None:
    del arrays["rewards"]
    hdf5(path, arrays)
    with h5py.File(path, "a") as file:
        file["rewards"] = h5py.Empty("f4")


def broken_link(path: Path, arrays: Arrays) -> None:
    del arrays["rewards"]
    hdf5(path, arrays)
    with h5py.File(path, "a") as file:
        file["rewards"] = h5py.SoftLink("/nowhere")


def spoiled_chunk(path: Path, arrays: Arrays) -> None:
    hdf5(path, arrays)
    with h5py.File(path) as file:
        chunk = file["costs"].id.get_chunk_info(0)
    content = bytearray(path.read_bytes())
    content[chunk.byte_offset : chunk.byte_offset + chunk.size] = b"\xff" * chunk.size
    path.write_bytes(content)


def spoiled_member(path: Path, arrays: Arrays) -> None:
    npz(path, arrays)
    content = bytearray(path.read_bytes())
    place = content.index(arrays["costs"].tobytes())
    content[place] ^= 1
    path.write_bytes(content)


class Bomb:
    """Unpickling it would be seen: it makes a file."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (self.target,)


def pickled_member(path: Path, arrays: Arrays) -> None:
    bomb = np.empty(12, dtype=object)
    bomb[:] = [Bomb(path.parent / "unpickled")] * 12
    npz(path, arrays | {"rewards": bomb})


def pickle_file(path: Path, arrays: Arrays) -> None:
    path.write_bytes(pickle.dumps(Bomb(path.parent / "unpickled")))


FILES = {
    "no file": (nothing, "log.hdf5", ["no such file", "check the path"]),
    "folder": (folder, "log.hdf5", ["is a folder"]),
    "unknown suffix": (text_file, "log.csv", ["'.csv'", ".hdf5, .h5, .npz"]),
    "no suffix": (text_file, "log", ["suffix ''"]),
    "empty hdf5": (zero_bytes, "log.hdf5", ["is empty"]),
    "empty npz": (zero_bytes, "log.npz", ["is empty"]),
    "text as hdf5": (text_file, "log.hdf5", ["is not an HDF5 file"]),
    "text as npz": (text_file, "log.npz", ["is not an NPZ file"]),
    "npz as hdf5": (other_format, "log.hdf5", ["is not an HDF5 file"]),
    "hdf5 as npz": (other_format, "log.npz", ["is not an NPZ file"]),
    "pickle as npz": (pickle_file, "log.npz", ["is not an NPZ file"]),
    "cut hdf5": (cut, "log.hdf5", ["HDF5 is damaged or cut short", "again"]),
    "cut npz": (cut, "log.npz", ["NPZ is damaged or cut short", "again"]),
    "spoiled hdf5 chunk": (spoiled_chunk, "log.hdf5", ["costs cannot be read", "again"]),
    "spoiled npz member": (spoiled_member, "log.npz", ["costs cannot be read", "CRC"]),
    "pickle inside npz": (pickled_member, "log.npz", ["rewards holds Python objects"]),
    "group": (a_group, "log.hdf5", ["actions is a group"]),
    "null dataset": (null_dataset, "log.hdf5", ["rewards is empty"]),
    "broken link": (broken_link, "log.hdf5", ["rewards cannot be read"]),
}


@pytest.mark.parametrize("name", FILES)
def test_damaged_files(name, arrays, tmp_path, capsys):
    damage, file, words = FILES[name]
    path = tmp_path / file
    damage(path, arrays)
    line = refuse(path, capsys)
    for word in words:
        assert word in line
    assert not (tmp_path / "unpickled").exists()


def test_many_keys_are_not_all_listed(tmp_path, capsys):
    np.savez(tmp_path / "log.npz", **{f"episode_{i}": np.zeros(1) for i in range(500)})
    line = refuse(tmp_path / "log.npz", capsys)
    assert "episode_9 and 490 more" in line
    assert all(name in line for name in FIELDS)
