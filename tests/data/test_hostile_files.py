"""Files made to read other files, to hang, or to take all memory: refused in one line, unread."""

import ast
import io
import json
import os
import select
import struct
import subprocess
import sys
import threading
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import h5py
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bcrl.cli import main
from bcrl.data import FIELDS, Dataset, load_data, save_data
from bcrl.errors import BCRLError


@pytest.fixture
def secret(tmp_path) -> Path:
    path = tmp_path / "secret"
    path.write_bytes(bytes(range(48)))
    return path


@pytest.fixture
def pipe(tmp_path) -> Path:
    """Opening it for reading would wait for ever."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    return path


def hdf5_without(path: Path, arrays, name: str) -> h5py.File:
    file = h5py.File(path, "w")
    for other, array in arrays.items():
        if other != name:
            file[other] = array
    return file


def external_storage(file, name, target):
    file.create_dataset(name, (12,), "f4", external=[(str(target), 0, 48)])


def external_link(file, name, target):
    file[name] = h5py.ExternalLink(str(target), "/rewards")


def virtual(file, name, target):
    layout = h5py.VirtualLayout((12,), "f4")
    layout[:] = h5py.VirtualSource(str(target), "rewards", (12,), "f4")
    file.create_virtual_dataset(name, layout)


def growing_virtual(file, name, target):
    """A virtual data set whose shape is only known after opening its source."""
    layout = h5py.VirtualLayout((12,), "f4", maxshape=(None,))
    source = h5py.VirtualSource(str(target), "rewards", (12,), "f4", maxshape=(None,))
    layout[: h5py.h5s.UNLIMITED] = source[: h5py.h5s.UNLIMITED]
    file.create_virtual_dataset(name, layout)


def soft_link(file, name, target):
    file["elsewhere"] = h5py.ExternalLink(str(target), "/")
    file[name] = h5py.SoftLink("/elsewhere/rewards")


ELSEWHERE = {
    "external storage": external_storage,
    "external link": external_link,
    "virtual": virtual,
    "growing virtual": growing_virtual,
    "soft link to an external link": soft_link,
}


@pytest.mark.parametrize("target", ["secret", "pipe"])
@pytest.mark.parametrize("kind", ELSEWHERE)
def test_an_hdf5_log_reads_no_other_file(kind, target, arrays, tmp_path, request, refused):
    path = tmp_path / "log.hdf5"
    with hdf5_without(path, arrays, "rewards") as file:
        ELSEWHERE[kind](file, "rewards", request.getfixturevalue(target))
    assert refused(path).startswith(f"{path}: rewards ")


def test_names_of_an_enumeration_are_no_numbers(arrays, tmp_path, refused):
    path = tmp_path / "log.hdf5"
    with hdf5_without(path, arrays, "rewards") as file:
        file.create_dataset("rewards", (12,), h5py.enum_dtype({"low": 0, "high": 1}))
    assert refused(path).startswith(f"{path}: rewards holds names of an enumeration")


@pytest.mark.parametrize("target", ["secret", "pipe"])
@pytest.mark.parametrize("kind", ELSEWHERE)
def test_nor_does_a_minari_data_set(kind, target, arrays, tmp_path, request, refused):
    path = tmp_path / "log.minari"
    save_data(Dataset(**arrays), path)
    with h5py.File(path / "data" / "main_data.hdf5", "a") as file:
        del file["episode_1/rewards"]
        ELSEWHERE[kind](file["episode_1"], "rewards", request.getfixturevalue(target))
    assert refused(path).startswith(f"{path} episode_1: rewards ")
    with h5py.File(path / "data" / "main_data.hdf5", "a") as file:
        del file["episode_1"]
        file["episode_1"] = h5py.ExternalLink(str(request.getfixturevalue(target)), "/")
    assert "external link" in refused(path)


LOADING = """
import sys
from bcrl.data import load_data
from bcrl.errors import BCRLError
for line in sys.stdin:
    try:
        load_data(line[:-1])
        print(None, flush=True)
    except BCRLError as error:
        print(repr(str(error)), flush=True)
"""


@pytest.fixture(scope="module")
def loader() -> Iterator[subprocess.Popen[str]]:
    """A program that loads one path after another: the old code waits for ever on a pipe."""
    words = [sys.executable, "-c", LOADING]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process
        process.kill()


@pytest.fixture
def refused(loader) -> Callable[[Path], str]:
    """What that program says of a path, which must be one line."""

    def ask(path: Path) -> str:
        print(path, file=loader.stdin, flush=True)
        assert select.select([loader.stdout], [], [], 60)[0], f"{path}: no answer"
        said = ast.literal_eval(loader.stdout.readline())
        assert said is not None, f"{path}: was loaded"
        assert len(said.splitlines()) == 1, said
        return said.strip()

    return ask


@pytest.mark.parametrize("suffix", [".npz", ".hdf5", ".minari"])
def test_a_pipe_is_no_log(suffix, tmp_path, refused):
    os.mkfifo(tmp_path / f"log{suffix}")
    assert "is not a" in refused(tmp_path / f"log{suffix}")


def test_pipes_inside_a_minari_folder(arrays, tmp_path, refused):
    path = tmp_path / "log.minari"
    save_data(Dataset(**arrays), path)
    (path / "data" / "main_data.hdf5").unlink()
    os.mkfifo(path / "data" / "main_data.hdf5")
    assert "main_data.hdf5 is missing or not a plain file" in refused(path)
    (path / "data" / "metadata.json").unlink()
    os.mkfifo(path / "data" / "metadata.json")
    assert "no Minari data set" in refused(path)


# ---- sizes ----------------------------------------------------------------------------------------------


def test_row_counts_are_compared_before_arrays_are_read(arrays, tmp_path, monkeypatch):
    """A field of 10^13 rows in a file of a few kilobytes."""
    path = tmp_path / "log.hdf5"
    with hdf5_without(path, arrays, "rewards") as file:
        file.create_dataset("rewards", (10**13,), "f4", chunks=(1024,))
    with pytest.raises(BCRLError, match=r"rewards has 10,000,000,000,000 rows but observations has 12"):
        load_data(path)


@pytest.mark.parametrize(
    ("rows", "storage", "words"),
    [
        (10**13, "memory", "this machine has"),
        (10**13, "auto", "more than any log"),
        (10**8, "memory", "more than any log"),
    ],
)
def test_arrays_larger_than_the_machine_or_the_file_are_refused(rows, storage, words, tmp_path):
    path = tmp_path / "log.hdf5"
    with h5py.File(path, "w") as file:
        for name in FIELDS:
            shape = (rows, 1) if name in ("observations", "next_observations", "actions") else (rows,)
            file.create_dataset(name, shape, "f4", chunks=(1024,) + (1,) * (len(shape) - 1))
    with pytest.raises(BCRLError, match=words):
        load_data(path, storage=storage)


def npy(array: np.ndarray, claimed: tuple[int, ...] | None = None) -> bytes:
    """The member of an NPZ; its header may claim another shape than it has."""
    stream = io.BytesIO()
    header = np.lib.format.header_data_from_array_1_0(array)
    np.lib.format.write_array_header_1_0(stream, header | {"shape": claimed or array.shape})
    return stream.getvalue() + array.tobytes()


def npz(path: Path, arrays, compression=zipfile.ZIP_STORED, **members: bytes) -> None:
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, array in arrays.items():
            archive.writestr(f"{name}.npy", members.get(name, npy(array)))


def test_a_header_that_asks_for_more_than_the_member_has(arrays, tmp_path):
    path = tmp_path / "log.npz"
    npz(path, arrays, rewards=npy(arrays["rewards"], claimed=(10**15,)))
    with pytest.raises(BCRLError, match=r"log\.npz: rewards cannot be read \(shape \(10+,\) of float32 does"):
        load_data(path)


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_other_compressions(arrays, tmp_path, method):
    npz(tmp_path / "log.npz", arrays, compression=method)
    with pytest.raises(BCRLError, match=rf"compressed by method {method}, .*savez_compressed"):
        load_data(tmp_path / "log.npz")


def patched(path: Path, offset_local: int, offset_central: int, value: int) -> None:
    """Changes a 16-bit field in the headers of every member."""
    content = bytearray(path.read_bytes())
    for mark, offset in ((b"PK\x03\x04", offset_local), (b"PK\x01\x02", offset_central)):
        place = content.find(mark)
        while place >= 0:
            struct.pack_into("<H", content, place + offset, value)
            place = content.find(mark, place + 4)
    path.write_bytes(content)


def test_an_encrypted_member(arrays, tmp_path):
    npz(tmp_path / "log.npz", arrays)
    patched(tmp_path / "log.npz", 6, 8, 1)
    with pytest.raises(BCRLError, match="is encrypted; store it without a password"):
        load_data(tmp_path / "log.npz")


def test_an_unknown_compression(arrays, tmp_path):
    npz(tmp_path / "log.npz", arrays)
    patched(tmp_path / "log.npz", 8, 10, 99)
    with pytest.raises(BCRLError, match="compressed by method 99"):
        load_data(tmp_path / "log.npz")


@pytest.mark.parametrize(
    "content", [b"", b"no header", b"\x93NUMPY\x03\x00", b"\x93NUMPY\x01\x00\x10\x00{'descr': '<f4',", b"["]
)
def test_members_that_are_no_arrays(arrays, tmp_path, content):
    npz(tmp_path / "log.npz", arrays, costs=content + b" " * (content == b"["))
    with pytest.raises(BCRLError, match=r"log\.npz: costs cannot be read"):
        load_data(tmp_path / "log.npz")


def test_deep_and_large_metadata(arrays, tmp_path):
    path = tmp_path / "log.minari"
    save_data(Dataset(**arrays), path)
    for text in (
        "[" * 200_000,
        json.dumps({"total_episodes": 3, "x": "y" * 11_000_000}),
        '{"total_episodes": 1e999}',
    ):
        (path / "data" / "metadata.json").write_text(text)
        with pytest.raises(BCRLError, match=r"metadata\.json cannot be read"):
            load_data(path)


# ---- names and writers ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a*.npz", "[2020].npz", "log?.hdf5", "{a,b}.h5", "%d.hdf5"])
def test_a_name_is_that_file_alone(name, arrays, tmp_path):
    for other in ("ab.npz", "2.npz", "logs.hdf5", "a.h5", "0.hdf5"):
        (tmp_path / other).write_text("another file")
    save_data(Dataset(**arrays), tmp_path / name)
    assert load_data(tmp_path / name).fingerprint() == Dataset(**arrays).fingerprint()
    (tmp_path / name).unlink()
    with pytest.raises(BCRLError, match="there is no such file"):
        load_data(tmp_path / name)


def test_control_characters_and_odd_bytes_of_names_never_reach_the_terminal(tmp_path, capsys):
    for name in ("\x1b[2Jlog\a.npz", "l\udcffg.npz"):
        (tmp_path / name).write_bytes(b"no log")
        with pytest.raises(SystemExit):
            main(["data", "info", str(tmp_path / name)])
        said = capsys.readouterr().err
        assert said.rstrip("\n").isprintable()
        assert "is not an NPZ file" in said


@given(
    name=st.sampled_from(FIELDS),
    header=st.one_of(
        st.binary(max_size=80),
        st.text(max_size=60).map(str.encode),
        st.tuples(
            st.sampled_from(["<f4", "<f8", "|b1", "|O", "<U3", "<M8[s]", "f4,f4", "|V8", 7]),
            st.lists(st.integers(-2, 2**70), max_size=3).map(tuple),
        ).map(lambda x: repr({"descr": x[0], "fortran_order": False, "shape": x[1]}).encode()),
    ),
    body=st.binary(max_size=60),
    version=st.sampled_from([1, 2, 3, 9]),
)
@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
def test_any_member_is_read_or_refused_in_one_line(arrays, tmp_path, name, header, body, version):
    size = struct.pack("<H" if version == 1 else "<I", len(header))
    npz(tmp_path / "log.npz", arrays, **{name: b"\x93NUMPY" + bytes([version, 0]) + size + header + body})
    with pytest.raises(BCRLError, match=r"^\S*log\.npz: .*") as refusal:
        load_data(tmp_path / "log.npz")
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("name", ["log.npz", "log.minari"])
def test_threads_may_save_to_one_path(name, arrays, tmp_path):
    data = Dataset(**arrays)
    failures: list[BaseException] = []
    barrier = threading.Barrier(8)

    def save():
        try:
            barrier.wait()
            for _ in range(10):
                save_data(data, tmp_path / name)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=save) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert load_data(tmp_path / name).fingerprint() == data.fingerprint()
    assert [file.name for file in tmp_path.iterdir()] == [name]


@pytest.mark.skipif(sys.platform != "linux", reason="folders are exchanged in one step on Linux alone")
@pytest.mark.parametrize("killed_after", range(3))
def test_a_data_set_is_there_whenever_overwriting_is_killed(killed_after, arrays, tmp_path):
    """The program ends right after its first, second or third call that renames or removes."""
    path = tmp_path / "log.minari"
    save_data(Dataset(**arrays), path)
    code = f"""
import os, shutil, sys
from bcrl.data import load_data, save_data
data = load_data(sys.argv[1]).select_episodes([1])
left = [{killed_after}]
def killing(call):
    def wrapped(*args, **options):
        result = call(*args, **options)
        if left[0] == 0:
            os._exit(9)
        left[0] -= 1
        return result
    return wrapped
os.rename, os.replace, shutil.rmtree = killing(os.rename), killing(os.replace), killing(shutil.rmtree)
save_data(data, sys.argv[1])
"""
    subprocess.run([sys.executable, "-c", code, str(path)], timeout=60)
    assert load_data(path).episode_count in (1, 3)
