"""A whole HTML file: its head, the colours of light and dark, and a policy that lets nothing in or out."""

import base64
import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, replace

from bcrl.report.markup import HTML, Piece, element, join
from bcrl.report.theme import DARK, LIGHT, Theme

FONT = "--font: system-ui, 'Segoe UI', Roboto, 'Noto Sans', 'Liberation Sans', sans-serif;"


@dataclass(frozen=True)
class Part:
    """Markup with the style sheets and the scripts that it needs; a page has each of them once."""

    body: HTML
    styles: tuple[str, ...] = ()
    scripts: tuple[str, ...] = ()


def join_parts(content: Iterable[Piece | Part]) -> Part:
    """Pieces and parts one after another, with all that the parts need."""
    content = list(content)
    parts = [piece for piece in content if isinstance(piece, Part)]
    return Part(
        join(*(piece.body if isinstance(piece, Part) else piece for piece in content)),
        tuple(dict.fromkeys(style for part in parts for style in part.styles)),
        tuple(dict.fromkeys(script for part in parts for script in part.scripts)),
    )


def around(name: str, content: Iterable[Piece | Part], **attributes: str) -> Part:
    """`<name attributes>content</name>`."""
    inside = join_parts(content)
    return replace(inside, body=element(name, inside.body, **attributes))


def document(title: str, content: Iterable[Piece | Part], *, style: str) -> str:
    """The file as text."""
    whole = join_parts(content)
    head = join(
        HTML('<meta charset="utf-8">'),
        HTML(f'<meta http-equiv="Content-Security-Policy" content="{_policy(whole.scripts)}">'),
        HTML('<meta name="viewport" content="width=device-width, initial-scale=1">'),
        HTML('<meta name="color-scheme" content="light dark">'),
        HTML('<link rel="icon" href="data:,">'),  # a browser would ask the server for one
        element("title", title),
        element("style", HTML("\n".join([_colours(), style, *whole.styles]))),
    )
    scripts = join(*(element("script", HTML(script)) for script in whole.scripts))
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<head>{head}</head>\n'
        f"<body>\n{whole.body}{scripts}\n</body>\n</html>\n"
    )


def _policy(scripts: Iterable[str]) -> str:
    """Only these very scripts may run, and nothing can be fetched or sent."""
    digests = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    allowed = " ".join(f"'sha256-{digest}'" for digest in digests) or "'none'"
    return (
        f"default-src 'none'; style-src 'unsafe-inline'; script-src {allowed}; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _colours() -> str:
    light = f":root {{ color-scheme: light dark; {FONT} {_variables(LIGHT)} }}"
    dark = f"@media screen and (prefers-color-scheme: dark) {{ :root {{ {_variables(DARK)} }} }}"
    return f"{light}\n{dark}"


def _variables(theme: Theme) -> str:
    return " ".join(f"--{name}: {colour};" for name, colour in theme.named().items())
