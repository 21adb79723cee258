"""CPQ: constraints-penalised Q-learning.

An actor-critic in which reward counts only where Q_C is within the threshold, and in which the Q_C of
out-of-distribution ("strange") actions is raised. Equations and deviations: docs/baselines.md.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.lax import stop_gradient
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from bcrl.data import Dataset
from bcrl.learn.baselines.common import Baseline, ForOneThreshold, Variant
from bcrl.learn.baselines.parts import VAE, ModeActor, SquashedGaussian, latent_kl
from bcrl.learn.batch import Batch, Rows
from bcrl.learn.losses import backup_errors
from bcrl.learn.networks import MLP, apply_each, ensemble
from bcrl.learn.options import option
from bcrl.learn.protocol import Metrics, Normaliser, Part, Spec
from bcrl.learn.train_state import Networks, Optimisers, TrainState, adam

LOG_ALPHA_RANGE = (-5.0, 5.0)


class Arrays(eqx.Module):
    rows: Rows
    worst: Float[Array, ""]


class Sample(eqx.Module):
    batch: Batch
    worst: Float[Array, ""]  # a low return of the log: the value of actions that are not allowed


@dataclass(frozen=True, repr=False)
class CPQ(ForOneThreshold, Baseline):
    """CPQ. The train state's `extra` is log α."""

    name: ClassVar[str] = "cpq"

    variant: Variant = "faithful"
    """faithful: as released, where the penalty of strange actions has no gradient; fixed: it has one."""
    reward_scale: float = option(0.1, above=0.0)
    """Rewards are multiplied by it."""
    learning_rate: float = option(1e-3, above=0.0, traced=True)
    """Adam's step size for critics and auto-encoder."""
    actor_rate: float = option(1e-4, above=0.0, traced=True)
    """Adam's step size for the actor."""
    alpha_rate: float = option(1e-4, above=0.0, traced=True)
    """Step size of log α, the weight of the penalty."""
    vae_hidden: tuple[int, ...] = option((400, 400), least=1, most=65_536)
    """Hidden layers of the auto-encoder; its latent is twice as wide as an action."""
    vae_kl: float = option(0.5, above=0.0, traced=True)
    """Weight of the auto-encoder's KL term beside its mean squared error."""
    candidates: int = option(10, least=1, most=10_000)
    """Actions sampled from the policy per state; the strange ones among them are penalised."""
    strange: float = option(0.95, above=0.0, below=1.0, traced=True)
    """An action is strange when this share of the log's actions is less strange to the auto-encoder."""
    penalty_level: float = option(1.5, above=0.0, traced=True)
    """The penalty raises Q_C of strange actions up to this many times the discounted threshold."""

    # ---- protocol: data and networks ------------------------------------------------------------

    def prepare(self, data: Dataset, normaliser: Normaliser) -> Arrays:
        """Rows, and the value of actions with Q_C above the threshold: a low return of the log.

        Faithful takes 0, which is no penalty where returns are negative. Where they hardly ever are, both
        are the same.
        """
        worst = 0.0 if self.faithful else self.reward_scale * low_return(data, self.gamma)
        rows = self.rows(data, normaliser, reward_scale=self.reward_scale)
        return Arrays(rows, jnp.asarray(worst, jnp.float32))

    def sample(self, arrays: Arrays, key: PRNGKeyArray) -> Sample:
        return Sample(arrays.rows.sample_batch(key, self.batch_size)[0], arrays.worst)

    def init(self, key: PRNGKeyArray, spec: Spec) -> TrainState:
        vae_key, actor_key, critic_key = jax.random.split(key, 3)
        s, a = spec.observation_size, spec.action_size
        networks: Networks = {
            "actor": SquashedGaussian(s, a, self.hidden, actor_key),
            # Two of reward, then two of cost.
            "critics": ensemble((s + a, *self.hidden, 1), critic_key, members=4),
        }
        if not self.faithful:
            networks["vae"] = VAE(s, a, 2 * a, self.vae_hidden, vae_key)
        return TrainState.start(networks, self.optimisers, ("critics",), jnp.zeros(()))

    @property
    def optimisers(self) -> Optimisers:
        rates = {"actor": self.actor_rate, "critics": self.learning_rate}
        return adam(rates if self.faithful else {**rates, "vae": self.learning_rate})

    # ---- one step -------------------------------------------------------------------------------

    def update(
        self, state: TrainState, sample: Sample, key: PRNGKeyArray, spec: Spec, parts: tuple[Part, ...]
    ) -> tuple[TrainState, Metrics]:
        """One gradient step on every network, and one of α."""
        del parts

        def loss(networks: Networks) -> tuple[Array, tuple[Array, Metrics]]:
            return self.losses(networks, state.targets["critics"], state.extra, sample, key, spec)

        gradients, (log_alpha, metrics) = jax.grad(loss, has_aux=True)(state.networks)
        state = state.step(gradients, self.optimisers).follow(self.target_rate)
        return state.with_extra(log_alpha), metrics

    def losses(
        self,
        networks: Networks,
        targets: MLP,
        log_alpha: Array,
        sample: Sample,
        key: PRNGKeyArray,
        spec: Spec,
    ) -> tuple[Array, tuple[Array, Metrics]]:
        """The sum of all losses, each moving its own network alone; the next log α, and metrics.

        As released, the penalty of strange actions has no gradient; faithful leaves it out, and with it α
        and the auto-encoder.
        """
        batch, limit = sample.batch, self.discounted_threshold(spec, self.gamma)
        next_key, action_key, penalty_key = jax.random.split(key, 3)
        frozen = stop_gradient(networks)

        next_action = frozen["actor"].sample(batch.next_features, next_key)
        next_q, next_q_c = self.judge(targets, batch.next_features, next_action)
        goal, goal_c = self.goals(sample, next_q, next_q_c, limit)
        q_loss, q_c_loss = backup_errors(networks["critics"], batch, goal, goal_c)

        action = networks["actor"].sample(batch.features, action_key)
        q, q_c = self.judge(frozen["critics"], batch.features, action)
        actor_loss = self.actor_loss(q, q_c, limit)
        loss = q_loss + q_c_loss + actor_loss
        metrics = {
            "critic/loss": q_loss,
            "critic/value": jnp.mean(q),
            "cost/loss": q_c_loss,
            "cost/value": jnp.mean(q_c),
            "policy/loss": actor_loss,
            "policy/allowed": jnp.mean(q_c <= limit),
        }
        if self.faithful:
            return loss, (log_alpha, metrics)

        vae_key, strange_key = jax.random.split(penalty_key)
        vae_loss = networks["vae"].loss(batch.features, batch.action, vae_key, self.vae_kl)
        actions, strange = self.strange_actions(frozen, batch, strange_key)
        level = self.penalty_level * limit
        gap, raisable = self.strange_gaps(networks["critics"], batch.features, actions, strange, level)
        penalty = jnp.exp(log_alpha) * raisable
        metrics |= {
            "vae/loss": vae_loss,
            "cost/penalty": penalty,
            "cost/alpha": jnp.exp(log_alpha),
            "cost/strange": jnp.mean(strange),
        }
        return loss + vae_loss + penalty, (self.next_log_alpha(log_alpha, gap), metrics)

    def goals(self, sample: Sample, next_q: Array, next_q_c: Array, limit: Array) -> tuple[Array, Array]:
        """y = r + γ (1 − d) (Q if Q_C ≤ d(κ) else worst)(s′, a′), y_C = c + γ (1 − d) Q_C(s′, a′).

        Faithful never ends the backup of cost.
        """
        batch = sample.batch
        bootstrap = 1.0 if self.faithful else batch.bootstrap
        worth = jnp.where(next_q_c <= limit, next_q, sample.worst)
        goal = batch.reward + self.gamma * batch.bootstrap * worth
        return goal, batch.only_cost + self.gamma * bootstrap * next_q_c

    def strange_actions(
        self, networks: Networks, batch: Batch, key: PRNGKeyArray
    ) -> tuple[Float[Array, "n b a"], Bool[Array, "n b"]]:
        """n actions of the policy per state, and which are strange (out-of-distribution).

        An action is strange if its code is farther from the prior (by KL) than those of nearly all the log.
        """
        wide = jnp.broadcast_to(batch.features, (self.candidates, *batch.features.shape))
        actions = networks["actor"].sample(wide, key)
        # The log's own actions come first.
        pairs = jnp.concatenate([batch.features[None], wide]), jnp.concatenate([batch.action[None], actions])
        kl = latent_kl(*networks["vae"].encode(*pairs))
        return actions, kl[1:] > jnp.quantile(kl[0], self.strange)

    def strange_gaps(
        self,
        critics: MLP,
        features: Float[Array, "b f"],
        actions: Float[Array, "n b a"],
        strange: Bool[Array, "n b"],
        level: Array,
    ) -> tuple[Array, Array]:
        """E[ℓ d(κ) − Q_C] and E[(ℓ d(κ) − Q_C)⁺] over the strange actions: what Q_C lacks of the level.

        The second is what the penalty lowers, so that no action is raised above the level.
        """
        wide = jnp.broadcast_to(features, (*actions.shape[:-1], features.shape[-1]))
        gaps = jnp.where(strange, level - self.judge_cost(critics, wide, actions), 0.0)
        count = jnp.maximum(jnp.sum(strange), 1)
        return jnp.sum(gaps) / count, jnp.sum(jax.nn.relu(gaps)) / count

    def next_log_alpha(self, log_alpha: Array, gap: Array) -> Array:
        """log α + η α E[ℓ d(κ) − Q_C]: α rises while their Q_C is below the level."""
        return jnp.clip(log_alpha + self.alpha_rate * jnp.exp(log_alpha) * gap, *LOG_ALPHA_RANGE)

    def actor_loss(self, q: Array, q_c: Array, limit: Array) -> Array:
        """−E[1[Q_C ≤ d(κ)] Q], and where an action is not allowed E[Q_C − d(κ)]; faithful has 0 there."""
        otherwise = jnp.zeros_like(q_c) if self.faithful else q_c - limit
        return jnp.mean(jnp.where(q_c <= limit, -q, otherwise))

    def judge(
        self, critics: MLP, features: Float[Array, "*b f"], action: Float[Array, "*b a"]
    ) -> tuple[Float[Array, "*b"], Float[Array, "*b"]]:
        """Q, the smaller of two, and Q_C."""
        values = apply_each(critics, jnp.concatenate([features, action], axis=-1))[..., 0]
        q, q_c = jnp.split(values, 2)
        return jnp.min(q, axis=0), self.one_cost(q_c)

    def judge_cost(
        self, critics: MLP, features: Float[Array, "*b f"], action: Float[Array, "*b a"]
    ) -> Float[Array, "*b"]:
        """Q_C alone: the critics of reward are not evaluated."""
        of_cost = jax.tree.map(lambda x: x[len(x) // 2 :], critics)
        return self.one_cost(apply_each(of_cost, jnp.concatenate([features, action], axis=-1))[..., 0])

    def one_cost(self, q_c: Float[Array, "2 *b"]) -> Float[Array, "*b"]:
        """The mean of two critics; faithful takes the smaller.

        Not the larger: a backup adds the difference at every step.
        """
        return jnp.min(q_c, axis=0) if self.faithful else jnp.mean(q_c, axis=0)

    # ---- protocol: what is kept -----------------------------------------------------------------

    def actor(self, state: TrainState, arrays: Any, normaliser: Normaliser, spec: Spec) -> ModeActor:
        del arrays, spec
        return ModeActor(self.seen_through(normaliser), state.networks["actor"])


def low_return(data: Dataset, gamma: float) -> float:
    """The return that a twentieth of the log's rows stay below to the end of their episode, and at most 0.

    Not the least, nor min r/(1 − γ): a few bad steps would then decide how much being allowed is worth.
    """
    return min(0.0, float(np.quantile(data.sums_to_go(data.rewards, gamma), 0.05)))
