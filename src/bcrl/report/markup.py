"""HTML from pieces. Text is escaped unless it is `HTML` already, so nothing a file says becomes markup."""

import json
from collections.abc import Iterable
from html import escape as _escape
from typing import Any

# Controls, and marks that change the direction of the text after them. Names from files may hold them.
_CONTROL = {
    number: chr(number).encode("unicode_escape").decode()
    for number in (*range(32), *range(127, 160), *range(0x2028, 0x202F), *range(0x2066, 0x206A))
    if chr(number) not in "\n\t"
}


class HTML(str):
    """Text that is markup already."""

    __slots__ = ()


Piece = str | Iterable["Piece"]


def element(name: str, content: Piece = "", **attributes: str) -> HTML:
    """`<name attributes>content</name>`. `class_` stands for class, an underscore inside for a hyphen."""
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(value)}"' for key, value in attributes.items()
    )
    return HTML(f"<{name}{given}>{join(content)}</{name}>")


def join(*pieces: Piece) -> HTML:
    """Pieces one after another."""
    return HTML("".join(_one(piece) for piece in pieces))


def _one(piece: Piece) -> str:
    if isinstance(piece, HTML):
        return piece
    return escape(piece) if isinstance(piece, str) else join(*piece)


def escape(text: str) -> str:
    """Text as HTML shows it: markup and control characters are escaped."""
    return _escape(text).translate(_CONTROL)


def data_script(data: dict[str, Any]) -> HTML:
    """JSON for a script of the page, without characters that could end its element."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    text = text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    return element("script", HTML(text), type="application/json", class_="data")
