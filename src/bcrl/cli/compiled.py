"""Compiled programs are kept in the user's cache folder: the second call of a verb does not compile again."""

import hashlib
import os
import platform
from pathlib import Path

from bcrl.files import cache_folder

LARGEST = 2**30  # bytes that are kept


def keep_compiled_programs() -> None:
    """Names JAX the folder, before it is imported. A folder of the user's own stays."""
    if "JAX_COMPILATION_CACHE_DIR" in os.environ:
        return
    # A program of another processor may use instructions that this one lacks.
    folder = cache_folder() / "compiled" / hashlib.sha256(_processor().encode()).hexdigest()[:16]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _remove_oldest(folder)
    except OSError:  # no place to keep anything
        return
    os.environ["JAX_COMPILATION_CACHE_DIR"] = str(folder)


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    flags = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    return f"{platform.machine()} {platform.processor()} {flags}"


def _remove_oldest(folder: Path) -> None:
    """Makes room: once more than `LARGEST` is kept, the older half goes."""
    files = sorted(((path, path.stat()) for path in folder.iterdir()), key=lambda item: item[1].st_mtime)
    kept = sum(status.st_size for _, status in files)
    if kept <= LARGEST:
        return
    for path, status in files:
        if kept <= LARGEST // 2:
            return
        path.unlink(missing_ok=True)
        kept -= status.st_size
