"""From command-line words to a dataclass, with errors on one line."""

import io
import re
from collections.abc import Sequence
from contextlib import redirect_stderr
from typing import Any, TypeVar

import tyro

from bcrl.errors import BCRLError

T = TypeVar("T")


def parse(command: type[T], program: str, words: Sequence[str], default: Any = None) -> T:
    """Reads `words` into the dataclass `command`; help goes to the screen, mistakes into one line."""
    said = io.StringIO()
    more = {} if default is None else {"default": default}
    try:
        with redirect_stderr(said):
            return tyro.cli(command, prog=program, args=list(words), **more)
    except SystemExit as stop:
        if not stop.code:
            raise
        message = _one_line(said.getvalue())
        if unknown := re.match(r"Unrecognized options?: (.*?)(?: For full helptext.*)?$", message):
            names = [word for word in unknown[1].split(", ") if word.startswith("-")]
            message = f"there is no {' '.join(names) or unknown[1]} here"
        raise BCRLError(f"{message} (see {program} --help)") from None


def _one_line(box: str) -> str:
    """The first paragraph of tyro's message, without its frame and colours."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", box)
    lines = [re.sub(r"^[│╭╰\s]+|[│╮╯\s]+$", "", line) for line in text.splitlines()]
    lines = [line for line in lines if line]
    if len(lines) > 1 and set(lines[1]) <= set("- "):  # no UTF-8, no frame: a title and a rule under it
        lines = lines[2:]
    kept = [line for line in lines if not set(line) <= set("─- ") and not line.startswith("─")]
    return re.sub(r"\s+", " ", " ".join(kept[:3])).strip() or "the arguments could not be read"


def numbers(name: str, text: str, whole: bool = False) -> tuple[float, ...]:
    """Numbers with commas, such as 10,20,40."""
    try:
        return tuple(int(word) if whole else float(word) for word in text.split(","))
    except ValueError:
        kind, example = ("whole numbers", "0,10,20") if whole else ("numbers", "10,20,40")
        raise BCRLError(f"--{name} is {text!r}, but must be {kind} with commas, such as {example}") from None
