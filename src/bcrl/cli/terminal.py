"""What is printed: tables that lose no digit, and text that every terminal can show."""

import codecs
import shlex
import sys
import textwrap
import unicodedata
from collections.abc import Iterable, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING

from bcrl.errors import printable

if TYPE_CHECKING:
    from rich.table import Table

    from bcrl.assess.statistics import Summary

_PLAIN = {
    "–": "-", "−": "-", "—": "-", "±": "+/-", "×": "x", "·": "*", "≤": "<=", "≥": ">=", "…": "...",
    "²": "2", "³": "3", "∞": "inf", "→": "->", "↑": "^", "↓": "v", "★": "*", "†": "+", "’": "'", "′": "'",
    "\N{NO-BREAK SPACE}": " ",
}  # fmt: skip


def prepare_streams() -> None:
    """Lets a terminal or pipe without UTF-8 show `<=` for ≤ and `tau` for τ instead of failing."""
    codecs.register_error("bcrl", _replace)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="bcrl")  # type: ignore[union-attr]


def print_table(*tables: "Table") -> None:
    """Prints the first of these forms of a table that fits the width, or the last as wide as it must be.

    rich would cut digits to make it fit.
    """
    from rich.console import Console

    console = Console(highlight=False)
    widths = [Console(width=10_000).measure(table).maximum for table in tables]
    table, needed = next(
        ((table, width) for table, width in zip(tables, widths, strict=True) if width <= console.width),
        (tables[-1], widths[-1]),
    )
    console.width = max(console.width, needed)
    console.print(table)


def print_summary(summaries: "Sequence[Summary]", title: str) -> None:
    """Prints what `summary_table` shows, in the form that fits."""
    from bcrl.assess.tables import summary_table

    print_table(*(summary_table(summaries, title, narrow=narrow) for narrow in (False, True)))


def print_columns(heads: list[str], cells: list[list[str]]) -> None:
    """Numbers to the right, under their heads; intervals below their means where 80 columns are too few."""
    widths = [max(len(row[i]) for row in [heads, *cells]) for i in range(len(heads))]
    if sum(widths) + 2 * (len(widths) - 1) > 80:
        parts = [[cell.replace(" (", "\n(", 1).split("\n") for cell in row] for row in cells]
        cells = [list(line) for row in parts for line in zip_longest(*row, fillvalue="")]
        widths = [max(len(row[i]) for row in [heads, *cells]) for i in range(len(heads))]
    for row in [heads, *cells]:
        print("  ".join(f"{cell:>{width}}" for cell, width in zip(row, widths, strict=True)))


def print_reasons(pairs: Iterable[tuple[str, str]]) -> None:
    """Each reason once, after the thresholds it is for."""
    reasons: dict[str, dict[str, None]] = {}
    for threshold, reason in pairs:
        reasons.setdefault(reason, {})[threshold] = None
    print_notes((f"at {','.join(at)}", reason) for reason, at in reasons.items())


def print_notes(notes: Iterable[tuple[str, str]]) -> None:
    """A note a line, wrapped to 80 columns."""
    for where, note in notes:
        print(textwrap.fill(f"{where}: {note}", 80, subsequent_indent="  "))


def span(low: float, high: float) -> str:
    """An interval; with "to" where a dash would stand beside a minus."""
    if low >= 0:
        return f"{low:.4g}–{high:.4g}"
    return f"{low:.4g} to {high:.4g}".replace("-", "−")


def share(value: float) -> str:
    """Per cent. What is not none and not all is never shown as 0 % or 100 %."""
    shown = f"{value:.0%}"
    return {"0%": "<1%", "100%": ">99%"}.get(shown, shown) if 0 < value < 1 else shown


def next_step(*words: object) -> None:
    """Says what to do next: a command, or a sentence if it is one string."""
    print(f"next: {printable(words[0] if len(words) == 1 else shlex.join(map(str, words)))}")


def _replace(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(map(_plain, error.object[error.start : error.end])), error.end


def _plain(character: str) -> str:
    name = unicodedata.name(character, "")
    if name.startswith("GREEK"):
        return name.split()[-1].lower()
    if name.startswith("BOX DRAWINGS"):
        return "|" if "VERTICAL" in name else "-"
    return _PLAIN.get(character) or character.encode("unicode_escape").decode()
