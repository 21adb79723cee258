"""From command-line words to a dataclass, with errors on one line.

A list is written `0,10,20` or `0 10 20`, a whole number `100000`, `100_000` or `1e5`. What a word may be
follows from the type of the field (`options.py`); tyro then reads the values.
"""

import io
import re
from collections.abc import Iterator, Sequence
from contextlib import redirect_stderr
from pathlib import Path
from typing import Any, TypeVar

import tyro

from bcrl.cli.help import help_text
from bcrl.cli.options import Option, options_of
from bcrl.errors import BCRLError, did_you_mean

T = TypeVar("T")


def parse(command: type[T], program: str, words: Sequence[str], default: Any = None) -> T:
    """Reads `words` into the dataclass `command`; help goes to the screen, mistakes into one line."""
    options = options_of(command, default)
    if {"-h", "--help"} & set(words):
        print(help_text(command, program, options))
        raise SystemExit(0)
    said = io.StringIO()
    more = {} if default is None else {"default": default}
    try:
        ready = _ready(words, options)
        with redirect_stderr(said):
            return tyro.cli(command, prog=program, args=ready, **more)
    except BCRLError as error:
        raise BCRLError(f"{error} (see {program} --help)") from None
    except SystemExit as stop:
        if not stop.code:
            raise
        raise BCRLError(f"{_one_line(said.getvalue())} (see {program} --help)") from None


def _ready(words: Sequence[str], options: Sequence[Option]) -> list[str]:
    """The words as tyro takes them: positional ones first, lists apart, numbers plain; checked."""
    by_flag = {option.flag: option for option in options}
    free: list[str] = []
    ready: list[str] = []
    given = set()
    left = list(words)
    while left:
        word = left.pop(0)
        if not word.startswith("--") or word == "--":
            free.append(word)
            continue
        name, equals, value = word.partition("=")
        option = _find(name.replace("_", "-"), by_flag)
        given.add(option.name)
        if option.kind is bool:
            ready.append(word)
            continue
        if equals:
            left.insert(0, value)
        taken = list(_take(option, left, any(other.positional for other in options)))
        ready += [option.flag, *taken]
    _check_free(free, options)
    for option in options:
        if option.required and option.name not in given and not (option.positional and (free or option.many)):
            raise BCRLError(f"Missing {option.shown}: {option.about}")
    return [*free, *ready]


def _find(flag: str, by_flag: dict[str, Option]) -> Option:
    plain = flag.replace("--no-", "--", 1)
    if flag in by_flag:
        return by_flag[flag]
    if plain in by_flag and by_flag[plain].kind is bool:
        return by_flag[plain]
    raise BCRLError(f"there is no {flag} here{did_you_mean(flag, by_flag)}")


def _take(option: Option, left: list[str], positionals: bool) -> Iterator[str]:
    """Takes the value of an option from the front of `left`."""
    if not left or left[0].startswith("--"):
        raise BCRLError(f"{option.flag} needs a value: {option.about}")
    word = left.pop(0)
    if not option.many:
        yield _value(option, word, word)
        return
    yield from [_value(option, part, word) for part in _parts(option, word)]
    if left and not left[0].startswith("--") and not (positionals and _may_be_positional(option, left[0])):
        yield from _take(option, left, positionals)


def _parts(option: Option, word: str) -> list[str]:
    """The values in one word of a list; a path may hold a comma."""
    return [word] if option.each is Path else word.removesuffix(",").split(",")


def _may_be_positional(option: Option, word: str) -> bool:
    """Whether the word after a list is no more of it: not a number or one of the choices."""
    if option.each in (str, Path):
        return option.each is str  # a list of paths takes all that follow, one of words has commas
    try:
        return not all(_value(option, part, word) for part in _parts(option, word))
    except BCRLError:
        return True


def _value(option: Option, text: str, word: str) -> str:
    """One value as tyro takes it; `word` is what the user wrote."""
    if text == "None" and option.default is None:
        return text
    if option.choices:
        if text not in option.choices:
            known = ", ".join(option.choices)
            hint = did_you_mean(text, option.choices)
            raise BCRLError(f"{option.shown} {text} is not known{hint or ';'} known: {known}")
        return text
    if option.each not in (int, float):
        if not text and option.many:
            raise BCRLError(f"{option.shown} is {word!r}, but must be words with commas, such as a,b")
        return text
    whole = option.each is int
    try:
        number = float(text)
        if not whole:
            return text
        return str(int(text) if re.fullmatch(r"[+-]?[\d_]+", text) else _whole(number))
    except (ValueError, OverflowError):
        noun = "whole number" if whole else "number"
        must = f"a {noun}"
        if option.many:
            must = f"{noun}s with commas, such as {'0,10,20' if whole else '10,20,40'}"
        raise BCRLError(f"{option.shown} is {word!r}, but must be {must}") from None


def _whole(number: float) -> int:
    if not number.is_integer():
        raise ValueError
    return int(number)


def _check_free(free: list[str], options: Sequence[Option]) -> None:
    """Checks positional words: their number, and what they may be."""
    positional = [option for option in options if option.positional]
    room = len(positional)
    if len(free) > room and not any(option.many for option in positional):
        raise BCRLError(f"there is no place for {free[room]!r} here")
    for option, word in zip(positional, free, strict=False):
        _value(option, word, word)


def _one_line(box: str) -> str:
    """tyro's message without its frame and colours."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", box)
    lines = [re.sub(r"^[│╭╰\s]+|[│╮╯\s]+$", "", line) for line in text.splitlines()]
    kept = [line for line in lines if line and not set(line) <= set("─- ") and not line.startswith("─")]
    return re.sub(r"\s+", " ", " ".join(kept)).strip() or "the arguments could not be read"
