"""Writing files so that a crash never leaves half of one behind."""

import itertools
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

_numbers = itertools.count()


def temporary_name(path: Path) -> Path:
    """A new hidden name beside `path`: `.STEM.PID-NUMBER.SUFFIX`. Some writers look at the suffix."""
    # The process id keeps programs apart, the number keeps threads apart.
    return path.with_name(f".{path.stem}.{os.getpid()}-{next(_numbers)}{path.suffix}")


@contextmanager
def atomic_path(path: str | os.PathLike) -> Iterator[Path]:
    """Yields a temporary path beside `path`; on success it is synced and renamed to `path`."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = temporary_name(path)
    try:
        yield temporary
        with open(temporary, "rb") as file:
            os.fsync(file.fileno())
        # Some writers make private files; users expect the permissions that open() gives.
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
    except OSError as error:
        if error.filename is None:  # as on a full disk
            error.filename = str(path)
        raise
    finally:
        temporary.unlink(missing_ok=True)


def cache_folder() -> Path:
    """What bcrl keeps for later: in BCRL_CACHE, else in bcrl in XDG_CACHE_HOME, else in ~/.cache/bcrl."""
    if own := os.environ.get("BCRL_CACHE"):
        return Path(own).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "bcrl"


def write_text(path: str | os.PathLike, text: str) -> None:
    """Replaces the file at `path` by `text`, all or nothing."""
    with atomic_path(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def can_lock() -> bool:
    """Whether files can be locked here; on Windows they cannot."""
    return fcntl is not None


def lock_file(file: IO | int, *, wait: bool = False) -> bool:
    """Whether no other process has this open file now; it is then kept from them until it is closed.

    Where nothing can be locked, nothing is, and the answer is True.
    """
    if fcntl is None:
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    return True


def _umask() -> int:
    """The permission bits that new files are denied."""
    try:  # without changing it, which other threads would notice
        with open("/proc/self/status") as status:
            return next(int(line.split()[1], 8) for line in status if line.startswith("Umask:"))
    except (OSError, StopIteration):
        mask = os.umask(0)
        os.umask(mask)
        return mask
