"""Tables block by block: CSV (plain or gzip), Parquet, and frames of polars or pandas. Needs polars."""

import csv
import gzip
import io
import os
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from bcrl.data._checks import MOST_COMPRESSION, fault, one_line
from bcrl.data._mapping import TableMap
from bcrl.data.parquet import check_parquet
from bcrl.errors import BCRLError, need

if TYPE_CHECKING:
    import polars as pl

BLOCK_BYTES = 2**24
"""Text that is read at once; a row may be as long as that."""
BLOCK_CELLS = 2**22
"""Cells of a Parquet file or a frame that are taken at once."""
MOST_TEXT_COMPRESSION = 100
"""Bytes of text for one of gzip. Logs reach 3 to 30; beyond 32 MiB of text more than this is refused."""
SEPARATORS = ",;\t|"
EXTRA = "tables"


class Table(Protocol):
    """A table that is read in blocks of rows."""

    source: str
    """For messages."""
    columns: list[str]
    size: int
    """What `blocks` counts to: bytes of a text, rows otherwise."""
    unit: str
    decimal_comma: bool

    def blocks(self, columns: Sequence[str]) -> Iterator[tuple["pl.DataFrame", int]]:
        """Blocks of these columns in order, and how much of `size` each took."""
        ...


def open_table(path: str | os.PathLike[str], mapping: TableMap) -> Table:
    """The table in a file; its first bytes say what it is."""
    need("polars", extra=EXTRA)
    path = Path(path).expanduser()
    source = one_line(path)
    if not path.exists():
        raise fault(source, "there is no such file; check the path")
    if not path.is_file():
        raise fault(source, "is not a plain file; give one CSV or Parquet file")
    with path.open("rb") as file:
        start = file.read(4)
    if not start:
        raise fault(source, "is empty (0 bytes); export it again")
    if start == b"PAR1":
        return ParquetTable(path, source)
    for magic, said in (
        (b"PK\3\4", "is a zip or Excel file; unzip it, or save it as CSV (UTF-8)"),
        (b"\xff\xfe", "is text in UTF-16; save it as UTF-8"),
        (b"\xfe\xff", "is text in UTF-16; save it as UTF-8"),
        (b"\x28\xb5\x2f\xfd", "is compressed by zstd; decompress it, or use gzip"),
        (b"\x89HDF", "is HDF5, not a table; bcrl data info shows it if it is a log"),
    ):
        if start.startswith(magic):
            raise fault(source, said)
    return CsvTable(path, source, mapping.separator, mapping.decimal)


class CsvTable:
    """A text with a header. Every cell stays text: numbers are parsed, strictly, by whoever wants them."""

    unit = "bytes"

    def __init__(self, path: Path, source: str, separator: str, decimal: str):
        self.path, self.source = path, source
        self.size = path.stat().st_size
        with path.open("rb") as file:
            self._gzip = file.read(2) == b"\x1f\x8b"
        head, self._skip = self._head()
        if head.startswith("sep=") and not separator:  # Excel's own line
            separator, head = head[4:5], head.partition("\n")[2]
            self._skip += 1
        self.separator = separator or _find_separator(head)
        lines = csv.reader(io.StringIO(head), delimiter=self.separator)
        try:
            self.columns = [name.strip() for name in next(lines)]
            sample = [row for row, _ in zip(lines, range(100), strict=False)]
        except (csv.Error, StopIteration) as error:
            raise fault(source, f"its header cannot be read ({one_line(error)}); export it again") from None
        if all(_is_number(name) for name in self.columns):
            raise fault(
                source, f"its first line holds numbers ({self.columns[0]}, ...); add a line of column names"
            )
        cells = [cell for row in sample for cell in row]
        written = any("," in cell and _is_number(cell.replace(",", ".")) for cell in cells)
        pointed = any("." in cell and _is_number(cell) for cell in cells)
        found = self.separator != "," and written and not pointed
        self.decimal_comma = decimal == "," if decimal else found

    def blocks(self, columns: Sequence[str]) -> Iterator[tuple["pl.DataFrame", int]]:
        import polars as pl

        places = [self.columns.index(name) for name in columns]
        order = sorted(set(places))
        schema = {str(place): pl.String for place in range(len(self.columns))}
        row, done = 1, 0
        for text, place in self._texts():
            self._check_text(text, row)
            try:
                frame = pl.read_csv(
                    io.BytesIO(text),
                    has_header=False,
                    schema=schema,
                    columns=order,
                    separator=self.separator,
                    infer_schema=False,
                )
            except pl.exceptions.PolarsError as error:
                raise self._broken(text, row, error) from None
            yield (
                frame.select(pl.col(str(p)).alias(name) for p, name in zip(places, columns, strict=True)),
                place - done,
            )
            row, done = row + len(frame), place

    def _open(self, raw: Any) -> Any:
        return gzip.GzipFile(fileobj=raw) if self._gzip else raw

    def _head(self) -> tuple[str, int]:
        """The first lines, and the number of blank ones before them."""
        with self.path.open("rb") as raw, self._damage():
            text = self._open(raw).read(2**20)
        if b"\0" in text:
            raise fault(self.source, "holds zero bytes, so it is no text in UTF-8; save it as CSV (UTF-8)")
        # The end of the piece may cut a character.
        head = text.decode("utf-8-sig", errors="replace").replace("\r\n", "\n").replace("\r", "\n")
        blank = len(head) - len(head.lstrip("\n"))
        if not head.strip():
            raise fault(self.source, "holds no text; export it again")
        return head[blank:], blank + 1

    def _texts(self) -> Iterator[tuple[bytes, int]]:
        """Whole rows below the header as bytes, with the place in the file that was reached."""
        with self.path.open("rb") as raw, self._damage():
            file = self._open(raw)
            left, taken, skip = b"", 0, self._skip
            while piece := file.read(BLOCK_BYTES):
                taken += len(piece)
                place = raw.tell()
                if self._gzip and taken > max(2**25, MOST_TEXT_COMPRESSION * place):
                    raise fault(
                        self.source,
                        f"{place:,} bytes unpack to more than {taken:,}, which no log does; "
                        "if it is a log, unpack it first (gunzip)",
                    )
                left += piece
                if b"\r" in left and b"\n" not in left[:-1]:  # lines as on an old Macintosh
                    left = left.replace(b"\r", b"\n")
                while skip and b"\n" in left:
                    cut = _end_of_row(left)
                    if not cut:
                        break
                    left, skip = left[cut:], skip - 1
                cut = _last_end_of_row(left) if not skip else 0
                if not cut and len(left) > BLOCK_BYTES:
                    raise fault(
                        self.source,
                        f"a row is longer than {BLOCK_BYTES:,} bytes; is a quotation mark not closed?",
                    )
                if cut:
                    yield left[:cut], place
                    left = left[cut:]
            if left and not skip:
                yield left, self.size

    def _damage(self) -> "_Damage":
        return _Damage(self.source)

    def _check_text(self, text: bytes, row: int) -> None:
        try:
            text.decode("utf-8")
        except UnicodeDecodeError as error:
            at = row + text.count(b"\n", 0, error.start)
            raise fault(
                self.source,
                f"row {at:,} holds the byte 0x{text[error.start]:02x}, so it is not UTF-8; save it as UTF-8 "
                "(iconv -f windows-1252 -t utf-8)",
            ) from None
        if b"\0" in text:
            at = row + text.count(b"\n", 0, text.index(b"\0"))
            raise fault(self.source, f"row {at:,} holds a zero byte; the file is damaged, export it again")

    def _broken(self, text: bytes, row: int, error: Exception) -> BCRLError:
        """What is wrong with a block that polars refuses, with its row."""
        width = len(self.columns)
        csv.field_size_limit(BLOCK_BYTES)
        try:
            for number, cells in enumerate(csv.reader(io.StringIO(text.decode()), delimiter=self.separator)):
                if len(cells) > width:
                    return fault(
                        self.source,
                        f"row {row + number:,} has {len(cells)} cells and the header {width}; correct it, or "
                        f"give the right --separator (taken: {self.separator!r})",
                    )
        except csv.Error:
            pass
        reason = one_line(str(error).splitlines()[0])[:120]
        return fault(
            self.source, f"a row from row {row:,} on cannot be read ({reason}); close its quotation marks"
        )


class ParquetTable:
    unit = "rows"
    decimal_comma = False

    def __init__(self, path: Path, source: str):
        import polars as pl

        self.source, self._path = source, path
        self._tried: set[str] = set()
        check_parquet(path, ())
        with _Damage(source):
            self._frame = pl.scan_parquet(path, glob=False)
            self.columns = self._frame.collect_schema().names()
            self.size = self._frame.select(pl.len()).collect().item()
        if self.size > MOST_COMPRESSION * path.stat().st_size:
            raise fault(
                source,
                f"claims {self.size:,} rows in {path.stat().st_size:,} bytes, as no log has; write it again",
            )

    def blocks(self, columns: Sequence[str]) -> Iterator[tuple["pl.DataFrame", int]]:
        step = max(BLOCK_CELLS // len(columns), 1)
        if not self._tried.issuperset(columns):
            check_parquet(self._path, columns, step)
            self._tried.update(columns)
        for first in range(0, self.size, step):
            with _Damage(self.source):  # slices keep memory small even where all rows are one row group
                frame = self._frame.select(columns).slice(first, step).collect(engine="streaming")
            yield frame, len(frame)


class FrameTable:
    """A frame of polars, or of pandas, or anything with `columns` whose columns have `to_numpy`."""

    unit = "rows"
    decimal_comma = False

    def __init__(self, frame: Any, source: str):
        need("polars", extra=EXTRA)
        import polars as pl

        self.source = source
        if isinstance(frame, pl.LazyFrame):
            frame = frame.collect()
        if not hasattr(frame, "columns") or not hasattr(frame, "__getitem__"):
            raise fault(source, f"from_frame got {type(frame).__name__}; give a frame of polars or pandas")
        self._frame, self._names = frame, list(frame.columns)
        self.columns = [str(name) for name in self._names]
        self.size = len(frame)

    def blocks(self, columns: Sequence[str]) -> Iterator[tuple["pl.DataFrame", int]]:
        import polars as pl

        step = max(BLOCK_CELLS // len(columns), 1)
        chosen = pl.DataFrame([self._column(name) for name in columns])
        for frame in chosen.iter_slices(step):
            yield frame, len(frame)

    def _column(self, name: str) -> "pl.Series":
        import polars as pl

        column = self._frame[self._names[self.columns.index(name)]]
        if isinstance(column, pl.Series):
            return column.alias(name)
        if getattr(getattr(column, "dt", None), "tz", None) is not None:  # numpy knows no time zones
            values = _milliseconds(column.dt.tz_convert("UTC").dt.tz_localize(None).to_numpy())
            return pl.Series(name, values).dt.replace_time_zone("UTC")
        values = _milliseconds(np.asarray(column.to_numpy()))
        if values.dtype.kind in "OUT":
            missing = np.asarray(column.isna()) if hasattr(column, "isna") else values == None  # noqa: E711
            texts = [None if gone else str(value) for value, gone in zip(values, missing, strict=True)]
            return pl.Series(name, texts, pl.String)
        return pl.Series(name, values)


def _milliseconds(values: np.ndarray) -> np.ndarray:
    """Times in whole seconds, which polars does not take, in milliseconds; all else as it is."""
    return values.astype("datetime64[ms]") if values.dtype == "datetime64[s]" else values


class _Damage:
    """Turns what the libraries raise on a damaged file into one line."""

    def __init__(self, source: str):
        self._source = source

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        import polars as pl

        if isinstance(error, PermissionError):
            raise fault(self._source, "permission denied; allow reading it (chmod u+r)") from None
        if isinstance(error, OSError | EOFError | zlib.error | pl.exceptions.PolarsError):
            reason = one_line(error)[:160] or type(error).__name__
            raise fault(
                self._source, f"is damaged or cut short ({reason}); copy or export it again"
            ) from None


def _find_separator(head: str) -> str:
    """The separator that cuts the header into most pieces, and the next lines into as many."""
    lines = [line for line in head.split("\n")[:20] if line.strip()]

    def score(separator: str) -> tuple[int, int]:
        pieces = [len(row) for row in csv.reader(lines, delimiter=separator)]
        return sum(count == pieces[0] for count in pieces) if pieces[0] > 1 else 0, pieces[0]

    try:
        return max(SEPARATORS, key=score)
    except csv.Error:
        return ","


def _end_of_row(text: bytes) -> int:
    """The place after the first row; 0 where it does not end."""
    cut = text.find(b"\n") + 1
    while cut and text.count(b'"', 0, cut) % 2:
        cut = text.find(b"\n", cut) + 1
    return cut


def _last_end_of_row(text: bytes) -> int:
    """The place after the last whole row: a line feed inside quotation marks ends none."""
    cut = text.rfind(b"\n") + 1
    quotes = text.count(b'"', 0, cut)
    while cut and quotes % 2:
        before = text.rfind(b"\n", 0, cut - 1) + 1
        quotes -= text.count(b'"', before, cut)
        cut = before
    return cut


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
