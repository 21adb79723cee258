"""Execution with discrete actions: every action is a candidate, so nothing is drawn."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from bcrl import budget as budgets
from bcrl.learn.losses import cost_weighting
from bcrl.learn.networks import CategoricalPolicy, one_hot
from bcrl.learn.tracking import Memory, TrackingActor


class CategoricalActor(TrackingActor):
    """Compares all supported actions by both critics."""

    actor: CategoricalPolicy
    fallback: CategoricalPolicy
    support: float = eqx.field(static=True)

    def choose(
        self,
        memory: Memory,
        features: Float[Array, " f"],
        slack: Float[Array, " k"],
        cost_value: Float[Array, " k"],
    ) -> tuple[Float[Array, " n"], Bool[Array, ""]]:
        """The best action by Q_R of those that the policy supports and that have Q_C ≤ δ.

        If there is none, the cheapest by Q_C of those that the fallback supports.
        """
        del memory
        good = self.supported(self.actor(self.policy_inputs(features, slack, cost_value)))
        cheap = self.supported(self.fallback(features))
        count, budget = len(good), slack + cost_value
        cost, worth = self.compared(features, jnp.eye(count), budget)
        safe = good & budgets.is_safe(cost, budget)
        allowed = jnp.any(safe)
        best = jnp.argmax(jnp.where(safe, worth, -jnp.inf))
        total = cost @ cost_weighting(self.cost_weights, cost.shape[1])
        cheapest = jnp.argmin(jnp.where(cheap, total, jnp.inf))
        action = one_hot(jnp.where(allowed, best, cheapest), count)
        # An index hides that the critics overflowed; the caller looks for actions that are not finite.
        known = jnp.all(jnp.isfinite(cost)) & jnp.all(jnp.isfinite(worth))
        return jnp.where(known, action, jnp.nan), allowed

    def supported(self, log_probability: Float[Array, " n"]) -> Bool[Array, " n"]:
        """The actions that are at least `support` times as likely as the most likely one (as in BCQ)."""
        return log_probability >= jnp.max(log_probability) + jnp.log(self.support)
