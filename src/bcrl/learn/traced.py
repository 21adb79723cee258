"""Methods that differ in traced options alone, as one program.

An option is traced if its declaration says so (`option(..., traced=True)`): then it may be an array while a
step is traced, with one value for each run.
"""

import copy
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bcrl.data import Dataset
from bcrl.errors import BCRLError
from bcrl.learn.options import range_of
from bcrl.learn.protocol import Method, Normaliser

SHARE = "share"
"""What a method with a `prepare_together` of its own knows besides its options: its part of the data."""


def traced_options(kind: type[Method]) -> list[str]:
    """The options of a method that may be traced."""
    names = [field.name for field in dataclasses.fields(kind)]  # type: ignore[arg-type]
    return [name for name in names if (declared := range_of(kind, name)) and declared.traced]


def program_key(method: Method) -> tuple[Any, ...]:
    """What methods must have in common to be one program: all but the numbers that may be traced."""
    traced = set(traced_options(type(method)))
    return type(method), *(
        "traced" if field.name in traced and value is not None else value
        for field in dataclasses.fields(method)  # type: ignore[arg-type]
        for value in [getattr(method, field.name)]
    )


def differing(methods: Sequence[Method]) -> dict[str, np.ndarray]:
    """The options in which methods of one `program_key` differ, a value for each method."""
    values = {
        name: [getattr(method, name) for method in methods]
        for name in [*traced_options(type(methods[0])), SHARE]
        if hasattr(methods[0], name)
    }
    return {
        name: np.array(each, np.int32 if name == SHARE else np.float32)
        for name, each in values.items()
        if len(set(each)) > 1 or (name == SHARE and each[0] is not None)  # a share is no part of the hash
    }


def prepare_together(
    methods: Sequence[Method], data: Dataset, normaliser: Normaliser
) -> tuple[Any, list[Method]]:
    """What methods of one `program_key` need on the device, and the methods.

    Traced options do not change it. Where one does (BC-Safe), the method has its own `prepare_together`.
    """
    if len(methods) > 1 and hasattr(methods[0], "prepare_together"):
        if data.on_disk:
            raise BCRLError(
                f"{data.source}: stays on disk, where {methods[0].name} trains for one threshold at a time: "
                "use storage memory, or a run for each"
            )
        return methods[0].prepare_together(methods, data, normaliser)  # type: ignore[attr-defined]
    return methods[0].prepare(data, normaliser), list(methods)


def with_traced(method: Method, values: Mapping[str, Any]) -> Method:
    """The method with arrays in the place of numbers. They were checked as numbers."""
    if not values:
        return method
    other = copy.copy(method)
    for name, value in values.items():
        object.__setattr__(other, name, value)
    return other
