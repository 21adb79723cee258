"""BCRL with TD3+BC: an instance whose policy may choose actions that are not in the log.

The cost critics, and so the safe sets, are those of `bcrl.py`. Inside, the policy itself says what a next
state is worth, and climbs the reward critic while it stays near the log and inside the safe set.
"""

import dataclasses
from dataclasses import dataclass
from typing import ClassVar, cast

import jax
import jax.numpy as jnp
from jax.lax import stop_gradient
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from bcrl.learn.acting import BudgetedActor
from bcrl.learn.batch import Batch
from bcrl.learn.bcrl import BCRL, Budgets, Costs
from bcrl.learn.bcrl_setup import Arrays
from bcrl.learn.losses import spread
from bcrl.learn.networks import apply_each, gaussian_log_density
from bcrl.learn.options import option
from bcrl.learn.protocol import Metrics, Normaliser, Part, Spec
from bcrl.learn.train_state import Networks, TrainState


@dataclass(frozen=True, repr=False)
class BCRLTD3(BCRL):
    """Options of BCRL with TD3+BC. Those of V_R (reward_regression, tau_r, temperature_r) are not used."""

    name: ClassVar[str] = "bcrl-td3bc"
    networks_of: ClassVar[dict[Part, tuple[str, ...]]] = {**BCRL.networks_of, "reward": ("critic",)}

    greed: float = option(2.5, above=0.0)
    """Weight of reward against cloning in the policy's loss, with Q_R in units of its mean size."""
    noise: float = option(0.2, least=0.0, unit="action")
    """Standard deviation of the noise on next actions, which smooths Q_R."""
    noise_limit: float = option(0.5, least=0.0, unit="action")
    """Largest noise on next actions."""
    unsafe_price: float = option(1.0, least=0.0)
    """Price of Q_C above δ in the policy's loss, with Q_C in spreads of Q_C − V_C in the log."""

    @property
    def schedule(self) -> tuple[tuple[Part, ...], ...]:
        """Reward critics and policy need each other, so these two are never trained in turn."""
        return super().schedule if self.phases == "together" else (("cost",), ("reward", "policy"))

    def make_networks(self, key: PRNGKeyArray, spec: Spec) -> Networks:
        """As BCRL's, without V_R."""
        networks = super().make_networks(key, spec)
        del networks["value"]
        return networks

    def total_loss(
        self, networks: Networks, targets: Networks, batch: Batch, key: PRNGKeyArray, spec: Spec
    ) -> tuple[Array, Metrics]:
        """The five steps of Algorithm 1; steps 3 and 4 are those of TD3+BC."""
        budget_key, rest_key = jax.random.split(key)
        noise_key, actor_key, fallback_key = jax.random.split(rest_key, 3)

        cost_loss, costs, metrics = self.cost_losses(networks, targets, batch)
        batch, costs = self.repeat(batch), self.repeat(costs)
        budget = self.augment(budget_key, batch, costs, spec)
        critic_loss, critic_metrics = self.critic_loss(networks, targets, batch, budget, costs, noise_key)
        actor_loss, actor_metrics = self.actor_loss(networks, targets, batch, budget, costs, actor_key)
        fallback_loss = self.fallback_loss(networks["fallback"], batch, costs, fallback_key)

        metrics |= critic_metrics | actor_metrics | {"policy/fallback_loss": fallback_loss}
        return cost_loss + critic_loss + actor_loss + fallback_loss, metrics

    def critic_loss(
        self,
        networks: Networks,
        targets: Networks,
        batch: Batch,
        budget: Budgets,
        costs: Costs,
        key: PRNGKeyArray,
    ) -> tuple[Array, Metrics]:
        """(Q_R(s, a, δ) − r − γ Q_R(s′, a′, δ′))², a′ chosen as in execution.

        That is the policy's action plus noise; the fallback's where slack is gone or Q_C(s′, a′) > δ′.
        """
        features, seen, v_c = batch.next_features, budget.next_state, costs.next_value
        mean, _ = networks["actor"](jnp.concatenate([features, self.encode(seen)], axis=1))
        noise = self.noise * jax.random.normal(key, mean.shape)
        action = jnp.clip(mean + jnp.clip(noise, -self.noise_limit, self.noise_limit), -1.0, 1.0)
        left, safe = self.left(targets, features, action, seen, v_c)
        slack = seen if self.tracking == "soft" else seen - v_c
        allowed = (safe & jnp.all(slack >= self.fallback_below, axis=-1))[:, None]
        least, _ = networks["fallback"](features)
        least_left, _ = self.left(targets, features, least, seen, v_c)
        action, left = jnp.where(allowed, action, least), jnp.where(allowed, left, least_left)
        worth = stop_gradient(self.worth(targets, features, action, left, seen))

        inputs = jnp.concatenate([batch.pairs, self.encode(budget.action)], axis=1)
        loss = self.reward_critic_loss(networks["critic"], inputs, batch, worth)
        metrics = {
            "reward/critic_loss": loss,
            "reward/value": worth.mean(),
            "reward/next_fallback": 1.0 - allowed.mean(),
        }
        return loss, metrics

    def actor_loss(
        self,
        networks: Networks,
        targets: Networks,
        batch: Batch,
        budget: Budgets,
        costs: Costs,
        key: PRNGKeyArray,
    ) -> tuple[Array, Metrics]:
        """(π − a)² − λ Q_R(s, π, δ) where π is safe, (π − a)² + price · (Q_C(s, π) − δ) where it is not.

        λ = greed / mean |Q_R|. The log's action a is safe in every row, so cloning pulls inwards. What π
        spends lowers the budget that Q_R sees: reward now is weighed against what the rest could still buy.
        """
        features, seen = batch.features, budget.state
        mean, log_std = networks["actor"](jnp.concatenate([features, self.encode(seen)], axis=1), key)
        left, safe = self.left(targets, features, mean, seen, costs.value)
        worth = self.worth(targets, features, mean, left, seen)
        scale = self.greed / (jnp.mean(jnp.abs(stop_gradient(worth))) + 1e-6)
        excess = jnp.sum(jnp.maximum(-left, 0.0), axis=-1) / spread(costs.critic - costs.value)
        clone = jnp.mean((mean - batch.action) ** 2, axis=-1)
        loss = jnp.mean(clone - scale * jnp.where(safe, worth, 0.0) + self.unsafe_price * excess)
        # The standard deviation is for candidates alone, which are drawn around the mean.
        width_loss = -jnp.mean(gaussian_log_density(stop_gradient(mean), log_std, batch.action))
        metrics = {"policy/loss": loss, "policy/clone_loss": clone.mean(), "policy/unsafe": 1.0 - safe.mean()}
        return loss + width_loss, metrics

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

    def actor(
        self, state: TrainState, arrays: Arrays | None, normaliser: Normaliser, spec: Spec
    ) -> BudgetedActor:
        """As BCRL's, and guarded: an action that is not in the log can be unsafe with slack to spare."""
        actor = super().actor(state, arrays, normaliser, spec)
        return dataclasses.replace(cast(BudgetedActor, actor), guarded=True)
