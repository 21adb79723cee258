"""The augmented sampler never leaves the safe set: every (s, δ), (s, a, δ) and (s′, δ′) it makes is safe."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from bcrl.learn.batch import Batch
from bcrl.learn.bcrl import BCRL
from bcrl.learn.bcrl_parts import Costs
from bcrl.learn.protocol import Spec

ROWS = 8
relaxed = settings(max_examples=25)


def numbers(k: int, low: float, high: float) -> st.SearchStrategy[np.ndarray]:
    return arrays(np.float32, (ROWS, k), elements=st.floats(low, high, width=32))


BOOTSTRAP = np.arange(ROWS) != 3  # one row ends its episode


def batch_with(cost: np.ndarray) -> Batch:
    blank = jnp.zeros((ROWS, 1))
    return Batch(blank, blank, blank[:, 0], jnp.asarray(cost), blank, jnp.asarray(BOOTSTRAP, jnp.float32))


@pytest.mark.parametrize("slack_draw", ["log-uniform", "uniform"])
@pytest.mark.parametrize("criterion", ["discounted", "episodic"])
@pytest.mark.parametrize("k", [1, 3])
@relaxed
@given(data=st.data(), seed=st.integers(0, 2**31 - 1), nonnegative=st.booleans())
def test_soft(slack_draw, criterion, k, data, seed, nonnegative):
    method = BCRL(slack_draw=slack_draw, criterion=criterion, nonnegative_values=nonnegative)
    spec = Spec(1, 1, k, 50, (1.0,) * k, 10)
    q_c, next_v_c = data.draw(numbers(k, -20, 200)), data.draw(numbers(k, 0, 200))
    v_c = data.draw(numbers(k, 0 if nonnegative else -20, 200))
    costs = Costs(*map(jnp.asarray, (q_c, v_c, next_v_c)))
    made = method.augment(jax.random.key(seed), batch_with(q_c * 0), costs, spec)
    # No tolerance: adding something not negative and taking it away again cannot go below zero.
    for slack in (made.state, made.action, made.next_state):
        assert np.all(np.asarray(slack) >= 0)
    limit = np.asarray(method.slack_limit(spec))
    assert np.all(np.minimum(made.state, made.action) <= limit * (1 + 1e-5) + 1e-4)
    # δ is one number seen from two sides, and s′ has the slack of the action over γ_C.
    np.testing.assert_allclose(made.state + v_c, made.action + q_c, atol=1e-4)
    np.testing.assert_allclose(made.next_state * method.discount_cost, made.action, rtol=1e-5)


@pytest.mark.parametrize("slack_draw", ["log-uniform", "uniform"])
@pytest.mark.parametrize("criterion", ["discounted", "episodic"])
@pytest.mark.parametrize("k", [1, 3])
@relaxed
@given(data=st.data(), seed=st.integers(0, 2**31 - 1))
def test_direct(slack_draw, criterion, k, data, seed):
    method = BCRL(tracking="direct", slack_draw=slack_draw, criterion=criterion)
    spec = Spec(1, 1, k, 50, (1.0,) * k, 10)
    q_c = data.draw(numbers(k, -20, 200))
    v_c, next_v_c = data.draw(numbers(k, 0, 200)), data.draw(numbers(k, 0, 200))
    cost = data.draw(numbers(k, 0, 5))
    costs = Costs(*map(jnp.asarray, (q_c, v_c, next_v_c)))
    made = method.augment(jax.random.key(seed), batch_with(cost), costs, spec)
    np.testing.assert_array_equal(made.state, made.action)
    assert np.all(np.asarray(made.state) >= np.maximum(q_c, v_c))
    # δ′ = (δ − c)/γ_C rounds twice: float32 of numbers up to 400.
    rounding = 4 * np.spacing(np.float32(400))
    assert np.all(np.asarray(made.next_state) >= next_v_c * BOOTSTRAP[:, None] - rounding)
    wanted = (np.asarray(made.state, float) - cost) / method.discount_cost
    np.testing.assert_allclose(made.next_state, wanted, atol=rounding)


@pytest.mark.parametrize("tracking", ["soft", "direct"])
@relaxed
@given(data=st.data(), seed=st.integers(0, 2**31 - 1))
def test_over_several_steps_the_budget_is_what_is_paid_and_what_is_left(tracking, data, seed):
    """δ = c + γ_C^n δ′ where Q_C is exact, whatever the length n of the stretch; s′ is safe."""
    method = BCRL(tracking=tracking, n_step=9)
    steps = data.draw(arrays(np.float32, ROWS, elements=st.integers(1, 9)))
    v_c, next_v_c, cost = (data.draw(numbers(1, 0, high)) for high in (50, 50, 9))
    discount = 0.99 ** steps[:, None]
    costs = Costs(*map(jnp.asarray, (cost + discount * next_v_c, v_c, next_v_c)))
    batch = dataclasses.replace(batch_with(cost), bootstrap=jnp.ones(ROWS), steps=jnp.asarray(steps))
    made = method.augment(jax.random.key(seed), batch, costs, Spec(1, 1, 1, 50, (1.0,), 10))
    soft = tracking == "soft"
    delta = np.asarray(made.state) + (v_c if soft else 0)
    next_delta = np.asarray(made.next_state) + (next_v_c if soft else 0)
    np.testing.assert_allclose(cost + discount * next_delta, delta, atol=1e-3)
    assert np.all(next_delta >= next_v_c - 1e-3)


def test_budgets_fill_the_safe_set():
    """The draws reach from the edge of the safe set to the limit, in each cost by itself."""
    spec = Spec(1, 1, 2, 50, (1.0, 0.5), 10)
    big = 20_000
    q_c, v_c = jnp.full((big, 2), 3.0), jnp.full((big, 2), 1.0)
    blank = jnp.zeros((big, 1))
    batch = Batch(blank, blank, blank[:, 0], jnp.zeros((big, 2)), blank, jnp.ones(big))
    made = BCRL(slack_draw="uniform").augment(jax.random.key(0), batch, Costs(q_c, v_c, v_c), spec)
    action = np.asarray(made.action)
    np.testing.assert_allclose(action.min(0), 0, atol=0.05)
    np.testing.assert_allclose(action.max(0), [100, 50], rtol=1e-3)
    np.testing.assert_allclose(np.asarray(made.state).min(0), 2, atol=0.05)
    assert abs(np.corrcoef(action.T)[0, 1]) < 0.05
