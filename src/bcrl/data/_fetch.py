"""DSRL's data files from the Hugging Face hub: resumable, and kept only when size and checksum are right.

`huggingface_hub` tells where a file is, its size and its checksum. The bytes are fetched here, by plain HTTP:
its own download throws the beginning of a file away when the connection is lost for good, and on the hub
itself it speaks a second protocol (Xet) that mirrors do not have.
"""

import errno
import hashlib
import os
import re
import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Literal

from bcrl.data._checks import one_line
from bcrl.errors import BCRLError
from bcrl.progress import progress

REPOSITORY = "YYY-45/DSRL"
"""The public data set that holds the files of all 38 tasks."""
ENDPOINT = "https://huggingface.co"

WAITS = (1.0, 2.0, 4.0, 8.0, 16.0)
"""Seconds before each new try when the connection is lost; counted anew when bytes have come."""
SILENCE = 30.0
"""Seconds without a byte after which a connection counts as lost."""
MEGABYTE = 1_000_000


@dataclass(frozen=True)
class Remote:
    """A file on the hub."""

    name: str
    url: str
    size: int
    checksum: str
    """SHA-256 of the file (64 digits), or of a small one git's own SHA-1 (40 digits)."""


@dataclass(frozen=True)
class Fetched:
    """A file that is there."""

    path: Path
    state: Literal["downloaded", "complete", "unchecked"]
    """complete: was there, with the right checksum. unchecked: was there, and the hub cannot be asked."""
    size: int


class Unreachable(BCRLError):
    """The hub or mirror does not answer."""


class _Spoiled(Exception):
    """What came is not the file that was announced."""


def fetch_files(
    names: Sequence[str], folder: str | os.PathLike[str], endpoint: str = "", *, overwrite: bool = False
) -> list[Fetched]:
    """Each file of DSRL in `folder`, downloaded unless it is there already.

    `endpoint` is the hub's address or a mirror's; HF_ENDPOINT, then the hub itself, stand in for it.
    """
    folder = Path(folder).expanduser()
    endpoint = (endpoint or os.environ.get("HF_ENDPOINT") or ENDPOINT).rstrip("/")
    if not re.match(r"https?://[^/\s]", endpoint):
        raise BCRLError(f"--endpoint {endpoint} is no web address; give one such as {ENDPOINT}")
    try:
        with progress("looking up", len(names), "files") as tick:
            remotes = []
            for name in names:
                remotes.append(find(name, endpoint))
                tick()
    except Unreachable as error:
        missing = [folder / name for name in names if not (folder / name).is_file()]
        if missing:
            raise Unreachable(f"{error}; check the connection or --endpoint, {_by_hand(missing)}") from None
        there = [folder / name for name in names]
        return [Fetched(path, "unchecked", path.stat().st_size) for path in there]
    complete = [_is_complete(remote, folder, overwrite) for remote in remotes]
    _make_room(folder, [remote for remote, there in zip(remotes, complete, strict=True) if not there])
    for remote, there in zip(remotes, complete, strict=True):
        if not there:
            _fetch(remote, folder)
    return [
        Fetched(folder / remote.name, "complete" if there else "downloaded", remote.size)
        for remote, there in zip(remotes, complete, strict=True)
    ]


def find(name: str, endpoint: str) -> Remote:
    """Asks the hub for a file's size and checksum."""
    hub = _hub()
    import httpx

    source = f"{endpoint}/datasets/{REPOSITORY}"
    url = hub.hf_hub_url(REPOSITORY, name, repo_type="dataset", endpoint=endpoint)
    try:
        # The data set is public: no one's token is sent, least of all to a mirror.
        facts = hub.get_hf_file_metadata(url, token=False, endpoint=endpoint, library_name="bcrl")
    except (hub.errors.RepositoryNotFoundError, hub.errors.RevisionNotFoundError):
        raise BCRLError(f"there is no public data set at {source}; check --endpoint") from None
    except hub.errors.HfHubHTTPError as error:
        if error.response.status_code == 404:
            raise BCRLError(f"{name} is not in the data set {source}; look there for its new name") from None
        raise Unreachable(f"{endpoint} answers with status {error.response.status_code}") from None
    except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
        reason = one_line(error)[:150] or type(error).__name__
        raise Unreachable(f"{endpoint} cannot be reached ({reason})") from None
    checksum = (facts.etag or "").lower()
    if facts.size is None or not re.fullmatch(r"[0-9a-f]{64}|[0-9a-f]{40}", checksum):
        raise BCRLError(f"{url}: the server tells no size or no checksum; use another --endpoint")
    # The version that was asked about, whatever happens to the newest meanwhile.
    version = facts.commit_hash or "main"
    url = hub.hf_hub_url(REPOSITORY, name, repo_type="dataset", revision=version, endpoint=endpoint)
    return Remote(name, url, facts.size, checksum)


def _is_complete(remote: Remote, folder: Path, overwrite: bool) -> bool:
    """Whether the very file is there. Another one under its name is an error unless it may be replaced."""
    path = folder / remote.name
    if not path.exists():
        return False
    if not path.is_file():
        raise BCRLError(f"{path} is not a plain file; move it or choose another --out")
    if path.stat().st_size == remote.size and _checksum(path, remote) == remote.checksum:
        return True
    if overwrite:
        return False
    raise BCRLError(
        f"{path} exists but is not the file at {remote.url} (size or checksum differ); "
        "move it, choose another --out or give --overwrite"
    )


def _make_room(folder: Path, remotes: Sequence[Remote]) -> None:
    """Refuses what could only fail after an hour."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        have = [_part(remote, folder) for remote in remotes]
        needed = sum(remote.size for remote in remotes) - sum(p.stat().st_size for p in have if p.exists())
        free = shutil.disk_usage(folder).free
    except OSError as error:
        raise BCRLError(f"{folder} cannot be used ({error.strerror}); choose another --out") from None
    if needed > free:
        raise BCRLError(
            f"{folder}: the disk is too full: {_megabytes(needed)} are needed, {_megabytes(free)} are free; "
            "make room or choose another --out"
        )


def _part(remote: Remote, folder: Path) -> Path:
    """Where the beginning of a file waits for the rest; the checksum keeps versions of it apart."""
    return folder / f".{remote.name}.{remote.checksum[:12]}.part"


def _fetch(remote: Remote, folder: Path) -> None:
    """Downloads a file, or the rest of it. Not through `atomic_path`, which would drop the beginning."""
    path, part = folder / remote.name, _part(remote, folder)
    try:
        part.touch()
        with part.open("r+b") as file:
            _only_writer(file, path)
            file.seek(0, os.SEEK_END)
            _download(remote, file, path)
            file.flush()
            os.fsync(file.fileno())
            if _checksum(part, remote) != remote.checksum:
                raise _Spoiled(f"{remote.url}: the checksum of what came is wrong")
        os.replace(part, path)
    except _Spoiled as error:
        part.unlink()
        raise BCRLError(f"{error}, so it was thrown away; try again, or another --endpoint") from None
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        reason = "the disk is full" if full else error.strerror or one_line(error)
        raise BCRLError(
            f"{path} cannot be written ({reason}); make room or choose another --out; "
            "in the same folder the download goes on where it stopped"
        ) from None


def _only_writer(file: BinaryIO, path: Path) -> None:
    """Two programs that write one file would spoil it. The lock goes with the process that holds it."""
    try:
        import fcntl
    except ImportError:  # Windows; there the checksum tells
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise BCRLError(f"{path} is being downloaded by another bcrl; wait for it") from None


def _download(remote: Remote, file: BinaryIO, path: Path) -> None:
    """Writes at the end of `file` until it has its size; a lost connection is made anew a few times."""
    import httpx

    tries, shown = 0, _whole_megabytes(file.tell())
    with progress(remote.name, _whole_megabytes(remote.size), "MB", start=shown) as tick:
        while (before := file.tell()) != remote.size:
            reason = "it was closed early"
            try:
                for _ in _pieces(remote, file):
                    tick(_whole_megabytes(file.tell()) - shown)
                    shown = _whole_megabytes(file.tell())
            except httpx.HTTPError as error:
                reason = one_line(error)[:150] or type(error).__name__
            if file.tell() == remote.size:
                return
            if file.tell() > before:
                tries = 0
            if tries == len(WAITS):
                raise Unreachable(
                    f"{remote.url}: lost the connection at {_megabytes(file.tell())} of "
                    f"{_megabytes(remote.size)} ({reason}); run the command again to go on from there, "
                    f"{_by_hand([path])}"
                )
            time.sleep(WAITS[tries])
            tries += 1


def _pieces(remote: Remote, file: BinaryIO) -> Iterator[None]:
    """Writes what one request brings, and stops after each piece of it."""
    import httpx

    headers = {"Accept-Encoding": "identity"}  # packed bytes could not be asked for from the middle
    if file.tell():
        headers["Range"] = f"bytes={file.tell()}-"
    with _hub().get_session().stream("GET", remote.url, headers=headers, timeout=SILENCE) as response:
        status = response.status_code
        if status >= 500 or status in (408, 429):
            raise httpx.HTTPError(f"status {status}")  # busy: worth another try
        if status not in (200, 206, 416):
            raise BCRLError(f"{remote.url}: the server answers with status {status}; try another --endpoint")
        if status == 416 or _size_told(response) not in (None, remote.size):
            raise _Spoiled(f"{remote.url}: its size is not the {remote.size:,} bytes that were announced")
        if status == 200:  # all of it, whatever was asked for
            file.seek(0)
            file.truncate()
        for piece in response.iter_bytes():
            if file.tell() + len(piece) > remote.size:
                raise _Spoiled(f"{remote.url}: more came than the {remote.size:,} bytes that were announced")
            file.write(piece)
            yield


def _size_told(response: Any) -> int | None:
    """The size of the whole file by the headers of a reply, where they tell it."""
    if "content-encoding" in response.headers:
        return None
    told = response.headers.get("content-range", response.headers.get("content-length", ""))
    told = told.rpartition("/")[2]
    return int(told) if told.isdigit() else None


def _checksum(path: Path, remote: Remote) -> str:
    """The checksum of a file, of the kind that the hub tells of it."""
    if len(remote.checksum) == 64:
        digest = hashlib.sha256()
    else:  # a file outside LFS has the name that git gives its content
        digest = hashlib.sha1(f"blob {path.stat().st_size}\0".encode(), usedforsecurity=False)
    with path.open("rb") as file, progress("checking", _whole_megabytes(remote.size), "MB") as tick:
        while block := file.read(4 * MEGABYTE):
            digest.update(block)
            tick(_whole_megabytes(len(block)))
    return digest.hexdigest()


def _by_hand(missing: Sequence[Path]) -> str:
    more = f" (and {len(missing) - 1} more into that folder)" if len(missing) > 1 else ""
    return f"or get it from {ENDPOINT}/datasets/{REPOSITORY} by hand and put it here: {missing[0]}{more}"


def _whole_megabytes(size: int) -> int:
    return -(-size // MEGABYTE)


def _megabytes(size: int) -> str:
    return f"{size / MEGABYTE:,.1f} MB"


def _hub() -> Any:
    """Imported on use: it is an extra."""
    try:
        import huggingface_hub
        import huggingface_hub.errors
    except ImportError:
        raise BCRLError(
            "downloads need huggingface_hub, which is not installed; pip install 'bcrl[data]'"
        ) from None
    return huggingface_hub
