"""Gradients against central differences, for the tests of the methods."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


def random_like(tree: Any, seed: int) -> Any:
    """Arrays of the same shapes from numpy: parameters away from the start of training."""
    rng = np.random.default_rng(seed)
    return jax.tree.map(lambda x: jnp.asarray(0.5 * rng.normal(size=x.shape)), tree)


def check_steepest(tree: Any, loss: Callable[[Any], Any], gradient: Any) -> None:
    """In one entry of each array, the one with the steepest slope; an array with no slope is an error."""
    leaves, structure = jax.tree.flatten(tree)
    loss = jax.jit(loss)
    for place, (leaf, slope) in enumerate(zip(leaves, jax.tree.leaves(gradient), strict=True)):
        where = np.unravel_index(int(np.argmax(np.abs(slope))), slope.shape)
        assert slope[where] != 0, f"array {place} has no gradient"
        step = 1e-6

        def at(change: float, place: int = place, leaf: Any = leaf, where: Any = where) -> float:
            changed = [*leaves[:place], leaf.at[where].add(change), *leaves[place + 1 :]]
            return float(loss(jax.tree.unflatten(structure, changed)))

        np.testing.assert_allclose(slope[where], (at(step) - at(-step)) / (2 * step), rtol=1e-5, atol=1e-8)


def is_zero(tree: Any) -> bool:
    return all(not np.any(np.asarray(leaf)) for leaf in jax.tree.leaves(tree))
