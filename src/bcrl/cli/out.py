"""What the verbs that write a file check before they begin."""

import os
from collections.abc import Collection
from pathlib import Path

from bcrl.data import FORMATS, is_minari, place_of
from bcrl.errors import BCRLError
from bcrl.files import temporary_name


def check_file(out: Path, suffixes: Collection[str], overwrite: bool, option: str = "--out") -> None:
    """Refuses what could only fail after the work is done, and what would be lost; () is any suffix."""
    if suffixes and out.suffix.lower() not in suffixes:
        raise BCRLError(f"{option} {out}: unknown suffix {out.suffix!r}; known: {', '.join(suffixes)}")
    if os.path.exists(out) and not os.path.isdir(out) and not overwrite:
        raise BCRLError(f"{option} {out} exists; choose another name or give --overwrite")
    check_writable(out, option)


def check_writable(out: Path, option: str = "--out") -> None:
    """Refuses a file that cannot be written, by writing one beside it."""
    if os.path.isdir(out):
        raise BCRLError(f"{option} {out} is a folder; name a file in it")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        trial = temporary_name(out)
        try:
            trial.write_bytes(bytes(4096))  # a full disk takes the name of a file, but not its content
        finally:
            trial.unlink(missing_ok=True)
    except OSError as error:
        raise BCRLError(
            f"{option} {out}: the folder {out.parent} cannot be written ({error.strerror or error}); "
            "choose another place"
        ) from None


def check_log(out: Path, overwrite: bool) -> None:
    """The same for a log, which may also be a folder or an ID of Minari's."""
    place, form = place_of(out)
    if form is None:
        raise BCRLError(f"--out {out}: unknown suffix {place.suffix!r}; known: {', '.join(FORMATS)}")
    if os.path.isdir(place) and not is_minari(place):
        raise BCRLError(f"--out {out} is a folder; name a file in it")
    if os.path.lexists(place) and not overwrite:
        raise BCRLError(f"--out {out} exists; choose another name or give --overwrite")
