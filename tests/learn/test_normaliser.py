"""Observations are standardised by the log; what never moved there, but for rounding, does not explode."""

import numpy as np
import pytest

from bcrl.learn.protocol import Normaliser

LOG = np.random.default_rng(0).normal(0.0, 1.0, (1_000, 2))


@pytest.mark.parametrize("unit", [1.0, 1e7])
@pytest.mark.parametrize("middle", [0.0, 3.0])
def test_a_column_that_moves_has_mean_zero_and_spread_one(unit, middle):
    log = ((LOG + middle) * unit).astype(np.float32)
    seen = np.asarray(Normaliser.of(log)(log))
    np.testing.assert_allclose(seen.mean(0), 0.0, atol=1e-4)
    np.testing.assert_allclose(seen.std(0), 1.0, atol=1e-4)


def test_a_clock_moves_although_its_changes_are_small_beside_its_size():
    seconds = (1.7e9 + 600.0 * LOG).astype(np.float32)  # in float32 some thirty values
    np.testing.assert_allclose(np.asarray(Normaliser.of(seconds)(seconds)).std(0), 1.0, rtol=1e-2)


@pytest.mark.parametrize(
    ("value", "later", "seen"), [(9.81, 9.90, 0.09 / 9.81), (0.0, 0.5, 0.5), (-1e5, -1e5 + 75, 75e-5)]
)
def test_a_constant_column_shows_how_far_off_a_new_value_is(value, later, seen):
    log = np.full((1_000, 1), value, np.float32)
    log[::2] = np.nextafter(log[::2], np.float32(np.inf)) if value else log[::2]  # its last digit may differ
    normaliser = Normaliser.of(log)
    np.testing.assert_allclose(np.asarray(normaliser(log)), 0.0, atol=1e-6)
    np.testing.assert_allclose(float(normaliser(np.float32([later]))[0]), seen, rtol=2e-2)


@pytest.mark.parametrize("spread", [0.0, 1e-13, 1e-8])
def test_rounding_noise_around_zero_stays_small(spread):
    log = (spread * (LOG - 0.3)).astype(np.float32)  # 6e-14 around -2e-14 in a log of BallRun
    seen = np.asarray(Normaliser.of(log)(np.concatenate([log, log + np.float32(1e-8)])))
    assert np.abs(seen).max() < 0.01
