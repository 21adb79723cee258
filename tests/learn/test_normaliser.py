"""Observations are standardised by the log, and a column that never moved there does not explode later."""

import numpy as np
import pytest

from bcrl.learn.protocol import Normaliser


def test_a_column_that_moves_has_mean_zero_and_spread_one():
    log = np.random.default_rng(0).normal(3.0, 2.0, (1_000, 2)).astype(np.float32)
    seen = np.asarray(Normaliser.of(log)(log))
    np.testing.assert_allclose(seen.mean(0), 0.0, atol=1e-4)
    np.testing.assert_allclose(seen.std(0), 1.0, atol=1e-4)


@pytest.mark.parametrize(
    "value, later, seen", [(9.81, 9.90, 0.09 / 9.81), (0.0, 0.5, 0.5), (-1e5, -1e5 + 75, 75e-5)]
)
def test_a_constant_column_shows_how_far_off_a_new_value_is(value, later, seen):
    log = np.full((1_000, 1), value, np.float32)
    normaliser = Normaliser.of(log)
    np.testing.assert_allclose(np.asarray(normaliser(log)), 0.0, atol=1e-6)
    np.testing.assert_allclose(float(normaliser(np.float32([later]))[0]), seen, rtol=1e-2)
