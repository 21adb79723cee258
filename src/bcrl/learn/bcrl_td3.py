"""BCRL with TD3+BC: an instance whose policy may choose actions that are not in the log.

The cost critics, and so the safe sets, are those of `bcrl.py`. Inside, the policy itself says what a next
state is worth, and climbs the reward critic while it stays near the log and inside the safe set.
"""

import dataclasses
from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from bcrl.learn.acting import BudgetedActor
from bcrl.learn.bcrl import BCRL, Arrays, Augmented, Batch, Critics, Policies, State
from bcrl.learn.losses import gaussian_log_density, spread
from bcrl.learn.method import Metrics, Normaliser, Part, Spec
from bcrl.learn.networks import apply_each

Networks = tuple[Critics, Critics, Policies]  # cost, reward, policy


@dataclass(frozen=True)
class BCRLTD3(BCRL):
    """Options of BCRL with TD3+BC. Those of V_R (reward_regression, tau_r, temperature_r) are not used."""

    name: ClassVar[str] = "bcrl-td3bc"
    has_reward_value: ClassVar[bool] = False

    greed: float = 2.5
    """Weight of reward against cloning in the policy's loss, with Q_R in units of its mean size."""
    noise: float = 0.2
    """Standard deviation of the noise on next actions, which smooths Q_R."""
    noise_limit: float = 0.5
    """Largest noise on next actions."""
    unsafe_price: float = 1.0
    """Price of Q_C above δ in the policy's loss, with Q_C in spreads of Q_C − V_C in the log."""

    @property
    def schedule(self) -> tuple[tuple[Part, ...], ...]:
        """Reward critics and policy need each other, so these two are never trained in turn."""
        return super().schedule if self.phases == "together" else (("cost",), ("reward", "policy"))

    def losses_inside(
        self,
        networks: Networks,
        batch: Batch,
        budget: Augmented,
        costs: tuple[Array, Array, Array],
        key: PRNGKeyArray,
    ) -> tuple[Array, Metrics]:
        q_c, v_c, next_v_c = costs
        noise_key, actor_key, fallback_key = jax.random.split(key, 3)
        critic_loss, metrics = self.critic_loss(networks, batch, budget, next_v_c, noise_key)
        actor_loss, more = self.actor_loss(networks, batch, budget, q_c, v_c, actor_key)
        fallback_loss = self.fallback_loss(networks[2].fallback, batch, v_c - q_c, fallback_key)
        metrics |= more | {"policy/fallback_loss": fallback_loss}
        return critic_loss + actor_loss + fallback_loss, metrics

    def critic_loss(
        self, networks: Networks, batch: Batch, budget: Augmented, next_v_c: Array, key: PRNGKeyArray
    ) -> tuple[Array, Metrics]:
        """(Q_R(s, a, δ) − r − γ Q_R(s′, a′, δ′))², a′ chosen as in execution.

        That is the policy's action plus noise; the fallback's where slack is gone or Q_C(s′, a′) > δ′.
        """
        cost, reward, policy = networks
        features, seen = batch.next_features, budget.next_state
        mean, _ = policy.actor(jnp.concatenate([features, self.show(seen)], axis=1))
        noise = self.noise * jax.random.normal(key, mean.shape)
        action = jnp.clip(mean + jnp.clip(noise, -self.noise_limit, self.noise_limit), -1.0, 1.0)
        left, safe = self.left(cost, features, action, seen, next_v_c)
        slack = seen if self.tracking == "soft" else seen - next_v_c
        allowed = (safe & jnp.all(slack >= self.fallback_below, axis=-1))[:, None]
        careful, _ = policy.fallback(features)
        careful_left, _ = self.left(cost, features, careful, seen, next_v_c)
        action, left = jnp.where(allowed, action, careful), jnp.where(allowed, left, careful_left)
        worth = jax.lax.stop_gradient(self.worth(reward, features, action, left, seen))

        goal = batch.reward + self.gamma * batch.goes_on * worth
        inputs = jnp.concatenate([batch.features, batch.action, self.show(budget.action)], axis=1)
        loss = jnp.mean((apply_each(reward.critic, inputs)[..., 0] - goal) ** 2)
        metrics = {
            "reward/critic_loss": loss,
            "reward/value": worth.mean(),
            "reward/next_fallback": 1.0 - allowed.mean(),
        }
        return loss, metrics

    def actor_loss(
        self,
        networks: Networks,
        batch: Batch,
        budget: Augmented,
        q_c: Array,
        v_c: Array,
        key: PRNGKeyArray,
    ) -> tuple[Array, Metrics]:
        """(π − a)² − λ Q_R(s, π, δ) where π is safe, (π − a)² + price · (Q_C(s, π) − δ) where it is not.

        λ = greed / mean |Q_R|. The log's action a is safe in every row, so cloning pulls inwards. What π
        spends lowers the budget that Q_R sees: reward now is weighed against what the rest could still buy.
        """
        cost, reward, policy = networks
        features, seen = batch.features, budget.state
        mean, log_std = policy.actor(jnp.concatenate([features, self.show(seen)], axis=1), key)
        left, safe = self.left(cost, features, mean, seen, v_c)
        worth = self.worth(reward, features, mean, left, seen)
        scale = self.greed / (jnp.mean(jnp.abs(jax.lax.stop_gradient(worth))) + 1e-6)
        excess = jnp.sum(jnp.maximum(-left, 0.0), axis=-1) / spread(q_c - v_c)
        clone = jnp.mean((mean - batch.action) ** 2, axis=-1)
        loss = jnp.mean(clone - scale * jnp.where(safe, worth, 0.0) + self.unsafe_price * excess)
        # The standard deviation is for pruning alone, which draws actions around the mean.
        width_loss = -jnp.mean(gaussian_log_density(jax.lax.stop_gradient(mean), log_std, batch.action))
        metrics = {"policy/loss": loss, "policy/clone_loss": clone.mean(), "policy/unsafe": 1.0 - safe.mean()}
        return loss + width_loss, metrics

    def left(
        self, cost: Critics, features: Array, action: Array, seen: Array, v_c: Array
    ) -> tuple[Float[Array, "b k"], Bool[Array, " b"]]:
        """δ − Q_C(s, a) for any action, and whether it is safe. `seen` is slack in soft tracking, else δ."""
        q_c = jnp.max(apply_each(cost.target, jnp.concatenate([features, action], axis=1)), axis=0)
        left = (seen + v_c if self.tracking == "soft" else seen) - q_c
        return left, jnp.all(left >= 0.0, axis=-1)

    def worth(
        self, reward: Critics, features: Array, action: Array, left: Array, seen: Array
    ) -> Float[Array, " b"]:
        """Q_R, the smaller of the two: it sees what is left in soft tracking, the budget itself in direct."""
        shown = self.show(jnp.maximum(left, 0.0) if self.tracking == "soft" else seen)
        inputs = jnp.concatenate([features, action, shown], axis=1)
        return jnp.min(apply_each(reward.target, inputs)[..., 0], axis=0)

    def actor(self, state: State, arrays: Arrays | None, normaliser: Normaliser, spec: Spec) -> BudgetedActor:
        """As BCRL's, and guarded: an action that is not in the log can be unsafe with slack to spare."""
        return dataclasses.replace(super().actor(state, arrays, normaliser, spec), guarded=True)
