"""LSPC (IQL version): clone the safer actions of the log as a generator, then steer it towards reward.

A conditional auto-encoder clones the log's actions with weights that fall with their cost: the safe policy
(LSPC-S). A second policy learns to choose latents for it, in a small box around 0, by reward (LSPC-O).
Training and acting see no threshold.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from bcrl.data import Dataset
from bcrl.learn.baselines import in_sample
from bcrl.learn.baselines.common import Baseline, Memory, PlainActor
from bcrl.learn.baselines.parts import VAE, SquashedGaussian
from bcrl.learn.batch import Batch, Rows
from bcrl.learn.losses import advantage_weight, expectile_loss
from bcrl.learn.options import option
from bcrl.learn.protocol import Metrics, Normaliser, Part, Spec
from bcrl.learn.train_state import Networks, Optimisers, TrainState, adam


class LatentActor(PlainActor):
    """Executes a decoded latent, sampled inside the box (O: from the learned policy, S: from the prior)."""

    vae: VAE
    latents: SquashedGaussian
    policy: Literal["O", "S"] = eqx.field(static=True)
    radius: float = eqx.field(static=True)

    def choose(self, features: Float[Array, " f"], memory: Memory, key: PRNGKeyArray) -> Float[Array, " a"]:
        del memory
        if self.policy == "S":
            return self.vae.sample(features, key, limit=self.radius)
        return self.vae.decode(features, self.radius * self.latents.sample(features, key))


@dataclass(frozen=True, repr=False)
class LSPC(Baseline):
    """LSPC, IQL version."""

    name: ClassVar[str] = "lspc"

    policy: Literal["O", "S"] = "O"
    """The policy that acts: O chooses by reward among the safe actions, S takes any of them."""
    batch_size: int = 1024
    """Transitions per gradient step."""
    tau_r: float = option(0.7, least=0.5, most=1.0, traced=True)
    """Expectile of the reward value; larger is nearer the best action of the log."""
    tau_c: float = option(0.3, above=0.0, most=0.5, traced=True)
    """Expectile of the cost value; smaller is nearer the least cost."""
    beta: float = option(2.0, above=0.0, unit="1/c_max, 1/reward unit", traced=True)
    """Inverse temperature: the generator weighs actions by exp(β · cost saved), O by exp(β · advantage)."""
    weight_limit: float = option(200.0, above=0.0, traced=True)
    """Largest weight of an action."""
    learning_rate: float = option(3e-4, above=0.0, traced=True)
    """Adam's step size."""
    latent: int = option(32, least=1, most=65_536)
    """Size of the latent."""
    radius: float = option(0.25, above=0.0, traced=True)
    """How far from 0 each entry of a latent may be (ρ)."""
    vae_kl: float = option(0.5, above=0.0, traced=True)
    """Weight of the generator's KL term beside its squared error."""
    cost_ceiling: float | None = option(None, above=0.0, unit="cost", traced=True)
    """Clone safe actions only where V_C and Q_C are both below this (η); by default everywhere."""

    def prepare(self, data: Dataset, normaliser: Normaliser) -> Rows:
        return self.rows(data, normaliser)

    def init(self, key: PRNGKeyArray, spec: Spec) -> TrainState:
        critic_key, vae_key, latents_key = jax.random.split(key, 3)
        d, a = spec.observation_size, spec.action_size
        networks = in_sample.networks(d, a, self.hidden, critic_key)
        networks["vae"] = VAE(d, a, self.latent, self.hidden, vae_key)
        networks["latents"] = SquashedGaussian(d, self.latent, self.hidden, latents_key)
        return TrainState.start(networks, self.optimisers, targets=("critics",))

    @property
    def optimisers(self) -> Optimisers:
        return adam(dict.fromkeys(("values", "critics", "vae", "latents"), self.learning_rate))

    def update(
        self, state: TrainState, batch: Batch, key: PRNGKeyArray, spec: Spec, parts: tuple[Part, ...]
    ) -> tuple[TrainState, Metrics]:
        """One gradient step of values, critics, generator and latent policy at once."""
        del spec, parts
        gradients, metrics = jax.grad(self.losses, has_aux=True)(state.networks, state.targets, batch, key)
        return state.step(gradients, self.optimisers).follow(self.target_rate), metrics

    def losses(
        self, trained: Networks, targets: Networks, batch: Batch, key: PRNGKeyArray
    ) -> tuple[Array, Metrics]:
        """Their sum: no loss reaches the networks of another."""
        vae_key, latents_key = jax.random.split(key)
        found = in_sample.estimate(trained, targets, batch)
        advantage = found.critic - found.value
        cost_critic, cost_value, next_cost_value = map(
            jax.nn.relu, (found.cost_critic, found.cost_value, found.next_cost_value)
        )
        # Released, the regression sees relu(V_C) and a negative output learns nothing more.
        regressed = cost_value if self.faithful else found.cost_value
        safe_weight = self.safe_weight(*map(jax.lax.stop_gradient, (cost_value, cost_critic)))
        weight = advantage_weight(jax.lax.stop_gradient(advantage), self.beta, self.weight_limit)
        vae, latents = trained["vae"], trained["latents"]
        metrics = {
            "reward/value_loss": expectile_loss(advantage, self.tau_r),
            "reward/critic_loss": in_sample.backup_loss(
                found.critics, batch.reward, batch.bootstrap, found.next_value, self.gamma
            ),
            "cost/value_loss": expectile_loss(cost_critic - regressed, self.tau_c),
            "cost/critic_loss": in_sample.backup_loss(
                found.cost_critics, batch.only_cost, batch.bootstrap, next_cost_value, self.gamma
            ),
            "generator/loss": self.generator_loss(vae, batch, safe_weight, vae_key),
            "policy/loss": self.latents_loss(latents, vae, batch, weight, latents_key),
        }
        return sum(metrics.values(), jnp.zeros(())), metrics | {
            "reward/value": found.value.mean(),
            "cost/value": cost_value.mean(),
            "generator/weight": safe_weight.mean(),
            "policy/weight": weight.mean(),
        }

    def safe_weight(self, cost_value: Float[Array, " b"], cost_critic: Float[Array, " b"]) -> Array:
        """min(exp(β (V_C − Q_C)), limit), and 0 where V_C or Q_C is η or more."""
        weight = advantage_weight(cost_value - cost_critic, self.beta, self.weight_limit)
        if self.cost_ceiling is None:
            return weight
        return weight * (jnp.maximum(cost_value, cost_critic) < self.cost_ceiling)

    def generator_loss(self, vae: VAE, batch: Batch, weight: Array, key: PRNGKeyArray) -> Array:
        """E[w (‖decoded − a‖² + ½ KL)], the KL a mean over the latent's dimensions."""
        squares, kl = vae.errors(batch.features, batch.action, key)
        return jnp.mean(weight * (jnp.sum(squares, axis=-1) + self.vae_kl * kl))

    def latents_loss(
        self, latents: SquashedGaussian, vae: VAE, batch: Batch, weight: Array, key: PRNGKeyArray
    ) -> Array:
        """E[w ‖decode(s, ρ tanh(z)) − a‖²] with z ~ π_z(s); the decoder itself stays as it is."""
        latent = self.radius * latents.sample(batch.features, key)
        decoded = jax.lax.stop_gradient(vae).decode(batch.features, latent)
        return jnp.mean(weight * jnp.sum((decoded - batch.action) ** 2, axis=-1))

    def actor(self, state: TrainState, arrays: Any, normaliser: Normaliser, spec: Spec) -> LatentActor:
        del arrays, spec
        networks = state.networks
        return LatentActor(
            self.seen_through(normaliser), networks["vae"], networks["latents"], self.policy, self.radius
        )
