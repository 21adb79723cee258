"""Batches of a log on disk, read ahead of the steps that train on them.

Which rows a batch has depends on the seed and the number of the step alone, so they are known beforehand:
`read_ahead` draws them as the step would, reads them while earlier steps run, and the step finds them there.
"""

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from bcrl.data.blocks import take
from bcrl.learn.batch import Rows
from bcrl.learn.protocol import Method

MOST_BYTES = 2**28
"""Of rows that are read at once; three times as much is held: in use, waiting and being read."""


class Span(NamedTuple):
    """Steps that are trained in one call."""

    first: int
    length: int


class PlacedRows(Rows):
    """Rows that were read for the step: `take` returns them, whatever the index."""

    count: int = eqx.field(static=True)

    def __len__(self) -> int:
        return self.count

    def take(self, index: Array) -> list[Float[Array, "count width"]]:
        del index
        return self.split(self.table)  # type: ignore[arg-type]


class DrawnRows(PlacedRows):
    """Rows that keep the index they are asked for."""

    drawn: list[Array] = eqx.field(static=True)

    def take(self, index: Array) -> list[Float[Array, "count width"]]:
        self.drawn.append(index)
        return self.split(jnp.zeros((len(index), sum(self.widths))))


def step_keys(key: PRNGKeyArray, number: Array) -> PRNGKeyArray:
    """The two keys of a step: for its batch, and for its update."""
    return jax.random.split(jax.random.fold_in(key, number + 1))


def on_device(arrays: Any) -> Any:
    """The arrays without the rows on disk, which `with_rows` puts in."""
    return _replace(arrays, _are_rows_on_disk, lambda rows: PlacedRows(None, rows.widths, len(rows)))  # type: ignore[arg-type]


def with_rows(arrays: Any, rows: Float[Array, "b w"] | None) -> Any:
    """The arrays with the rows that were read for this step; None where nothing is on disk."""
    if rows is None:
        return arrays
    return _replace(arrays, _is_placed, lambda old: PlacedRows(rows, old.widths, old.count))


def is_on_disk(arrays: Any) -> bool:
    """Whether rows of these arrays are read from a disk."""
    return _on_disk(arrays) is not None


def longest_span(method: Method, arrays: Any, seeds: int) -> int | None:
    """How many steps' rows may be read at once; None where nothing is on disk."""
    if (rows := _on_disk(arrays)) is None:
        return None
    index = jax.eval_shape(partial(_index, method), on_device(arrays), jax.random.key(0))
    return max(MOST_BYTES // (4 * seeds * index.size * sum(rows.widths)), 1)


def read_ahead(
    method: Method, arrays: Any, keys: jax.Array, spans: Iterator[Span]
) -> Iterator[Float[Array, "seeds steps b w"] | None]:
    """The rows of each span; None where nothing is on disk."""
    rows = _on_disk(arrays)
    if rows is None:
        yield from (None for _ in spans)
        return
    table, placed = rows.table, on_device(arrays)
    assert isinstance(table, np.ndarray)

    def read(index: jax.Array) -> jax.Array:
        found = take(table, np.asarray(index).ravel())
        return jnp.asarray(found.reshape(*index.shape, -1))

    with ThreadPoolExecutor(1, "bcrl-rows") as reader:
        waiting: deque[Future[jax.Array]] = deque()
        for span in spans:
            # Drawn here and not by the reader: on a GPU, what is asked for later waits for the steps before.
            index = _draw(method, span.length, placed, keys, jnp.asarray(span.first))
            waiting.append(reader.submit(read, index))
            if len(waiting) > 2:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


@partial(jax.jit, static_argnames=("method", "length"))
def _draw(method: Method, length: int, arrays: Any, keys: jax.Array, first: jax.Array) -> jax.Array:
    """(seeds, length, b): the rows of each step."""

    def one(key: PRNGKeyArray, number: Array) -> Array:
        return _index(method, arrays, step_keys(key, number)[0])

    numbers = first + jnp.arange(length)
    return jax.vmap(lambda key: jax.vmap(partial(one, key))(numbers))(keys)


def _index(method: Method, arrays: Any, key: PRNGKeyArray) -> Array:
    """Which rows `sample` asks for."""
    drawn: list[Array] = []
    method.sample(
        _replace(arrays, _is_placed, lambda rows: DrawnRows(None, rows.widths, rows.count, drawn)),  # type: ignore[arg-type]
        key,
    )
    (index,) = drawn
    return index


def _on_disk(arrays: Any) -> Rows | None:
    found = [x for x in jax.tree.leaves(arrays, is_leaf=_are_rows_on_disk) if _are_rows_on_disk(x)]
    assert len(found) <= 1, "one table is read ahead"
    return found[0] if found else None


def _are_rows_on_disk(x: Any) -> bool:
    return isinstance(x, Rows) and isinstance(x.table, np.ndarray)


def _is_placed(x: Any) -> bool:
    return isinstance(x, PlacedRows)


def _replace(arrays: Any, which: Callable[[Any], bool], new: Callable[[Any], Any]) -> Any:
    return jax.tree.map(lambda x: new(x) if which(x) else x, arrays, is_leaf=which)
