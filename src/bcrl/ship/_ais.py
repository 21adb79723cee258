"""AIS position reports from files: the columns of each layout, and the reasons to drop a row."""

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bcrl.data.parquet import check_parquet
from bcrl.errors import BCRLError
from bcrl.progress import progress
from bcrl.ship._rule import KNOT, SINGAPORE, Box

if TYPE_CHECKING:
    import polars as pl

UNKNOWN, CARGO, TANKER, OTHER = range(4)
KINDS = {"cargo": CARGO, "tanker": TANKER, "other": OTHER}
"""Kinds of vessel that scenarios can be restricted to; some files do not have them."""


@dataclass(frozen=True)
class Reports:
    """Positions in the order of the file, one row each. What a file does not have is NaN or -1."""

    ship: NDArray[np.int64]
    """The identity in the file, such as the MMSI; it is hashed before anything is written."""
    time: NDArray[np.int64]
    """Seconds since 1970, UTC."""
    lon: NDArray[np.float64]
    lat: NDArray[np.float64]
    speed: NDArray[np.float64]
    """m/s over ground."""
    heading: NDArray[np.float64]
    """Degrees clockwise from north."""
    status: NDArray[np.int64]
    """Navigational status: 0 is under way using the engine."""
    kind: NDArray[np.int64]
    """One of the numbers in KINDS, or UNKNOWN."""
    bad: Counter[str] = field(default_factory=Counter)
    """Rows left out, by reason."""
    rows: int = 0
    """Rows in the files, usable or not."""

    @classmethod
    def of_positions(cls, ship: Any, time: Any, lon: Any, lat: Any, **more: Any) -> "Reports":
        """Reports with positions and times alone."""
        unsaid = np.full(len(ship), np.nan)
        none = np.full(len(ship), -1, np.int64)
        columns = {"speed": unsaid, "heading": unsaid, "status": none, "kind": none * 0, "rows": len(ship)}
        return cls(ship, time, lon, lat, **{**columns, **more})


@dataclass(frozen=True)
class Layout:
    """A kind of AIS file: the names of its columns in lower case. A tuple lists names of the same meaning."""

    name: str
    ship: tuple[str, ...]
    time: tuple[str, ...]
    lat: tuple[str, ...]
    lon: tuple[str, ...]
    speed: tuple[str, ...]
    heading: tuple[str, ...]
    course: tuple[str, ...] = ()
    status: tuple[str, ...] = ()
    kind: tuple[str, ...] = ()
    sender: tuple[str, ...] = ()
    speed_unit: float = KNOT
    time_format: str = "%Y-%m-%d %H:%M:%S%.f"
    separator: str = ","
    box: Box | None = None
    """Where the files of this layout are from, if that is always the same place."""


LAYOUTS = (
    Layout(
        "the original simulator",
        ship=("ship_id",),
        time=("timestamp_utc",),
        lat=("lat",),
        lon=("lon",),
        speed=("speed_knotsx10",),
        heading=("heading",),
        status=("status",),
        speed_unit=KNOT / 10,
        separator=";",
        box=SINGAPORE,
    ),
    Layout(
        "MarineCadastre",
        ship=("mmsi",),
        time=("basedatetime", "base_date_time"),
        lat=("lat", "latitude"),
        lon=("lon", "longitude"),
        speed=("sog",),
        heading=("heading",),
        course=("cog",),
        status=("status",),
        kind=("vesseltype", "vessel_type"),
    ),
    Layout(
        "Danish Maritime Authority",
        ship=("mmsi",),
        time=("# timestamp", "timestamp"),
        lat=("latitude",),
        lon=("longitude",),
        speed=("sog",),
        heading=("heading",),
        course=("cog",),
        status=("navigational status",),
        kind=("ship type",),
        sender=("type of mobile",),
        time_format="%d/%m/%Y %H:%M:%S%.f",
    ),
)


def read_reports(
    paths: Sequence[str | os.PathLike[str]], box: Box | None, margin: float
) -> tuple[Reports, Box]:
    """The usable reports of all files in and around the box, and the box (by default the layout's own)."""
    parts = []
    with progress("reading", len(paths), "files") as tick:
        for path in paths:
            part, box = _read_file(Path(path).expanduser(), box, margin)
            parts.append(part)
            tick(note=Path(path).name)
    assert box is not None, "set by _read_file"
    columns = ("ship", "time", "lon", "lat", "speed", "heading", "status", "kind")
    joined = {name: np.concatenate([getattr(part, name) for part in parts]) for name in columns}
    bad = sum((part.bad for part in parts), Counter())
    return Reports(**joined, bad=bad, rows=sum(part.rows for part in parts)), box


def _read_file(path: Path, box: Box | None, margin: float) -> tuple[Reports, Box]:
    pl = _polars()
    frame, layout, names = _open(path)
    box = layout.box if box is None else box
    if box is None:
        raise BCRLError(
            f"{path}: files of {layout.name} cover whole coasts: give --box west,south,east,north in degrees"
        )
    typed = frame.select(**_typed(pl, layout, names)).with_columns(bad=_reason(pl))
    around = box.grown(margin)
    inside = pl.col("lon").is_between(around.west, around.east) & pl.col("lat").is_between(
        around.south, around.north
    )
    usable = pl.col("bad").is_null()
    try:
        # Counts and rows in one pass: daily files have ten million rows, of which a box holds few.
        counts, rows = pl.collect_all(
            [
                typed.group_by(
                    pl.when(usable & ~inside).then(pl.lit("outside the box")).otherwise("bad")
                ).agg(pl.len()),
                typed.filter(usable & inside),
            ],
            engine="streaming",
        )
    except (pl.exceptions.PolarsError, OSError) as error:
        raise BCRLError(f"{path}: cannot be read ({str(error).splitlines()[0]}); copy it again") from None
    found = {reason or "": int(count) for reason, count in counts.iter_rows()}
    total = sum(found.values())
    found.pop("", None)
    columns = {name: rows[name].to_numpy() for name in rows.columns if name not in ("bad", "sender")}
    return Reports(**columns, bad=Counter(found), rows=total), box


def _open(path: Path) -> tuple["pl.LazyFrame", Layout, dict[str, str]]:
    """The file as a lazy table, its layout, and its column names by their names in lower case."""
    pl = _polars()
    if not path.is_file():
        raise BCRLError(f"{path}: there is no such file")
    kind = "".join(suffix.lower() for suffix in path.suffixes[-2:])
    if kind.endswith(".zip"):
        raise BCRLError(f"{path}: unzip it first, and give the .csv inside")
    try:
        if kind.endswith(".parquet"):
            check_parquet(path)
            frames = [pl.scan_parquet(path, glob=False)]
        elif kind.endswith((".csv", ".csv.gz", ".csv.zst")):
            # All as text, and bad bytes replaced: either makes a row bad, and does not end the reading.
            options: Any = {"infer_schema": False, "truncate_ragged_lines": True, "encoding": "utf8-lossy"}
            frames = [pl.scan_csv(path, separator=mark, glob=False, **options) for mark in (",", ";")]
        else:
            raise BCRLError(
                f"{path}: unknown suffix {path.suffix!r}; known: .csv, .csv.gz, .csv.zst, .parquet"
            )
        for frame in frames:
            names = {name.strip().lower(): name for name in frame.collect_schema().names()}
            for layout in LAYOUTS:
                if all(any(name in names for name in choice) for choice in _needed(layout)):
                    return frame, layout, names
    except (pl.exceptions.PolarsError, OSError) as error:
        raise BCRLError(f"{path}: not a readable table ({str(error).splitlines()[0]})") from None
    known = "; ".join(
        f"{layout.name}: {', '.join(choice[0].upper() for choice in _needed(layout))}" for layout in LAYOUTS
    )
    raise BCRLError(f"{path}: none of the known layouts has its columns ({known})")


def _needed(layout: Layout) -> tuple[tuple[str, ...], ...]:
    return layout.ship, layout.time, layout.lat, layout.lon


def _typed(pl: Any, layout: Layout, names: dict[str, str]) -> dict[str, "pl.Expr"]:
    """Expressions for the columns of `Reports`, and the sender; null where a required value is missing."""

    def column(choice: tuple[str, ...]) -> Any:
        found = [names[name] for name in choice if name in names]
        return pl.col(found[0]) if found else pl.lit(None, pl.String)

    def number(choice: tuple[str, ...]) -> Any:
        return column(choice).cast(pl.String).str.strip_chars().cast(pl.Float64, strict=False)

    def valid(expression: Any, low: float, high: float) -> Any:
        """NaN for what is missing or has one of AIS's codes for "not available", which lie outside."""
        return (
            pl.when(expression.is_between(low, high, closed="left")).then(expression).otherwise(float("nan"))
        )

    moment = column(layout.time).cast(pl.String).str.strip_chars().str.replace("T", " ").str.strip_suffix("Z")
    heading = valid(number(layout.heading), 0.0, 360.0)
    course = valid(number(layout.course), 0.0, 360.0)
    speed = valid(number(layout.speed) * layout.speed_unit, 0.0, 102.25 * KNOT)
    return {
        "ship": number(layout.ship).cast(pl.Int64, strict=False),
        "time": moment.str.to_datetime(layout.time_format, strict=False, time_unit="ms").dt.epoch("s"),
        "lon": number(layout.lon),
        "lat": number(layout.lat),
        "speed": speed,
        "heading": pl.when(heading.is_not_nan()).then(heading).otherwise(course),
        "status": _status(pl, column(layout.status)),
        "kind": _kind(pl, column(layout.kind)),
        "sender": column(layout.sender).cast(pl.String).str.to_lowercase(),
    }


def _status(pl: Any, column: Any) -> Any:
    """The number of the status. The Danish files have words, of which only that of status 0 is recognised."""
    text = column.cast(pl.String).str.strip_chars()
    number = text.cast(pl.Float64, strict=False).cast(pl.Int64, strict=False)
    spelt = pl.when(text.str.to_lowercase() == "under way using engine").then(0).otherwise(-1)
    return pl.coalesce(number, spelt).cast(pl.Int64)


def _kind(pl: Any, column: Any) -> Any:
    """Cargo (AIS types 70-79) and tankers (80-89), also by MarineCadastre's older codes, or by name."""
    text = column.cast(pl.String).str.strip_chars().str.to_lowercase()
    number = text.cast(pl.Float64, strict=False)
    cargo = number.is_between(70, 79) | number.is_in([1003.0, 1004.0, 1016.0]) | (text == "cargo")
    tanker = number.is_between(80, 89) | number.is_in([1017.0, 1024.0]) | (text == "tanker")
    unknown = text.is_null() | (text == "") | (text == "undefined") | (text == "null") | (number == 0)
    return (
        pl.when(cargo.fill_null(False))
        .then(CARGO)
        .when(tanker.fill_null(False))
        .then(TANKER)
        .when(unknown.fill_null(False))
        .then(UNKNOWN)
        .otherwise(OTHER)
        .cast(pl.Int64)
    )


def _reason(pl: Any) -> Any:
    """The first reason against a row, or null."""
    lon, lat, sender = pl.col("lon"), pl.col("lat"), pl.col("sender")
    outside = ~(lon.is_between(-180, 180) & lat.is_between(-90, 90))
    return (
        pl.when(sender.is_not_null() & ~sender.str.starts_with("class"))
        .then(pl.lit("not a vessel"))
        .when(pl.col("ship").is_null() | (pl.col("ship") <= 0))
        .then(pl.lit("no ship"))
        .when(pl.col("time").is_null())
        .then(pl.lit("no time"))
        .when(lon.is_null() | lat.is_null() | lon.is_nan() | lat.is_nan())
        .then(pl.lit("no position"))
        .when(outside)
        .then(pl.lit("impossible position"))
        .otherwise(pl.lit(None, pl.String))
    )


def _polars() -> Any:
    try:
        import polars
    except ImportError:
        raise BCRLError("AIS files need polars, which is not installed: pip install 'bcrl[ship]'") from None
    return polars
