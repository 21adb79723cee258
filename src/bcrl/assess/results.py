"""The results file: one row per episode, so that any table can be made from it."""

import csv
import math
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar, overload

import numpy as np

from bcrl.errors import BCRLError, brief_repr
from bcrl.files import atomic_path

if TYPE_CHECKING:
    from bcrl.assess.statistics import Summary


LARGEST = 1e100
"""A larger number would make means and intervals infinite."""


@dataclass(frozen=True)
class Result:
    """One episode. The fields are the columns of results.csv."""

    identity: ClassVar[tuple[str, ...]] = (
        *("method", "tracking", "criterion", "execution", "world", "data", "seed", "threshold", "episode"),
    )
    """What tells the episodes of a file apart."""

    method: str
    tracking: str
    criterion: str
    execution: str
    world: str
    data: str
    seed: int
    threshold: float
    episode: int
    return_: float
    cost: float
    normalised_reward: float
    """NaN in a world without reference returns."""
    normalised_cost: float
    length: int
    fallback_share: float


Row = TypeVar("Row", bound=Result, covariant=True)
"""A `Result`, or a kind of it with more columns, such as `bcrl.ship.ShipResult`."""


class Results(Sequence[Row], Generic[Row]):
    """The episodes of an evaluation. `summary()` is a line per threshold, `save` writes the CSV file."""

    def __init__(self, rows: Iterable[Row]):
        self._rows = tuple(rows)

    @overload
    def __getitem__(self, index: int) -> Row: ...
    @overload
    def __getitem__(self, index: slice) -> "Results[Row]": ...
    def __getitem__(self, index: Any) -> Any:
        return Results(self._rows[index]) if isinstance(index, slice) else self._rows[index]

    def __len__(self) -> int:
        return len(self._rows)

    def __eq__(self, other: object) -> bool:
        return self._rows == tuple(other) if isinstance(other, Sequence) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        def all_of(name: str) -> str:
            found = dict.fromkeys(getattr(row, name) for row in self)
            return ", ".join(f"{value:g}" if name == "threshold" else str(value) for value in found)

        if not self:
            return "Results(0 episodes)"
        which = f"seeds {all_of('seed')}, thresholds {all_of('threshold')}"
        return f"Results({len(self)} episodes: {all_of('method')} in {all_of('world')}, {which})"

    def summary(self) -> "list[Summary]":
        """A line per threshold, and one over all where there are several."""
        from bcrl.assess.statistics import summarise

        return summarise(self)

    def save(self, path: str | os.PathLike) -> None:
        """Writes results.csv, all or nothing."""
        write_results(self, path)

    @classmethod
    def read(cls, path: str | os.PathLike) -> "Results[Result]":
        """The rows of a results.csv, checked."""
        return read_results(path)


def normalised_cost(cost: np.ndarray, threshold: float) -> np.ndarray:
    """DSRL's: C/κ, and (C + 1)/(κ + 1) when κ = 0. At most 1 keeps the threshold."""
    shift = 1.0 if threshold == 0 else 0.0
    return (cost + shift) / (threshold + shift)


def impossible(row: Result) -> str:
    """What no episode has, such as a negative cost, which would count as kept; empty for a possible row."""
    fits = {
        "seed": row.seed >= 0,
        "threshold": row.threshold >= 0,  # infinite for experts among ships
        "episode": row.episode >= 0,
        "return_": abs(row.return_) < LARGEST,
        "cost": 0 <= row.cost < LARGEST,
        "normalised_reward": math.isnan(row.normalised_reward) or abs(row.normalised_reward) < LARGEST,
        "normalised_cost": 0 <= row.normalised_cost < LARGEST,
        "length": row.length >= 0,
        "fallback_share": 0 <= row.fallback_share <= 1,
    }
    return next((f"{name.rstrip('_')} is {getattr(row, name)}" for name, fit in fits.items() if not fit), "")


def columns(kind: type[Result] = Result) -> list[str]:
    """The head of a results file."""
    return [field.name.rstrip("_") for field in fields(kind)]


def write_results(
    results: Sequence[Result], path: str | os.PathLike, kind: type[Result] | None = None
) -> None:
    """Writes results.csv, all or nothing; `kind` is that of the rows, by default of the first."""
    kind = kind or (type(results[0]) if results else Result)
    with atomic_path(path) as temporary, open(temporary, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(columns(kind))
        for result in results:
            writer.writerow([getattr(result, field.name) for field in fields(kind)])


def read_columns(path: str | os.PathLike) -> list[str]:
    """The head of a file, to see what kind of results it holds."""
    if not isinstance(path, str | os.PathLike):
        raise BCRLError(f"results are named by the path of their file, not by {brief_repr(path)}")
    path = Path(path)
    if not path.is_file():
        raise BCRLError(f"{path}: there is no such file")
    with open(path, newline="", encoding="utf-8", errors="replace") as file:
        try:
            return next(csv.reader(file), [])
        except csv.Error as error:  # such as a field of more than 131,072 characters
            raise BCRLError(f"{path}: line 1 is damaged ({error}): evaluate again") from None


K = TypeVar("K", bound=Result)


def read_results(path: str | os.PathLike, kind: type[K] = Result) -> Results[K]:
    """The rows of a results.csv, checked; `kind` has the columns that are wanted."""
    wanted, found = columns(kind), read_columns(path)
    needed = sum(field.default is MISSING for field in fields(kind))  # files of before have no others
    if found not in (wanted, wanted[:needed]):
        odd = next((f"{name} is missing" for name in wanted if name not in found), "")
        odd = odd or next((f"{name} is one column too many" for name in found if name not in wanted), "")
        raise BCRLError(
            f"{path}: not a results file of this kind ({odd or 'the order of columns'}): evaluate again"
        )
    results, lines, kinds = [], {}, [field.type for field in fields(kind)][: len(found)]
    with open(path, newline="", encoding="utf-8", errors="replace") as file:
        reader = csv.reader(file)
        next(reader)
        for number, row in enumerate(_rows(reader, path), start=2):
            try:
                values = [read(text) for read, text in zip(kinds, row, strict=True)]  # type: ignore[operator]
            except ValueError as error:
                raise BCRLError(f"{path}: line {number} is damaged ({error}): evaluate again") from None
            result = kind(*values)
            if odd := impossible(result):
                raise BCRLError(f"{path}: line {number} is damaged ({odd}): evaluate again")
            first = lines.setdefault(tuple(getattr(result, name) for name in kind.identity), number)
            if first != number:
                raise BCRLError(
                    f"{path}: line {number} is of the same episode as line {first}: keep results of two "
                    "evaluations that differ in nothing but options in files of their own"
                )
            results.append(result)
    return Results(results)


def _rows(reader: Any, path: str | os.PathLike) -> Iterator[list[str]]:
    try:
        yield from reader
    except csv.Error as error:
        raise BCRLError(f"{path}: line {reader.line_num} is damaged ({error}): evaluate again") from None
