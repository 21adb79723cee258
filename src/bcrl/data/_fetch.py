"""DSRL's data files from the Hugging Face hub: resumable, and kept only if size and checksum match.

Size and checksum are those that the server reports, so they show a damaged download, not a dishonest server.
`huggingface_hub` finds a file; its bytes are fetched here, because its own download discards the beginning of
a file when the connection is lost for good, and uses a second protocol (Xet) that mirrors do not have.
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
from urllib.parse import urlsplit

from bcrl.data._checks import one_line
from bcrl.errors import BCRLError
from bcrl.files import lock_file
from bcrl.progress import progress

REPOSITORY = "YYY-45/DSRL"
"""The public data set that holds the files of all 38 tasks."""
ENDPOINT = "https://huggingface.co"

WAITS = (1.0, 2.0, 4.0, 8.0, 16.0)
"""Seconds before each new try after a lost connection; starts over when bytes have arrived."""
SILENCE = 30.0
"""Seconds without a byte after which a connection counts as lost."""
MEGABYTE = 1_000_000
LOOPBACK = ("localhost", "127.0.0.1", "::1")
"""Hosts that may be asked without TLS: nothing leaves this machine."""


@dataclass(frozen=True)
class Remote:
    """A file on the hub."""

    name: str
    url: str
    size: int
    checksum: str
    """As the server reports it: SHA-256 (64 digits), or git's SHA-1 of a small file (40 digits)."""


@dataclass(frozen=True)
class Fetched:
    """A file in the folder."""

    path: Path
    state: Literal["downloaded", "complete", "unchecked"]
    """complete: was there and matches the server. unchecked: was there, and no server could be asked."""
    size: int


class Unreachable(BCRLError):
    """The hub or mirror does not answer."""


class _Mismatch(Exception):
    """The bytes are not of the announced file."""


def fetch_files(
    names: Sequence[str], folder: str | os.PathLike[str], endpoint: str = "", *, overwrite: bool = False
) -> list[Fetched]:
    """Downloads files of DSRL into `folder`, except those that are there already.

    `endpoint` is the address of the hub or a mirror; by default HF_ENDPOINT, else the hub.
    """
    folder = Path(folder).expanduser()
    endpoint = (endpoint or os.environ.get("HF_ENDPOINT") or ENDPOINT).rstrip("/")
    if not re.match(r"https?://[^/\s]", endpoint):
        raise BCRLError(f"--endpoint {endpoint} is no web address; give one such as {ENDPOINT}")
    if not _is_private(endpoint):
        raise BCRLError(f"--endpoint {endpoint} is not encrypted; give an https address such as {ENDPOINT}")
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
        # The data set is public: no token is sent, least of all to a mirror.
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
        raise BCRLError(f"{url}: the server reports no size or no checksum; use another --endpoint")
    # The version whose checksum was reported, even if a newer one appears meanwhile.
    version = facts.commit_hash or "main"
    url = hub.hf_hub_url(REPOSITORY, name, repo_type="dataset", revision=version, endpoint=endpoint)
    return Remote(name, url, facts.size, checksum)


def _is_private(url: str) -> bool:
    """Whether nobody between here and the server can read or change what it sends."""
    parts = urlsplit(url)
    return parts.scheme == "https" or parts.hostname in LOOPBACK


def _is_complete(remote: Remote, folder: Path, overwrite: bool) -> bool:
    """Whether the file is there. Another file of its name is an error unless it may be overwritten."""
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
    """Makes the folder, and refuses a disk that is too small before the download begins."""
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
    """The path of an unfinished download; the checksum keeps versions of the file apart."""
    return folder / f".{remote.name}.{remote.checksum[:12]}.part"


def _fetch(remote: Remote, folder: Path) -> None:
    """Downloads a file or the rest of it. Without `atomic_path`, which would remove an unfinished one."""
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
                raise _Mismatch(f"{remote.url}: the checksum of the download is not what the server says")
        os.replace(part, path)
    except _Mismatch as error:
        part.unlink()
        raise BCRLError(f"{error}, so it was deleted; try again, or another --endpoint") from None
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        reason = "the disk is full" if full else error.strerror or one_line(error)
        raise BCRLError(
            f"{path} cannot be written ({reason}); make room or choose another --out; "
            "in the same folder the download goes on where it stopped"
        ) from None


def _only_writer(file: BinaryIO, path: Path) -> None:
    """Locks the file, so that two programs do not write to it; on Windows the checksum shows it."""
    if not lock_file(file):
        raise BCRLError(f"{path} is being downloaded by another bcrl; wait for it")


def _download(remote: Remote, file: BinaryIO, path: Path) -> None:
    """Appends to `file` until it has its size; a lost connection is tried again a few times."""
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
    """Writes the bytes of one request to `file`, and yields after each piece."""
    import httpx

    headers = {"Accept-Encoding": "identity"}  # compressed bytes could not be resumed in the middle
    if file.tell():
        headers["Range"] = f"bytes={file.tell()}-"
    with _hub().get_session().stream("GET", remote.url, headers=headers, timeout=SILENCE) as response:
        for hop in (*response.history, response):
            if not _is_private(str(hop.url)):
                raise BCRLError(f"{remote.url}: leads to {hop.url}, not encrypted; use another --endpoint")
        status = response.status_code
        if status >= 500 or status in (408, 429):
            raise httpx.HTTPError(f"status {status}")  # busy: worth another try
        if status not in (200, 206, 416):
            raise BCRLError(f"{remote.url}: the server answers with status {status}; try another --endpoint")
        if status == 416 or _announced_size(response) not in (None, remote.size):
            raise _Mismatch(f"{remote.url}: its size is not the {remote.size:,} bytes that were announced")
        if status == 200:  # the whole file, even if a part was asked for
            file.seek(0)
            file.truncate()
        for piece in response.iter_bytes():
            if file.tell() + len(piece) > remote.size:
                raise _Mismatch(f"{remote.url}: more came than the {remote.size:,} bytes that were announced")
            file.write(piece)
            yield


def _announced_size(response: Any) -> int | None:
    """The size of the whole file according to the headers of a reply, or None."""
    if "content-encoding" in response.headers:
        return None
    size = response.headers.get("content-range", response.headers.get("content-length", ""))
    size = size.rpartition("/")[2]
    return int(size) if size.isdigit() else None


def _checksum(path: Path, remote: Remote) -> str:
    """The checksum of a file, of the kind that the server reports."""
    if len(remote.checksum) == 64:
        digest = hashlib.sha256()
    else:  # for a file outside LFS the server reports git's blob hash
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
    """The package `huggingface_hub`, an extra, imported on use."""
    try:
        import huggingface_hub
        import huggingface_hub.errors
    except ImportError:
        raise BCRLError(
            "downloads need huggingface_hub, which is not installed; pip install 'bcrl[data]'"
        ) from None
    return huggingface_hub
