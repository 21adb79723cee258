"""Budgets: the identities the paper's f and g must satisfy, for scalars, batches and several costs."""

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from bcrl import budget as budgets
from bcrl import runtime

relaxed = settings(max_examples=60)
gammas = st.sampled_from([0.5, 0.9, 0.97, 0.99, 1.0])
shapes = st.sampled_from([(), (1,), (6, 1), (6, 3)])


def numbers(shape: tuple[int, ...], low: float = 0.0, high: float = 100.0) -> st.SearchStrategy[np.ndarray]:
    return arrays(np.float32, shape, elements=st.floats(low, high, width=32))


def close(found: object, wanted: object, *scale: object) -> None:
    """Equal up to float32 rounding of the numbers that went in."""
    largest = max(float(np.max(np.abs(np.asarray(x)), initial=1.0)) for x in (wanted, *scale))
    np.testing.assert_allclose(np.asarray(found), np.asarray(wanted), rtol=0, atol=4e-6 * largest)


@relaxed
@given(st.data(), shapes, gammas)
def test_slack_of_the_next_state_is_slack_of_the_action_over_gamma(data, shape, gamma_cost):
    """sV′ = sQ/γ_C: g in budgets and g in slack are one rule, and s′ drops out of it."""
    v, q, next_v, slack = (data.draw(numbers(shape)) for _ in range(4))
    delta = v + slack
    scale = delta + q + next_v
    next_slack = np.asarray(budgets.soft_next(delta, q, next_v, gamma_cost)) - next_v
    close(next_slack, (delta - q) / gamma_cost, scale / gamma_cost)
    close(next_slack, budgets.soft_slack_next(delta - v, q - v, gamma_cost), scale / gamma_cost)


@relaxed
@given(st.data(), shapes, gammas)
def test_soft_tracking_is_direct_where_the_backup_holds_without_expectation(data, shape, gamma_cost):
    delta, cost, next_v = (data.draw(numbers(shape)) for _ in range(3))
    q = cost + np.float32(gamma_cost) * next_v
    found = budgets.soft_next(delta, q, next_v, gamma_cost)
    close(found, budgets.direct_next(delta, cost, gamma_cost), (delta + q) / gamma_cost)
    close(found, (delta.astype(float) - cost) / gamma_cost, (delta + q) / gamma_cost)


@relaxed
@given(st.data(), shapes)
def test_soft_start_is_the_budget_itself_with_one_start_state(data, shape):
    delta, v = data.draw(numbers(shape)), data.draw(numbers(shape))
    close(budgets.soft_start(delta, v, v), delta, v)


@relaxed
@given(st.data(), st.integers(1, 3))
def test_soft_start_shifts_every_start_by_the_same_slack(data, k):
    delta = data.draw(numbers((k,)))
    v = data.draw(numbers((6, k)))
    mean = v.mean(0)
    found = np.asarray(budgets.soft_start(delta, v, mean))
    close(found - v, np.broadcast_to(budgets.soft_slack_start(delta, mean), v.shape), v, delta)
    close(found.mean(0), delta, v, delta)  # the budget is kept on average over starts


@relaxed
@given(st.data(), gammas)
def test_several_costs_are_several_budgets(data, gamma_cost):
    """A vector of k costs gives what each cost gives by itself."""
    a, b, c = (data.draw(numbers((4, 3))) for _ in range(3))
    for rule in (budgets.soft_next, lambda x, y, _, g: budgets.direct_next(x, y, g)):
        together = np.asarray(rule(a, b, c, gamma_cost))
        for i in range(3):
            np.testing.assert_array_equal(
                together[:, i], np.asarray(rule(a[:, i], b[:, i], c[:, i], gamma_cost))
            )


@relaxed
@given(st.integers(1, 400), st.floats(0.3, 0.995))
def test_horizon_factor_is_the_mean_discount(steps_left, gamma_cost):
    wanted = np.mean(gamma_cost ** np.arange(steps_left))
    np.testing.assert_allclose(budgets.horizon_factor(steps_left, gamma_cost), wanted, rtol=1e-4)


@relaxed
@given(st.integers(-50, 0), st.floats(0.3, 0.995))
def test_horizon_factor_is_one_when_no_step_is_left(steps_left, gamma_cost):
    np.testing.assert_allclose(budgets.horizon_factor(steps_left, gamma_cost), 1.0, rtol=1e-6)


@relaxed
@given(st.integers(-5, 10_000))
def test_horizon_factor_is_one_without_discount(steps_left):
    assert float(budgets.horizon_factor(steps_left, 1.0)) == 1.0


def test_horizon_factor_takes_batches():
    left = np.array([0, 1, 2, 30])
    one_by_one = [float(budgets.horizon_factor(n, 0.9)) for n in left]
    np.testing.assert_array_equal(budgets.horizon_factor(left, 0.9), np.array(one_by_one, np.float32))


@pytest.mark.parametrize(
    ("threshold", "spent", "left", "gamma_cost", "wanted"),
    [
        (20.0, 0.0, 2, 0.5, 20 * 1.5 / 2),
        (20.0, 5.0, 3, 0.5, 15 * 1.75 / 3),
        (20.0, 25.0, 3, 0.5, 0.0),  # overspent: nothing, not a debt
        (20.0, 5.0, 0, 0.5, 15.0),  # t = H
        (20.0, 5.0, -7, 0.5, 15.0),  # t > H
        (20.0, 5.0, 3, 0.0, 5.0),  # only this step counts, and all steps are alike
        (20.0, 5.0, 40, 1.0, 15.0),  # episodic: what is left of κ
        ([8.0, 6.0], [2.0, 6.5], 2, 0.5, [4.5, 0.0]),
    ],
)
def test_finite_horizon_budget(threshold, spent, left, gamma_cost, wanted):
    found = budgets.finite_horizon_budget(np.array(threshold), np.array(spent), left, gamma_cost)
    np.testing.assert_allclose(found, np.asarray(wanted), rtol=1e-6)


def test_numpy_has_the_same_horizon_factor():
    left = np.array([0, 1, 2, 30], np.int32)
    for gamma_cost in (0.0, 0.3, 0.99, 1.0):
        theirs = runtime.horizon_factor(left, gamma_cost)
        np.testing.assert_allclose(budgets.horizon_factor(left, gamma_cost), theirs, rtol=1e-5)


@pytest.mark.parametrize(
    ("cost_critic", "budget", "safe"),
    [
        ([1.0], [1.0], True),  # the edge belongs to the safe set
        ([1.0], [0.99], False),
        ([1.0, 2.0, 3.0], [1.0, 2.0, 3.0], True),
        ([1.0, 2.0, 3.0], [1.0, 2.0, 2.9], False),  # each cost, not their sum
        ([1.0, 2.0, 3.0], [9.0, 1.9, 9.0], False),
        ([[1.0, 0.0], [0.0, 1.0]], [1.0, 0.5], [True, False]),
    ],
)
def test_an_action_is_safe_when_each_cost_is(cost_critic, budget, safe):
    found = budgets.is_safe(np.array(cost_critic), np.array(budget))
    assert np.asarray(found).tolist() == safe


def test_slack_limit():
    np.testing.assert_allclose(budgets.slack_limit(np.array([1.0, 2.0]), 0.99, 300), [100, 200], rtol=1e-5)
    np.testing.assert_allclose(budgets.slack_limit(np.array([1.0, 2.0]), 1.0, 300), [300, 600])
    # A cost that never occurs leaves room, so that it forbids nothing.
    np.testing.assert_allclose(budgets.slack_limit(np.array([2.0, 0.0]), 0.99, 300), [200, 100], rtol=1e-5)


@relaxed
@given(
    st.integers(0, 2**31 - 1),
    arrays(np.float32, 3, elements=st.floats(0.0009765625, 1e5, width=32)),
    st.sampled_from(["log-uniform", "uniform"]),
)
def test_drawn_slack_stays_inside_its_limit(seed, limit, spread):
    found = np.asarray(budgets.draw_slack(jax.random.key(seed), (50, 3), limit, spread))
    assert found.shape == (50, 3)
    assert np.all(found >= 0)
    assert np.all(found <= limit * (1 + 1e-5))  # float32 of expm1(log1p(limit))
    assert np.all(found.max(0) > found.min(0))


@pytest.mark.parametrize("spread", ["log-uniform", "uniform"])
def test_drawn_slack_has_the_quantiles_of_its_spread(spread):
    limit = np.array([100.0, 3.0])
    found = np.asarray(budgets.draw_slack(jax.random.key(3), (40_000, 2), limit, spread))
    shares = np.linspace(0.05, 0.95, 19)
    wanted = (
        np.expm1(shares[:, None] * np.log1p(limit)) if spread == "log-uniform" else shares[:, None] * limit
    )
    below = np.mean(found[None] <= wanted[:, None], axis=1)
    # Five standard errors of a share of 40,000 draws.
    np.testing.assert_allclose(below, np.stack([shares, shares], 1), atol=5 * 0.5 / 200)
    # Both costs get draws of their own.
    assert abs(np.corrcoef(found.T)[0, 1]) < 0.05


def test_encode():
    x = np.array([-3.0, 0.0, 1.0, 99.0], np.float32)
    np.testing.assert_allclose(budgets.encode(x, "log"), [0, 0, np.log(2), np.log(100)], rtol=1e-6)
    np.testing.assert_array_equal(budgets.encode(x, "raw"), x)
