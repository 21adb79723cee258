"""BCRL with TD3+BC: an instance whose policy may choose actions that are not in the log.

The cost critics, and so the safe sets, are those of `bcrl.py`. Inside, the policy itself says what a next
state is worth, and climbs the reward critic while it stays near the log and inside the safe set.
"""

from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp
from jax.lax import stop_gradient
from jaxtyping import Array, PRNGKeyArray

from bcrl.learn.batch import Batch
from bcrl.learn.bcrl import BCRL
from bcrl.learn.bcrl_parts import Budgets, Costs
from bcrl.learn.options import option
from bcrl.learn.protocol import Metrics, Part, Spec
from bcrl.learn.stages import stage
from bcrl.learn.train_state import Networks


@dataclass(frozen=True, repr=False)
class BCRLTD3(BCRL):
    """Options of BCRL with TD3+BC. `extraction` and those of V_R are not used, those of weights by the
    fallback alone."""

    name: ClassVar[str] = "bcrl-td3bc"
    networks_of: ClassVar[dict[Part, tuple[str, ...]]] = {**BCRL.networks_of, "reward": ("critic",)}

    greed: float = option(2.5, above=0.0, traced=True)
    """Weight of reward against cloning in the policy's loss, with Q_R in units of its mean size."""
    noise: float = option(0.2, least=0.0, unit="action", traced=True)
    """Standard deviation of the noise on next actions, which smooths Q_R."""
    noise_limit: float = option(0.5, least=0.0, unit="action", traced=True)
    """Largest noise on next actions."""

    @property
    def climbs(self) -> bool:
        """Always."""
        return True

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
        fallback_loss, fallback_metrics = self.fallback_losses(networks, targets, batch, costs, fallback_key)

        metrics |= critic_metrics | actor_metrics | fallback_metrics
        return cost_loss + critic_loss + actor_loss + fallback_loss, metrics

    @stage("reward critics")
    def critic_loss(
        self,
        networks: Networks,
        targets: Networks,
        batch: Batch,
        budget: Budgets,
        costs: Costs,
        key: PRNGKeyArray,
    ) -> tuple[Array, Metrics]:
        """(Q_R(s, a, δ) − r − γ Q_R(s′, a′, δ′))², a′ chosen as in execution with a safety factor of 1.

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

    @stage("policy")
    def actor_loss(
        self,
        networks: Networks,
        targets: Networks,
        batch: Batch,
        budget: Budgets,
        costs: Costs,
        key: PRNGKeyArray,
    ) -> tuple[Array, Metrics]:
        """`climbing_loss`, all rows cloned alike."""
        inputs = jnp.concatenate([batch.features, self.encode(budget.state)], axis=1)
        mean, log_std = networks["actor"](inputs, key)
        loss, _, _, metrics = self.climbing_loss(targets, batch, budget, costs, mean, log_std, 1.0)
        return loss, metrics
