"""What is written is read back, in every format; failing writes leave nothing behind."""

import shlex
import sys
from contextlib import suppress

import h5py
import numpy as np
import pytest

from bcrl.data import FIELDS, Dataset, load_data, save_data
from bcrl.errors import BCRLError

SUFFIXES = [".hdf5", ".h5", ".npz", ".NPZ", ".HDF5"]


@pytest.mark.parametrize("kinds", [1, 2, 3])
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_round_trip(arrays, tmp_path, suffix, kinds):
    if kinds > 1:
        arrays["costs"] = np.stack([arrays["costs"] * (k + 0.1) for k in range(kinds)], axis=1)
    data = Dataset(**arrays)
    path = tmp_path / "new" / f"log{suffix}"
    data.save(path)
    again = load_data(str(path))
    assert again.source == str(path)
    assert again.cost_count == kinds
    assert again.fingerprint() == data.fingerprint()
    for name in FIELDS:
        np.testing.assert_array_equal(getattr(again, name), arrays[name])
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_hdf5_has_the_layout_of_dsrl(arrays, tmp_path):
    save_data(Dataset(**arrays), tmp_path / "log.hdf5")
    with h5py.File(tmp_path / "log.hdf5") as file:
        assert set(file) == set(FIELDS)
        assert {file[name].compression for name in FIELDS} == {"gzip"}
        assert file["costs"].shape == (12,)


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int8, np.uint8])
def test_flags_of_any_numeric_dtype(arrays, tmp_path, dtype):
    with h5py.File(tmp_path / "log.h5", "w") as file:
        for name in FIELDS:
            file[name] = arrays[name].astype(dtype) if name in ("terminals", "timeouts") else arrays[name]
    assert load_data(tmp_path / "log.h5").fingerprint() == Dataset(**arrays).fingerprint()


def test_reading_drops_the_incomplete_end_and_says_so(arrays, tmp_path):
    arrays["timeouts"][11] = False
    np.savez(tmp_path / "log.npz", **arrays)
    with pytest.warns(UserWarning, match=r"log\.npz: dropped the last 4 of 12 rows"):
        assert len(load_data(tmp_path / "log.npz")) == 8


def test_saving_over_a_file_replaces_it(arrays, tmp_path):
    path = tmp_path / "log.npz"
    data = Dataset(**arrays)
    data.save(path)
    data.select_episodes([1]).save(path)
    assert len(load_data(path)) == 3


@pytest.mark.parametrize("name", ["my night.csv", "night.CSV.gz", "night.parquet"])
def test_a_table_is_imported_first(name, tmp_path):
    (tmp_path / name).write_text("a,b")
    with pytest.raises(BCRLError) as refused:
        load_data(tmp_path / name)
    way = f"; a table is imported first: bcrl data import {shlex.quote(name)} --out log.npz ..."
    assert str(refused.value).endswith(way)


def test_saving_where_it_cannot_go(arrays, tmp_path):
    data = Dataset(**arrays)
    with pytest.raises(BCRLError, match=r"log\.txt: cannot tell the format from suffix '\.txt'.*\.npz"):
        data.save(tmp_path / "log.txt")
    (tmp_path / "folder.npz").mkdir()
    with pytest.raises(BCRLError, match=r"folder\.npz: cannot be written"):
        data.save(tmp_path / "folder.npz")
    (tmp_path / "file").write_text("")
    with pytest.raises(BCRLError, match=r"cannot be written"):
        data.save(tmp_path / "file" / "log.npz")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["file", "folder.npz"]


@pytest.mark.parametrize("suffix", [".hdf5", ".npz"])
def test_random_damage_never_escapes_as_another_error(arrays, tmp_path, suffix):
    """Flipped bytes and cuts anywhere in the file: read or refused in one line, nothing else."""
    path = tmp_path / f"log{suffix}"
    Dataset(**arrays).save(path)
    good = path.read_bytes()
    rng = np.random.default_rng(0)
    messages = []
    for trial in range(150):
        bad = bytearray(good)
        if trial % 3:
            for place in rng.integers(0, len(bad), size=trial % 7 + 1):
                bad[place] ^= int(rng.integers(1, 256))
        else:
            del bad[rng.integers(1, len(bad)) :]
        path.write_bytes(bad)
        # A flipped flag may leave rows after the last end, which is a warning.
        with suppress(UserWarning):
            try:
                load_data(path)
            except BCRLError as error:
                messages.append(str(error))
    assert len(messages) > 50
    assert all(message.startswith(f"{path}: ") and "\n" not in message for message in messages)


def test_hdf5_without_h5py_names_the_remedy(arrays, tmp_path, monkeypatch):
    Dataset(**arrays).save(tmp_path / "log.hdf5")
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(BCRLError, match="pip install h5py"):
        load_data(tmp_path / "log.hdf5")
