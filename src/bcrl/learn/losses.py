"""In-sample regressions and the weights of policy extraction, one equation each."""

import jax.numpy as jnp
from jaxtyping import Array, Float


def expectile_weight(difference: Float[Array, "*b"], tau: float) -> Float[Array, "*b"]:
    """|τ − 1[u < 0]|: how strongly an expectile regression pulls at each difference."""
    return jnp.where(difference < 0, 1.0 - tau, tau)


def expectile_loss(difference: Float[Array, "*b"], tau: float) -> Float[Array, ""]:
    """E[|τ − 1[u < 0]| u²] with u = Q − V (Eq. iql_v): its minimiser is the τ-expectile of Q."""
    return jnp.mean(expectile_weight(difference, tau) * difference**2)


def joint_expectile_loss(
    differences: Float[Array, "b k"], tau: float, cost_weights: Float[Array, " k"]
) -> Float[Array, ""]:
    """The expectile loss for k costs with one weight for all, decided by Σ ω_i u_i.

    Sharing the weight makes every V_i the value of one and the same base policy, which the joint safe
    set of several costs needs; with one cost it is `expectile_loss`.
    """
    weight = expectile_weight(differences @ cost_weights, tau)
    return jnp.mean(jnp.sum(weight[:, None] * differences**2, axis=-1))


def advantage_weight(advantage: Float[Array, "*b"], beta: float, limit: float) -> Float[Array, "*b"]:
    """min(exp(β A), limit), the weight of advantage-weighted regression (Eq. loss_pi)."""
    return jnp.minimum(jnp.exp(jnp.minimum(beta * advantage, 50.0)), limit)


def gaussian_log_density(
    mean: Float[Array, "*b a"], log_std: Float[Array, "*b a"], action: Float[Array, "*b a"]
) -> Float[Array, "*b"]:
    """log N(action; mean, diag(std²))."""
    scaled = (action - mean) * jnp.exp(-log_std)
    return jnp.sum(-0.5 * scaled**2 - log_std - 0.5 * jnp.log(2.0 * jnp.pi), axis=-1)
