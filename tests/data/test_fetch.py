"""Downloads: against a server on this machine that cuts, lies and goes away."""

import hashlib
import resource
import shlex
import sys
from pathlib import Path

import numpy as np
import pytest
from hub_server import COMMIT, Hub, serve

from bcrl.cli import main
from bcrl.data import Dataset, fetch_files
from bcrl.data import _fetch as fetch
from bcrl.data._fetch import Unreachable
from bcrl.errors import BCRLError
from bcrl.worlds.tasks import find_task, tasks

NAME = find_task("BallRun").data_file
CONTENT = np.random.default_rng(0).bytes(300_000)


@pytest.fixture
def hub(monkeypatch):
    """A server with one file, and a client that reaches it directly, without waits."""
    import huggingface_hub

    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "HF_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    monkeypatch.setattr(fetch, "WAITS", (0.0, 0.0))
    huggingface_hub.close_session()
    with serve(Hub({NAME: CONTENT})) as hub:
        yield hub
    huggingface_hub.close_session()


def parts(folder: Path) -> list[Path]:
    return list(folder.glob(".*"))


def test_a_file_comes_whole_and_is_kept(hub, tmp_path):
    (first,) = fetch_files([NAME], tmp_path / "new", hub.address)
    assert first.path == tmp_path / "new" / NAME
    assert first.path.read_bytes() == CONTENT
    assert (first.state, first.size) == ("downloaded", len(CONTENT))
    assert [file.name for file in first.path.parent.iterdir()] == [NAME]
    # The bytes are of the version whose checksum was told, not of whatever is newest.
    assert [path.split("/")[5] for _, path, _ in hub.requests if "resolve" in path] == ["main", COMMIT]
    (again,) = fetch_files([NAME], tmp_path / "new", hub.address)
    assert again.state == "complete"
    assert hub.gets() == [""]


def test_nobodys_token_is_sent(hub, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    fetch_files([NAME], tmp_path, hub.address)
    assert len(hub.requests) == 3  # the facts, the way to the bytes, the bytes
    assert not any("authorization" in headers for _, _, headers in hub.requests)


def test_a_cut_connection_is_made_anew_in_the_middle(hub, tmp_path):
    hub.cuts = [100_000, 50_000]
    (file,) = fetch_files([NAME], tmp_path, hub.address)
    assert file.path.read_bytes() == CONTENT
    assert hub.gets() == ["", "bytes=100000-", "bytes=150000-"]


def test_the_next_run_goes_on_where_the_last_one_stopped(hub, tmp_path):
    hub.cuts = [120_000, 0, 0]
    with pytest.raises(
        Unreachable, match=r"lost the connection at 0\.1 MB of 0\.3 MB .*run the command again"
    ):
        fetch_files([NAME], tmp_path, hub.address)
    assert hub.gets() == ["", "bytes=120000-", "bytes=120000-"]
    assert not (tmp_path / NAME).exists()
    (part,) = parts(tmp_path)
    assert part.read_bytes() == CONTENT[:120_000]
    (file,) = fetch_files([NAME], tmp_path, hub.address)
    assert hub.gets()[3:] == ["bytes=120000-"]
    assert file.path.read_bytes() == CONTENT
    assert not parts(tmp_path)


def test_a_whole_part_needs_no_more_bytes(hub, tmp_path):
    """As after a crash between the last byte and the new name."""
    (tmp_path / f".{NAME}.{hashlib.sha256(CONTENT).hexdigest()[:12]}.part").write_bytes(CONTENT)
    (file,) = fetch_files([NAME], tmp_path, hub.address)
    assert file.path.read_bytes() == CONTENT
    assert hub.gets() == []


def test_the_beginning_of_another_version_is_not_used(hub, tmp_path):
    hub.cuts = [120_000, 0, 0]
    with pytest.raises(Unreachable):
        fetch_files([NAME], tmp_path, hub.address)
    hub.files[NAME] = CONTENT[::-1]
    (file,) = fetch_files([NAME], tmp_path, hub.address)
    assert hub.gets()[3:] == [""]
    assert file.path.read_bytes() == CONTENT[::-1]


def test_a_server_without_ranges_sends_all_again(hub, tmp_path):
    hub.ranges = False
    hub.cuts = [100_000]
    (file,) = fetch_files([NAME], tmp_path, hub.address)
    assert file.path.read_bytes() == CONTENT


def test_a_spoiled_part_is_found_out_and_thrown_away(hub, tmp_path):
    (tmp_path / f".{NAME}.{hashlib.sha256(CONTENT).hexdigest()[:12]}.part").write_bytes(b"x" * 1000)
    with pytest.raises(
        BCRLError, match=r"checksum of the download is not what the server says, so it was deleted"
    ):
        fetch_files([NAME], tmp_path, hub.address)
    assert list(tmp_path.iterdir()) == []
    (file,) = fetch_files([NAME], tmp_path, hub.address)
    assert file.path.read_bytes() == CONTENT


def test_a_wrong_checksum_leaves_nothing(hub, tmp_path):
    hub.announced = {"X-Linked-Etag": '"' + "0" * 64 + '"'}
    with pytest.raises(
        BCRLError, match=rf"{NAME}: the checksum of the download is not what.*another --endpoint"
    ):
        fetch_files([NAME], tmp_path, hub.address)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("size", [200_000, 400_000])
def test_a_wrong_size_leaves_nothing(hub, tmp_path, size):
    hub.announced = {"X-Linked-Size": str(size)}
    with pytest.raises(BCRLError, match=rf"its size is not the {size:,} bytes that were announced"):
        fetch_files([NAME], tmp_path, hub.address)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("size", "words"), [(200_000, "more came than"), (400_000, "its size is not")])
def test_a_wrong_size_is_found_out_by_counting(hub, tmp_path, size, words):
    hub.lengths = False
    hub.announced = {"X-Linked-Size": str(size)}
    with pytest.raises(BCRLError, match=rf"{words} the {size:,} bytes that were announced"):
        fetch_files([NAME], tmp_path, hub.address)
    assert list(tmp_path.iterdir()) == []


def test_a_cut_that_looks_like_the_end_is_found_out_too(hub, tmp_path):
    hub.lengths = False
    hub.cuts = [100_000]
    (file,) = fetch_files([NAME], tmp_path, hub.address)
    assert file.path.read_bytes() == CONTENT
    assert hub.gets() == ["", "bytes=100000-"]


def test_a_small_file_outside_lfs_is_checked_too(hub, tmp_path):
    blob = hashlib.sha1(f"blob {len(CONTENT)}\0".encode() + CONTENT).hexdigest()
    hub.announced = {"X-Linked-Etag": "", "ETag": f'"{blob}"'}
    (file,) = fetch_files([NAME], tmp_path, hub.address)
    assert file.path.read_bytes() == CONTENT
    hub.announced["ETag"] = '"' + "0" * 40 + '"'
    with pytest.raises(BCRLError, match="checksum"):
        fetch_files([NAME], tmp_path / "other", hub.address)


def test_without_a_checksum_nothing_is_taken(hub, tmp_path):
    hub.announced = {"X-Linked-Etag": '"abc"'}
    with pytest.raises(BCRLError, match=r"no size or no checksum; use another --endpoint"):
        fetch_files([NAME], tmp_path, hub.address)


@pytest.mark.parametrize("code", ["EntryNotFound", ""])
def test_a_file_that_is_not_there(hub, tmp_path, code):
    hub.error_code = code
    with pytest.raises(
        BCRLError, match=rf"other\.hdf5 is not in the data set {hub.address}/datasets/YYY-45/DSRL"
    ):
        fetch_files(["other.hdf5"], tmp_path / "new", hub.address)
    assert not (tmp_path / "new").exists()


def test_a_data_set_that_is_not_there(hub, tmp_path):
    hub.error_code = "RepoNotFound"
    with pytest.raises(BCRLError, match="there is no public data set at"):
        fetch_files(["other.hdf5"], tmp_path, hub.address)


def test_a_busy_server_is_tried_again_and_then_told(hub, tmp_path):
    remote = fetch.find(NAME, hub.address)
    hub.status = 503
    with pytest.raises(
        Unreachable, match=rf"^{hub.address} answers with status 503; .* put it here: .*{NAME}$"
    ):
        fetch_files([NAME], tmp_path, hub.address)
    before = len(hub.requests)
    with pytest.raises(Unreachable, match=r"lost the connection at 0\.0 MB.*status 503"):
        fetch._fetch(remote, tmp_path)
    assert len(hub.requests) == before + 3


def test_no_way_to_the_server(hub, tmp_path, monkeypatch):
    import huggingface_hub.constants

    with serve(Hub({})) as gone:
        pass
    with pytest.raises(Unreachable) as stop:
        fetch_files([NAME, "b.hdf5"], tmp_path / "new", gone.address)
    said = str(stop.value)
    assert said.startswith(f"{gone.address} cannot be reached (")
    assert said.endswith(f"put it here: {tmp_path / 'new' / NAME} (and 1 more into that folder)")
    assert "\n" not in said
    assert not (tmp_path / "new").exists()
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)  # what HF_HUB_OFFLINE=1 sets
    huggingface_hub.close_session()
    with pytest.raises(Unreachable, match=r"cannot be reached .*offline"):
        fetch_files([NAME], tmp_path, hub.address)


def test_a_file_put_there_by_hand_will_do_when_there_is_no_way(hub, tmp_path):
    with serve(Hub({})) as gone:
        pass
    (tmp_path / NAME).write_bytes(CONTENT)
    assert [file.state for file in fetch_files([NAME], tmp_path, gone.address)] == ["unchecked"]
    assert [file.state for file in fetch_files([NAME], tmp_path, hub.address)] == ["complete"]
    assert hub.gets() == []


def test_a_way_that_leaves_encryption_is_refused(hub, tmp_path, monkeypatch):
    """The server of the tests is on this machine, which is allowed; its redirect then counts as elsewhere."""
    monkeypatch.setattr(fetch, "LOOPBACK", ("127.0.0.1",))
    with pytest.raises(
        BCRLError, match=r"leads to http://localhost:.*, not encrypted; use another --endpoint"
    ):
        fetch_files([NAME], tmp_path, hub.address)
    assert not (tmp_path / NAME).exists()


def test_another_file_of_the_name_is_not_replaced_unasked(hub, tmp_path):
    mine = tmp_path / NAME
    mine.write_bytes(b"x" * len(CONTENT))
    with pytest.raises(BCRLError, match=rf"{NAME} exists but is not the file at .* or give --overwrite"):
        fetch_files([NAME], tmp_path, hub.address)
    assert mine.read_bytes() == b"x" * len(CONTENT)
    fetch_files([NAME], tmp_path, hub.address, overwrite=True)
    assert mine.read_bytes() == CONTENT
    mine.unlink()
    mine.mkdir()
    with pytest.raises(BCRLError, match="is not a plain file"):
        fetch_files([NAME], tmp_path, hub.address, overwrite=True)


def test_a_disk_that_is_too_small_is_told_before(hub, tmp_path, monkeypatch):
    free = type("Usage", (), {"free": 250_000})
    monkeypatch.setattr(fetch.shutil, "disk_usage", lambda folder: free)
    with pytest.raises(BCRLError, match=r"disk is too full: 0\.3 MB are needed, 0\.2 MB are free"):
        fetch_files([NAME], tmp_path, hub.address)
    assert hub.gets() == []
    # What is there of it already needs no room.
    (tmp_path / f".{NAME}.{hashlib.sha256(CONTENT).hexdigest()[:12]}.part").write_bytes(CONTENT[:100_000])
    fetch_files([NAME], tmp_path, hub.address)
    assert hub.gets() == ["bytes=100000-"]


def test_a_disk_that_fills_up_is_told_and_nothing_is_lost(hub, tmp_path):
    """A limit on the size of files stands in for the end of a disk: writing fails in the same way."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (150_000, hard))
    try:
        with pytest.raises(BCRLError, match=rf"{NAME} cannot be written \(the disk is full\); make room"):
            fetch_files([NAME], tmp_path, hub.address)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    (part,) = parts(tmp_path)
    kept = part.stat().st_size
    assert 0 < kept <= 150_000
    (file,) = fetch_files([NAME], tmp_path, hub.address)
    assert hub.gets()[-1] == f"bytes={kept}-"
    assert file.path.read_bytes() == CONTENT


def test_two_downloads_of_one_file_do_not_mix(hub, tmp_path):
    fcntl = pytest.importorskip("fcntl")
    part = tmp_path / f".{NAME}.{hashlib.sha256(CONTENT).hexdigest()[:12]}.part"
    with part.open("wb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(BCRLError, match="is being downloaded by another bcrl; wait for it"):
            fetch_files([NAME], tmp_path, hub.address)


def test_the_endpoint_comes_from_the_environment_too(hub, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", hub.address + "/")
    (file,) = fetch_files([NAME], tmp_path)
    assert file.path.read_bytes() == CONTENT


def test_without_the_extra_it_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(BCRLError, match=r"pip install 'bcrl\[data\]'"):
        fetch_files([NAME], tmp_path)


def test_on_the_command_line(hub, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    main(["data", "fetch", "ballrun", "BallRun", "--endpoint", hub.address])
    said = capsys.readouterr().out.splitlines()
    path = Path("data") / NAME
    assert path.read_bytes() == CONTENT
    assert said[0] == f"BallRun: {path} (0.3 MB, downloaded, matches what the server says)"
    assert said[1] == f"next: bcrl train --data {path} --out runs/BallRun --world BallRun"
    assert len(said) == 2


def test_all_tasks_at_once_and_what_to_mind(hub, tmp_path, capsys):
    hub.files = {task.data_file: task.name.encode() for task in tasks().values()}
    main(["data", "fetch", "all", "--out", str(tmp_path), "--endpoint", hub.address])
    said = capsys.readouterr().out
    assert len(hub.gets()) == len(tasks()) == 38
    for task in tasks().values():
        assert (tmp_path / task.data_file).read_text() == task.name
    assert said.count("private fork") == 9


def test_the_next_command_is_one_that_train_takes(arrays, hub, tmp_path, capsys):
    """Train knows the family from the world."""
    name = next(task.name for task in tasks().values() if task.family == "safety-gym")
    log = tmp_path / "log.npz"
    Dataset(**arrays).save(log)
    hub.files[find_task(name).data_file] = log.read_bytes()
    main(["data", "fetch", name, "--out", str(tmp_path), "--endpoint", hub.address])
    command = shlex.split(capsys.readouterr().out.splitlines()[-1].removeprefix("next: bcrl "))
    assert command[-2:] == ["--world", name]
    from bcrl.cli.arguments import parse
    from bcrl.cli.train import command_for

    kind, default = command_for(command[1:])
    read = parse(kind, "bcrl train", command[1:], default)
    assert str(read.data) == str(tmp_path / find_task(name).data_file)
    assert read.family == "safety-gym"
    assert (read.options.tau_c, read.options.n_step) == (0.01, 10)


BAD = {
    "no task": ("data fetch", ["name a task"]),
    "unknown task": ("data fetch BallFly", ["'BallFly'", "did you mean Ball"]),
    "no address": ("data fetch BallRun --endpoint mirror", ["--endpoint mirror", "https://huggingface.co"]),
    "half an address": ("data fetch BallRun --endpoint http://", ["--endpoint http", "no web address"]),
    "no encryption": ("data fetch BallRun --endpoint http://mirror.example", ["not encrypted", "https"]),
    "unknown option": ("data fetch BallRun --speed 9", ["speed"]),
    "out is a file": ("data fetch BallRun --out FILE --endpoint HUB", ["FILE cannot be used"]),
    "out below a file": ("data fetch BallRun --out FILE/x --endpoint HUB", ["FILE"]),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_command_lines_end_in_one_line(name, hub, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    words, wanted = BAD[name]
    words = words.replace("FILE", str(tmp_path / "file")).replace("HUB", hub.address)
    with pytest.raises(SystemExit) as stop:
        main(shlex.split(words))
    said = capsys.readouterr()
    assert stop.value.code == 2
    assert len(said.err.splitlines()) == 1
    assert said.err.startswith("bcrl: ")
    for word in wanted:
        assert word.replace("FILE", str(tmp_path / "file")) in said.err
    assert [file.name for file in tmp_path.iterdir()] == ["file"]
