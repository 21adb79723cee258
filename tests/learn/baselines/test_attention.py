"""CDT's attention as one kernel, and its dropout by a hash."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bcrl.learn.baselines.attention import fused_attention
from bcrl.learn.baselines.parts import random_bytes
from bcrl.learn.baselines.transformer import Block, last_tokens


@pytest.mark.parametrize("kept", [4, 2])
def test_attention_as_one_kernel(kept):
    """What a GPU runs, here interpreted: the same outputs and gradients with the same entries dropped."""
    block = Block(1, 32, heads=2, dropout=0.3, key=jax.random.key(0))
    rng, place = np.random.default_rng(0), np.arange(12)
    sees = last_tokens(place[:, None], kept) >= place
    query, both, ahead = (
        jnp.asarray(rng.normal(size=(3, *shape)), jnp.float32)
        for shape in ((3 * kept, 32), (12, 64), (3 * kept, 32))
    )

    def plain(key, query, both):
        return jnp.vdot(ahead, block.attention(query, both, sees, key))

    def one_kernel(key, query, both):
        found = fused_attention(query, both, heads=2, group=4, rate=0.3, key=key, interpret=True)
        return jnp.vdot(ahead, found)

    seeds = jax.random.split(jax.random.key(1), 2)
    as_seeds = [jnp.stack([x, -x]) for x in (query, both)]
    slopes = jax.jit(jax.grad(one_kernel, 2))
    found = jax.jit(jax.vmap(slopes))(seeds, *as_seeds)
    wanted = [slopes(key, *(x[i] for x in as_seeds)) for i, key in enumerate(seeds)]
    np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=2e-5)
    for key in (None, jax.random.key(5)):
        found = jax.jit(jax.value_and_grad(one_kernel, (1, 2)))(key, query, both)
        wanted = jax.jit(jax.value_and_grad(plain, (1, 2)))(key, query, both)
        for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
            np.testing.assert_allclose(one, other, rtol=2e-5, atol=2e-5)


def test_dropped_entries_are_independent():
    """Of neighbours, of the same place under other keys, and over places."""
    keys = jax.vmap(jax.random.key)(jnp.arange(200))
    words = jax.random.key_data(keys)
    numbers = jnp.arange(4096, dtype=jnp.uint32)
    dropped = np.asarray(jax.vmap(lambda w: random_bytes(numbers, *w) < 26)(words)) - 26 / 256
    deviation = np.sqrt(26 / 256 * (1 - 26 / 256))
    for size in (1, 2, 3, 4, 128):
        both = np.mean(dropped[:, size:] * dropped[:, :-size]) / deviation**2
        assert abs(both) < 4 / np.sqrt(dropped.size), size
    assert abs(np.mean(dropped[1:] * dropped[:-1])) / deviation**2 < 4 / np.sqrt(dropped.size)
    assert np.abs(dropped.mean(0)).max() < 6 * deviation / np.sqrt(200)
    assert np.abs(dropped.mean(1)).max() < 5 * deviation / np.sqrt(4096)
