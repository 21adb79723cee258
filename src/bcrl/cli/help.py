"""The help of a verb: its options in groups, each with what it takes, its range and its default."""

import inspect
import math
import shutil
import textwrap
from collections.abc import Sequence
from typing import Any, get_origin

from bcrl.cli.options import Option


def help_text(command: Any, program: str, options: Sequence[Option]) -> str:
    """The whole help, as wide as the terminal, up to 100 columns."""
    width = min(max(shutil.get_terminal_size().columns, 60), 100)
    needed = [option.metavar for option in options if option.positional]
    needed += [f"{option.flag} {option.metavar}" for option in options if _must(option)]
    about = inspect.getdoc(get_origin(command) or command) or ""
    parts = [f"usage: {' '.join([program, *needed, '[options]'])}"]
    parts += [textwrap.fill(" ".join(part.split()), width) for part in about.split("\n\n")]
    groups: dict[str, list[Option]] = {}
    for option in sorted(options, key=lambda option: not option.positional):
        groups.setdefault("arguments" if option.positional else option.group or "options", []).append(option)
    for title, members in groups.items():
        parts.append("\n".join([f"{title}:", *(_entry(option, width) for option in members)]))
    return "\n\n".join(parts)


def _must(option: Option) -> bool:
    return option.required and not option.positional


def _entry(option: Option, width: int) -> str:
    head = option.metavar if option.positional else option.flag
    if option.kind is bool:
        head += f", --no-{option.flag[2:]}" if option.default is True else ""
    elif not option.positional:
        head += f" {option.metavar}"
    notes = [option.about, *_notes(option)]
    lines = textwrap.wrap(" ".join(note for note in notes if note), width - 8)
    return "\n".join([f"  {head}", *(f"        {line}" for line in lines)])


def _notes(option: Option) -> list[str]:
    """What the docstring does not say: the range with its unit, and the default."""
    notes = []
    if option.choices and "|" not in option.metavar:
        notes.append(f"One of {', '.join(option.choices)}.")
    limits = option.limits
    if limits is not None:
        bounded = limits.low > -math.inf or limits.high < math.inf
        notes += [f"{str(limits)[0].upper()}{str(limits)[1:]}." if bounded else f"Unit: {limits.unit}."]
    if option.required:
        notes.append("Required.")
    elif option.kind is bool:
        notes += ["Default: on."] if option.default else []
    elif option.default not in (None, "", ()):
        value = option.default
        notes.append(f"Default: {','.join(map(_text, value)) if isinstance(value, tuple) else _text(value)}.")
    return notes


def _text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
