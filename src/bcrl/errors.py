"""The exception for mistakes that a user can correct, and what its messages are made of."""

from collections.abc import Iterable
from difflib import get_close_matches
from importlib.util import find_spec

LONGEST = 2_000
"""Characters of a message."""


class BCRLError(Exception):
    """A one-line message with the file, the field, the value and what to do.

    The command line prints it without a traceback and exits with status 2. Names and values from files are in
    it, so control characters are shown as escapes, and a message is cut where it gets long.
    """

    def __init__(self, message: object):
        super().__init__(brief(message, LONGEST))


class Stopped(KeyboardInterrupt):
    """Training was asked to stop, and has stopped. `status` is the exit status of the program."""

    def __init__(self, message: str, status: int):
        super().__init__(message)
        self.status = status


def brief(text: object, most: int = 200) -> str:
    """Text from a file or a library for a message: printable, one line, `most` characters of it."""
    whole = str(text)
    cut = whole if len(whole) <= most else f"{whole[:most]}..."
    return printable(cut)


def brief_repr(value: object) -> str:
    """The repr of a value for a message; files may hold anything."""
    try:
        return brief(repr(value))
    except RecursionError:
        return f"a {type(value).__name__} that is nested too deeply"
    except ValueError:  # Python writes no more than 4,300 digits
        return f"a {type(value).__name__} with an integer of thousands of digits"


def need(*packages: str, extra: str) -> None:
    """Raises a BCRLError with the pip command unless all `packages` of the extra are installed."""
    missing = [name for name in packages if find_spec(name) is None]
    if missing:
        raise BCRLError(f"this needs {' and '.join(missing)}: pip install 'bcrl[{extra}]'")


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`; did you mean X?` with the known word that is nearest; nothing where none is near."""
    words = {one.lower(): one for one in known}
    near = get_close_matches(word.lower(), list(words), n=1)
    return f"; did you mean {words[near[0]]}?" if near else ""


def printable(text: object) -> str:
    """Text for a terminal or one line of a log: control characters are shown as escapes, not sent."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in str(text))
