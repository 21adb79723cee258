"""What the verbs that write a log check before they begin."""

import os
from pathlib import Path

from bcrl.data.files import FORMATS
from bcrl.data.minari import folder_of, is_data_set, is_id
from bcrl.errors import BCRLError


def check_out(out: Path, overwrite: bool) -> None:
    """Refuses what could only fail after the work is done, and what would be lost."""
    place = folder_of(out) if is_id(out) else out.expanduser()
    if not is_id(out) and place.suffix.lower() not in FORMATS:
        raise BCRLError(f"--out {out}: unknown suffix {place.suffix!r}; known: {', '.join(FORMATS)}")
    if os.path.isdir(place) and not is_data_set(place):
        raise BCRLError(f"--out {out} is a folder; name a file in it")
    if os.path.lexists(place) and not overwrite:
        raise BCRLError(f"--out {out} exists; choose another name or give --overwrite")
