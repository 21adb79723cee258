"""What baselines share: the rows they train on, what they see when acting, auto-encoders."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from lane import lane_log

from bcrl.learn.baselines.bcq_lag import BCQLag
from bcrl.learn.baselines.caps import CAPS
from bcrl.learn.baselines.ccac import CCAC
from bcrl.learn.baselines.cdt import CDT
from bcrl.learn.baselines.common import ForOneThreshold
from bcrl.learn.baselines.coptidice import COptiDICE
from bcrl.learn.baselines.cpq import CPQ
from bcrl.learn.baselines.fisor import FISOR
from bcrl.learn.baselines.lspc import LSPC
from bcrl.learn.baselines.parts import VAE
from bcrl.learn.protocol import Normaliser, Spec

WITH_ROWS = [BCQLag, CAPS, CCAC, COptiDICE, CPQ, FISOR, LSPC]


def make(method, **options):
    return method(**({"threshold": 2.0} if issubclass(method, ForOneThreshold) else {}), **options)


@pytest.mark.parametrize("variant", ["fixed", "faithful"])
@pytest.mark.parametrize("method", WITH_ROWS)
def test_backups_end_at_terminals_and_at_time_limits(method, variant):
    """One of three episodes ends by itself; the state of each row is its number."""
    log = lane_log(episodes=3)
    ended = np.flatnonzero(log.timeouts)
    terminals = np.isin(np.arange(60), ended[-1:])
    places = np.arange(60, dtype=np.float32)[:, None]
    log = dataclasses.replace(
        log,
        observations=places,
        terminals=terminals,
        timeouts=log.timeouts & ~terminals,
        consecutive=False,
    )
    found = make(method, variant=variant, batch_size=500)
    normaliser = Normaliser.of(log.observations)
    sample = jax.jit(found.sample)(found.prepare(log, normaliser), jax.random.key(0))
    batch = getattr(sample, "batch", sample)
    seen = found.seen_through(normaliser)
    row = np.rint(np.asarray(batch.features) * np.asarray(seen.std) + np.asarray(seen.mean))[:, 0]
    assert set(ended) < set(row), "every end is drawn"
    np.testing.assert_array_equal(batch.bootstrap, ~np.isin(row, ended))


@pytest.mark.parametrize("variant", ["fixed", "faithful"])
@pytest.mark.parametrize("method", [*WITH_ROWS, CDT])
def test_a_policy_sees_what_it_was_trained_on(method, variant):
    """Standardised observations, and raw ones in `faithful`."""
    log, found = lane_log(episodes=3), make(method, variant=variant)
    normaliser, spec = Normaliser(jnp.asarray([1.0]), jnp.asarray([3.0])), Spec.of(log, steps=10)
    shape = jax.eval_shape(lambda: found.init(jax.random.key(0), spec))
    state = jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), shape)  # any parameters will do
    seen = found.actor(state, found.prepare(log, normaliser), normaliser, spec).normaliser
    np.testing.assert_allclose(seen(jnp.asarray([4.0])), 4.0 if variant == "faithful" else 1.0, rtol=1e-4)


def test_the_spread_of_a_latent_is_clipped():
    vae = jax.jit(lambda: VAE(2, 1, 3, (4,), jax.random.key(0)))()
    wild = eqx.tree_at(lambda v: v.encoder.biases[-1], vae, jnp.asarray([0, 0, 0, -99.0, 99.0, 0.0]))
    _, log_std = wild.encode(jnp.zeros(2), jnp.zeros(1))
    np.testing.assert_allclose(log_std, [-4.0, 15.0, 0.0])
