"""LSPC (IQL version): clone the safer actions of the log as a generator, then steer it towards reward.

A conditional auto-encoder learns the log's actions, the more so the less they cost: that is the safe policy
(LSPC-S). A second policy learns to choose latents for it, in a small box around 0, by reward (LSPC-O). No
threshold is ever seen.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from bcrl.data import Dataset
from bcrl.learn.baselines import in_sample
from bcrl.learn.baselines.common import (
    Baseline,
    Batch,
    Memory,
    PlainActor,
    adam_step,
    blank_normaliser,
    check_positive,
    start_adam,
)
from bcrl.learn.baselines.parts import VAE, SquashedGaussian
from bcrl.learn.losses import advantage_weight, expectile_loss
from bcrl.learn.method import Metrics, Normaliser, Part, Spec
from bcrl.learn.networks import MLP, follow
from bcrl.learn.rows import Rows


class State(eqx.Module):
    networks: dict[str, Any]
    moments: dict[str, Any]


class LatentActor(PlainActor):
    """Draws a latent inside the box (O: from the learned policy, S: from the prior) and decodes it."""

    vae: VAE
    latents: SquashedGaussian
    policy: Literal["O", "S"] = eqx.field(static=True)
    radius: float = eqx.field(static=True)

    def choose(self, features: Float[Array, " f"], memory: Memory, key: PRNGKeyArray) -> Float[Array, " a"]:
        del memory
        if self.policy == "S":
            return self.vae.draw(features, key, limit=self.radius)
        return self.vae.decode(features, self.radius * self.latents.draw(features, key))


@dataclass(frozen=True)
class LSPC(Baseline):
    """Options of LSPC."""

    name: ClassVar[str] = "lspc"
    family_options: ClassVar[dict[str, dict[str, Any]]] = {
        "bullet": {"radius": 0.6},
        "metadrive": {"cost_ceiling": 0.02},
        "point": {"radius": 0.6},  # as Bullet
    }

    policy: Literal["O", "S"] = "O"
    """Who acts: O steers by reward inside the safe actions, S takes any of them."""
    batch_size: int = 1024
    """Transitions per gradient step."""
    tau_r: float = 0.7
    """Expectile of the reward value; larger is nearer the best action of the log."""
    tau_c: float = 0.3
    """Expectile of the cost value; smaller is nearer the least cost."""
    beta: float = 2.0
    """Inverse temperature: the generator weighs actions by exp(β · cost saved), O by exp(β · advantage)."""
    weight_limit: float = 200.0
    """Largest weight of an action."""
    learning_rate: float = 3e-4
    """Adam's step size."""
    latent: int = 32
    """Size of the latent."""
    radius: float = 0.25
    """How far from 0 each entry of a latent may be (ρ)."""
    vae_kl: float = 0.5
    """Weight of the generator's KL term beside its squared error."""
    cost_ceiling: float | None = None
    """Clone safe actions only where V_C and Q_C are both below this (η); by default everywhere."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(self, "latent", "radius", "vae_kl")
        if self.cost_ceiling is not None:
            check_positive(self, "cost_ceiling")

    @property
    def schedule(self) -> tuple[tuple[Part, ...], ...]:
        return (("all",),)

    def prepare(self, data: Dataset, normaliser: Normaliser) -> Rows:
        return self.rows(data, normaliser, 1.0)

    def sample(self, arrays: Rows, key: PRNGKeyArray) -> Batch:
        return self.draw(arrays, key)[0]

    def init(self, key: PRNGKeyArray, spec: Spec) -> State:
        critic_key, vae_key, latents_key = jax.random.split(key, 3)
        d, a = spec.observation_size, spec.action_size
        networks = in_sample.networks(d, a, self.hidden, critic_key)
        networks["vae"] = VAE(d, a, self.latent, self.hidden, vae_key)
        networks["latents"] = SquashedGaussian(d, self.latent, self.hidden, latents_key)
        return State(networks, start_adam(networks, self.rates))

    @property
    def rates(self) -> dict[str, Any]:
        return dict.fromkeys(("values", "critics", "vae", "latents"), self.learning_rate)

    def update(
        self, state: State, batch: Batch, key: PRNGKeyArray, spec: Spec, parts: tuple[Part, ...]
    ) -> tuple[State, Metrics]:
        """One gradient step of values, critics, generator and latent policy at once."""
        del spec, parts
        trained = {name: state.networks[name] for name in self.rates}
        gradients, metrics = jax.grad(self.losses, has_aux=True)(
            trained, state.networks["targets"], batch, key
        )
        networks, moments = adam_step(state.networks, gradients, state.moments, self.rates)
        networks["targets"] = follow(networks["targets"], networks["critics"], self.target_rate)
        return State(networks, moments), metrics

    def losses(
        self, trained: dict[str, Any], targets: MLP, batch: Batch, key: PRNGKeyArray
    ) -> tuple[Array, Metrics]:
        """Their sum: no loss reaches the networks of another."""
        vae_key, latents_key = jax.random.split(key)
        found = in_sample.estimate(trained["values"], trained["critics"], targets, batch)
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
                found.critics, batch.reward, batch.goes_on, found.next_value, self.gamma
            ),
            "cost/value_loss": expectile_loss(cost_critic - regressed, self.tau_c),
            "cost/critic_loss": in_sample.backup_loss(
                found.cost_critics, batch.cost, batch.goes_on, next_cost_value, self.gamma
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
        latent = self.radius * latents.draw(batch.features, key)
        decoded = jax.lax.stop_gradient(vae).decode(batch.features, latent)
        return jnp.mean(weight * jnp.sum((decoded - batch.action) ** 2, axis=-1))

    def actor(self, state: State, arrays: Any, normaliser: Normaliser, spec: Spec) -> LatentActor:
        del arrays, spec
        networks = state.networks
        return LatentActor(
            self.seen_through(normaliser), networks["vae"], networks["latents"], self.policy, self.radius
        )

    def blank_actor(self, spec: Spec) -> LatentActor:
        return self.actor(self.init(jax.random.key(0), spec), None, blank_normaliser(spec), spec)
