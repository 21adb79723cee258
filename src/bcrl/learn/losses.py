"""In-sample regressions and the weights of policy extraction, one equation each.

Every regression of V on Q here is a least squares whose weight w depends on the difference u = Q − V. So V
is the mean of Q under the policy b ∝ μ·w (μ made the log): nearer the best, by actions of the log alone.
"""

from typing import Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float

from bcrl.learn.batch import Batch
from bcrl.learn.networks import MLP, apply_each

Regression = Literal["expectile", "gumbel", "sparse"]
SparseWeight = Literal["above", "support"]


def expectile_weight(difference: Float[Array, "*b"], tau: float) -> Float[Array, "*b"]:
    """|τ − 1[u < 0]|: how strongly an expectile regression pulls at each difference."""
    return jnp.where(difference < 0, 1.0 - tau, tau)


def expectile_loss(difference: Float[Array, "*b"], tau: float) -> Float[Array, ""]:
    """E[|τ − 1[u < 0]| u²] with u = Q − V (Eq. iql_v): its minimiser is the τ-expectile of Q."""
    return jnp.mean(expectile_weight(difference, tau) * difference**2)


def cost_weighting(given: tuple[float, ...] | None, count: int) -> Float[Array, " k"]:
    """ω: what each of k costs counts where one number must stand for all; 1 unless given."""
    return jnp.ones(count) if given is None else jnp.asarray(given)


def joint_expectile_loss(
    differences: Float[Array, "b k"], tau: float, cost_weights: Float[Array, " k"]
) -> Float[Array, ""]:
    """The expectile loss for k costs with one weight for all, decided by Σ ω_i u_i.

    Sharing the weight makes every V_i the value of one and the same base policy, which the joint safe
    set of several costs needs; with one cost it is `expectile_loss`.
    """
    return joint_loss(differences, expectile_weight(differences @ cost_weights, tau))


def joint_loss(differences: Float[Array, "b k"], weight: Float[Array, " b"]) -> Float[Array, ""]:
    """E[w Σ_i u_i²], the weight of each row taken as given."""
    return jnp.mean(jnp.sum(jax.lax.stop_gradient(weight)[:, None] * differences**2, axis=-1))


def gumbel_weight(
    difference: Float[Array, "*b"], temperature: ArrayLike, limit: float | None = None
) -> Float[Array, "*b"]:
    """(e^z − 1)/z with z = u/β: E[w u²] then has the slope of Gumbel regression's E[e^z − z − 1].

    So E[e^z] = 1 at the minimum, V = β log E[e^(Q/β)]: a soft maximum. All weights are scaled by e^(−m) with
    m = max(max z, −1), so that no exponential overflows. `limit` holds e^z at e^limit: a sample beyond pulls
    no harder. (XQL's clip drops it, and so leaves a V that is far too low where it is.)
    """
    z = difference / temperature
    capped = z if limit is None else jnp.minimum(z, limit)
    peak = jnp.maximum(jnp.max(capped), -1.0)
    slope = jnp.exp(capped - peak) - jnp.exp(-peak)
    near_zero = jnp.abs(z) < 1e-3
    return jnp.where(near_zero, jnp.exp(-peak) * (1.0 + z / 2.0), slope / jnp.where(near_zero, 1.0, z))


def sparse_weight(difference: Float[Array, "*b"], temperature: ArrayLike) -> Float[Array, "*b"]:
    """min(1, 2α/|u|) below V and 1 above: E[w u²] then has the slope of SparseQL's E[1[t > 0] t² + V/α].

    There t = 1 + u/2α and E[max(t, 0)] = 1 at the minimum: what is more than 2α below V pulls no harder for
    being farther away.
    """
    return 1.0 / jnp.maximum(1.0, -difference / (2.0 * jnp.asarray(temperature)))


def spread(difference: Float[Array, "*b"]) -> Float[Array, ""]:
    """The root mean square of differences, as the unit of a temperature."""
    return jax.lax.stop_gradient(jnp.sqrt(jnp.mean(difference**2)) + 1e-6)


def advantage_weight(advantage: Float[Array, "*b"], beta: float, limit: float) -> Float[Array, "*b"]:
    """min(exp(β A), limit), the weight of advantage-weighted regression (Eq. loss_pi)."""
    return jnp.minimum(jnp.exp(jnp.minimum(beta * advantage, 50.0)), limit)


def sparse_advantage_weight(
    advantage: Float[Array, "*b"], temperature: ArrayLike, limit: float, form: SparseWeight
) -> Float[Array, "*b"]:
    """max(A/2α, 0) as SparseQL's code has it, or max(1 + A/2α, 0) as its theory, at most `limit`."""
    t = advantage / (2.0 * jnp.asarray(temperature))
    return jnp.clip(t if form == "above" else 1.0 + t, 0.0, limit)


def squared_error(values: Float[Array, "m b"], target: Float[Array, " b"]) -> Float[Array, ""]:
    """Σ_j E[(Q_j − y)²] over the members of an ensemble."""
    return jnp.sum(jnp.mean((values - target) ** 2, axis=1))


def backup_errors(
    critics: MLP, batch: Batch, target: Float[Array, " b"], target_c: Float[Array, " b"]
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """`squared_error` of the first half of an ensemble (reward), and of the second (cost), at (s, a)."""
    q, q_c = jnp.split(apply_each(critics, batch.pairs)[..., 0], 2)
    return squared_error(q, target), squared_error(q_c, target_c)
