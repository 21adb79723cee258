"""CDT, the constrained decision transformer: actions cloned given the return and the cost they led to."""

import math
from dataclasses import dataclass
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int, PRNGKeyArray

from bcrl.data import Dataset
from bcrl.errors import BCRLError
from bcrl.learn.baselines import cdt_data
from bcrl.learn.baselines.common import TwoVariants, UnbudgetedActor, check_one_cost
from bcrl.learn.baselines.transformer import SequencePolicy
from bcrl.learn.batch import Rows
from bcrl.learn.networks import gaussian_log_density
from bcrl.learn.options import option
from bcrl.learn.protocol import Goal, Insight, Metrics, Normaliser, Part, Spec
from bcrl.learn.train_state import Networks, Optimisers, TrainState


class Arrays(eqx.Module):
    """The log's transitions, and the episodes to sample from: those of the log, some of them relabelled."""

    rows: Rows  # features, action, return to go, cost to go, whether it costs
    first: Int[Array, " m"]  # row
    length: Int[Array, " m"]
    more: Float[Array, "m 2"]  # added to the returns and costs to go
    odds: Float[Array, " m"]  # running sum of the probabilities
    goals: Normaliser  # of returns and costs to go
    target: Float[Array, "f 2"]  # see `cdt_data.target_returns`


class Windows(eqx.Module):
    """Windows of k steps; where an episode is over, rows repeat and `valid` is 0."""

    goals: Float[Array, "b k 2"]
    features: Float[Array, "b k d"]
    action: Float[Array, "b k a"]
    costs: Float[Array, "b k"]  # 1 where the step costs something
    time: Int[Array, "b k"]
    valid: Float[Array, "b k"]


class Memory(eqx.Module):
    """The state of an episode: the last steps, oldest first, and the return and cost to go."""

    goal: Goal
    step: Int[Array, ""]
    spent: Float[Array, " k"]
    to_go: Float[Array, " 2"]
    goals: Float[Array, "c 2"]
    features: Float[Array, "c d"]
    actions: Float[Array, "c a"]


class SequenceActor(UnbudgetedActor):
    """Executes the mean action, given the return to go (target − reward so far) and the cost to go."""

    normaliser: Normaliser
    goals: Normaliser
    target: Float[Array, "f 2"]
    policy: SequencePolicy
    context: int = eqx.field(static=True)
    keep_positive: bool = eqx.field(static=True)

    @property
    def needs_reward(self) -> bool:
        return True

    def start(self, key: PRNGKeyArray, goal: Goal) -> Memory:
        del key
        allowed = jnp.sum(self.target[:, 0] <= goal.threshold[0])
        wanted = self.target[jnp.maximum(allowed - 1, 0), 1]
        sizes = self.policy.states.weight.shape[0], self.policy.act.bias.shape[0] // 2
        return Memory(
            goal,
            jnp.zeros((), jnp.int32),
            jnp.zeros_like(goal.threshold),
            jnp.stack([wanted, goal.threshold[0]]),
            jnp.zeros((self.context, 2)),
            *(jnp.zeros((self.context, size)) for size in sizes),
        )

    def act(
        self, memory: Memory, observation: Float[Array, " d"]
    ) -> tuple[Float[Array, " a"], Memory, Insight]:
        here = jnp.minimum(memory.step, self.context - 1)

        def with_this_step(steps: Array, new: Array) -> Array:
            steps = jnp.where(memory.step < self.context, steps, jnp.roll(steps, -1, axis=0))
            return steps.at[here].set(new)

        goals = with_this_step(memory.goals, self.goals(memory.to_go))
        features = with_this_step(memory.features, self.normaliser(observation))
        actions = with_this_step(memory.actions, jnp.zeros(memory.actions.shape[1]))
        time = memory.step - here + jnp.arange(self.context)
        time = jnp.minimum(time, len(self.policy.times) - 1)
        # Steps that are not there yet come after this one, so that it does not see them.
        action = jnp.clip(self.policy(goals, features, actions, time)[0][here], -1.0, 1.0)
        seen = (goals, features, actions.at[here].set(action))
        memory = eqx.tree_at(lambda m: (m.goals, m.features, m.actions), memory, seen)
        return action, memory, Insight(memory.goal.threshold - memory.spent, jnp.zeros((), bool))

    def observe(self, memory: Memory, cost: Float[Array, " k"], reward: Float[Array, ""]) -> Memory:
        to_go = memory.to_go - jnp.stack([reward, cost[0]])
        if self.keep_positive:  # no episode of the log has a negative cost to go
            to_go = to_go.at[1].max(0.0)
        new = (memory.step + 1, memory.spent + cost, to_go)
        return eqx.tree_at(lambda m: (m.step, m.spent, m.to_go), memory, new)


@dataclass(frozen=True, repr=False)
class CDT(TwoVariants):
    """CDT."""

    name: ClassVar[str] = "cdt"

    context: int = option(10, least=1, most=10_000)
    """Steps that the policy sees, this one included."""
    width: int = option(128, least=1, most=65_536)
    """Units of a token."""
    layers: int = option(3, least=1, most=256)
    """Blocks of the transformer."""
    heads: int = option(8, least=1, most=1_024)
    """Attention heads of a block; they share the width."""
    dropout: float = option(0.1, least=0.0, below=1.0)
    """Dropout of embedding, attention and both halves of a block, in 256ths."""
    batch_size: int = option(2048, least=1, most=10_000_000)
    """Sequences per gradient step."""
    learning_rate: float = option(1e-4, above=0.0, traced=True)
    """AdamW's step size, after a linear rise over the first steps."""
    warmup: int = option(500, least=1)
    """Steps of that rise."""
    weight_decay: float = option(1e-4, least=0.0, traced=True)
    """AdamW's weight decay."""
    clip_norm: float = option(0.25, above=0.0, traced=True)
    """Largest gradient norm."""
    cost_weight: float = option(0.02, least=0.0, traced=True)
    """Weight of predicting whether a step costs something."""
    initial_eta: float = option(0.1, above=0.0)
    """Weight η of the entropy at the start of training."""
    half: bool = True
    """On a GPU, activations are bfloat16 in training, which is faster; so is attention, as one kernel."""
    target_return: float | None = option(None, unit="reward")
    """Return to ask for, at every threshold; by default the best of the log's episodes that cost no more."""
    task: str = ""
    """A task whose published target returns and relabelling to use, such as CarRun; else the log's own."""
    relabel: float = option(0.2, least=0.0)
    """Relabelled episodes, as a share of those that thinning the log leaves."""
    relabel_seed: int = option(0, least=0)
    """Seed of the relabelling: the same for every training seed."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.width % self.heads:
            raise BCRLError(f"heads is {self.heads}, but must divide the width {self.width}")
        if self.task:
            cdt_data.published(self.task)

    # ---- protocol: data -------------------------------------------------------------------------

    @property
    def in_task_units(self) -> bool:
        """Also the published settings of a task are in its units."""
        return super().in_task_units or bool(self.task)

    def prepare(self, data: Dataset, normaliser: Normaliser) -> Arrays:
        check_one_cost(data)
        settings = cdt_data.published(self.task) if self.task else cdt_data.from_log(data)
        chosen = cdt_data.labels(data, settings, self.relabel, self.relabel_seed, self.faithful)
        costs = data.costs_2d[:, 0]
        to_go = data.sums_to_go(np.stack([data.rewards, costs], axis=1))
        rows = Rows.of(
            np.asarray(self.seen_through(normaliser)(jnp.asarray(data.observations))),
            data.actions,
            to_go,
            costs >= 1.0 if self.faithful else costs > 0.0,
        )
        return Arrays(
            rows,
            jnp.asarray(data.starts[chosen.episode], jnp.int32),
            jnp.asarray(data.episode_lengths[chosen.episode], jnp.int32),
            jnp.asarray(np.stack([chosen.more_return, chosen.more_cost], axis=1), jnp.float32),
            jnp.asarray(np.cumsum(cdt_data.odds(data, chosen, self.faithful)), jnp.float32),
            self.goal_scale(to_go),
            jnp.asarray(cdt_data.target_returns(data, settings, self.target_return)),
        )

    def goal_scale(self, to_go: np.ndarray) -> Normaliser:
        """As released, tokens are a tenth of the return and 50 − cost, whatever the task."""
        if self.faithful:
            return Normaliser(jnp.asarray([0.0, 50.0]), jnp.asarray([10.0, -1.0]))
        return Normaliser.of(to_go)

    def sample(self, arrays: Arrays, key: PRNGKeyArray) -> Windows:
        """Windows that begin at a random step of episodes sampled by their odds."""
        which, where = jax.random.uniform(key, (2, self.batch_size))
        episode = jnp.searchsorted(arrays.odds, which * arrays.odds[-1], side="right", method="compare_all")
        episode = jnp.minimum(episode, len(arrays.odds) - 1)
        length = arrays.length[episode, None]
        first = jnp.minimum((where[:, None] * length).astype(jnp.int32), length - 1)
        time = first + jnp.arange(self.context)
        index = arrays.first[episode, None] + jnp.minimum(time, length - 1)
        features, action, to_go, costs = arrays.rows.take(index)
        goals = arrays.goals(to_go + arrays.more[episode, None])
        return Windows(goals, features, action, costs[..., 0], time, (time < length).astype(jnp.float32))

    # ---- protocol: networks ---------------------------------------------------------------------

    def init(self, key: PRNGKeyArray, spec: Spec) -> TrainState:
        policy = SequencePolicy(
            spec.observation_size,
            spec.action_size,
            spec.horizon + self.context,
            width=self.width,
            layers=self.layers,
            heads=self.heads,
            dropout=self.dropout,
            key=key,
        )
        log_eta = jnp.zeros(()) + math.log(self.initial_eta)
        return TrainState.start({"policy": policy, "log_eta": log_eta}, self.optimisers)

    @property
    def optimisers(self) -> Optimisers:
        rate = optax.linear_schedule(self.learning_rate / self.warmup, self.learning_rate, self.warmup - 1)
        policy = optax.chain(
            optax.clip_by_global_norm(self.clip_norm), optax.adamw(rate, weight_decay=self.weight_decay)
        )
        return {"policy": policy, "log_eta": optax.adam(1e-4)}

    # ---- one step -------------------------------------------------------------------------------

    def update(
        self, state: TrainState, batch: Windows, key: PRNGKeyArray, spec: Spec, parts: tuple[Part, ...]
    ) -> tuple[TrainState, Metrics]:
        """One gradient step of the policy and one of η."""
        del parts
        gradients, metrics = jax.grad(self.losses, has_aux=True)(state.networks, batch, key, spec)
        return state.step(gradients, self.optimisers), metrics

    def losses(
        self, trained: Networks, batch: Windows, key: PRNGKeyArray | None, spec: Spec
    ) -> tuple[Array, Metrics]:
        """−(E[log π] + η E[H]) + w CE for the policy, and η's own; neither reaches the other."""
        policy, log_eta = trained["policy"], trained["log_eta"]
        half = self.half and jax.default_backend() == "gpu"
        mean, log_std, logits = policy(batch.goals, batch.features, batch.action, batch.time, key, half)
        likely, entropy = self.likelihood(mean, log_std, batch)
        cost_loss = self.cost_loss(logits, batch)
        eta = jax.lax.stop_gradient(jnp.exp(log_eta))
        loss = -(likely + eta * entropy) + self.cost_weight * cost_loss
        metrics = {
            "policy/loss": loss,
            "policy/likelihood": likely,
            "policy/entropy": entropy,
            "policy/cost_loss": cost_loss,
            "policy/eta": eta,
        }
        return loss + self.eta_loss(log_eta, entropy, spec), metrics

    def likelihood(self, mean: Array, log_std: Array, batch: Windows) -> tuple[Array, Array]:
        """E[log π(a)] and E[H(π)], both per dimension of the action."""
        size = mean.shape[-1]
        likely = gaussian_log_density(mean, log_std, batch.action) / size
        entropy = jnp.mean(log_std, axis=-1) + 0.5 * jnp.log(2.0 * jnp.pi * jnp.e)
        count = jnp.sum(batch.valid)
        return jnp.sum(batch.valid * likely) / count, jnp.sum(batch.valid * entropy) / count

    def cost_loss(self, logits: Array, batch: Windows) -> Array:
        """Cross-entropy of "this step costs something"; as released, averaged over padding too."""
        likely = jax.nn.log_softmax(logits)
        likely = jnp.where(batch.costs > 0, likely[..., 1], likely[..., 0])
        count = batch.valid.size if self.faithful else jnp.sum(batch.valid)
        return -jnp.sum(batch.valid * likely) / count

    def eta_loss(self, log_eta: Array, entropy: Array, spec: Spec) -> Array:
        """η (H − H̄): η grows while the entropy is too small.

        H is per dimension, and so is H̄ = −1 here; as released it is −|A|, which H hardly ever falls to.
        """
        wanted = -float(spec.action_size) if self.faithful else -1.0
        return jnp.exp(log_eta) * (jax.lax.stop_gradient(entropy) - wanted)

    # ---- protocol: what is kept -----------------------------------------------------------------

    def actor(
        self, state: TrainState, arrays: Arrays | None, normaliser: Normaliser, spec: Spec
    ) -> SequenceActor:
        del spec
        goals, target = Normaliser.identity(2), jnp.zeros((cdt_data.FRONTIER_SIZE, 2))
        if arrays is not None:
            goals, target = arrays.goals, arrays.target
        policy, seen = state.networks["policy"], self.seen_through(normaliser)
        return SequenceActor(seen, goals, target, policy, self.context, not self.faithful)
