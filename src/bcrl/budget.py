"""Budgets: how much cost may still be spent, and how that changes as an episode goes on.

A *threshold* κ is the undiscounted cost an episode may have; a *budget* δ the (γ_C-discounted) cost
still allowed from here on; *slack* = δ − V_C(s) what is left of it above the least cost. Inside the
safe set slack ≥ 0, and an action is safe when Q_C(s,a) ≤ δ, that is Q_C(s,a) − V_C(s) ≤ slack.

Everything is elementwise: scalars, batches, and vectors of several costs (last axis) alike. With the
episodic criterion γ_C = 1 and V_C, Q_C know the time; the same formulas hold.
"""

import math
from typing import Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Bool, Float, PRNGKeyArray

from bcrl.runtime import Execution as Execution

Tracking = Literal["soft", "direct"]
Criterion = Literal["discounted", "episodic"]

Costs = Float[Array, "*costs"] | ArrayLike


# Soft tracking: the paper's f and g for stochastic worlds (Eq. ms-fg), covered by its theorem.


def soft_start(budget: Costs, cost_value: Costs, mean_start_value: Costs) -> Array:
    """f(s₀, δ_init) = V_C(s₀) + δ_init − E[V_C(s₀)]."""
    return jnp.asarray(cost_value) + budget - mean_start_value


def soft_next(budget: Costs, cost_critic: Costs, next_cost_value: Costs, gamma_cost: float) -> Array:
    """g(s, a, s′, δ) = V_C(s′) + (δ − Q_C(s,a)) / γ_C."""
    return jnp.asarray(next_cost_value) + (jnp.asarray(budget) - cost_critic) / gamma_cost


def soft_slack_start(budget: Costs, mean_start_value: Costs) -> Array:
    """f in slack: δ_init − E[V_C(s₀)], the same for every start."""
    return jnp.asarray(budget) - mean_start_value


def soft_slack_next(slack: Costs, cost_advantage: Costs, gamma_cost: float) -> Array:
    """g in slack: (slack − (Q_C(s,a) − V_C(s))) / γ_C, whatever s′ is."""
    return (jnp.asarray(slack) - cost_advantage) / gamma_cost


# Direct tracking: what was spent is gone. Exact in deterministic worlds, without a guarantee under noise.


def direct_next(budget: Costs, cost: Costs, gamma_cost: ArrayLike) -> Array:
    """g(s, a, s′, δ) = (δ − c(s,a)) / γ_C; its f is δ_init itself."""
    return (jnp.asarray(budget) - cost) / gamma_cost


# The finite-horizon rule of the paper's execution algorithm.


def horizon_factor(steps_left: ArrayLike, gamma_cost: float) -> Array:
    """(1 − γ_C^n) / ((1 − γ_C) n): discounted worth of one unit of cost spread evenly over n steps.

    1 when nothing is left (n ≤ 0) and when nothing is discounted (γ_C = 1).
    """
    n = jnp.maximum(jnp.asarray(steps_left, jnp.float32), 1.0)
    if gamma_cost == 1.0:
        return jnp.ones_like(n)
    # expm1 keeps the digits that 1 − γ^n loses for γ near 1.
    rate = math.log(gamma_cost) if gamma_cost > 0.0 else -math.inf
    factor = -jnp.expm1(n * rate) / ((1.0 - gamma_cost) * n)
    return jnp.where(n == 1.0, 1.0, factor)


def finite_horizon_budget(threshold: Costs, spent: Costs, steps_left: ArrayLike, gamma_cost: float) -> Array:
    """δ = max(κ − C, 0) · (1 − γ_C^(H−t)) / ((1 − γ_C)(H − t)); with γ_C = 1 simply what is left of κ."""
    left = jnp.maximum(jnp.asarray(threshold) - spent, 0.0)
    return left * horizon_factor(steps_left, gamma_cost)


# Membership, limits, sampling, and the form in which networks see a budget.


def is_safe(cost_critic: Costs, budget: Costs) -> Bool[Array, "..."]:
    """a ∈ A_P(s, δ): Q_C(s,a) ≤ δ for each cost (Eq. def_ap)."""
    return jnp.all(jnp.asarray(cost_critic) <= budget, axis=-1)


def slack_limit(max_cost: Costs, gamma_cost: float, horizon: int) -> Array:
    """δ_max = c_max / (1 − γ_C), or c_max · H when nothing is discounted: no budget above it binds.

    A cost that never occurs counts as one of 1 a step: it forbids nothing.
    """
    span = horizon if gamma_cost == 1.0 else 1.0 / (1.0 - gamma_cost)
    return jnp.where(jnp.asarray(max_cost) > 0, max_cost, 1.0) * span


def draw_slack(
    key: PRNGKeyArray, shape: tuple[int, ...], limit: Costs, spread: Literal["log-uniform", "uniform"]
) -> Array:
    """Random slack in [0, limit]. Log-uniform spends most draws where actions begin to be forbidden."""
    u = jax.random.uniform(key, shape)
    if spread == "uniform":
        return u * limit
    return jnp.expm1(u * jnp.log1p(limit))


def encode(budget: Costs, form: Literal["log", "raw"]) -> Array:
    """What a network sees of a slack or budget: log(1 + x) keeps small differences visible beside large."""
    return jnp.log1p(jnp.maximum(jnp.asarray(budget), 0.0)) if form == "log" else jnp.asarray(budget)
