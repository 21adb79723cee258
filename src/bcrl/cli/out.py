"""What the verbs that write a file check before they begin."""

import os
from collections.abc import Iterable
from pathlib import Path

from bcrl.data import FORMATS, is_minari, place_of
from bcrl.errors import BCRLError


def check_file(out: Path, suffixes: Iterable[str], overwrite: bool) -> None:
    """Refuses what could only fail after the work is done, and what would be lost."""
    if out.suffix.lower() not in suffixes:
        raise BCRLError(f"--out {out}: unknown suffix {out.suffix!r}; known: {', '.join(suffixes)}")
    if os.path.isdir(out):
        raise BCRLError(f"--out {out} is a folder; name a file in it")
    if os.path.exists(out) and not overwrite:
        raise BCRLError(f"--out {out} exists; choose another name or give --overwrite")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        writable = os.access(out.parent, os.W_OK | os.X_OK)
    except OSError:
        writable = False
    if not writable:
        raise BCRLError(f"--out {out}: the folder {out.parent} cannot be written; choose another place")


def check_log(out: Path, overwrite: bool) -> None:
    """The same for a log, which may also be a folder or an ID of Minari's."""
    place, form = place_of(out)
    if form is None:
        raise BCRLError(f"--out {out}: unknown suffix {place.suffix!r}; known: {', '.join(FORMATS)}")
    if os.path.isdir(place) and not is_minari(place):
        raise BCRLError(f"--out {out} is a folder; name a file in it")
    if os.path.lexists(place) and not overwrite:
        raise BCRLError(f"--out {out} exists; choose another name or give --overwrite")
