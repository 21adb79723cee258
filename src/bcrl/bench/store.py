"""The results of a benchmark in one SQLite file. A cell is there with all its episodes, or not at all."""

import contextlib
import json
import math
import os
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

from bcrl.assess.results import Result, columns, impossible
from bcrl.bench.cells import Cell
from bcrl.errors import BCRLError, brief_repr
from bcrl.files import lock_file

FILE = "results.sqlite"
VERSION = 2
AGAIN = "move it away and run the benchmark again"
_MARK = int.from_bytes(b"bcrl", "big")  # SQLite's place for saying whose file it is
R = TypeVar("R", Cell, Result)
_SQL = {str: "TEXT", int: "INTEGER", float: "REAL"}


@dataclass(frozen=True)
class Outcome:
    """A cell, its episodes, and facts about how they came to be."""

    cell: Cell
    rows: list[Result]
    facts: str


class Store:
    """The store, to be opened with `with`. One process writes: on a cluster the driver.

    The journal is SQLite's rollback journal, not a write-ahead log: the file is complete in itself, can be
    copied, and works in a network folder.
    """

    def __init__(self, path: Path):
        self.path = path
        self.path.parent.mkdir(parents=True, exist_ok=True)
        try:
            # Another process may be reading or writing for a moment: wait for it.
            self.file = sqlite3.connect(path, timeout=60, isolation_level=None)
            self._prepare()
        except sqlite3.Error as error:
            raise BCRLError(f"{path}: cannot be used as a results store ({error}); move it away") from None

    def _prepare(self) -> None:
        (mark,), (version,) = (
            self.file.execute(f"PRAGMA {name}").fetchone() for name in ("application_id", "user_version")
        )
        if mark == 0 and not self.file.execute("SELECT 1 FROM sqlite_master").fetchone():
            with self._transaction():
                self.file.execute(f"CREATE TABLE IF NOT EXISTS cells ({_columns(Cell)}, facts TEXT NOT NULL)")
                self.file.execute("CREATE UNIQUE INDEX IF NOT EXISTS one_key ON cells (key)")
                self.file.execute(
                    f"CREATE TABLE IF NOT EXISTS episodes (cell TEXT NOT NULL, {_columns(Result)}, "
                    "PRIMARY KEY (cell, episode)) WITHOUT ROWID"
                )
                self.file.execute(f"PRAGMA application_id = {_MARK}")
                self.file.execute(f"PRAGMA user_version = {VERSION}")
        elif mark == _MARK and version == 1:
            self._add_candidates()
        elif mark != _MARK or version != VERSION:
            raise BCRLError(f"{self.path}: not a results store this bcrl can read; choose another folder")

    def _add_candidates(self) -> None:
        """Makes a store of version 1 one of version 2: nothing was drawn in its episodes."""
        if not os.access(self.path, os.W_OK):
            raise BCRLError(f"{self.path}: an older bcrl wrote it: make it writable once, to be converted")
        with self._transaction():
            if self.file.execute("PRAGMA user_version").fetchone() == (1,):  # another process may be first
                self.file.execute("ALTER TABLE cells ADD COLUMN candidates INTEGER NOT NULL DEFAULT 0")
                self.file.execute(f"PRAGMA user_version = {VERSION}")

    def __enter__(self) -> "Store":
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        self.file.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            if self.file.in_transaction:  # SQLite itself rolls back when the disk is full
                self.file.execute("ROLLBACK")
            raise
        self.file.execute("COMMIT")

    def add(self, outcomes: Sequence[Outcome]) -> None:
        """Adds all of them or none. A cell that is there already is replaced."""
        with self._told(), self._transaction():
            for outcome in outcomes:
                key = outcome.cell.key
                self.file.execute("DELETE FROM episodes WHERE cell = ?", (key,))
                self.file.execute("DELETE FROM cells WHERE key = ?", (key,))
                self._insert("cells", asdict(outcome.cell) | {"facts": outcome.facts})
                for row in outcome.rows:
                    self._insert("episodes", {"cell": key} | asdict(row))

    def _insert(self, table: str, values: dict[str, Any]) -> None:
        names = ", ".join(f'"{name.rstrip("_")}"' for name in values)
        places = ", ".join("?" * len(values))
        self.file.execute(f"INSERT INTO {table} ({names}) VALUES ({places})", tuple(values.values()))

    def done(self) -> set[str]:
        """The keys of all cells."""
        with self._told():
            return {key for (key,) in self.file.execute("SELECT key FROM cells")}

    def cells(self) -> list[Cell]:
        """All cells, the oldest first."""
        names = ", ".join(field.name for field in fields(Cell))
        with self._told():
            found = self.file.execute(f"SELECT {names} FROM cells ORDER BY rowid").fetchall()
        return [self._record(Cell, row) for row in found]

    def facts(self, key: str) -> tuple[float, str]:
        """The seconds that a cell's evaluation took (NaN if unknown), and the device of its training."""
        with self._told():
            found = self.file.execute("SELECT facts FROM cells WHERE key = ?", (key,)).fetchone()
        try:
            said = json.loads(found[0])
            return float(said["seconds"]), str(said.get("device", ""))
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            return math.nan, ""

    def rows(self, key: str) -> list[Result]:
        """The episodes of a cell."""
        names = ", ".join(f'"{name}"' for name in columns())
        with self._told():
            found = self.file.execute(
                f"SELECT {names} FROM episodes WHERE cell = ? ORDER BY episode", (key,)
            ).fetchall()
        rows = [self._record(Result, row) for row in found]
        if odd := next(filter(None, map(impossible, rows)), ""):
            raise BCRLError(f"{self.path}: {odd}: the file is damaged; {AGAIN}")
        return rows

    def _record(self, kind: type[R], row: tuple) -> R:
        """A row of the file, whose columns hold what they should: SQLite itself takes anything."""
        for field, value in zip(fields(kind), row, strict=True):  # type: ignore[arg-type]
            if not isinstance(value, field.type) or (field.type is float and not math.isfinite(value)):  # type: ignore[arg-type]
                raise BCRLError(
                    f"{self.path}: {field.name.rstrip('_')} is {brief_repr(value)}: the file is "
                    f"damaged; {AGAIN}"
                )
        return kind(*row)

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        """SQLite's errors as one line."""
        try:
            yield
        except sqlite3.IntegrityError as error:  # SQLite keeps no NaN
            raise BCRLError(f"{self.path}: an episode has a NaN ({error})") from None
        except (sqlite3.Error, OverflowError) as error:
            raise BCRLError(
                f"{self.path}: {error}; make room if the disk is full, move the file away if it is damaged"
            ) from None


def _columns(record: type) -> str:
    return ", ".join(f'"{field.name.rstrip("_")}" {_SQL[field.type]} NOT NULL' for field in fields(record))  # type: ignore[index]


@contextlib.contextmanager
def only_writer(folder: Path) -> Iterator[None]:
    """Locks a folder: two benches there would train the same runs. The lock ends with its process."""
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / ".lock", "a") as file:
        if not lock_file(file):
            raise BCRLError(f"{folder}: another bench is running here; wait for it or give another --out")
        yield
