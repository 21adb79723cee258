"""Names for the stages of a step, which `benchmarks/profile.py` finds again in the compiled program."""

from collections.abc import Iterator
from contextlib import contextmanager

import jax

PREFIX = "stage."


@contextmanager
def stage(name: str) -> Iterator[None]:
    """What is traced within belongs to this stage, its gradient too. Numbers do not change.

    It is a context manager and a decorator; of nested stages the innermost counts.
    """
    with jax.named_scope(PREFIX + name):
        yield
