"""Environments of families: whole or not at all."""

import hashlib
import os
import subprocess
import sys
import threading
import time
import zipfile

import pytest

from bcrl.errors import BCRLError
from bcrl.worlds.remote import install as module
from bcrl.worlds.remote.install import MARKER, Lock, find_python, install, is_installed, worlds_folder


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("BCRL_CACHE", str(tmp_path))
    return tmp_path


EMPTY = Lock("fake", "# nothing is needed\n")


def quick(folder, lock, python, tick):
    """Stands in for venv and pip."""
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "python").symlink_to(sys.executable)


def has_python311() -> bool:
    try:
        find_python()
    except BCRLError:
        return False
    return True


def test_half_an_environment_is_made_again(monkeypatch):
    monkeypatch.setattr(module, "make_environment", quick)
    quick(EMPTY.folder, EMPTY, "", None)
    (EMPTY.folder / "left over").touch()
    assert not is_installed(EMPTY)  # no marker
    install(EMPTY)
    assert is_installed(EMPTY)
    assert not (EMPTY.folder / "left over").exists()
    (EMPTY.folder / MARKER).write_text('{"lock": "of another one"}')
    assert not is_installed(EMPTY)
    (EMPTY.folder / MARKER).write_text("{")
    assert not is_installed(EMPTY)
    assert install(EMPTY)
    EMPTY.python.unlink()  # as when the system's Python goes
    assert not is_installed(EMPTY)


def test_a_failure_leaves_nothing(monkeypatch):
    def fail(*arguments):
        quick(*arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "make_environment", fail)
    with pytest.raises(KeyboardInterrupt):
        install(EMPTY)
    assert not EMPTY.folder.exists()


@pytest.mark.skipif(not has_python311(), reason="needs a CPython 3.11")
def test_a_package_that_is_not_to_be_had_is_told():
    lock = Lock("fake", "--no-index\nno-such-package==1.0\n")
    with pytest.raises(BCRLError, match=r"^fake could not be installed: .*no-such-package==1\.0"):
        install(lock)
    assert not lock.folder.exists()


def tiny_wheel(folder) -> str:
    """A package with one module; the SHA-256 of its wheel."""
    wheel = folder / "tiny_package-1.0-py3-none-any.whl"
    facts = {"METADATA": "Metadata-Version: 2.1\nName: tiny-package\nVersion: 1.0\n", "RECORD": ""}
    facts["WHEEL"] = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    with zipfile.ZipFile(wheel, "w") as file:
        file.writestr("tiny_package.py", "")
        for name, text in facts.items():
            file.writestr(f"tiny_package-1.0.dist-info/{name}", text)
    return hashlib.sha256(wheel.read_bytes()).hexdigest()


def hashed(folder, sha256: str) -> Lock:
    requirement = f"tiny-package==1.0 \\\n    --hash=sha256:{sha256}\n"
    return Lock("fake", f"--require-hashes\n--no-index\n--find-links {folder}\n{requirement}")


@pytest.mark.slow
@pytest.mark.skipif(not has_python311(), reason="needs a CPython 3.11")
def test_a_lock_becomes_an_environment(tmp_path):
    lock = hashed(tmp_path, tiny_wheel(tmp_path))
    assert not is_installed(lock)
    assert install(lock)
    assert is_installed(lock)
    asked = subprocess.run(
        [lock.python, "-c", "import sys, tiny_package; print(sys.version_info[:2], sys.prefix)"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert asked.stdout.strip() == f"(3, 11) {lock.folder}"
    assert not install(lock)  # it is there


@pytest.mark.skipif(not has_python311(), reason="needs a CPython 3.11")
def test_a_file_with_another_hash_is_refused(tmp_path):
    tiny_wheel(tmp_path)
    changed = hashed(tmp_path, "0" * 64)
    with pytest.raises(BCRLError, match=r"fake could not be installed: .*(?i:hash)"):
        install(changed)
    assert not changed.folder.exists()


def test_another_lock_is_another_environment():
    assert Lock("fake", "a==1\n").folder != Lock("fake", "a==2\n").folder
    assert Lock("fake", "a==1\n").folder == Lock("fake", "# a remark\n a==1  # another\n").folder


def test_two_installers_make_one_environment(monkeypatch, capsys):
    made = []

    def slow(*arguments):
        made.append(arguments)
        time.sleep(0.5)
        quick(*arguments)

    monkeypatch.setattr(module, "make_environment", slow)
    monkeypatch.setattr(module, "find_python", lambda: sys.executable)
    threads = [threading.Thread(target=install, args=(EMPTY,)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 1
    assert is_installed(EMPTY)
    assert "another bcrl is installing fake: waiting" in capsys.readouterr().err


KILLED = """
import os, signal, sys
from bcrl.worlds.remote import install as module
module.find_python = lambda: sys.argv[1]
module.install(module.Lock("fake", "# nothing is needed\\n"))
"""
SLOW_VENV = """#!/bin/sh
# As venv, which starts a program of its own: it goes on after the installer and its child are killed.
folder=$3
(trap '' HUP; sleep 1; mkdir -p "$folder/bin"; touch "$folder/bin/late"; touch "$0.done") >/dev/null 2>&1 &
touch "$0.begun"
sleep 30
"""


@pytest.mark.parametrize("marker", ["[]", "[" * 100_000, '{"lock": 3}'])
def test_a_marker_of_any_kind_is_no_installation(marker):
    quick(EMPTY.folder, EMPTY, "", None)
    (EMPTY.folder / MARKER).write_text(marker)
    assert not is_installed(EMPTY)


def wait_for(path):
    for _ in range(600):
        if path.exists():
            return
        time.sleep(0.05)
    pytest.fail(f"{path} never came")


def test_an_installer_never_meets_the_programs_of_a_killed_one(monkeypatch, tmp_path):
    python = tmp_path / "python3.11"
    python.write_text(SLOW_VENV)
    python.chmod(0o755)
    with subprocess.Popen([sys.executable, "-c", KILLED, str(python)]) as first:
        wait_for(tmp_path / "python3.11.begun")
        first.kill()
    monkeypatch.setattr(module, "make_environment", quick)
    monkeypatch.setattr(module, "find_python", lambda: sys.executable)
    assert install(EMPTY)
    wait_for(tmp_path / "python3.11.done")
    assert is_installed(EMPTY)
    assert sorted(path.name for path in (EMPTY.folder / "bin").iterdir()) == ["python"]
    other = Lock("fake", "a==1\n")
    assert install(other)  # and what the first one left is removed
    left = {path.name for path in worlds_folder().iterdir()}
    assert left == {"fake.lock", EMPTY.folder.name, other.folder.name}


def test_the_cache_folder(monkeypatch, tmp_path):
    assert worlds_folder() == tmp_path / "worlds"
    monkeypatch.delenv("BCRL_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert worlds_folder() == tmp_path / "xdg" / "bcrl" / "worlds"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert worlds_folder().parts[-3:] == (".cache", "bcrl", "worlds")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_cache_that_cannot_be_written_is_told(monkeypatch, tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(BCRLError, match="set BCRL_CACHE"):
        install(EMPTY)


def test_without_python311_it_says_what_is_missing(monkeypatch, tmp_path):
    monkeypatch.setattr(module.sys, "version_info", (3, 13, 0))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(BCRLError, match=r"need CPython 3\.11 and there is none here"):
        find_python()
    fake = tmp_path / "python3.11"
    fake.write_text("#!/bin/sh\necho cpython 3 12\n")
    fake.chmod(0o755)
    with pytest.raises(BCRLError, match="none here"):  # a shim of another version
        find_python()
    fake.write_text("#!/bin/sh\necho cpython 3 11\n")
    assert find_python() == str(fake)
