"""What is printed: tables that lose no digit, and text that every terminal can show."""

import codecs
import sys
import unicodedata
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table

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


def print_table(table: "Table") -> None:
    """Prints a table as wide as it must be: a narrower one would lose digits."""
    from rich.console import Console

    needed = Console(width=10_000).measure(table).maximum
    console = Console(highlight=False)
    console.width = max(console.width, needed)
    console.print(table)


def next_step(*commands: str) -> None:
    """Says what to do after this command."""
    for command in commands:
        print(f"next: {command}")


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
