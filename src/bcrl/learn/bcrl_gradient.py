"""Extraction by gradient: the policy clones the log and climbs Q_R, inside the safe set.

Cloning alone leaves reward unused where the log covers the actions around its own
(docs/results/extraction.md).
"""

from dataclasses import dataclass

import jax.numpy as jnp
from jax.lax import stop_gradient
from jaxtyping import Array, Bool, Float

from bcrl.learn.batch import Batch
from bcrl.learn.bcrl_parts import Budgets, Costs
from bcrl.learn.bcrl_setup import BCRLSetup
from bcrl.learn.losses import spread
from bcrl.learn.networks import apply_each, gaussian_log_density
from bcrl.learn.protocol import Metrics
from bcrl.learn.train_state import Networks


@dataclass(frozen=True, repr=False)
class GradientExtraction(BCRLSetup):
    """The critics at any action, and the loss of a policy that follows them."""

    def climbing_loss(
        self,
        targets: Networks,
        batch: Batch,
        budget: Budgets,
        costs: Costs,
        mean: Float[Array, "b a"],
        log_std: Float[Array, "b a"],
        weight: Float[Array, " b"] | float,
    ) -> tuple[Array, Array, Bool[Array, " b"], Metrics]:
        """w (π − a)² − λ Q_R(s, π, δ) where π is safe, w (π − a)² + price · (Q_C(s, π) − δ) where it is not.

        λ = greed / mean |Q_R|. The log's action a is safe in every row, so cloning pulls inwards. What π
        spends lowers the budget that Q_R sees: reward now is weighed against what the rest could still buy.
        Also returns Q_R(s, π, δ) and whether π is safe.
        """
        left, safe = self.left(targets, batch.features, mean, budget.state, costs.value)
        worth = self.worth(targets, batch.features, mean, left, budget.state)
        scale = self.greed / (jnp.mean(jnp.abs(stop_gradient(worth))) + 1e-6)
        excess = jnp.sum(jnp.maximum(-left, 0.0), axis=-1) / spread(costs.critic - costs.value)
        clone = jnp.mean((mean - batch.action) ** 2, axis=-1)
        loss = jnp.mean(weight * clone - scale * jnp.where(safe, worth, 0.0) + self.unsafe_price * excess)
        # The standard deviation is for candidates alone, which are drawn around the mean.
        width_loss = -jnp.mean(weight * gaussian_log_density(stop_gradient(mean), log_std, batch.action))
        metrics = {"policy/loss": loss, "policy/clone_loss": clone.mean(), "policy/unsafe": 1.0 - safe.mean()}
        return loss + width_loss, stop_gradient(worth), safe, metrics

    def left(
        self, targets: Networks, features: Array, action: Array, seen: Array, v_c: Array
    ) -> tuple[Float[Array, "b k"], Bool[Array, " b"]]:
        """δ − Q_C(s, a) for any action, and whether it is safe. `seen` is slack in soft tracking, else δ."""
        q_c = jnp.max(apply_each(targets["cost_critic"], jnp.concatenate([features, action], axis=1)), axis=0)
        left = (seen + v_c if self.tracking == "soft" else seen) - q_c
        return left, jnp.all(left >= 0.0, axis=-1)

    def worth(
        self, targets: Networks, features: Array, action: Array, left: Array, seen: Array
    ) -> Float[Array, " b"]:
        """Q_R, the smaller of the two: it sees what is left in soft tracking, the budget itself in direct."""
        shown = self.encode(jnp.maximum(left, 0.0) if self.tracking == "soft" else seen)
        inputs = jnp.concatenate([features, action, shown], axis=1)
        return jnp.min(apply_each(targets["critic"], inputs)[..., 0], axis=0)
