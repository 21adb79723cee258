"""What the verbs that write a file check before they begin."""

import os
from collections.abc import Collection, Sequence
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


def policy_places(given: Path, files: Sequence[Path], out: Path, overwrite: bool) -> list[Path]:
    """Where another form of these policy files is to be written: `out`, or for a run a folder of that name.

    All policy*.bcrl of a folder are taken for one run, so none is written beside those of another.
    """
    from bcrl.train.folder import CONFIG

    alone = given.is_file()
    places = [out] if alone else [out / file.name for file in files]
    if places[0].match("policy*.bcrl") and (places[0].parent / CONFIG).exists():
        raise BCRLError(f"--out {out}: {places[0].parent} holds a run: name another folder")
    others = [] if alone else sorted(set(out.glob("policy*.bcrl")) - set(places))
    if others:
        raise BCRLError(f"--out {out}: holds {others[0].name} of another run: name another folder")
    for place in places:
        check_file(place, (".bcrl",), overwrite)
    return places


def check_log(out: Path, overwrite: bool) -> None:
    """The same for a log, which may also be a folder or an ID of Minari's."""
    place, form = place_of(out)
    if form is None:
        raise BCRLError(f"--out {out}: unknown suffix {place.suffix!r}; known: {', '.join(FORMATS)}")
    if os.path.isdir(place) and not is_minari(place):
        raise BCRLError(f"--out {out} is a folder; name a file in it")
    if os.path.lexists(place) and not overwrite:
        raise BCRLError(f"--out {out} exists; choose another name or give --overwrite")
