"""The one train loop: data on the devices, `lax.scan` between log points, `vmap` over seeds."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding

from bcrl.learn.devices import AXIS, SPREAD, WHOLE, mesh_for, placed
from bcrl.learn.protocol import Method, Part, Spec
from bcrl.learn.stages import stage
from bcrl.learn.streamed import Span, is_on_disk, longest_span, on_device, read_ahead, step_keys, with_rows
from bcrl.learn.traced import with_traced


class Point(NamedTuple):
    """Where training stands. Arrays lead with the seed; `metrics` are there at log points only."""

    step: int
    state: Any
    metrics: dict[str, np.ndarray] | None
    partial: "Partial"


Swept = Mapping[str, np.ndarray]
"""Options that differ between runs trained as one program: a value for each."""

Partial = tuple[dict[str, np.ndarray], int]
"""Sums of metrics since the last log point, and over how many steps."""
NOTHING: Swept = {}


def seed_keys(seeds: Sequence[int]) -> jax.Array:
    return jax.vmap(jax.random.key)(jnp.asarray(seeds, jnp.uint32))


def initial_state(method: Method, spec: Spec, seeds: Sequence[int], swept: Swept = NOTHING) -> Any:
    """One state per seed, stacked on axis 0. `swept` are options with a value for each of them."""
    least = jax.config.read("jax_disable_most_optimizations")  # then `quick` would optimise more
    quick = jax.default_backend() == "cpu" and not least
    return _initialiser(quick)(method, spec, seed_keys(seeds), dict(swept))


@cache
def _initialiser(quick: bool) -> Any:
    """`_init`, compiled. It runs once, so `quick` optimises less: on a CPU that halves its compilation."""
    options = {"xla_backend_optimization_level": 1, "xla_llvm_disable_expensive_passes": True}
    return jax.jit(_init, static_argnames=("method", "spec"), compiler_options=options if quick else None)


def _init(method: Method, spec: Spec, keys: jax.Array, swept: dict[str, jax.Array]) -> Any:
    def one_seed(key: jax.Array, swept: dict[str, jax.Array]) -> Any:
        return with_traced(method, swept).init(jax.random.fold_in(key, 0), spec)

    return jax.vmap(one_seed)(keys, swept)


def train(
    method: Method,
    arrays: Any,
    spec: Spec,
    seeds: Sequence[int],
    state: Any,
    *,
    step: int,
    log_every: int,
    schedule: Sequence[tuple[Part, ...]] | None = None,
    partial: Partial = ({}, 0),
    swept: Swept = NOTHING,
) -> Iterator[Point]:
    """Trains from `step` to the end and yields at every log point, on a CPU more often (a sign of life).

    `swept` are options of the method with a value for each of `seeds`, which may then hold a seed twice.

    The randomness of a step depends on its number and the seed alone, so that training from a checkpoint
    gives the same result as training without a stop; `partial` is what it had summed by then.
    """
    keys = seed_keys(seeds)
    mesh = None if is_on_disk(arrays) else mesh_for(len(seeds))  # one device trains from a disk
    if mesh is not None:
        state, swept = placed((state, dict(swept)), mesh, SPREAD)
        keys = jax.jit(seed_keys, out_shardings=NamedSharding(mesh, SPREAD))(np.array(seeds, np.uint32))
        arrays = placed(arrays, mesh, WHOLE)
    schedule = method.schedule if schedule is None else schedule
    longest = 100 if jax.default_backend() == "cpu" else log_every
    longest = min(longest, longest_span(method, arrays, len(seeds)) or longest)
    spans = list(_spans(step, spec.steps, len(schedule), log_every, longest))
    ahead = read_ahead(method, arrays, keys, iter(spans))
    arrays = on_device(arrays)
    sums, summed = partial
    for span, rows in zip(spans, ahead, strict=True):
        parts = schedule[span.first // spec.steps]
        first = np.int32(span.first)
        state, metrics = _program()(
            method, spec, parts, span.length, mesh, state, arrays, rows, keys, first, dict(swept)
        )
        step = span.first + span.length
        sums = {name: sums.get(name, 0.0) + np.asarray(value) for name, value in metrics.items()}
        summed += span.length
        if step % spec.steps % log_every:
            yield Point(step, state, None, (sums, summed))
        else:
            metrics = {name: value / summed for name, value in sums.items()}
            sums, summed = {}, 0
            yield Point(step, state, metrics, (sums, summed))


def _spans(step: int, steps: int, phases: int, log_every: int, longest: int) -> Iterator[Span]:
    """The steps from `step` to the end, in pieces that end at log points and phases."""
    while step < steps * phases:
        done = step % steps
        length = min(longest, log_every - done % log_every, steps - done)
        yield Span(step, length)
        step += length


@cache
def _program() -> Any:
    """`_scan_steps`, compiled for the device at hand.

    A step is a hundred and more small kernels. On a GPU, those that do not depend on each other run side by
    side, which doubles the speed of one seed (docs/results/speed.md).
    """
    gpu = jax.default_backend() == "gpu"
    # The state is donated, so that it is updated in place. The data set is an argument and not a closure:
    # bound as a constant it would be compiled into the program.
    return jax.jit(
        _scan_steps,
        static_argnames=("method", "spec", "parts", "length", "mesh"),
        donate_argnums=5,  # the state
        compiler_options={"xla_gpu_command_buffer_scheduling_mode": "CONCURRENT"} if gpu else None,
    )


def _scan_steps(
    method: Method,
    spec: Spec,
    parts: tuple[Part, ...],
    length: int,
    mesh: Mesh | None,
    *data: Any,
) -> tuple[Any, dict[str, jax.Array]]:
    """So many steps of all seeds, each device of a mesh with its own."""
    scan = partial(_scan_share, method, spec, parts, length)
    if mesh is None:
        return scan(*data)

    def share(*data: Any) -> tuple[Any, dict[str, jax.Array]]:
        state, metrics = scan(*data)
        return state, jax.lax.all_gather(metrics, AXIS, tiled=True)

    inputs = (SPREAD, WHOLE, SPREAD, SPREAD, WHOLE, SPREAD)
    return jax.shard_map(share, mesh=mesh, in_specs=inputs, out_specs=(SPREAD, WHOLE), check_vma=False)(*data)


def _scan_share(
    method: Method,
    spec: Spec,
    parts: tuple[Part, ...],
    length: int,
    state: Any,
    arrays: Any,
    rows: jax.Array | None,
    keys: jax.Array,
    first: jax.Array,
    swept: dict[str, jax.Array],
) -> tuple[Any, dict[str, jax.Array]]:
    names: list[str] = []  # filled while the step is traced

    def one_seed(
        state: Any, key: jax.Array, rows: jax.Array | None, swept: dict[str, jax.Array]
    ) -> tuple[Any, jax.Array]:
        own = with_traced(method, swept)

        def one_step(state: Any, step: tuple[jax.Array, jax.Array | None]) -> tuple[Any, jax.Array]:
            number, rows = step
            with stage("batch"):
                sample_key, update_key = step_keys(key, number)
                batch = own.sample(with_rows(arrays, rows), sample_key)
            state, metrics = own.update(state, batch, update_key, spec, parts)
            names[:] = sorted(metrics)
            # One vector and not a dict of numbers: a step is bound by the number of kernels it launches.
            return state, jnp.stack([metrics[name] for name in names])

        state, metrics = jax.lax.scan(one_step, state, (first + jnp.arange(length), rows))
        return state, jnp.sum(metrics, axis=0)

    if len(keys) > 1:
        state, metrics = jax.vmap(one_seed)(state, keys, rows, swept)
    else:  # an axis of one would cost a quarter of the speed on a GPU
        state, metrics = one_seed(*jax.tree.map(lambda x: x[0], (state, keys, rows, swept)))
        state, metrics = jax.tree.map(lambda x: x[None], (state, metrics))
    return state, {name: metrics[:, i] for i, name in enumerate(names)}
