"""Odd and damaged tables: each is refused in one line, or read with a repair that is counted."""

import gzip
import io
import warnings
import zipfile
from collections.abc import Callable

import polars as pl
import pytest

from bcrl.data import import_table, load_data
from bcrl.errors import BCRLError

HEADER = ["id", "t", "x1", "x2", "u", "r", "c"]
PARTS = {
    "observations": "x1..x2",
    "actions": "u",
    "reward": "r",
    "costs": "c",
    "episode": "id",
    "time": "t",
    "action_bounds": {"u": (0, 5)},
}
EPISODES, STEPS = 3, 4
Rows = list[list[str]]


def rows() -> Rows:
    """Three episodes of four rows, header first: x1 counts all rows, x2 is half of it."""
    body = [
        [f"{e}", f"{t}", f"{4 * e + t}", f"{(4 * e + t) / 2}", f"{t}.5", "1.0", f"{t % 2}"]
        for e in range(EPISODES)
        for t in range(STEPS)
    ]
    return [HEADER, *body]


def csv(change: Callable[[Rows], Rows | None] = lambda r: r, separator: str = ",", end: str = "\n") -> bytes:
    table = [list(row) for row in rows()]
    table = change(table) or table
    return (end.join(separator.join(row) for row in table) + end).encode()


def put(row: int, column: str, value: str) -> Callable[[Rows], None]:
    """A change of one cell; row 1 is the first below the header."""

    def change(table: Rows) -> None:
        table[row][HEADER.index(column)] = value

    return change


def column(name: str, value: Callable[[int], str]) -> Callable[[Rows], None]:
    def change(table: Rows) -> None:
        for number, row in enumerate(table[1:]):
            row[HEADER.index(name)] = value(number)

    return change


def wide(count: int) -> bytes:
    """A table with as many more columns."""
    lines = csv().decode().splitlines()
    names = ",".join(f"y{number}" for number in range(count))
    return "\n".join([f"{lines[0]},{names}", *(line + ",0" * count for line in lines[1:])]).encode()


def excel() -> bytes:
    text = csv(separator=";").decode()
    return b"\xef\xbb\xbf" + text.replace(".", ",").replace("\n", "\r\n").encode()


def zipped() -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("my.csv", csv())
    return file.getvalue()


def parquet(**changed: object) -> bytes:
    frame = pl.read_csv(io.BytesIO(csv()))
    frame = frame.with_columns(**{name: pl.Series(value) for name, value in changed.items()})  # type: ignore[arg-type]
    file = io.BytesIO()
    frame.write_parquet(file)
    return file.getvalue()


def tall_parquet() -> bytes:
    """A few thousand bytes that claim a hundred million rows."""
    file = io.BytesIO()
    zeros = pl.select(id=pl.repeat(0, 30_000_000, dtype=pl.Int8))
    zeros.write_parquet(file, compression="zstd", row_group_size=30_000_000)
    return file.getvalue()


# name of the case: bytes of the file, options, what the line says
REFUSED = {
    "empty file": (b"", {}, "is empty (0 bytes)"),
    "blank lines": (b"\n\n\n", {}, "holds no text"),
    "header only": (csv(lambda r: r[:1]), {}, "no row below the header"),
    "no header": (csv(lambda r: r[1:]), {}, "its first line holds numbers"),
    "a missing column": (csv(), {"reward": "reward"}, "no column reward"),
    "a misspelt column": (csv(), {"time": "T1"}, "no column T1"),
    "a missing column of a range": (csv(), {"observations": "x1..x4"}, "no column x3"),
    "wrong separator given": (csv(), {"separator": ";"}, "give their --separator"),
    "duplicate header names": (csv(lambda r: put(0, "x2", "x1")(r)), {}, "2 columns are named x1"),
    "text in numbers": (csv(put(7, "x2", "high")), {}, "column x2, row 7 is 'high', not a number"),
    "a unit behind a number": (csv(put(3, "x1", "2 m")), {}, "column x1, row 3 is '2 m'"),
    "a unit row": (
        csv(lambda r: [r[0], ["-", "s", "m", "m", "N", "", ""], *r[1:]]),
        {},
        "row 1 is 's', neither a number nor an ISO time",
    ),
    "mixed types": (
        csv(put(5, "u", "left")),
        {},
        "row 5 is 'left', not a number; correct it, or give --discrete",
    ),
    "a decimal comma in one cell": (csv(put(2, "x1", '"1,5"')), {}, "row 2 is '1,5', not a number"),
    "thousands": (excel().replace(b"2,5;", b"1.002,5;"), {}, "is '1.002,5', not a number"),
    "infinity": (csv(put(4, "r", "inf")), {}, "column r, row 4 is 'inf', not a finite float32"),
    "beyond float32": (csv(put(4, "x1", "1e39")), {}, "row 4 is '1e39', not a finite float32"),
    "negative cost": (csv(put(6, "c", "-0.5")), {}, "column c, row 6 is '-0.5'; costs must be ≥ 0"),
    "a cost that stands for none": (
        csv(put(6, "c", " -99")),
        {},
        'missing value, missing_words = ["-99"] in',
    ),
    "a category in another case": (
        csv(column("x1", lambda n: "ECO" if n == 5 else "eco")),
        {"categories": {"x1": ("boost", "eco")}},
        "row 6 is 'ECO', none of the categories of x1 (boost, eco); did you mean eco?",
    ),
    "cost above the declared": (csv(), {"max_cost": {"c": 0.5}}, "above the declared max_cost of 0.5"),
    "action outside its bounds": (
        csv(put(9, "u", "7")),
        {},
        "column u, row 9 is '7', outside its bounds 0 and 5",
    ),
    "an action that never changes": (csv(column("u", lambda _: "1")), {"action_bounds": {}}, "is always 1"),
    "two labels for one column": (
        csv(),
        {"action_labels": ("a",), "action_bounds": {}},
        "none of the action_labels",
    ),
    "an unknown category": (
        csv(),
        {"categories": {"x1": ("0", "1")}},
        "row 3 is '2', none of the categories",
    ),
    "duplicate times": (
        csv(put(2, "t", "0")),
        {},
        "rows 1 and 2 (episode 0, time 0) have the same time but other values (1 such rows)",
    ),
    "ids used again": (
        csv(column("id", lambda n: f"{n // 4 % 2}")),
        {},
        "have the same time but other values (4 such rows)",
    ),
    "ids again, no time": (
        csv(column("id", lambda n: f"{n // 4 % 2}")),
        {"time": ""},
        "episode 0 comes again",
    ),
    "no episode in a row": (csv(put(8, "id", "")), {}, "column id, row 8 is empty"),
    "no time in a row": (
        csv(put(8, "t", "")),
        {},
        "column t, row 8 is None, so the row has no place in time",
    ),
    "ambiguous dates": (
        csv(column("t", lambda n: f"0{n % 9 + 1}/02/2026")),
        {},
        "neither a number nor an ISO time",
    ),
    "some times with a zone": (
        csv(column("t", lambda n: f"2026-01-01T00:{n:02d}:00" + "Z" * (n == 5))),
        {},
        "only some of the times have a time zone",
    ),
    "episodes that go on after their end": (
        csv(put(2, "c", "1")),
        {"terminal": "c", "costs": "r"},
        "row 3 goes on with an episode after its c was set",
    ),
    "a flag that is no flag": (csv(), {"terminal": "x2"}, "column x2, row 2 is '0.5', but must be 0 or 1"),
    "all episodes with gaps": (
        csv(column("x1", lambda n: "" if n % 4 == 1 else "1")),
        {},
        "no episode is left",
    ),
    "missing refused": (csv(put(5, "x1", "NA")), {"missing": "error"}, "column x1, row 5 is 'NA', no value"),
    "a step without an action, refused": (
        csv(lambda r: [put(2, name, "")(r) for name in "urc"] and r),
        {"missing": "error"},
        "row 2 has no action, reward and cost",
    ),
    "binary ids": (parquet(id=[b"\xff"] * 12), {}, "column id holds Binary; store plain values"),
    "times beyond 64 bits": (
        parquet(t=pl.Series([2**64 - 1] * 12, dtype=pl.UInt64)),
        {},
        "row 1 is 18446744073709551615, so the row has no place in time",
    ),
    "numbers and dates as times": (csv(put(3, "t", "2026-01-01")), {}, "row 1 is '0', a number, but other"),
    "a row too long": (
        csv(lambda r: [*r[:3], [*r[3], "9"], *r[4:]]),
        {},
        "row 3 has 8 cells and the header 7",
    ),
    "an open quotation mark": (csv(put(4, "x1", '"5')), {}, "close its quotation marks"),
    "not UTF-8": (csv(put(3, "x1", "§")).replace("§".encode(), b"\xa7"), {}, "row 3 holds the byte 0xa7"),
    "UTF-16": (csv().decode().encode("utf-16"), {}, "is text in UTF-16"),
    "zero bytes": (csv().replace(b"1.0", b"1\0\0"), {}, "zero bytes"),
    "a zip file": (zipped(), {}, "is a zip or Excel file"),
    "a gzip bomb": (gzip.compress(csv() + bytes(2**20)), {}, "zero byte"),
    "a gzip bomb of rows": (
        gzip.compress(csv() + (b"1," * 6 + b" " * 1000 + b"1\n") * 2**16),
        {},
        "which no log does",
    ),
    "gzip cut short": (gzip.compress(csv())[:-20], {}, "is damaged or cut short"),
    "Parquet cut short": (parquet()[:-100], {}, "is damaged or cut short"),
    "a Parquet bomb": (tall_parquet(), {}, "as no log has"),
    "nested columns": (parquet(x1=[[1.0, 2.0]] * 12), {}, "column x1 holds List(Float64), not numbers"),
    "dates in numbers": (
        parquet(x1=[None] * 11 + ["2026-01-01"]),
        {},
        "row 12 is '2026-01-01', not a number",
    ),
    "unknown option": (csv(), {"action_bound": 1}, "no option action_bound; did you mean action_bounds?"),
    "a range backwards": (csv(), {"observations": "x2..x1"}, "counts from 2 to 1"),
    "bounds that are one number": (csv(), {"action_bounds": {"u": 5}}, "must be low, high"),
    "bounds too large": (csv(), {"action_bounds": {"u": (0, 10**400)}}, "must be low, high"),
    "bounds the wrong way": (csv(), {"action_bounds": {"u": (5, 0)}}, "must be low, high"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_damaged_table_is_one_line(case, tmp_path):
    content, options, phrase = REFUSED[case]
    path = tmp_path / "my.csv"
    path.write_bytes(content)
    with pytest.raises(BCRLError) as caught:
        import_table(path, PARTS | options, tmp_path / "log.npz")
    message = str(caught.value)
    assert phrase in message
    assert "\n" not in message
    assert len(message) < 500
    assert message.startswith(str(path)) or "option" in case or "bounds" in case
    assert sorted(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("options", [{"categories": {"x1": ()}}, {"actions": "x1", "observations": "x2"}])
def test_labels_that_differ_only_in_case_are_counted(options, tmp_path):
    (tmp_path / "my.csv").write_bytes(csv(column("x1", lambda n: ("eco", "boost", "Eco")[min(n % 6, 2)])))
    parts = PARTS | {"action_bounds": {}, "discrete": "actions" in options} | options
    account = import_table(tmp_path / "my.csv", parts, tmp_path / "log.npz")
    assert [note for note in account.notes if "case" in note] == [
        "Warning: column x1 has labels that differ only in case: eco (2 rows), Eco (8 rows)."
    ]


# name of the case: bytes, options, the repairs that are told, the number of transitions
REPAIRED = {
    "nothing odd": (csv(), {}, [], 9),
    "CRLF": (csv(end="\r\n"), {}, [], 9),
    "CR alone": (csv(end="\r"), {}, [], 9),
    "a BOM": (b"\xef\xbb\xbf" + csv(), {}, [], 9),
    "tabs": (csv(separator="\t"), {}, [], 9),
    "Excel's semicolons and decimal commas": (excel(), {}, [(36, "decimal comma")], 9),
    "Excel's sep= line": (b"sep=;\r\n" + csv(separator=";"), {}, [], 9),
    "quoted cells with line feeds": (
        csv(lambda r: [[*row, '"a, ""b""\nc"' if n else "note"] for n, row in enumerate(r)]),
        {},
        [],
        9,
    ),
    "blanks around names and numbers": (csv(separator=" , "), {}, [], 9),
    "no line feed at the end": (csv()[:-1], {}, [], 9),
    "gzip": (gzip.compress(csv()), {}, [], 9),
    "Parquet": (parquet(), {}, [], 9),
    "ten thousand more columns": (wide(10_000), {}, [], 9),
    "blank rows": (csv(lambda r: [*r[:5], [""], [""] * 7, *r[5:]]), {}, [(2, "blank rows")], 9),
    "unsorted time": (csv(lambda r: [r[0], *r[:0:-1]]), {}, [(9, "sorted by time")], 9),
    "interleaved episodes": (
        csv(lambda r: [r[0], *sorted(r[1:], key=lambda row: row[1])]),
        {},
        [(3, "came again after another")],
        9,
    ),
    "duplicates, first": (
        csv(put(2, "t", "0")),
        {"duplicates": "first"},
        [(1, "with other values: the first kept, such as of rows 1 and 2 (episode 0, time 0)"), (1, "gaps")],
        8,
    ),
    "exact copies": (
        csv(lambda r: [*r[:3], r[2], r[2], *r[3:], r[-1]]),
        {},
        [(3, "exact copies of another row left out: harmless")],
        9,
    ),
    "a copy and a conflict": (
        csv(lambda r: [put(2, "t", "0")(r)] and [*r[:2], r[1], *r[2:]]),
        {"duplicates": "first"},
        [(1, "exact copies"), (1, "with other values: the first kept"), (1, "gaps")],
        8,
    ),
    "duplicates, last": (
        csv(put(2, "t", "0")),
        {"duplicates": "last"},
        [(1, "the last kept"), (1, "gaps")],
        8,
    ),
    "a gap": (csv(put(4, "t", "9")), {}, [(1, "gaps in time over 1.5 × the usual step of 1")], 9),
    "a gap, split": (
        csv(lambda r: [put(3, "t", "9")(r), put(4, "t", "10")(r)] and r),
        {"split_gap": 5},
        [(1, "gaps in time over 5"), (2, "episodes of one step")],
        8,
    ),
    "NaN": (csv(put(5, "x1", "NaN")), {}, [(1, "episodes with missing values left out")], 6),
    "NaN, forward": (csv(put(6, "x1", "")), {"missing": "forward"}, [(1, "filled with the one before")], 9),
    "NaN in a first row, forward": (
        csv(put(5, "x1", "")),
        {"missing": "forward"},
        [(1, "episodes with missing values left out")],
        6,
    ),
    "NaN, a number": (csv(put(6, "c", "")), {"fill": {"c": 0}}, [(1, "filled with the number given")], 9),
    "words for missing": (
        csv(put(6, "x2", "-999")),
        {"missing_words": ("-999",)},
        [(1, "episodes with missing values left out")],
        6,
    ),
    "last rows without an action": (
        csv(lambda r: [put(row, name, "")(r) for row in (4, 8, 12) for name in "urc"] and r),
        {},
        [(3, "last rows without an action")],
        9,
    ),
    "one row": (csv(put(12, "id", "7")), {}, [(1, "episodes of one row")], 8),
    "one step": (
        csv(lambda r: [put(11, "id", "7")(r), put(12, "id", "7")(r)] and r),
        {},
        [(2, "episodes of one step")],
        8,
    ),
    "a terminal that stays set": (
        csv(column("c", lambda n: str(int(n % 4 >= 2)))),
        {"terminal": "c", "costs": "r"},
        [(3, "rows after the end of their episode")],
        9,
    ),
    "time zones": (
        csv(column("t", lambda n: f"2026-03-29T0{2 * (n % 4)}:00:00+0{n % 2}:00")),
        {},
        [(3, "gaps in time")],
        9,
    ),
    "ISO times with blanks and fractions": (
        csv(column("t", lambda n: f"2026-03-29 00:00:{n:02d}.250Z")),
        {},
        [],
        9,
    ),
    "truth in words": (csv(column("c", lambda n: str(n % 2 == 0))), {}, [], 9),
    "last rows kept": (csv(), {"last_row": "keep"}, [(3, "own state as the next")], 12),
    "all ends terminal": (csv(), {"ends": "terminal"}, [], 12),
}


@pytest.mark.parametrize("case", REPAIRED)
def test_an_odd_table_is_repaired_and_told(case, tmp_path):
    content, options, repairs, transitions = REPAIRED[case]
    path = tmp_path / "my.csv"
    path.write_bytes(content)
    account = import_table(path, PARTS | options, tmp_path / "log.npz")
    for count, phrase in repairs:
        assert any(phrase in what and count == told for told, what in account.repairs), account.repairs
    usual = "last rows used only as the next state"
    assert len([what for _, what in account.repairs if what != usual]) == len(repairs)
    assert account.transitions == transitions
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        log = load_data(tmp_path / "log.npz")
    assert log.transitions.broken == 0
    assert len(log) == account.transitions
    streamed = import_table(path, PARTS | options, tmp_path / "log.h5")
    assert streamed.repairs == account.repairs
    assert load_data(tmp_path / "log.h5").fingerprint() == log.fingerprint()
