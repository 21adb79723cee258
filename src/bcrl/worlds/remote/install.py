"""A Python environment for each family, made from a pinned lock under the user's cache folder.

The families need old versions that exclude each other and a current JAX, so each has its own environment.
A folder counts as installed only when its marker, written last, names the lock it was made from.
"""

import contextlib
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from bcrl.errors import BCRLError
from bcrl.files import cache_folder, can_lock, lock_file, write_text
from bcrl.progress import Tick, progress

INSTALLABLE = ("bullet", "safety-gymnasium", "metadrive")
MARKER = "bcrl-installed.json"
UNFINISHED = ".unfinished-"
# Locks are complete; several packages declare requirements that their code does not need.
_PIP = ("-m", "pip", "--disable-pip-version-check", "install", "--no-deps", "--only-binary", ":all:")
# Asks the kernel to kill this process when its parent ends, then runs the given program.
_TIED = (
    "import ctypes, os, sys\n"
    "if sys.platform == 'linux': ctypes.CDLL(None).prctl(1, 9)\n"
    "os.execv(sys.argv[1], sys.argv[1:])"
)


@dataclass(frozen=True)
class Lock:
    """A complete list of pinned packages, transitive ones too.

    A line is a pin, the hash of a file it may come from, or an option of pip.
    """

    family: str
    text: str

    @property
    def pins(self) -> list[str]:
        lines = (line.partition("#")[0].strip() for line in self.text.splitlines())
        return [line for line in lines if line]

    @property
    def digest(self) -> str:
        return hashlib.sha256("\n".join(self.pins).encode()).hexdigest()

    @property
    def folder(self) -> Path:
        return worlds_folder() / f"{self.family}-{self.digest[:12]}"

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"


def read_lock(family: str) -> Lock:
    if family not in INSTALLABLE:
        raise BCRLError(f"there is no family {family!r} to install; known: {', '.join(INSTALLABLE)}")
    resource = files("bcrl.worlds.remote").joinpath("locks", f"{family}.txt")
    return Lock(family, resource.read_text(encoding="utf-8"))


def worlds_folder() -> Path:
    """Where the environments live."""
    return cache_folder() / "worlds"


def is_installed(lock: Lock) -> bool:
    """Whether a finished environment of exactly this lock is there, with a Python that still exists."""
    try:
        marker = json.loads((lock.folder / MARKER).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(marker, dict) and marker.get("lock") == lock.digest and lock.python.exists()


def family_python(family: str) -> str:
    """The interpreter of a family, which is installed first if it is not yet."""
    lock = read_lock(family)
    if not is_installed(lock):
        install(lock)
    return str(lock.python)


def install(lock: Lock) -> bool:
    """Makes the environment of a lock; False if it was there already."""
    with _only_installer(lock):
        if is_installed(lock):  # perhaps by the installer we waited for
            return False
        for left in worlds_folder().glob(f"{UNFINISHED}{lock.family}-*"):
            shutil.rmtree(left, ignore_errors=True)  # a program of a killed installer may still write there
        # A new folder each time, renamed when it is complete: what a killed installer started may go on
        # writing for a while, but never here.
        python = find_python()
        folder = Path(tempfile.mkdtemp(prefix=f"{UNFINISHED}{lock.family}-", dir=worlds_folder()))
        packages = sum(not line.startswith("-") for line in lock.pins)
        try:
            with progress(f"installing {lock.family}", packages + 2, "steps") as tick:
                make_environment(folder, lock, python, tick)
            marker = {"family": lock.family, "lock": lock.digest, "pins": lock.pins, "made": time.time()}
            write_text(folder / MARKER, json.dumps(marker, indent=1))
            if lock.folder.exists():  # its Python is gone, or its marker
                shutil.rmtree(lock.folder)
            folder.chmod(0o755)
            folder.rename(lock.folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        return True


def make_environment(folder: Path, lock: Lock, python: str, tick: Tick) -> None:
    """Makes a virtual environment with the packages of `lock` in an empty folder."""
    said = _run([python, "-m", "venv", str(folder)])
    if said is not None:
        raise BCRLError(
            f"{python} cannot make virtual environments (on Debian: apt install python3.11-venv): {said}"
        )
    tick(1, "virtual environment")
    pins = folder / "requirements.txt"
    pins.write_text("\n".join(lock.pins), encoding="utf-8")
    pip = [str(folder / "bin" / "python"), *_PIP, "--progress-bar", "off", "-r", str(pins)]
    said = _run(pip, lambda line: _count(line, tick))
    if said is not None:
        raise BCRLError(f"{lock.family} could not be installed: {said}")
    tick(1, "done")


def _count(line: str, tick: Tick) -> None:
    """Counts the line that pip prints for each package, from an index or from a file."""
    if line.startswith(("Collecting ", "Processing ")):
        tick(1, line.split()[1].rsplit("/", 1)[-1])


def _run(words: list[str], heard: Callable[[str], None] = lambda line: None) -> str | None:
    """Runs a program that ends with this one; if it fails, its last error or last line of output."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    lines = []
    with subprocess.Popen(
        [sys.executable, "-c", _TIED, *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment,
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            lines += [line.strip()] if line.strip() else []
            heard(line)
    if process.returncode == 0:
        return None
    telling = [line for line in lines if line.startswith("ERROR")] or lines or ["no reason given"]
    return telling[-1]


@contextlib.contextmanager
def _only_installer(lock: Lock) -> Iterator[None]:
    """One installer of a family at a time; its lock is released when its process ends."""
    if not can_lock():
        raise BCRLError("the DSRL worlds run on Linux and macOS only; the built-in ones run here")
    folder = worlds_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = open(folder / f"{lock.family}.lock", "w")  # noqa: SIM115 (closed below)
    except OSError as error:
        raise BCRLError(f"{folder}: {error.strerror}: set BCRL_CACHE to a folder you can write") from None
    with file:
        if not lock_file(file):
            print(f"another bcrl is installing {lock.family}: waiting for it", file=sys.stderr, flush=True)
            lock_file(file, wait=True)
        yield


def find_python() -> str:
    """A CPython 3.11: the families' compiled packages exist for no other version that bcrl runs on."""
    if sys.implementation.name == "cpython" and sys.version_info[:2] == (3, 11):
        return sys.executable
    found = [shutil.which("python3.11")]
    found += sorted(map(str, Path("~/.pyenv/versions").expanduser().glob("3.11.*/bin/python3.11")))
    if uv := shutil.which("uv"):
        asked = subprocess.run([uv, "python", "find", "3.11"], capture_output=True, text=True, check=False)
        found.append(asked.stdout.strip())
    for python in filter(None, found):
        if _is_cpython_311(python):
            return python
    raise BCRLError(
        "the DSRL worlds need CPython 3.11 and there is none here: install python3.11 so that it is on the "
        "PATH (such as: uv python install 3.11, or apt install python3.11-venv)"
    )


def _is_cpython_311(python: str) -> bool:
    ask = "import sys; print(sys.implementation.name, *sys.version_info[:2])"
    try:
        answer = subprocess.run([python, "-c", ask], capture_output=True, text=True, check=False, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return answer.stdout.split() == ["cpython", "3", "11"]
