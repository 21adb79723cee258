"""The journal: JSON lines on disk, each with a checksum, and synced before a request is acknowledged.

Requests that arrive while the disk is busy share the next sync. Rows for the log of costs go the same way,
after the journal: what a crash leaves out there is made good from the journal (`episodes.py`).
"""

import asyncio
import json
import os
import warnings
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bcrl.errors import BCRLError, brief
from bcrl.files import atomic_path, lock_file

FORMAT, VERSION = "bcrl-journal", 1
LONGEST_LINE = 2**26  # bytes
COMPACT_ABOVE = 2**26  # bytes; below, a journal is only rewritten at a start

Record = dict[str, Any]


class Failed(Exception):
    """The disk refused a write: nothing can be acknowledged any more."""


def encode(record: Record) -> bytes:
    """A record as a line: JSON with its own checksum as the first field."""
    text = json.dumps(record, allow_nan=False)
    return f'{{"crc32": {zlib.crc32(text.encode())}, {text[1:]}\n'.encode()


def decode(line: bytes) -> Record | None:
    """The record of a whole and undamaged line."""
    try:
        record = json.loads(line) if line.endswith(b"\n") else None
        crc = record.pop("crc32", None) if isinstance(record, dict) else None
        same = crc is not None and crc == zlib.crc32(json.dumps(record, allow_nan=False).encode())
    except (ValueError, RecursionError):
        return None
    return record if same else None


def read_journal(path: Path) -> Iterator[Record]:
    """The records of a journal, its header first. An unfinished end is left out; other damage is an error."""
    if not path.exists():
        return
    bad: int | None = None
    with open(path, "rb") as file:
        number = 0
        while line := file.readline(LONGEST_LINE):
            number += 1
            record = decode(line)
            if record is None:
                bad = number if bad is None else bad
                continue
            if bad is not None:
                raise BCRLError(
                    f"{path}: line {bad} is damaged: restore the file, or give another --out, where its "
                    "episodes are unknown"
                )
            yield record
    if bad is not None:
        warnings.warn(
            f"{path}: the end, from line {bad}, was never acknowledged and is dropped", stacklevel=2
        )


def header(policy: str) -> Record:
    """The first record: the format, and the digest of the policy that all others are about."""
    return {"format": FORMAT, "version": VERSION, "policy": policy}


def check_header(path: Path, record: Record) -> str:
    """The digest of the policy."""
    kind, version, policy = (record.get(name) for name in ("format", "version", "policy"))
    if kind != FORMAT or version != VERSION or not isinstance(policy, str):
        raise BCRLError(f"{path}: is no journal that this bcrl reads ({brief(record)}): give another --out")
    return policy


def compact(path: Path, first: Record, keep: Callable[[Record], bool]) -> None:
    """Rewrites the journal with `first` as its header and the records to `keep`."""
    with atomic_path(path) as temporary, open(temporary, "wb") as file:
        file.write(encode(first))
        for number, record in enumerate(read_journal(path)):
            if number and keep(record):
                file.write(encode(record))
    sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """Makes the names in a folder survive a loss of power; Windows opens no folders."""
    if os.name == "nt":
        return
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


@contextmanager
def held(folder: Path) -> Iterator[Path]:
    """The path of the journal in a folder that no other process writes to."""
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / ".lock", "a") as file:
        if not lock_file(file):
            raise BCRLError(f"{folder}: another server is writing there: give another --out")
        yield folder / "journal.jsonl"


class _Batch:
    """What the next sync will write, and who waits for it."""

    def __init__(self) -> None:
        self.parts: dict[Path, list[bytes]] = {}
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()


class Writer:
    """Appends to the journal and to the files beside it; one thread does the writing."""

    def __init__(self, journal: Path, first: Record, keep: Callable[[Record], bool]):
        self.journal, self._first, self._keep = journal, first, keep
        self.failure: str | None = None
        self.size = self._compacted = journal.stat().st_size
        self._files: dict[Path, int] = {}
        self._pool = ThreadPoolExecutor(1, "journal")
        self._wake = asyncio.Event()
        self._batch = _Batch()
        self._task = asyncio.create_task(self._run())

    def append(self, record: Record, rows: dict[Path, bytes] | None = None) -> "asyncio.Future[None]":
        """Queues a record, and rows for other files; the future is done when they are on the disk."""
        if self.failure is not None:
            raise Failed(self.failure)
        for path, line in {self.journal: encode(record), **(rows or {})}.items():
            self._batch.parts.setdefault(path, []).append(line)
        self._wake.set()
        return self._batch.done

    async def close(self) -> None:
        """Writes what is queued."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        if self._batch.parts and self.failure is None:
            await self._flush()
        self._pool.shutdown()
        for file in self._files.values():
            os.close(file)

    async def _run(self) -> None:
        while self.failure is None:
            await self._wake.wait()
            self._wake.clear()
            await asyncio.shield(self._flush())

    async def _flush(self) -> None:
        batch, self._batch = self._batch, _Batch()
        try:
            await asyncio.get_running_loop().run_in_executor(self._pool, self._write, batch.parts)
        except Exception as error:  # whatever it is, nobody may be told that the step was saved
            why = (error.strerror if isinstance(error, OSError) else None) or brief(error)
            self.failure = f"{self.journal}: {why}"
            for waiting in (batch, self._batch):
                waiting.done.set_exception(Failed(self.failure))
                waiting.done.exception()  # nobody may be waiting
        else:
            batch.done.set_result(None)

    def _write(self, parts: dict[Path, list[bytes]]) -> None:
        for path in sorted(parts, key=lambda path: path != self.journal):  # the journal first
            file = self._files.get(path)
            if file is None:
                file = self._files[path] = os.open(path, os.O_WRONLY | os.O_APPEND)
            _write_all(file, b"".join(parts[path]))
            os.fsync(file)
        self.size = os.fstat(self._files[self.journal]).st_size
        if self.size > max(COMPACT_ABOVE, 2 * self._compacted):
            compact(self.journal, self._first, self._keep)
            os.close(self._files.pop(self.journal))
            self.size = self._compacted = self.journal.stat().st_size


def _write_all(file: int, data: bytes) -> None:
    while data:
        data = data[os.write(file, data) :]
