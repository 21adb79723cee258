"""What baselines share: the rows they train on."""

import dataclasses

import jax
import numpy as np
import pytest
from lane import lane_log

from bcrl.learn.baselines.bcq_lag import BCQLag
from bcrl.learn.baselines.caps import CAPS
from bcrl.learn.baselines.ccac import CCAC
from bcrl.learn.baselines.common import ForOneThreshold
from bcrl.learn.baselines.coptidice import COptiDICE
from bcrl.learn.baselines.cpq import CPQ
from bcrl.learn.baselines.fisor import FISOR
from bcrl.learn.baselines.lspc import LSPC
from bcrl.learn.method import Normaliser


@pytest.mark.parametrize("variant", ["fixed", "faithful"])
@pytest.mark.parametrize("method", [BCQLag, CAPS, CCAC, COptiDICE, CPQ, FISOR, LSPC])
def test_backups_end_at_terminals_and_at_time_limits(method, variant):
    """One of three episodes ends by itself; the state of each row is its number."""
    log = lane_log(episodes=3)
    ended = np.flatnonzero(log.timeouts)
    terminals = np.isin(np.arange(60), ended[-1:])
    places = np.arange(60, dtype=np.float32)[:, None]
    log = dataclasses.replace(
        log, observations=places, terminals=terminals, timeouts=log.timeouts & ~terminals
    )
    threshold = {"threshold": 2.0} if issubclass(method, ForOneThreshold) else {}
    found = method(variant=variant, batch_size=500, **threshold)
    normaliser = Normaliser.of(log.observations)
    sample = found.sample(found.prepare(log, normaliser), jax.random.key(0))
    batch = getattr(sample, "batch", sample)
    seen = found.seen_through(normaliser)
    row = np.rint(np.asarray(batch.features * seen.std + seen.mean))[:, 0]
    assert set(ended) < set(row), "every end is drawn"
    np.testing.assert_array_equal(batch.goes_on, ~np.isin(row, ended))
