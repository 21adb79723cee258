"""Losses against numpy, and the expectile against its definition."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from bcrl.learn.losses import (
    advantage_weight,
    expectile_loss,
    expectile_weight,
    joint_expectile_loss,
)
from bcrl.learn.networks import gaussian_log_density

relaxed = settings(max_examples=40)
gaps = np.array([-2.0, -0.5, 0.0, 1.0, 3.0], np.float32)


def test_expectile_weight_and_loss_by_hand():
    np.testing.assert_allclose(expectile_weight(gaps, 0.2), [0.8, 0.8, 0.2, 0.2, 0.2], rtol=1e-6)
    wanted = (0.8 * 4 + 0.8 * 0.25 + 0 + 0.2 * 1 + 0.2 * 9) / 5
    np.testing.assert_allclose(expectile_loss(gaps, 0.2), wanted, rtol=1e-6)
    np.testing.assert_allclose(expectile_loss(gaps, 0.5), np.mean(gaps**2) / 2, rtol=1e-6)


def tabular_expectile(values: np.ndarray, tau: float) -> float:
    """The m with τ Σ (x − m)⁺ = (1 − τ) Σ (m − x)⁺, by bisection."""
    low, high = float(values.min()), float(values.max())
    for _ in range(200):
        middle = (low + high) / 2
        above = tau * np.maximum(values - middle, 0).sum()
        below = (1 - tau) * np.maximum(middle - values, 0).sum()
        low, high = (middle, high) if above > below else (low, middle)
    return low


@relaxed
@given(
    arrays(np.float32, 6, elements=st.floats(-10, 10, width=32)),
    st.sampled_from([0.01, 0.05, 0.2, 0.5, 0.7, 0.9]),
)
def test_the_expectile_loss_is_least_at_the_expectile(values, tau):
    m = tabular_expectile(values.astype(float), tau)
    slope = jax.grad(lambda v: expectile_loss(jnp.asarray(values) - v, tau))
    width = float(np.ptp(values)) + 1e-3
    np.testing.assert_allclose(slope(m), 0.0, atol=1e-5 * (1 + width))
    assert slope(m + 0.1 * width) > 0 > slope(m - 0.1 * width)


@relaxed
@given(arrays(np.float32, (5, 1), elements=st.floats(-10, 10, width=32)), st.floats(0.01, 0.99))
def test_the_joint_loss_of_one_cost_is_the_expectile_loss(differences, tau):
    joint = joint_expectile_loss(jnp.asarray(differences), tau, jnp.ones(1))
    np.testing.assert_allclose(joint, expectile_loss(jnp.asarray(differences[:, 0]), tau), rtol=1e-5)


def test_the_joint_loss_shares_one_weight():
    differences = np.array([[1.0, -3.0], [2.0, -1.0], [-1.0, -1.0]])
    # Σ ω u with ω = (1, 1) is −2, 1, −2; with ω = (4, 1) it is 1, 7, −5.
    squares = [10.0, 5.0, 2.0]
    for omega, weights in (((1.0, 1.0), (0.8, 0.2, 0.8)), ((4.0, 1.0), (0.2, 0.2, 0.8))):
        found = joint_expectile_loss(jnp.asarray(differences), 0.2, jnp.asarray(omega))
        np.testing.assert_allclose(found, np.dot(weights, squares) / 3, rtol=1e-6)


@pytest.mark.parametrize(
    ("advantage", "beta", "wanted"),
    [(0.0, 3.0, 1.0), (0.5, 2.0, np.e), (-1.0, 2.0, np.exp(-2)), (4.0, 3.0, 100.0), (1e6, 3.0, 100.0)],
)
def test_advantage_weight(advantage, beta, wanted):
    np.testing.assert_allclose(advantage_weight(jnp.asarray(advantage), beta, 100.0), wanted, rtol=1e-5)


def test_advantage_weight_has_finite_values_whatever_the_advantage():
    found = advantage_weight(jnp.asarray([-1e30, 1e30]), 10.0, 100.0)
    np.testing.assert_array_equal(found, [0.0, 100.0])


def test_gaussian_log_density():
    rng = np.random.default_rng(0)
    mean, log_std, action = rng.normal(size=(3, 4, 2))
    each = np.exp(-((action - mean) ** 2) / (2 * np.exp(2 * log_std))) / np.sqrt(
        2 * np.pi * np.exp(2 * log_std)
    )
    np.testing.assert_allclose(
        gaussian_log_density(*map(jnp.asarray, (mean, log_std, action))), np.log(each).sum(1), rtol=1e-5
    )
