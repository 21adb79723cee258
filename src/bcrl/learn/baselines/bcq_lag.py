"""BCQ-Lag: batch-constrained Q-learning with a Lagrange multiplier for cost.

A variational auto-encoder samples actions near those of the log; a network ξ shifts them a little. Critics
estimate their reward and cost; a PID controller sets the multiplier λ of cost. Equations and deviations:
docs/baselines.md.
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
from bcrl.learn.baselines.common import Baseline, ForOneThreshold, Memory, PlainActor
from bcrl.learn.baselines.parts import VAE
from bcrl.learn.batch import Batch, Rows
from bcrl.learn.losses import backup_errors
from bcrl.learn.networks import MLP, apply_each, ensemble
from bcrl.learn.options import option
from bcrl.learn.protocol import Metrics, Normaliser, Part, Spec
from bcrl.learn.train_state import Networks, Optimisers, TrainState, adam

STARTS = 128  # initial states per step, for the estimate of an episode's cost


class Arrays(eqx.Module):
    rows: Rows
    starts: Rows


class Sample(eqx.Module):
    batch: Batch
    starts: Float[Array, "s f"]  # initial states; none in `faithful`


class Multiplier(eqx.Module):
    """The multiplier λ of cost and the memory of its PID controller."""

    value: Float[Array, ""]
    integral: Float[Array, ""]
    error: Float[Array, ""]


@dataclass(frozen=True, repr=False)
class BCQLag(ForOneThreshold, Baseline):
    """BCQ-Lag. The train state's `extra` is the `Multiplier`."""

    name: ClassVar[str] = "bcq-lag"

    reward_scale: float = option(0.1, above=0.0)
    """Rewards are multiplied by it."""
    learning_rate: float = option(1e-3, above=0.0, traced=True)
    """Adam's step size, for every network."""
    vae_hidden: tuple[int, ...] = option((400, 400), least=1, most=65_536)
    """Hidden layers of the auto-encoder; its latent is twice as wide as an action."""
    vae_kl: float = option(0.5, above=0.0, traced=True)
    """Weight of the auto-encoder's KL term beside its mean squared error."""
    latent_limit: float = option(0.5, above=0.0, traced=True)
    """Latents are sampled from N(0, 1), clipped to ± this: smaller stays nearer the log's usual actions."""
    reach: float = option(0.05, above=0.0, unit="action", traced=True)
    """Largest shift of a sampled action by ξ."""
    candidates: int = option(10, least=1, most=10_000)
    """Actions sampled to choose from in a state, for the values in training."""
    acting_candidates: int = option(1, least=1, most=10_000)
    """Actions sampled to choose from when acting. Several is BCQ's own rule; 1 executes the sample."""
    caution: float = option(0.75, least=0.0, most=1.0, traced=True)
    """Weight of the more pessimistic of two critics in a backup; the other has the rest."""
    gains: tuple[float, float, float] = option((0.1, 0.003, 0.001), least=0.0)
    """K_P, K_I, K_D of the controller of λ."""
    multiplier_limit: float = option(10.0, above=0.0, traced=True)
    """Largest λ (and largest integral part); faithful has none."""

    # ---- protocol: data and networks ------------------------------------------------------------

    def prepare(self, data: Dataset, normaliser: Normaliser) -> Arrays:
        starts = self.seen_through(normaliser)(jnp.asarray(data.initial_observations))
        return Arrays(
            self.rows(data, normaliser, reward_scale=self.reward_scale), Rows.of(np.asarray(starts))
        )

    def sample(self, arrays: Arrays, key: PRNGKeyArray) -> Sample:
        row_key, start_key = jax.random.split(key)
        (starts,) = arrays.starts.sample(start_key, 0 if self.faithful else STARTS)
        return Sample(arrays.rows.sample_batch(row_key, self.batch_size)[0], starts)

    def init(self, key: PRNGKeyArray, spec: Spec) -> TrainState:
        vae_key, shift_key, critic_key = jax.random.split(key, 3)
        s, a = spec.observation_size, spec.action_size
        networks = {
            "vae": VAE(s, a, 2 * a, self.vae_hidden, vae_key),
            "shift": MLP((s + a, *self.hidden, a), shift_key, activation="tanh"),
            # Four of reward, then four of cost.
            "critics": ensemble((s + a, *self.hidden, 1), critic_key, members=8),
        }
        multiplier = Multiplier(jnp.zeros(()), jnp.zeros(()), jnp.zeros(()))
        return TrainState.start(networks, self.optimisers, ("shift", "critics"), multiplier)

    @property
    def optimisers(self) -> Optimisers:
        return adam(dict.fromkeys(("vae", "shift", "critics"), self.learning_rate))

    # ---- one step -------------------------------------------------------------------------------

    def update(
        self, state: TrainState, sample: Sample, key: PRNGKeyArray, spec: Spec, parts: tuple[Part, ...]
    ) -> tuple[TrainState, Metrics]:
        """One gradient step on every network, then one step of the controller's memory."""
        del parts

        def loss(networks: Networks) -> tuple[Array, tuple[Multiplier, Metrics]]:
            return self.losses(networks, state.targets, state.extra, sample, key, spec)

        gradients, (multiplier, metrics) = jax.grad(loss, has_aux=True)(state.networks)
        state = state.step(gradients, self.optimisers).follow(self.target_rate)
        return state.with_extra(multiplier), metrics

    def losses(
        self,
        networks: Networks,
        targets: Networks,
        multiplier: Multiplier,
        sample: Sample,
        key: PRNGKeyArray,
        spec: Spec,
    ) -> tuple[Array, tuple[Multiplier, Metrics]]:
        """The sum of all losses, each moving its own network alone; the next λ, and metrics."""
        batch, limit = sample.batch, self.discounted_threshold(spec, self.gamma)
        vae_key, next_key, action_key = jax.random.split(key, 3)
        vae_loss = networks["vae"].loss(batch.features, batch.action, vae_key, self.vae_kl)

        # The values of s′ and, for the constraint, of initial states.
        frozen = {"vae": stop_gradient(networks["vae"]), **targets}
        ahead = jnp.concatenate([batch.next_features, sample.starts])
        next_q, next_q_c = self.values(frozen, ahead, multiplier.value, next_key)
        count = len(batch.reward)
        goal, goal_c = self.goals(batch, next_q[:count], next_q_c[:count])
        q_loss, q_c_loss = backup_errors(networks["critics"], batch, goal, goal_c)

        frozen = {**stop_gradient(networks), "shift": networks["shift"]}
        action = self.propose(frozen, batch.features, action_key)
        q, q_c = self.judge(frozen["critics"], batch.features, action, 1.0)
        expected = stop_gradient(jnp.mean(q_c)) if self.faithful else jnp.mean(next_q_c[count:])
        multiplier = self.controlled(multiplier, expected - limit)
        shift_loss = self.shift_loss(q, q_c, multiplier.value, limit)
        metrics = {
            "vae/loss": vae_loss,
            "critic/loss": q_loss,
            "critic/value": jnp.mean(q),
            "cost/loss": q_c_loss,
            "cost/value": jnp.mean(q_c),
            "cost/expected": expected,
            "policy/loss": shift_loss,
            "policy/multiplier": multiplier.value,
        }
        return vae_loss + q_loss + q_c_loss + shift_loss, (multiplier, metrics)

    def values(
        self, networks: Networks, features: Float[Array, "b f"], price: Array, key: PRNGKeyArray
    ) -> tuple[Float[Array, " b"], Float[Array, " b"]]:
        """Q and Q_C of the policy in a state, by n sampled candidates.

        Fixed: both of one candidate, argmax Q − λ Q_C. Faithful: the largest of each by itself.
        """
        wide, action = self.choices(networks, features, key, self.candidates)
        q, q_c = self.judge(networks["critics"], wide, action, self.caution)
        if self.faithful:
            return jnp.max(q, axis=1), jnp.max(q_c, axis=1)
        best = jnp.argmax(q - price * q_c, axis=1)[:, None]
        return jnp.take_along_axis(q, best, 1)[:, 0], jnp.take_along_axis(q_c, best, 1)[:, 0]

    def goals(self, batch: Batch, next_q: Array, next_q_c: Array) -> tuple[Array, Array]:
        """y = r + γ (1 − d) Q(s′), y_C = c + γ (1 − d) Q_C(s′); faithful never ends the backup of cost."""
        bootstrap = 1.0 if self.faithful else batch.bootstrap
        goal = batch.reward + self.gamma * batch.bootstrap * next_q
        return goal, batch.only_cost + self.gamma * bootstrap * next_q_c

    def shift_loss(self, q: Array, q_c: Array, price: Array, limit: Array) -> Array:
        """−E[Q(s, π(s))] + λ E[Q_C(s, π(s)) − d(κ)]."""
        return jnp.mean(-q + price * (q_c - limit))

    def controlled(self, before: Multiplier, error: Array) -> Multiplier:
        """λ = (K_P (e)⁺ + I + K_D (e − e_before)⁺)⁺ with I ← (I + K_I e)⁺; fixed stops λ and I at a limit."""
        proportional, integral, derivative = self.gains
        limit = jnp.inf if self.faithful else self.multiplier_limit
        total = jnp.clip(before.integral + integral * error, 0.0, limit)
        rise = jax.nn.relu(error - before.error)
        value = proportional * jax.nn.relu(error) + total + derivative * rise
        return Multiplier(jnp.minimum(value, limit), total, error)

    # ---- the policy -----------------------------------------------------------------------------

    def propose(
        self, networks: Networks, features: Float[Array, "*b f"], key: PRNGKeyArray
    ) -> Float[Array, "*b a"]:
        """An action like those of the log, shifted: a₀ + Φ tanh ξ(s, a₀), clipped."""
        sampled = networks["vae"].sample(features, key, self.latent_limit)
        shift = jnp.tanh(networks["shift"](jnp.concatenate([features, sampled], axis=-1)))
        return jnp.clip(sampled + self.reach * shift, -1.0, 1.0)

    def choices(
        self, networks: Networks, features: Float[Array, "b f"], key: PRNGKeyArray, count: int
    ) -> tuple[Float[Array, "b n f"], Float[Array, "b n a"]]:
        """Each state n times, and n candidates for it."""
        shape = (len(features), count, features.shape[-1])
        wide = jnp.broadcast_to(features[:, None], shape)
        return wide, self.propose(networks, wide, key)

    def judge(
        self, critics: MLP, features: Float[Array, "*b f"], action: Float[Array, "*b a"], caution: float
    ) -> tuple[Float[Array, "*b"], Float[Array, "*b"]]:
        """Q and Q_C by `careful`: pessimistic, so the larger Q_C; faithful takes the smaller there too."""
        values = apply_each(critics, jnp.concatenate([features, action], axis=-1))[..., 0]
        q, q_c = jnp.split(values, 2)
        sign = 1.0 if self.faithful else -1.0
        return careful(q, caution), sign * careful(sign * q_c, caution)

    # ---- protocol: what is kept -----------------------------------------------------------------

    def actor(self, state: TrainState, arrays: Any, normaliser: Normaliser, spec: Spec) -> "BCQActor":
        del arrays, spec
        networks = {"vae": state.networks["vae"], **state.targets}
        return BCQActor(self.seen_through(normaliser), networks, state.extra.value[None], self)


def careful(values: Float[Array, "4 *b"], caution: float) -> Float[Array, "*b"]:
    """κ min(Q₁, Q₂) + (1 − κ) max(Q₁, Q₂), each Q_i the smaller of two networks."""
    pairs = jnp.min(values.reshape(2, 2, *values.shape[1:]), axis=1)
    return caution * jnp.min(pairs, axis=0) + (1.0 - caution) * jnp.max(pairs, axis=0)


class BCQActor(PlainActor):
    """Executes a sampled candidate, or of several the best by Q − λ Q_C."""

    networks: Networks
    multiplier: Float[Array, "1"]  # λ at the end of training
    method: BCQLag = eqx.field(static=True)

    def choose(self, features: Float[Array, " f"], memory: Memory, key: PRNGKeyArray) -> Float[Array, " a"]:
        del memory
        count = self.method.acting_candidates
        wide, action = self.method.choices(self.networks, features[None], key, count)
        q, q_c = self.method.judge(self.networks["critics"], wide, action, self.method.caution)
        return action[0, jnp.argmax(q[0] - self.multiplier * q_c[0])]
