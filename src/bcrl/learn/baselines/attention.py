"""Causal attention with dropout as one kernel each way, for GPUs (Pallas, by Triton).

The sequences are short (40 tokens) and the heads narrow (16 units), so that XLA's form, products of tiny
matrices with scores and weights written out between them, spends its time on memory. Here the scores of one
head of one sequence never leave the chip; the way back computes them again.
"""

import math
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton
from jaxtyping import Array, Float, PRNGKeyArray, UInt32

from bcrl.learn.baselines.parts import byte_limit, key_words, random_bytes


class Shape(NamedTuple):
    """Of one sequence: its heads, queries and keys; of every `group` keys the last `kept` have a query."""

    heads: int
    units: int  # of a head
    queries: int
    keys: int
    kept: int
    group: int
    dropped: int  # 256ths of the weights
    interpret: bool

    @property
    def scale(self) -> float:
        return 256 / (256 - self.dropped)


def fused_attention(
    query: Float[Array, "*b q w"],
    key_and_value: Float[Array, "*b t v"],
    *,
    heads: int,
    group: int,
    rate: float,
    key: PRNGKeyArray | None,
    interpret: bool = False,
) -> Float[Array, "*b q w"]:
    """softmax(q kᵀ/√h) v in each head, causal; of every `group` tokens only the last ones have a query."""
    queries, keys, width = query.shape[-2], key_and_value.shape[-2], query.shape[-1]
    dropped = 0 if key is None else byte_limit(rate)
    shape = Shape(heads, width // heads, queries, keys, queries * group // keys, group, dropped, interpret)
    words = jnp.zeros(2, jnp.uint32) if key is None else key_words(key)
    rows = query.reshape(-1, width), key_and_value.reshape(-1, 2 * width)
    found: Any = _attend(shape, words, *rows)
    return found.reshape(query.shape)


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _attend(shape: Shape, words: UInt32[Array, " 2"], query: Array, key_and_value: Array) -> Array:
    return _call(_forward, 1, shape, words, query, key_and_value)[0]


def _with_inputs(shape: Shape, *inputs: Array) -> tuple[Array, tuple[Array, ...]]:
    return _attend(shape, *inputs), inputs


def _gradients(shape: Shape, inputs: tuple[Array, ...], gradient: Array) -> tuple[None, Array, Array]:
    d_query, d_key_and_value = _call(_backward, 2, shape, *inputs, gradient)
    return None, d_query, d_key_and_value


_attend.defvjp(_with_inputs, _gradients)


def _call(kernel: Any, outputs: int, shape: Shape, *inputs: Array) -> list[Array]:
    """A kernel that returns arrays like the query and, on the way back, like the keys and values."""
    return pl.pallas_call(
        partial(kernel, shape),
        out_shape=[jax.ShapeDtypeStruct(x.shape, x.dtype) for x in inputs[1 : 1 + outputs]],
        grid=(len(inputs[1]) // shape.queries, shape.heads),
        interpret=shape.interpret,
        compiler_params=None if shape.interpret else triton.CompilerParams(num_warps=4, num_stages=1),
    )(*inputs)


def _forward(shape: Shape, words: Any, query: Any, key_and_value: Any, out: Any) -> None:
    q, k, v = _inputs(shape, query, key_and_value)
    weight, keep = _weights(shape, words, q, k)
    _put(shape, out, triton.dot((weight * keep).astype(v.dtype), v), shape.queries)


def _backward(
    shape: Shape, words: Any, query: Any, key_and_value: Any, d_out: Any, d_query: Any, d_key_and_value: Any
) -> None:
    q, k, v = _inputs(shape, query, key_and_value)
    weight, keep = _weights(shape, words, q, k)
    d = _take(shape, d_out, shape.queries)
    d_weight = triton.dot(d, v, trans_b=True) * keep
    mean = jnp.sum(d_weight * weight, axis=1, keepdims=True)
    d_score = (weight * (d_weight - mean) / math.sqrt(shape.units)).astype(q.dtype)
    _put(shape, d_query, triton.dot(d_score, k), shape.queries)
    _put(shape, d_key_and_value, triton.dot(d_score, q, trans_a=True), shape.keys)
    d_value = triton.dot((weight * keep).astype(d.dtype), d, trans_a=True)
    _put(shape, d_key_and_value, d_value, shape.keys, second=True)


def _weights(shape: Shape, words: Any, q: Array, k: Array) -> tuple[Array, Array]:
    """The softmax, and by what dropout multiplies it."""
    i, j = (jax.lax.broadcasted_iota(jnp.int32, (len(q), len(k)), axis) for axis in (0, 1))
    place = i // shape.kept * shape.group + (shape.group - shape.kept) + i % shape.kept
    score = triton.dot(q, k, trans_b=True) / math.sqrt(shape.units)
    score = jnp.where((place >= j) & (j < shape.keys), score, -1e30)
    weight = jnp.exp(score - jnp.max(score, axis=1, keepdims=True))
    weight = weight / jnp.sum(weight, axis=1, keepdims=True)
    if not shape.dropped:
        return weight, jnp.ones_like(weight)
    number = pl.program_id(0) * shape.heads + pl.program_id(1)
    index = ((number * shape.queries + i) * shape.keys + j).astype(jnp.uint32)
    keep = random_bytes(index, words[0], words[1]) >= shape.dropped
    return weight, jnp.where(keep, shape.scale, 0.0)


def _inputs(shape: Shape, query: Any, key_and_value: Any) -> tuple[Array, Array, Array]:
    return (
        _take(shape, query, shape.queries),
        _take(shape, key_and_value, shape.keys),
        _take(shape, key_and_value, shape.keys, second=True),
    )


def _place(shape: Shape, rows: Any, count: int, second: bool) -> tuple[Any, Array]:
    """Where this head of this sequence is; rows are padded to a power of two, which the mask leaves out."""
    padded = max(16, 1 << (count - 1).bit_length())
    first = (second * shape.heads + pl.program_id(1)) * shape.units
    inside = jax.lax.broadcasted_iota(jnp.int32, (padded, shape.units), 0) < count
    return rows.at[pl.ds(pl.program_id(0) * count, padded), pl.ds(first, shape.units)], inside


def _take(shape: Shape, rows: Any, count: int, second: bool = False) -> Array:
    place, inside = _place(shape, rows, count, second)
    return triton.load(place, mask=inside, other=0.0)


def _put(shape: Shape, rows: Any, value: Array, count: int, second: bool = False) -> None:
    place, inside = _place(shape, rows, count, second)
    triton.store(place, value.astype(rows.dtype), mask=inside)
