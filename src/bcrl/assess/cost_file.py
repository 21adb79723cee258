"""Files of monitored episodes: a CSV file with a column `cost`, or the results of `bcrl evaluate`."""

import csv
import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from bcrl.assess.certificate import cost_fault
from bcrl.assess.results import Result
from bcrl.errors import BCRLError

POLICY = (
    "policy",
    "candidates",
    "calibrated",
    "horizon",
    *(name for name in Result.identity if name not in ("threshold", "episode")),
)
"""Columns that tell policies apart. A certificate is of one policy, so each must hold one value."""


def read_costs(
    path: str | os.PathLike,
    *,
    bound: float,
    abort_at: float | None = None,
    told: float | None = None,
    where: Mapping[str, str] | None = None,
) -> np.ndarray:
    """The costs of one policy's episodes, in the order of the rows.

    Of a file with a column `threshold`, the rows where it is `told`; of those, the rows that match `where`
    (column -> value). `where` may choose by `threshold` too, instead of `told`. Other columns may stand
    beside; those of `POLICY` must hold one value, and no `episode` may stand twice. Each cost must lie in
    [0, `bound`].
    """
    head, rows = _table(Path(path))
    kept = _told(path, head, rows, told)
    for name, value in (where or {}).items():
        if name not in head:
            raise BCRLError(f"{path}: has no column {name!r} to choose by; it has {_names(head)}")
        found = dict.fromkeys(row[name] for row in kept.values())
        kept = {line: row for line, row in kept.items() if _same(row[name], value)}
        if not kept:
            raise BCRLError(f"{path}: no row has {name} {value!r}; there are {_names(found)}")
    if not kept:
        raise BCRLError(f"{path}: has no episodes; give one row for each")
    _check_one_policy(path, head, kept)
    return np.array([_cost(path, line, row["cost"], bound, abort_at) for line, row in kept.items()])


def _table(path: Path) -> tuple[list[str], dict[int, dict[str, str]]]:
    """The column names, and the rows by the number of their line."""
    if not path.is_file():
        raise BCRLError(f"{path}: there is no such file")
    lines = _lines(path)
    _, head = next(lines, (1, []))
    head = [name.strip() for name in head]
    if "cost" not in head:
        raise BCRLError(
            f"{path}: line 1 has no column 'cost' but {_names(head)}; give a CSV file with commas, a head "
            "and one row per episode"
        )
    if len(set(head)) < len(head):
        twice = next(name for name in head if head.count(name) > 1)
        raise BCRLError(f"{path}: line 1 has the column {twice!r} twice; rename one")
    rows = {}
    for line, row in lines:
        if len(row) != len(head):
            raise BCRLError(f"{path}: line {line} has {len(row)} fields, but the head has {len(head)}")
        rows[line] = dict(zip(head, (text.strip() for text in row), strict=True))
    return head, rows


def _lines(path: Path) -> Iterator[tuple[int, list[str]]]:
    """The rows that are not blank, with the number of their (last) line."""
    with open(path, newline="", encoding="utf-8-sig") as file:
        reader = csv.reader(file, strict=True)
        try:
            yield from ((reader.line_num, row) for row in reader if row)
        except (csv.Error, UnicodeDecodeError) as error:
            fault = "no text in UTF-8" if isinstance(error, UnicodeDecodeError) else error
            raise BCRLError(f"{path}: cannot be read after line {reader.line_num} ({fault})") from None


def _told(
    path: str | os.PathLike, head: list[str], rows: dict[int, dict[str, str]], told: float | None
) -> dict[int, dict[str, str]]:
    if told is None or "threshold" not in head:  # all episodes are at one threshold
        return rows
    thresholds = {line: _number(path, line, "threshold", row["threshold"]) for line, row in rows.items()}
    kept = {line: row for line, row in rows.items() if thresholds[line] == told}
    if rows and not kept:
        known = ", ".join(f"{value:g}" for value in sorted(set(thresholds.values())))
        raise BCRLError(
            f"{path}: no episode was told the threshold {told:g}; there are {known} (--told chooses one)"
        )
    return kept


def _check_one_policy(path: str | os.PathLike, head: list[str], rows: dict[int, dict[str, str]]) -> None:
    first, one = next(iter(rows.items()))
    for name in (name for name in POLICY if name in head):
        for line, row in rows.items():
            if row[name] != one[name]:
                raise BCRLError(
                    f"{path}: line {line} has {name} {row[name]!r} and line {first} {one[name]!r}, but a "
                    f"certificate is of one policy; choose with --where {name}={one[name]}"
                )
    if "episode" in head:
        lines: dict[str, int] = {}
        for line, row in rows.items():
            if (other := lines.setdefault(row["episode"], line)) != line:
                raise BCRLError(
                    f"{path}: line {line} has the same episode as line {other}, {row['episode']!r}; each may "
                    "be counted once"
                )


def _cost(path: str | os.PathLike, line: int, text: str, bound: float, abort_at: float | None) -> float:
    cost = _number(path, line, "cost", text)
    if fault := cost_fault(cost, bound, abort_at):
        raise BCRLError(f"{path}: line {line}: {fault}")
    return cost


def _number(path: str | os.PathLike, line: int, name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise BCRLError(f"{path}: line {line}: {name} is {text!r}, but must be a number") from None


def _same(text: str, wanted: str) -> bool:
    """Equal as text or as numbers: 20 is 20.0."""
    try:
        return text == wanted or math.isclose(float(text), float(wanted), rel_tol=1e-12)
    except ValueError:
        return False


def _names(names: object) -> str:
    """At most eight of them, quoted, so that nothing unprintable reaches the screen."""
    found = [repr(name[:40]) for name in names]  # type: ignore[attr-defined]
    return ", ".join(found[:8]) + (", ..." if len(found) > 8 else "") or "nothing"
