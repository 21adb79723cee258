"""CCAC: an actor-critic conditioned on the cost to go; its cost critic is pessimistic on generated pairs.

κ of a transition is the cost to go of its episode. Critics and actor have κ as an input, so one actor serves
every threshold. A generator samples pairs (s, a) for a κ; where a classifier finds that they need more than
κ, their Q_C is raised above it.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.lax import stop_gradient
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from bcrl.budget import encode, finite_horizon_budget
from bcrl.data import Dataset
from bcrl.learn.baselines.common import Baseline, Memory, PlainActor
from bcrl.learn.baselines.parts import LATENT_LOG_STD_RANGE, SquashedGaussian, latent_kl
from bcrl.learn.batch import Batch, Rows
from bcrl.learn.losses import squared_error
from bcrl.learn.networks import MLP, apply_each, ensemble
from bcrl.learn.options import option
from bcrl.learn.protocol import Metrics, Normaliser, Part, Spec
from bcrl.learn.train_state import Networks, Optimisers, TrainState, adam

CRITICS = 4  # of reward, and as many of cost
OUTPUT_RANGE = (-20.0, 5.0)  # of the multipliers' logarithm
SIZE_WEIGHT = 1e-3
AGENT_METRICS = (
    "critic/loss",
    "cost/loss",
    "cost/made_up_share",
    "policy/loss",
    "policy/critic",
    "policy/cost_critic",
    "multipliers/loss",
    "multipliers/made_up",
    "multipliers/policy",
)


class Arrays(eqx.Module):
    rows: Rows
    low: Float[Array, " f+a"]  # least feature and action of the log
    high: Float[Array, " f+a"]


class Sample(eqx.Module):
    """Transitions with κ, the cost to go: as an input of networks, and discounted as Q_C is."""

    batch: Batch
    left: Float[Array, " b"]  # κ from s on
    shown: Float[Array, "b 1"]
    next_shown: Float[Array, "b 1"]
    limit: Float[Array, " b"]  # ℓ, what Q_C may be for κ to hold
    low: Float[Array, " f+a"]
    high: Float[Array, " f+a"]


class Generator(eqx.Module):
    """A variational auto-encoder of whole pairs x = (s, a), given κ."""

    encoder: MLP
    decoder: MLP

    def __init__(self, pair_size: int, latent: int, hidden: tuple[int, ...], key: PRNGKeyArray):
        encoder_key, decoder_key = jax.random.split(key)
        self.encoder = MLP((pair_size + 1, *hidden, latent), encoder_key, heads=2)
        self.decoder = MLP((latent + 1, *hidden, pair_size), decoder_key)

    def encode(self, pairs: Float[Array, "b x"], shown: Float[Array, "b 1"]) -> tuple[Array, Array]:
        """Mean and log standard deviation of the latent."""
        mean, log_std = jnp.split(self.encoder(join(pairs, shown)), 2, axis=1)
        return mean, jnp.clip(log_std, *LATENT_LOG_STD_RANGE)

    def decode(self, latent: Float[Array, "b z"], sample: Sample) -> Float[Array, "b x"]:
        """Inside the range of the log."""
        out = self.decoder(join(latent, sample.shown))
        return clip_straight_through(out, sample.low, sample.high)


class ToldActor(PlainActor):
    """Executes the mode of π(·|s, κ − C), C the cost so far."""

    policy: SquashedGaussian
    faithful: bool = eqx.field(static=True)

    def choose(self, features: Float[Array, " f"], memory: Memory, key: PRNGKeyArray) -> Float[Array, " a"]:
        del key
        left = jnp.maximum(memory.goal.threshold - memory.spent, 0.0)
        return self.policy.mode(jnp.concatenate([features, show(left, self.faithful)]))


@dataclass(frozen=True, repr=False)
class CCAC(Baseline):
    """CCAC. Generator, classifier and multipliers are twice as wide as `hidden`."""

    name: ClassVar[str] = "ccac"

    reward_scale: float = option(0.1, above=0.0)
    """Rewards are multiplied by it."""
    learning_rate: float = option(1e-3, above=0.0, traced=True)
    """Adam's step size for critics, generator and classifier."""
    actor_rate: float = option(1e-4, above=0.0, traced=True)
    """Adam's step size for the actor."""
    multiplier_rate: float = option(1e-4, above=0.0, traced=True)
    """Adam's step size for the multipliers; if they move faster than the actor, the two oscillate."""
    latent: int = option(64, least=1, most=65_536)
    """Size of the generator's latent."""
    vae_kl: float = option(0.5, above=0.0, traced=True)
    """Weight of the generator's KL term beside its mean squared error."""
    multiplier_decay: float = option(0.01, above=0.0, traced=True)
    """Weight of the squared parameters in the multipliers' loss."""

    @property
    def schedule(self) -> tuple[tuple[Part, ...], ...]:
        """The generator and its classifier alone, then everything."""
        return (("generator",), ("generator", "agent"))

    def optimisers(self, parts: tuple[Part, ...]) -> Optimisers:
        """Those of the networks that the parts train."""
        rates: dict[str, float] = {"generator": self.learning_rate, "classifier": self.learning_rate}
        if "agent" in parts:
            rates["critics"] = self.learning_rate
            rates["actor"] = self.actor_rate
            rates["multipliers"] = self.multiplier_rate
        return adam(rates)

    # ---- protocol: data and networks ------------------------------------------------------------

    def prepare(self, data: Dataset, normaliser: Normaliser) -> Arrays:
        left = data.sums_to_go(data.costs_2d[:, 0])
        spread = finite_horizon_budget(left, 0.0, data.horizon - data.steps, self.gamma)
        limit = left if self.faithful else np.asarray(spread)
        after = left - data.costs_2d[:, 0]
        rows = self.rows(data, normaliser, left, after, limit, reward_scale=self.reward_scale)
        low, high = (jnp.asarray(x)[: data.observation_size + data.action_size] for x in rows.extremes())
        return Arrays(rows, low, high)

    def sample(self, arrays: Arrays, key: PRNGKeyArray) -> Sample:
        batch, (left, next_left, limit) = arrays.rows.sample_batch(key, self.batch_size)
        shown, next_shown = show(left, self.faithful), show(next_left, self.faithful)
        return Sample(batch, left[:, 0], shown, next_shown, limit[:, 0], arrays.low, arrays.high)

    def init(self, key: PRNGKeyArray, spec: Spec) -> TrainState:
        keys = jax.random.split(key, 5)
        state_size, a = spec.observation_size + 1, spec.action_size
        wide = tuple(2 * units for units in self.hidden)
        networks = {
            "generator": Generator(spec.observation_size + a, self.latent, wide, keys[0]),
            "classifier": MLP((state_size + a, *wide, 1), keys[1]),
            "critics": ensemble((state_size + a, *self.hidden, 1), keys[2], members=2 * CRITICS),
            "actor": SquashedGaussian(state_size, a, self.hidden, keys[3]),
            "multipliers": ensemble((1, *wide, 1), keys[4]),  # of generated pairs, of the policy
        }
        return TrainState.start(networks, self.optimisers(self.schedule[-1]), targets=("critics",))

    # ---- one step -------------------------------------------------------------------------------

    def update(
        self, state: TrainState, sample: Sample, key: PRNGKeyArray, spec: Spec, parts: tuple[Part, ...]
    ) -> tuple[TrainState, Metrics]:
        """One gradient step on every network of `parts` at once."""
        del spec
        optimisers = dict(self.optimisers(parts))
        trained = {name: state.networks[name] for name in optimisers}
        gradients, metrics = jax.grad(self.losses, has_aux=True)(
            trained, state.targets["critics"], sample, key, parts
        )
        if "agent" not in parts:
            return state.step(gradients, optimisers), metrics
        price_gradients = gradients.pop("multipliers")
        price_optimiser = {"multipliers": optimisers.pop("multipliers")}
        state = state.step(gradients, optimisers)
        for gradient in one_after_another(price_gradients) if self.faithful else [price_gradients]:
            state = state.step({"multipliers": gradient}, price_optimiser)
        return state.follow(self.target_rate), metrics

    def losses(
        self,
        trained: Networks,
        targets: MLP,
        sample: Sample,
        key: PRNGKeyArray,
        parts: tuple[Part, ...],
    ) -> tuple[Array, Metrics]:
        """The sum of all losses: none reaches the networks of another."""
        rebuild_key, generate_key, act_key = jax.random.split(key, 3)
        pairs = sample.batch.pairs
        generator_loss, rebuilt = self.generator_loss(trained["generator"], pairs, sample, rebuild_key)
        classifier_loss = self.classifier_loss(trained["classifier"], pairs, stop_gradient(rebuilt), sample)
        metrics = {"generator/loss": generator_loss, "classifier/loss": classifier_loss}
        if "agent" not in parts:
            return generator_loss + classifier_loss, metrics | dict.fromkeys(AGENT_METRICS, jnp.zeros(()))
        generator, classifier = stop_gradient((trained["generator"], trained["classifier"]))
        generated, kept = self.generate(generator, classifier, sample, generate_key)
        agent_loss, more = self.agent_losses(trained, targets, sample, pairs, generated, kept, act_key)
        return generator_loss + classifier_loss + agent_loss, metrics | more

    def agent_losses(
        self,
        trained: Networks,
        targets: MLP,
        sample: Sample,
        pairs: Float[Array, "b x"],
        generated: Float[Array, "b x"],
        kept: Bool[Array, " b"],
        key: PRNGKeyArray,
    ) -> tuple[Array, Metrics]:
        batch, shown, next_shown = sample.batch, sample.shown, sample.next_shown
        # The policy now and afterwards, in one pass.
        states = jnp.concatenate([join(batch.features, shown), join(batch.next_features, next_shown)])
        mean, log_std = trained["actor"](states)
        noise = jax.random.normal(key, mean.shape)
        action, next_action = jnp.split(jnp.tanh(mean + jnp.exp(log_std) * noise), 2)

        # Critics of the log and of generated pairs (in one pass), and of the policy.
        critics, count = trained["critics"], len(pairs)
        q, q_c = self.judge(critics, jnp.concatenate([join(pairs, shown), join(generated, shown)]))
        q, q_c, gen_cost = q[:, :count], q_c[:, :count], q_c[:, count:].min(axis=0)
        chosen = join(batch.features, action, shown)
        worth, spent = (x.min(axis=0) for x in self.judge(stop_gradient(critics), chosen))
        ahead = join(batch.next_features, next_action, next_shown)
        goal, goal_c = self.goals(targets, batch, ahead)
        over, gen_over = spent - sample.limit, gen_cost - sample.limit

        gen_price, price = self.prices(trained["multipliers"], shown)
        critic_loss = squared_error(q, stop_gradient(goal))
        cost_loss = squared_error(q_c, stop_gradient(goal_c)) - mean_over(
            stop_gradient(gen_price) * gen_over, kept
        )
        actor_loss = jnp.mean(-worth + stop_gradient(price) * over)
        if not self.faithful:
            actor_loss += size_loss(mean[:count], log_std[:count])
        multiplier_loss = self.multiplier_loss(
            trained["multipliers"], gen_price, price, stop_gradient(gen_over), stop_gradient(over), kept
        )
        metrics = {
            "critic/loss": critic_loss,
            "cost/loss": cost_loss,
            "cost/made_up_share": jnp.mean(kept),
            "policy/loss": actor_loss,
            "policy/critic": jnp.mean(worth),
            "policy/cost_critic": jnp.mean(spent),
            "multipliers/loss": multiplier_loss,
            "multipliers/made_up": jnp.mean(gen_price),
            "multipliers/policy": jnp.mean(price),
        }
        return critic_loss + cost_loss + actor_loss + multiplier_loss, metrics

    def generator_loss(
        self, generator: Generator, pairs: Float[Array, "b x"], sample: Sample, key: PRNGKeyArray
    ) -> tuple[Array, Array]:
        """E[(x̂ − x)²] + β KL(q(z|x, κ) ‖ N(0, 1)), and x̂."""
        mean, log_std = generator.encode(pairs, sample.shown)
        rebuilt = generator.decode(mean + jnp.exp(log_std) * jax.random.normal(key, mean.shape), sample)
        return jnp.mean((rebuilt - pairs) ** 2) + self.vae_kl * jnp.mean(latent_kl(mean, log_std)), rebuilt

    def classifier_loss(
        self, classifier: MLP, pairs: Float[Array, "b x"], rebuilt: Float[Array, "b x"], sample: Sample
    ) -> Array:
        """Cross-entropy of "the cost to go of x exceeds κ_ref", for pairs of the log and as rebuilt.

        κ_ref is the κ of another row, or as released that of the first row for all.
        """
        at = np.zeros(len(pairs), int) if self.faithful else np.roll(np.arange(len(pairs)), 1)
        more = (sample.left > sample.left[at]).astype(pairs.dtype)
        rows = jnp.stack([join(pairs, sample.shown[at]), join(rebuilt, sample.shown[at])])
        return jnp.mean(optax.sigmoid_binary_cross_entropy(classifier(rows)[..., 0], more))

    def generate(
        self, generator: Generator, classifier: MLP, sample: Sample, key: PRNGKeyArray
    ) -> tuple[Float[Array, "b x"], Bool[Array, " b"]]:
        """A pair x for each κ, and whether the classifier finds that it needs more than κ."""
        latent = jnp.clip(jax.random.normal(key, (len(sample.left), self.latent)), -1.0, 1.0)
        pairs = generator.decode(latent, sample)
        return pairs, classifier(join(pairs, sample.shown))[:, 0] > 0.0

    def judge(
        self, critics: MLP, rows: Float[Array, "b x+1"]
    ) -> tuple[Float[Array, "m b"], Float[Array, "m b"]]:
        """Every Q and Q_C of rows (s, a, κ). Softplus keeps Q_C ≥ 0; as released it is on Q too."""
        q, q_c = jnp.split(apply_each(critics, rows)[..., 0], 2)
        return jax.nn.softplus(q) if self.faithful else q, jax.nn.softplus(q_c)

    def goals(self, targets: MLP, batch: Batch, next_rows: Float[Array, "b x+1"]) -> tuple[Array, Array]:
        """r + γ min Q(s′, κ′, a′) and c + γ min Q_C(s′, κ′, a′), a′ ~ π."""
        q, q_c = (x.min(axis=0) for x in self.judge(targets, next_rows))
        ahead = self.gamma * batch.bootstrap
        return batch.reward + ahead * q, batch.only_cost + ahead * q_c

    def prices(self, multipliers: MLP, shown: Float[Array, "b 1"]) -> Float[Array, "2 b"]:
        """λ(κ) = exp(clip(net(κ))): λ₁ for generated pairs, λ₂ for the policy."""
        return jnp.exp(clip_straight_through(apply_each(multipliers, shown)[..., 0], *OUTPUT_RANGE))

    def multiplier_loss(
        self, multipliers: MLP, gen_price: Array, price: Array, gen_over: Array, over: Array, kept: Array
    ) -> Array:
        """E[λ₁ (Q_C − ℓ)] over generated pairs kept, −E[λ₂ (Q_C − ℓ)] over the policy, and decay to λ = 1.

        Where none is kept the first net has no gradient.
        """
        squares = jnp.stack([jnp.sum(x.reshape(2, -1) ** 2, axis=1) for x in jax.tree.leaves(multipliers)])
        decay = self.multiplier_decay * jnp.sum(squares, axis=0)
        of_generated = mean_over(gen_price * gen_over, kept) + decay[0]
        return kept.any() * of_generated - jnp.mean(price * over) + decay[1]

    # ---- protocol: what is kept -----------------------------------------------------------------

    def actor(self, state: TrainState, arrays: Any, normaliser: Normaliser, spec: Spec) -> ToldActor:
        del arrays, spec
        return ToldActor(self.seen_through(normaliser), state.networks["actor"], self.faithful)


def show(left: Float[Array, "*b 1"], faithful: bool) -> Float[Array, "*b 1"]:
    """κ as an input: log(1 + κ) as BCRL's budgets, or as released κ itself."""
    return encode(left, "raw" if faithful else "log")


def join(*columns: Float[Array, "b _"]) -> Float[Array, "b _"]:
    return jnp.concatenate(columns, axis=1)


def clip_straight_through(x: Array, low: Any, high: Any) -> Array:
    """The value is clipped, the gradient is not."""
    return x + stop_gradient(jnp.clip(x, low, high) - x)


def size_loss(mean: Float[Array, "b a"], log_std: Float[Array, "b a"]) -> Array:
    """10⁻³ E[‖μ‖² + ‖log σ‖²]: keeps tanh(μ) from saturating, where it has no gradient."""
    return SIZE_WEIGHT * jnp.mean(jnp.sum(mean**2 + log_std**2, axis=1))


def mean_over(values: Float[Array, " b"], kept: Bool[Array, " b"]) -> Array:
    """The mean of those kept; 0 if there are none."""
    return jnp.sum(values * kept) / jnp.maximum(jnp.sum(kept), 1)


def one_after_another(gradient: MLP) -> list[MLP]:
    """The gradient of each net alone. As released, one Adam steps with each; momentum moves both nets."""
    return [jax.tree.map(lambda g, other=other: g.at[other].set(0.0), gradient) for other in (1, 0)]
