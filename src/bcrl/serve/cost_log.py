"""The log of ended episodes: a CSV file that `bcrl certify` reads, one per cost, only ever appended to."""

import csv
import io
import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bcrl.errors import BCRLError
from bcrl.serve.journal import sync_folder

COLUMNS = (
    *("episode", "policy", "execution", "horizon", "candidates", "calibrated", "threshold", "budget"),
    *("episode_seed", "steps", "cost", "return", "fallback_share", "end", "started", "ended"),
)


class CostLog:
    """The files. `rows` are written by the journal's writer, or at a start by `add_missing`."""

    def __init__(self, folder: Path, costs: int):
        names = ["episodes.csv"] if costs == 1 else [f"episodes-{i + 1}.csv" for i in range(costs)]
        self.paths = [folder / name for name in names]
        for path in self.paths:
            _prepare(path)
        sync_folder(folder)

    def rows(self, facts: dict[str, Any]) -> dict[Path, bytes]:
        """A line for each file. `threshold`, `budget` and `cost` of the facts are lists."""
        lines = {}
        for index, path in enumerate(self.paths):
            row = dict(facts)
            for name in ("threshold", "budget", "cost"):
                row[name] = facts[name][index]
            for name in ("started", "ended"):
                row[name] = datetime.fromtimestamp(facts[name], UTC).isoformat(timespec="milliseconds")
            text = io.StringIO()
            csv.DictWriter(text, COLUMNS, lineterminator="\n").writerow(row)
            lines[path] = text.getvalue().encode()
        return lines

    def add_missing(self, ended: list[dict[str, Any]]) -> None:
        """Appends the episodes that a crash kept out of the files."""
        for path in self.paths:
            missing = {facts["episode"]: facts for facts in ended}
            for name in _episodes(path):
                missing.pop(name, None)
            with open(path, "ab") as file:
                for facts in missing.values():
                    file.write(self.rows(facts)[path])
                file.flush()
                os.fsync(file.fileno())


def _prepare(path: Path) -> None:
    """Makes the file, or cuts off a last line that was never finished."""
    head = (",".join(COLUMNS) + "\n").encode()
    with open(path, "a+b") as file:
        file.seek(0)
        first = file.readline()
        if first and first != head and not head.startswith(first):
            raise BCRLError(f"{path}: line 1 has other columns than this bcrl writes: give another --out")
        whole = len(first)
        for line in file:
            whole += len(line) if line.endswith(b"\n") else 0
        file.truncate(whole if first == head else 0)
        if first != head:
            file.write(head)
        file.flush()
        os.fsync(file.fileno())


def _episodes(path: Path) -> Iterator[str]:
    with open(path, encoding="utf-8", errors="replace") as file:
        next(file)
        yield from (line.partition(",")[0] for line in file)
