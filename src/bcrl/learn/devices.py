"""Several devices, and several processes of `jax.distributed`: seeds and settings spread over them.

Every device trains its share by the program that one device would run, and the shares do not speak to each
other. Each process runs the same Python; what one of them alone knows must be told to all before it may
decide what happens next.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from bcrl.errors import BCRLError

AXIS = "runs"
SPREAD, WHOLE = PartitionSpec(AXIS), PartitionSpec()


def mesh_for(count: int) -> Mesh | None:
    """As many devices as divide `count` seeds (times settings) equally; None for a single one.

    Several processes use all of their devices or none together.
    """
    devices = jax.devices()
    usable = [len(devices)] if jax.process_count() > 1 else range(len(devices), 0, -1)
    number = next((n for n in usable if count % n == 0), 1)
    return Mesh(np.array(devices[:number]), (AXIS,)) if number > 1 else None


def placed(tree: Any, mesh: Mesh, spec: PartitionSpec) -> Any:
    """The arrays on the devices of a mesh: whole on each, or spread by the first axis."""
    sharding = NamedSharding(mesh, spec)
    if sharding.is_fully_addressable:
        return jax.device_put(tree, sharding)

    def place(array: Any) -> jax.Array:
        host = np.asarray(array)
        return jax.make_array_from_callback(host.shape, sharding, lambda index: host[index])

    return jax.tree.map(place, tree)


def part_of(tree: Any, number: int, count: int) -> Any:
    """The `number`-th of `count` equal parts of every array, on this process's first device.

    All processes must ask for it.
    """

    def cut(array: Any) -> Any:
        if count == 1:
            return array
        size = len(array) // count
        return array[number * size : (number + 1) * size]

    leaves = jax.tree.leaves(tree)
    sharding = getattr(leaves[0], "sharding", None) if leaves else None
    if not isinstance(sharding, NamedSharding):
        return jax.tree.map(cut, tree)
    whole = NamedSharding(sharding.mesh, WHOLE)  # type: ignore[arg-type]
    shared = jax.jit(lambda tree: jax.tree.map(cut, tree), out_shardings=whole)(tree)
    return jax.tree.map(lambda x: jax.numpy.asarray(np.asarray(x.addressable_data(0))), shared)


def is_writer() -> bool:
    """Whether this process writes the files: the first does."""
    return jax.process_index() == 0


def agreed(*numbers: int) -> list[int]:
    """The largest that any process says, for each number."""
    if jax.process_count() == 1:
        return list(numbers)
    return np.max(multihost_utils.process_allgather(np.array(numbers, np.int32)), axis=0).tolist()


@contextmanager
def fails_for_all() -> Iterator[None]:
    """What the user must mend ends every process, not only the one that has found it."""
    error = None
    try:
        yield
    except BCRLError as found:
        error = found
    (failed,) = agreed(error is not None)
    if error is not None:
        raise error
    if failed:
        raise BCRLError("another process of this training has found a mistake: see what it says")


def told(tree: Any) -> Any:
    """What the writer has, for every process."""
    return tree if jax.process_count() == 1 else multihost_utils.broadcast_one_to_all(tree)


def join_processes(words: str) -> None:
    """Joins the processes of one training. Nothing may have been computed before.

    `words` are HOST:PORT,COUNT,NUMBER: the address of the first process, how many there are, and which this
    is; or `auto` under Slurm and Open MPI.
    """
    if words == "auto":
        jax.distributed.initialize()
        return
    try:
        address, count, number = words.split(",")
        if ":" not in address or not 0 <= int(number) < int(count):
            raise ValueError
    except ValueError:
        raise BCRLError(
            f"--distributed is {words!r}, but must be auto or HOST:PORT,COUNT,NUMBER, as 10.0.0.1:1234,2,0"
        ) from None
    jax.distributed.initialize(address, int(count), int(number))
