"""Values and critics of reward and of cost, learned side by side from actions of the log alone.

Used by CAPS, LSPC and FISOR. Cost is minimised: where a paper maximises −c with an expectile τ, the cost
value here is the (1 − τ)-expectile of Q_C, and the pessimistic one of two cost critics is the larger.
"""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from bcrl.learn.batch import Batch
from bcrl.learn.networks import MLP, apply_each, ensemble
from bcrl.learn.train_state import Networks


class Estimates(eqx.Module):
    """Values of a batch. Gradients reach the online critics, V_R(s) and V_C(s) alone."""

    critics: Float[Array, "2 b"]  # Q_R, online, each of the twins
    cost_critics: Float[Array, "2 b"]  # Q_C, likewise
    critic: Float[Array, " b"]  # Q_R, the smaller of the target twins
    cost_critic: Float[Array, " b"]  # Q_C, the larger
    value: Float[Array, " b"]
    cost_value: Float[Array, " b"]
    next_value: Float[Array, " b"]
    next_cost_value: Float[Array, " b"]


def networks(state_size: int, action_size: int, hidden: Sequence[int], key: PRNGKeyArray) -> Networks:
    """Two values (reward, cost) and four critics (twins of reward, of cost).

    Those of one shape are one ensemble, so that all run as one batched matrix product.
    """
    value_key, critic_key = jax.random.split(key)
    return {
        "values": ensemble((state_size, *hidden, 1), value_key, members=2),
        "critics": ensemble((state_size + action_size, *hidden, 1), critic_key, members=4),
    }


def estimate(trained: Networks, targets: Networks, batch: Batch) -> Estimates:
    """The outputs of values, critics and target critics for a batch."""
    critics, slow_critics = trained["critics"], jax.lax.stop_gradient(targets["critics"])
    online, slow = (apply_each(twins, batch.pairs)[..., 0] for twins in (critics, slow_critics))
    both = apply_each(trained["values"], jnp.concatenate([batch.features, batch.next_features]))[..., 0]
    now, after = jnp.split(both, 2, axis=1)
    after = jax.lax.stop_gradient(after)
    return Estimates(
        online[:2], online[2:], slow[:2].min(axis=0), slow[2:].max(axis=0), now[0], now[1], after[0], after[1]
    )


def backup_loss(
    critics: Float[Array, "m b"],
    gain: Float[Array, " b"],
    bootstrap: Float[Array, " b"],
    next_value: Float[Array, " b"],
    gamma: float,
) -> Float[Array, ""]:
    """E[(Q_j(s, a) − (g + γ V(s′)))²], the mean over the twins; V(s′) is 0 where the backup ends."""
    return jnp.mean((critics - (gain + gamma * bootstrap * next_value)) ** 2)


def twin_values(
    critics: MLP, features: Float[Array, "*b f"], action: Float[Array, "*b a"]
) -> tuple[Any, Any]:
    """The smaller of the twins' Q_R and the larger of their Q_C, for acting."""
    q = apply_each(critics, jnp.concatenate([features, action], axis=-1))[..., 0]
    return q[:2].min(axis=0), q[2:].max(axis=0)
