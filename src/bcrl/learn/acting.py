"""Execution with continuous actions: policy, fallback and candidates (the paper's Algorithm 3)."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from bcrl import budget as budgets
from bcrl.learn.losses import cost_weighting
from bcrl.learn.networks import MLP, GaussianPolicy, apply_each
from bcrl.learn.tracking import Memory, TrackingActor


class BudgetedActor(TrackingActor):
    """Policy and fallback, with the cost critics that decide between them and track the budget."""

    actor: GaussianPolicy
    fallback: GaussianPolicy
    fallback_below: float = eqx.field(static=True)
    fallback_draws: int = eqx.field(static=True)
    fallback_beta: float = eqx.field(static=True)
    guarded: bool = eqx.field(static=True, default=False)  # the fallback also replaces actions with Q_C > δ
    fallback_ramp: float = eqx.field(static=True, default=0.0)
    fallback_mixtures: int = eqx.field(static=True, default=0)
    fallback_critic: MLP | None = None  # twin, the slowly moving targets

    def choose(
        self,
        memory: Memory,
        features: Float[Array, " f"],
        slack: Float[Array, " k"],
        cost_value: Float[Array, " k"],
    ) -> tuple[Float[Array, " a"], Bool[Array, ""]]:
        """The policy's mean action, or the best of several that are drawn; else the fallback's, or mixed."""
        mean, log_std = self.actor(self.policy_inputs(features, slack, cost_value))
        action, allowed = mean, jnp.all(slack >= self.fallback_below)
        draws, budget = memory.goal.candidates, slack + cost_value
        if draws > 1:
            key = jax.random.fold_in(memory.key, memory.step)
            action, some_safe = self.best_candidate(features, mean, log_std, budget, key, draws)
            allowed &= some_safe
        elif draws or self.guarded:  # one candidate is the mean: nothing to draw or to compare
            allowed &= self.safe(features, mean[None], budget)[0]
        careful = self.careful(memory, features, budget)
        action = jnp.where(allowed, action, self.first_safe(features, action, careful, budget))
        return jnp.clip(action, -1.0, 1.0), allowed

    def careful(
        self, memory: Memory, features: Float[Array, " f"], budget: Float[Array, " k"]
    ) -> Float[Array, " a"]:
        """The fallback's action: its mean, or the exp(−β Σ ω_i u_i Q_i)-weighted mean of n samples.

        With about one logged action per state, the weights of the fallback's training rank states, not
        actions. Samples in one state are ranked by their actions alone.
        """
        mean, log_std = self.fallback(features)
        if not self.fallback_draws:
            return mean
        # Not the key of `best_candidate`: the two draw in the same step.
        key = jax.random.fold_in(jax.random.fold_in(memory.key, memory.step), 1)
        actions = drawn(mean, log_std, key, self.fallback_draws)
        rows = jnp.broadcast_to(features, (len(actions), features.shape[-1]))
        cost = self.cost_ahead(rows, actions)
        omega = cost_weighting(self.cost_weights, cost.shape[1]) * self.urgency(cost, budget)
        return weighed(actions, cost @ omega, self.fallback_beta)

    def first_safe(
        self,
        features: Float[Array, " f"],
        action: Float[Array, " a"],
        careful: Float[Array, " a"],
        budget: Float[Array, " k"],
    ) -> Float[Array, " a"]:
        """The first safe action of n on the way from the policy's to the fallback's, which ends it."""
        if not self.fallback_mixtures:
            return careful
        share = jnp.arange(1, self.fallback_mixtures + 1)[:, None] / self.fallback_mixtures
        actions = (1.0 - share) * action + share * careful
        return actions[jnp.argmax(self.safe(features, actions, budget).at[-1].set(True))]

    def safe(
        self, features: Float[Array, " f"], actions: Float[Array, "n a"], budget: Float[Array, " k"]
    ) -> Bool[Array, " n"]:
        """Which of n actions in one state have φ Q ≤ δ; φ is the safety factor, Q as in `cost_ahead`."""
        rows = jnp.broadcast_to(features, (len(actions), features.shape[-1]))
        return budgets.is_safe(self.safety_factor * self.cost_ahead(rows, actions), budget)

    def cost_ahead(self, features: Float[Array, "n f"], action: Float[Array, "n a"]) -> Float[Array, "n k"]:
        """Q_F, if it was learned, else Q_C: what decides whether an action is safe."""
        if self.fallback_critic is None:
            return self.cost_to_go(features, action)
        pairs = jnp.concatenate([features, action], axis=-1)
        return jnp.max(apply_each(self.fallback_critic, pairs), axis=0)

    def urgency(self, cost: Float[Array, "n k"], budget: Float[Array, " k"]) -> Float[Array, " k"]:
        """u_i = φ mean(Q_i) / (R δ_i), at most 1: R is `fallback_ramp`, φ the safety factor."""
        if not self.fallback_ramp:
            return jnp.ones_like(budget)
        enough = jnp.maximum(self.fallback_ramp * budget, 1e-6)
        return jnp.clip(self.safety_factor * jnp.mean(cost, axis=0) / enough, 0.0, 1.0)

    def best_candidate(
        self,
        features: Float[Array, " f"],
        mean: Float[Array, " a"],
        log_std: Float[Array, " a"],
        budget: Float[Array, " k"],
        key: PRNGKeyArray,
        draws: int,
    ) -> tuple[Float[Array, " a"], Bool[Array, ""]]:
        """Of the mean and n − 1 drawn actions the best safe one by Q_R, and whether there is one."""
        actions = drawn(mean, log_std, key, draws).at[0].set(mean)
        _, worth = self.compared(features, actions, budget)
        safe = self.safe(features, actions, budget)
        return actions[jnp.argmax(jnp.where(safe, worth, -jnp.inf))], jnp.any(safe)


def drawn(
    mean: Float[Array, "*b a"], log_std: Float[Array, "*b a"], key: PRNGKeyArray, count: int
) -> Float[Array, "n *b a"]:
    """Actions of a Gaussian policy, inside their bounds."""
    noise = jax.random.normal(key, (count, *mean.shape))
    return jnp.clip(mean + jnp.exp(log_std) * noise, -1.0, 1.0)


def weighed(actions: Float[Array, "n *b a"], cost: Float[Array, "n *b"], beta: float) -> Float[Array, "*b a"]:
    """The exp(−β cost)-weighted mean of n actions."""
    return jnp.sum(jax.nn.softmax(-beta * cost, axis=0)[..., None] * actions, axis=0)
