"""From the columns of a table to numbers, flags, codes and times; other cells are refused with their row."""

import re
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bcrl.data._checks import fault
from bcrl.data._mapping import MISSING_WORDS
from bcrl.errors import brief, brief_repr, did_you_mean

if TYPE_CHECKING:
    import polars as pl

MOST_CATEGORIES = 1_000
"""Labels of a column that no list declares; more are no category."""
MOST_SHOWN = 12
"""Labels that a message lists."""
TRUTHS = {"true": 1.0, "t": 1.0, "yes": 1.0, "false": 0.0, "f": 0.0, "no": 0.0}
_ISO = "%Y-%m-%dT%H:%M:%S%.f"
_ISO_FORMS = (_ISO, "%Y-%m-%dT%H:%M", "%Y-%m-%d")


class Cells:
    """The cells of one block: where they are, for messages, and how texts are read."""

    def __init__(self, source: str, missing_words: Sequence[str], decimal_comma: bool):
        self.source = source
        self.words = [*MISSING_WORDS, *missing_words]
        self.decimal_comma = decimal_comma
        self.row = 1
        """Number of the block's first row; the first below the header is 1."""
        self.commas = 0
        """Decimal commas that were read."""

    def refuse(self, name: str, bad: NDArray[np.bool_], series: "pl.Series", why: str) -> Exception:
        """The error for the first bad cell of a column."""
        index = int(np.argmax(bad))
        value = series[index]
        shown = brief_repr(value)[:80] if isinstance(value, str) else str(value)
        return fault(self.source, f"column {name}, row {self.row + index:,} is {shown}{why}")

    def texts(self, series: "pl.Series") -> "pl.Series":
        """Text without blanks around it, null where it stands for no value."""
        import polars as pl

        stripped = series.str.strip_chars()
        frame = stripped.alias("t").to_frame()
        gone = pl.col("t").is_in(["", *self.words])
        return frame.select(pl.when(gone).then(None).otherwise(pl.col("t")).alias(series.name)).to_series()

    def numbers(self, series: "pl.Series", hint: str = "", truths: bool = False) -> NDArray[np.float64]:
        """float64, NaN where there is no value; with `truths` the words true and false count as 1 and 0."""
        import polars as pl

        if series.dtype in (pl.Categorical, pl.Enum):
            series = series.cast(pl.String)
        if series.dtype == pl.String:
            texts = self.texts(series)
            plain = texts
            if self.decimal_comma:
                commas = texts.str.contains(",", literal=True)
                self.commas += int(commas.sum() or 0)
                # In such a file a point is no decimal sign, so 1.234,5 and 1.234 are refused, not guessed.
                pointed = texts.str.contains(".", literal=True).fill_null(False)
                plain = texts.set(pointed, "?").str.replace(",", ".", literal=True)
            if truths:
                plain = plain.str.to_lowercase().replace({word: str(value) for word, value in TRUTHS.items()})
            values = plain.cast(pl.Float64, strict=False)
            bad = (values.is_null() & texts.is_not_null()).to_numpy()
            if bad.any():
                raise self.refuse(
                    series.name, bad, series, f", not a number; correct it{hint or self._hint(texts, bad)}"
                )
        elif series.dtype.is_numeric() or series.dtype in (pl.Boolean, pl.Null):
            values = series.cast(pl.Float64)
        else:
            raise fault(
                self.source,
                f"column {series.name} holds {str(series.dtype)[:60]}, not numbers; "
                "store each number in a column of its own",
            )
        array = values.fill_null(float("nan")).to_numpy()
        large = np.abs(array) > np.finfo(np.float32).max
        if large.any():
            raise self.refuse(series.name, large, series, ", not a finite float32; correct or empty it")
        return array

    def _hint(self, texts: "pl.Series", bad: NDArray[np.bool_]) -> str:
        value = texts[int(np.argmax(bad))]
        try:
            float(value.replace(",", "."))
        except ValueError:
            return ", name its values under categories, or add it to missing_words if it means no value"
        return ", or give the --decimal sign" if "," in value or self.decimal_comma else ""

    def flags(self, series: "pl.Series") -> NDArray[np.bool_]:
        """0 and 1, true and false; no value is 0."""
        values = np.nan_to_num(self.numbers(series, truths=True))
        bad = (values != 0) & (values != 1)
        if bad.any():
            raise self.refuse(series.name, bad, series, ", but must be 0 or 1")
        return values == 1


class Codes:
    """Numbers for the values of a column, in the order in which they come."""

    def __init__(self, declared: Sequence[str] = (), most: int = MOST_CATEGORIES):
        self.declared, self._most = tuple(map(_label, declared)), most
        self.known: dict[Any, int] = {label: number for number, label in enumerate(self.declared)}
        self._rows: Counter[str] = Counter()

    def read(self, cells: Cells, series: "pl.Series", why: str) -> NDArray[np.int64]:
        """The number of each cell's value; −1 where there is none. `why` ends the error about a new one."""
        import polars as pl

        if series.dtype.is_nested() or series.dtype in (pl.Binary, pl.Object):
            raise fault(
                cells.source, f"column {series.name} holds {str(series.dtype)[:60]}; store plain values"
            )
        if series.dtype.is_float():
            series = series.fill_nan(None)
        if not series.dtype.is_integer():
            series = cells.texts(series.cast(pl.String))
        there = series.drop_nulls()
        found = there.unique(maintain_order=True)
        numbers = [self._number(cells, series, value, why) for value in found.to_list()]
        for value, rows in zip(found.to_list(), there.unique_counts().to_list(), strict=True):
            self._rows[_label(value)] += rows
        if not numbers:
            return np.full(len(series), -1)
        coded = series.replace_strict(found, pl.Series(numbers, dtype=pl.Int64), default=None)
        return coded.fill_null(-1).to_numpy()

    def _number(self, cells: Cells, series: "pl.Series", value: Any, why: str) -> int:
        label = _label(value)
        if label not in self.known:
            if self.declared or len(self.known) >= self._most:
                bad = (series == value).fill_null(False).to_numpy()
                many = f", the {self._most + 1:,}th value of this column; it looks like no category"
                listed = f"{why} ({shown(self.declared)}){did_you_mean(label, self.declared)}"
                raise cells.refuse(series.name, bad, series, listed if self.declared else many)
            self.known[label] = len(self.known)
        return self.known[label]

    def look_alikes(self) -> list[str]:
        """Labels of the table that differ only in case, each group in words with its numbers of rows."""
        groups: dict[str, list[str]] = {}
        for label in () if self.declared else self.known:
            groups.setdefault(label.casefold(), []).append(f"{label} ({self._rows[label]:,} rows)")
        return [shown(group) for group in groups.values() if len(group) > 1]

    def sorted(self) -> tuple[tuple[str, ...], NDArray[np.int64]]:
        """The labels in their order, and the place in it of each number."""
        if self.declared:
            return self.declared, np.arange(len(self.declared))
        try:
            labels = sorted(self.known, key=float)
        except ValueError:
            labels = sorted(self.known)
        places = np.empty(len(labels), np.int64)
        for place, label in enumerate(labels):
            places[self.known[label]] = place
        return tuple(labels), places


def shown(labels: Sequence[str]) -> str:
    """The first labels for a message."""
    more = f" and {len(labels) - MOST_SHOWN:,} more" if len(labels) > MOST_SHOWN else ""
    return brief(", ".join(labels[:MOST_SHOWN])) + more


def _label(value: Any) -> str:
    """The text of a label. 1.0 is 1, as other programs write it; 01 and 1e0 are other labels."""
    text = str(value)
    return text[:-2] if re.fullmatch(r"-?\d+\.0", text) else text


class Times:
    """A column of times as int64 or float64: numbers as they are, dates and times in microseconds UTC."""

    def __init__(self) -> None:
        self.kind = ""
        """"numbers" or "dates"."""
        self._naive: bool | None = None
        self._pieces: list[NDArray[Any]] = []

    @property
    def second(self) -> float:
        """One unit of `split_gap` in the unit of the values."""
        return 1e6 if self.kind == "dates" else 1.0

    def read(self, cells: Cells, series: "pl.Series", blank: NDArray[np.bool_]) -> None:
        """Takes a block's times; only blank rows may have none."""
        import polars as pl

        kind = "dates" if series.dtype in (pl.Datetime, pl.Date, pl.Duration) else "numbers"
        values: Any = series
        if kind == "dates":
            values = series.cast(pl.Datetime) if series.dtype == pl.Date else series
            values = values.dt.cast_time_unit("us").to_physical()
        elif series.dtype == pl.String:
            texts = cells.texts(series)
            texts = texts.str.replace(",", ".", literal=True) if cells.decimal_comma else texts
            values = texts.cast(pl.Int64, strict=False)
            if values.null_count() > texts.null_count():
                values = texts.cast(pl.Float64, strict=False)
            if values.null_count() > texts.null_count():
                kind, values = "dates", self._dates(cells, series, texts)
        elif not series.dtype.is_numeric():
            raise fault(cells.source, f"column {series.name} holds {series.dtype}; use numbers or ISO dates")
        if self.kind and kind != self.kind:
            raise fault(
                cells.source,
                f"column {series.name} holds {self.kind} before row {cells.row:,} and {kind} "
                "from there on; use one",
            )
        self.kind = kind
        if values.dtype.is_integer():
            values = values.cast(pl.Int64, strict=False)
        else:
            values = values.cast(pl.Float64).fill_nan(None)
            values = values.set(values.is_infinite().fill_null(False), None)
        gone = values.is_null().to_numpy() & ~blank
        if gone.any():
            raise cells.refuse(
                series.name, gone, series, ", so the row has no place in time; correct or delete it"
            )
        self._pieces.append(values.fill_null(0).to_numpy())

    def _dates(self, cells: Cells, series: "pl.Series", texts: "pl.Series") -> "pl.Series":
        import polars as pl

        plain = texts.str.replace(r"[ ]", "T").str.replace(r"[Zz]$", "+00:00")
        plain = plain.str.replace(r"([+-]\d\d)$", "${1}:00") if not _dates_only(plain) else plain
        plain = plain.str.replace(r"([+-]\d\d)(\d\d)$", "${1}:${2}")
        zoned = _first_of(plain, [f"{form}%:z" for form in _ISO_FORMS[:2]], time_zone="UTC")
        naive = _first_of(plain, _ISO_FORMS)
        numbers = texts.cast(pl.Float64, strict=False).is_not_null()
        bad = (zoned.is_null() & naive.is_null() & texts.is_not_null() & ~numbers).to_numpy()
        if numbers.any() and not bad.any():
            why = ", a number, but other times are dates; use one of both"
            raise cells.refuse(series.name, numbers.to_numpy(), series, why)
        if bad.any():
            raise cells.refuse(
                series.name,
                bad,
                series,
                ", neither a number nor an ISO time such as 2026-01-31T13:05:00+01:00",
            )
        mixed = naive.is_not_null() if zoned.is_not_null().any() else pl.Series([False])
        is_naive = not zoned.is_not_null().any()
        if mixed.any() or (self._naive is not None and self._naive != is_naive):
            where = mixed.to_numpy() if mixed.any() else np.ones(1, bool)
            raise cells.refuse(
                series.name,
                where,
                series,
                ", but only some of the times have a time zone; give all or none of them one",
            )
        self._naive = is_naive
        return (naive if is_naive else zoned).to_physical()

    def values(self) -> NDArray[Any]:
        return np.concatenate(self._pieces) if self._pieces else np.empty(0)


def _first_of(texts: "pl.Series", forms: Sequence[str], **zone: str) -> "pl.Series":
    found = None
    for form in forms:
        if form == "%Y-%m-%d":
            parsed = texts.str.to_date(form, strict=False).cast(_datetime())
        else:
            parsed = texts.str.to_datetime(form, strict=False, time_unit="us", **zone)  # type: ignore[arg-type]
        found = parsed if found is None else found.zip_with(found.is_not_null(), parsed)
        if found.null_count() == texts.null_count():
            break
    assert found is not None
    return found


def _datetime() -> Any:
    import polars as pl

    return pl.Datetime("us")


def _dates_only(texts: "pl.Series") -> bool:
    """Whether these are dates without a time, where -31 at the end is no offset."""
    return not texts.str.contains("T", literal=True).any()
