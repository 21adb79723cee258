"""Gradients against central differences, for the tests of all methods."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np


def random_like(tree: Any, seed: int) -> Any:
    """Arrays of the same shapes from numpy: parameters away from the start of training.

    They stay numpy's: outside a program, every operation of JAX is compiled by itself, for each shape.
    """
    rng = np.random.default_rng(seed)
    kind = jax.dtypes.canonicalize_dtype(float)
    return jax.tree.map(lambda x: (0.5 * rng.normal(size=x.shape)).astype(kind), tree)


def check_every_leaf(networks: Any, loss: Callable[[Any], Any], gradient: Any) -> None:
    """`compare_every_leaf` with a loss that is compiled here."""
    compare_every_leaf(networks, jax.jit(loss), gradient)


def check_every_network(
    losses: Callable[[dict[str, Any]], tuple[Any, dict[str, Any]]],
    networks: dict[str, Any],
    own: dict[str, tuple[str, ...]],
    *,
    stacked: tuple[str, ...] = (),
) -> None:
    """Each network follows its own losses alone: `losses` gives the sum of all and each by its name.

    The gradient is that of the sum, the differences are of its own losses: so nothing of the others enters.
    One program gives both; to compile one for each network takes much longer.
    """
    assert own.keys() == networks.keys()
    slopes = jax.jit(jax.grad(losses, has_aux=True))
    gradient, _ = slopes(networks)
    for name, mine in own.items():

        def loss(network: Any, name: str = name, mine: tuple[str, ...] = mine) -> float:
            parts = slopes(networks | {name: network})[1]
            return sum(float(parts[part]) for part in mine)

        compare_every_leaf(networks[name], loss, gradient[name], name in stacked)


def compare_every_leaf(
    networks: Any, loss: Callable[[Any], Any], gradient: Any, stacked: bool = False
) -> None:
    """Compares one entry of each array, the one with the steepest slope; an array with no slope is an error.

    `stacked` compares one entry of each member of an ensemble, so that a leak into one member is not hidden
    by another.
    """
    leaves, structure = jax.tree.flatten(networks)
    slopes = list(map(np.asarray, jax.tree.leaves(gradient)))
    for place, (leaf, slope) in enumerate(zip(leaves, slopes, strict=True)):
        for member in range(len(leaf)) if stacked else [...]:
            steepness = np.zeros(slope.shape)
            steepness[member] = np.abs(slope[member])
            where = np.unravel_index(int(np.argmax(steepness)), slope.shape)
            assert slope[where] != 0, (
                f"array {place} has no gradient at {where} (dead units? take other parameters)"
            )
            step = 1e-6

            def at(change: float, place: int = place, leaf: Any = leaf, where: Any = where) -> float:
                moved = np.array(leaf)
                moved[where] += change
                changed = [*leaves[:place], moved, *leaves[place + 1 :]]
                return float(loss(jax.tree.unflatten(structure, changed)))

            difference = (at(step) - at(-step)) / (2 * step)
            np.testing.assert_allclose(slope[where], difference, rtol=1e-5, atol=1e-8)
    assert max(float(np.abs(slope).max()) for slope in slopes) > 1e-3, "too flat for differences to tell"


def only_zeros(tree: Any) -> bool:
    return all(not np.any(np.asarray(leaf)) for leaf in jax.tree.leaves(tree))
