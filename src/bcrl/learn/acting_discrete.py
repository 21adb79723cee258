"""Execution with discrete actions: every action is a candidate, so nothing is drawn."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from bcrl import budget as budgets
from bcrl.learn.losses import cost_weighting
from bcrl.learn.networks import CategoricalPolicy, one_hot
from bcrl.learn.tracking import Memory, TrackingActor


class CategoricalActor(TrackingActor):
    """Compares all actions that the log supports by both critics."""

    actor: CategoricalPolicy
    fallback: CategoricalPolicy
    clone: CategoricalPolicy  # of the log's actions
    support: float = eqx.field(static=True)

    def choose(
        self,
        memory: Memory,
        features: Float[Array, " f"],
        slack: Float[Array, " k"],
        cost_value: Float[Array, " k"],
    ) -> tuple[Float[Array, " n"], Bool[Array, ""]]:
        """The best action by Q_R among the supported ones with Q_C ≤ δ, else the cheapest supported one."""
        del memory
        supported = self.supported(features)
        count, budget = len(supported), slack + cost_value
        cost, worth = self.compared(features, jnp.eye(count), budget)
        safe = supported & budgets.is_safe(cost, budget)
        best = jnp.argmax(jnp.where(safe, worth, -jnp.inf))
        total = cost @ cost_weighting(self.cost_weights, cost.shape[1])
        cheapest = jnp.argmin(jnp.where(supported, total, jnp.inf))
        allowed = jnp.any(safe)
        action = one_hot(jnp.where(allowed, best, cheapest), count)
        # An index hides that the critics overflowed; the caller looks for actions that are not finite.
        known = jnp.all(jnp.isfinite(cost)) & jnp.all(jnp.isfinite(worth))
        return jnp.where(known, action, jnp.nan), allowed

    def supported(self, features: Float[Array, " f"]) -> Bool[Array, " n"]:
        """The actions that are at least `support` times as likely in the log as the most likely one (BCQ)."""
        log_probability = self.clone(features)
        return log_probability >= jnp.max(log_probability) + jnp.log(self.support)
