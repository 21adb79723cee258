"""The options of a verb, read from its dataclass: name, type, default, range, description, group."""

import ast
import dataclasses
import inspect
import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import tyro

from bcrl.learn.options import Range, range_of

_METAVARS = {int: "N", float: "X", str: "TEXT", Path: "PATH"}
_LONG = 40  # choices that take more letters are listed below the option


@dataclass(frozen=True)
class Option:
    """One option or positional argument."""

    name: str
    """The field's."""
    kind: Any
    """The field's type, without None and annotations."""
    default: Any
    """tyro.MISSING where the user must give a value."""
    positional: bool
    metavar: str
    """What stands for the value in help."""
    limits: Range | None
    about: str
    """The field's docstring."""
    group: str
    """The heading above the field in the source, `# ---- heading ----`; empty where there is none."""

    @property
    def flag(self) -> str:
        return f"--{self.name.replace('_', '-')}"

    @property
    def shown(self) -> str:
        """Its name in messages."""
        return self.metavar if self.positional else self.flag

    @property
    def required(self) -> bool:
        return self.default is tyro.MISSING

    @property
    def many(self) -> bool:
        """Whether its value is a list."""
        return get_origin(self.kind) is tuple

    @property
    def each(self) -> Any:
        """The type of one word of its value."""
        kind = self.kind
        while get_origin(kind) is tuple:
            kind = get_args(kind)[0]
        return kind

    @property
    def choices(self) -> tuple[str, ...]:
        """The words it takes, where these are few."""
        return get_args(self.each) if get_origin(self.each) is Literal else ()


def options_of(command: Any, default: Any = None) -> list[Option]:
    """The options of a command in the order of its fields; those of a nested dataclass come last."""
    own = list(_options(command, default))
    return [option for nested in (False, True) for inside, option in own if inside is nested]


def _options(command: Any, default: Any) -> Iterator[tuple[bool, Option]]:
    kind = get_origin(command) or command
    (argument,) = get_args(command) or (None,)
    hints = get_type_hints(kind, include_extras=True)
    about, groups = _source(kind)
    for field in dataclasses.fields(kind):
        hint, marks = hints[field.name], ()
        if get_origin(hint) is Annotated:
            hint, marks = get_args(hint)[0], hint.__metadata__
        value = _default(field) if default is None else getattr(default, field.name)
        if isinstance(hint, TypeVar):
            for option in options_of(argument, value):
                yield True, dataclasses.replace(option, group=option.group or "options of the method")
            continue
        hint = _without_none(hint)
        metavar = next((m for mark in marks if (m := getattr(mark, "metavar", None))), None)
        yield (
            False,
            Option(
                field.name,
                hint,
                value,
                tyro.conf.Positional in marks,
                metavar or _metavar(hint, field.name),
                range_of(kind, field.name),
                about.get(field.name, ""),
                groups.get(field.name, ""),
            ),
        )


def _default(field: dataclasses.Field) -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return tyro.MISSING if field.default is dataclasses.MISSING else field.default


def _without_none(hint: Any) -> Any:
    if get_origin(hint) in (Union, UnionType):
        (hint,) = (kind for kind in get_args(hint) if kind is not NoneType)
    return hint


def _metavar(kind: Any, name: str) -> str:
    if get_origin(kind) is Literal:
        choices = "|".join(get_args(kind))
        return choices if len(choices) <= _LONG else name.upper()
    if get_origin(kind) is tuple:
        return f"{_metavar(get_args(kind)[0], name)},..."
    return _METAVARS.get(kind, "")


@cache
def _source(kind: type) -> tuple[dict[str, str], dict[str, str]]:
    """The docstring of every field and the heading it stands under, from the class and its bases."""
    about: dict[str, str] = {}
    groups: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        if not dataclasses.is_dataclass(base):
            continue
        try:
            text = textwrap.dedent(inspect.getsource(base))
        except OSError:  # a program without its source has names and defaults alone
            continue
        body = ast.parse(text).body[0].body  # type: ignore[attr-defined]
        headings = [
            (number, found[1])
            for number, line in enumerate(text.splitlines(), start=1)
            if (found := re.fullmatch(r"\s*# -{2,} (.+?) -{2,}", line))
        ]
        for field, after in zip(body, [*body[1:], None], strict=True):
            if not (isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)):
                continue
            above = [title for number, title in headings if number < field.lineno]
            if above:
                groups[field.target.id] = above[-1]
            if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
                about[field.target.id] = " ".join(str(after.value.value).split())
    return about, groups
