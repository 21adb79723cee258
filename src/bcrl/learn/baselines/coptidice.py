"""COptiDICE: the best distribution over the log's transitions within the threshold, then cloned.

Two state values ν and χ and two multipliers λ and τ give each transition a weight w; the policy is cloned
with these weights. Equations and deviations: docs/baselines.md.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.lax import stop_gradient
from jaxtyping import Array, Float, PRNGKeyArray

from bcrl.data import Dataset
from bcrl.errors import BCRLError
from bcrl.learn.baselines.common import Baseline, ForOneThreshold
from bcrl.learn.baselines.parts import ModeActor, SquashedGaussian
from bcrl.learn.batch import Batch, Rows
from bcrl.learn.networks import MLP, apply_each, ensemble, gaussian_log_density
from bcrl.learn.options import option
from bcrl.learn.protocol import Metrics, Normaliser, Part, Spec
from bcrl.learn.train_state import Networks, Optimisers, TrainState, adam


class Arrays(eqx.Module):
    rows: Rows
    starts: Rows
    spread: tuple[Float[Array, " f"], Float[Array, " a"]]  # standard deviations of features and actions


class Sample(eqx.Module):
    batch: Batch
    starts: Float[Array, "b f"]
    start_weight: Float[Array, " b"]
    noisy_features: Float[Array, "b f"]
    noisy_action: Float[Array, "b a"]


class Values(eqx.Module):
    """ν or χ at s, s′ and initial states."""

    here: Float[Array, " b"]
    ahead: Float[Array, " b"]
    start: Float[Array, " b"]


@dataclass(frozen=True, repr=False)
class COptiDICE(ForOneThreshold, Baseline):
    """COptiDICE."""

    name: ClassVar[str] = "coptidice"

    reward_scale: float = option(0.1, above=0.0)
    """Rewards are multiplied by it."""
    learning_rate: float = option(1e-4, above=0.0, traced=True)
    """Adam's step size, for networks and multipliers."""
    alpha: float = option(0.5, above=0.0, traced=True)
    """Weight α of the divergence between the new distribution and the log's."""
    doubt: float = option(0.01, above=0.0, traced=True)
    """Divergence ε from the log within which the largest cost counts: an upper bound for little data."""
    noise: float = option(0.1, least=0.0, traced=True)
    """Noise on the inputs and actions that are cloned, in standard deviations."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.gamma == 1.0:
            raise BCRLError("gamma is 1, but coptidice weighs initial states by 1 − gamma: give less")

    def cost_limit(self, spec: Spec) -> Array:
        """(1 − γ) d(κ), for weights sum costs as (1 − γ) Σ γᵗ c_t. Faithful's d(κ) almost never binds."""
        limit = self.discounted_threshold(spec, self.gamma)
        return limit if self.faithful else (1.0 - self.gamma) * limit

    # ---- protocol: data and networks ------------------------------------------------------------

    def prepare(self, data: Dataset, normaliser: Normaliser) -> Arrays:
        first = (data.steps == 0).astype(np.float32)
        rows = self.rows(data, normaliser, first / first.mean(), reward_scale=self.reward_scale)
        seen = self.seen_through(normaliser)
        starts = np.asarray(seen(jnp.asarray(data.initial_observations)))
        spread = (data.observations.std(0) / np.asarray(seen.std), data.actions.std(0))
        return Arrays(rows, Rows.of(starts), (jnp.asarray(spread[0]), jnp.asarray(spread[1])))

    def sample(self, arrays: Arrays, key: PRNGKeyArray) -> Sample:
        """A batch. Fixed samples initial states apart; faithful weights the few that are in the batch."""
        row_key, start_key, *noise_keys = jax.random.split(key, 4)
        batch, (first,) = arrays.rows.sample_batch(row_key, self.batch_size)
        if self.faithful:
            starts, start_weight = batch.features, first[:, 0]
        else:
            (starts,) = arrays.starts.sample(start_key, self.batch_size)
            start_weight = jnp.ones(self.batch_size)
        noisy = [
            x + self.noise * spread * jax.random.normal(k, x.shape)
            for x, spread, k in zip((batch.features, batch.action), arrays.spread, noise_keys, strict=True)
        ]
        return Sample(batch, starts, start_weight, *noisy)

    def init(self, key: PRNGKeyArray, spec: Spec) -> TrainState:
        value_key, actor_key = jax.random.split(key)
        s, a = spec.observation_size, spec.action_size
        networks = {
            # ν, then χ. Faithful takes the smaller of two networks for each; the paper has one.
            "values": ensemble((s, *self.hidden, 1), value_key, members=4 if self.faithful else 2),
            "actor": SquashedGaussian(s, a, self.hidden, actor_key),
            "multipliers": jnp.ones(2),  # λ and τ before the softplus
        }
        return TrainState.start(networks, self.optimisers)

    @property
    def optimisers(self) -> Optimisers:
        return adam(dict.fromkeys(("values", "actor", "multipliers"), self.learning_rate))

    # ---- one step -------------------------------------------------------------------------------

    def update(
        self, state: TrainState, sample: Sample, key: PRNGKeyArray, spec: Spec, parts: tuple[Part, ...]
    ) -> tuple[TrainState, Metrics]:
        """One gradient step on values, multipliers and policy."""
        del key, parts
        gradients, metrics = jax.grad(self.losses, has_aux=True)(state.networks, sample, spec)
        return state.step(gradients, self.optimisers), metrics

    def losses(self, networks: Networks, sample: Sample, spec: Spec) -> tuple[Array, Metrics]:
        """The sum of all losses, each moving its own network alone."""
        batch = sample.batch
        price, temperature = jax.nn.softplus(networks["multipliers"])
        nu, chi = self.values(networks["values"], sample)
        e = self.advantage(nu, batch, stop_gradient(price))
        w = weight_of(e / self.alpha)
        nu_loss = self.nu_loss(nu, e, w, sample)

        w = stop_gradient(w)
        chi_loss, cost, divergence = self.chi_loss(chi, w, sample, stop_gradient(temperature))
        temperature_loss = temperature * (self.doubt - stop_gradient(divergence))
        price_loss = price * (self.cost_limit(spec) - stop_gradient(cost))
        actor_loss = self.actor_loss(networks["actor"], w, sample)
        metrics = {
            "value/loss": nu_loss,
            "value/mean": jnp.mean(nu.here),
            "value/weight": jnp.mean(w),
            "cost/loss": chi_loss,
            "cost/expected": cost,
            "cost/multiplier": price,
            "cost/multiplier_loss": price_loss,
            "cost/temperature": temperature,
            "cost/temperature_loss": temperature_loss,
            "policy/loss": actor_loss,
        }
        return nu_loss + chi_loss + temperature_loss + price_loss + actor_loss, metrics

    def values(self, networks: MLP, sample: Sample) -> tuple[Values, Values]:
        """ν and χ at s, s′ and initial states, all in one pass."""
        inputs = jnp.stack([sample.batch.features, sample.batch.next_features, sample.starts])
        both = apply_each(networks, inputs)[..., 0].reshape(2, -1, *inputs.shape[:2])
        nu, chi = jnp.min(both, axis=1)
        return Values(*nu), Values(*chi)

    def advantage(self, nu: Values, batch: Batch, price: Array) -> Float[Array, " b"]:
        """e = r − λ c + γ (1 − d) ν(s′) − ν(s)."""
        return batch.reward - price * batch.only_cost + self.gamma * batch.bootstrap * nu.ahead - nu.here

    def nu_loss(self, nu: Values, e: Array, w: Array, sample: Sample) -> Array:
        """(1 − γ) E[ν(s₀)] + E[w e − α f(w)]."""
        start = (1.0 - self.gamma) * jnp.mean(sample.start_weight * nu.start)
        return start + jnp.mean(w * e - self.alpha * divergence_of(w))

    def chi_loss(
        self, chi: Values, w: Array, sample: Sample, temperature: Array
    ) -> tuple[Array, Array, Array]:
        """An upper bound on cost: E[v l] with v ∝ exp(l/τ). Also the cost E[v w c] and the divergence of v.

        l = (1 − γ) χ(s₀) + w (c + γ (1 − d) χ(s′) − χ(s)).
        """
        batch = sample.batch
        ahead = batch.only_cost + self.gamma * batch.bootstrap * chi.ahead - chi.here
        l = (1.0 - self.gamma) * sample.start_weight * chi.start + w * ahead  # noqa: E741
        log_v = jax.nn.log_softmax(l / temperature) + jnp.log(len(l))
        v = jnp.exp(log_v)
        return jnp.mean(v * l), jnp.mean(v * w * batch.only_cost), jnp.mean(v * log_v - v + 1.0)

    def actor_loss(self, actor: SquashedGaussian, w: Array, sample: Sample) -> Array:
        """−E[w log N(a; tanh μ(s), σ(s))]. Faithful fits μ itself, though tanh μ is what acts."""
        mean, log_std = actor(sample.noisy_features)
        mean = mean if self.faithful else jnp.tanh(mean)
        return -jnp.mean(w * gaussian_log_density(mean, log_std, sample.noisy_action))

    # ---- protocol: what is kept -----------------------------------------------------------------

    def actor(self, state: TrainState, arrays: Any, normaliser: Normaliser, spec: Spec) -> ModeActor:
        del arrays, spec
        return ModeActor(self.seen_through(normaliser), state.networks["actor"])


def divergence_of(w: Float[Array, "*b"]) -> Float[Array, "*b"]:
    """f(w) = w (log w − 1) + 1 below 1 and (w − 1)²/2 above: "soft χ²"."""
    small = jnp.clip(w, 1e-12, 1.0)  # keeps log and its slope finite in the branch not taken
    return jnp.where(w < 1.0, small * (jnp.log(small) - 1.0) + 1.0, 0.5 * (w - 1.0) ** 2)


def weight_of(y: Float[Array, "*b"]) -> Float[Array, "*b"]:
    """(f′)⁻¹(y) = e^y below 0 and y + 1 above: never negative."""
    return jnp.where(y < 0.0, jnp.exp(jnp.minimum(y, 0.0)), y + 1.0)
