"""Behaviour cloning on all episodes (BC-All), or on those that cost at most a threshold (BC-Safe)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, PRNGKeyArray

from bcrl.data import Dataset
from bcrl.errors import BCRLError
from bcrl.learn.baselines.common import ForOneThreshold, Memory, PlainActor
from bcrl.learn.batch import Rows, cloned_actions
from bcrl.learn.networks import PolicyNetwork, policy_network
from bcrl.learn.options import MethodOptions, option
from bcrl.learn.protocol import Method, Metrics, Normaliser, Part, Spec
from bcrl.learn.traced import SHARE, with_traced
from bcrl.learn.train_state import Optimisers, TrainState, adam


class ClonedActor(PlainActor):
    """Executes the most likely action; budgets are accepted and ignored."""

    policy: PolicyNetwork

    def choose(self, features: Float[Array, " f"], memory: Memory, key: PRNGKeyArray) -> Float[Array, " a"]:
        del memory, key
        return self.policy.mode(features)


@dataclass(frozen=True, repr=False)
class BCAll(MethodOptions):
    """Behaviour cloning on the whole log."""

    name: ClassVar[str] = "bc-all"

    hidden: tuple[int, ...] = option((512, 512), least=1, most=65_536)
    """Hidden layers of the policy."""
    batch_size: int = option(512, least=1, most=10_000_000)
    """Transitions per gradient step."""
    learning_rate: float = option(3e-4, above=0.0, traced=True)
    """Adam's step size, decaying to 0 along a cosine."""
    dropout: float = option(0.1, least=0.0, below=1.0)
    """Dropout after the last hidden layer."""

    @property
    def in_task_units(self) -> bool:
        """Cloning needs no unit of cost or reward."""
        return True

    def chosen(self, data: Dataset) -> Dataset:
        """The episodes to clone."""
        return data

    def prepare(self, data: Dataset, normaliser: Normaliser) -> Rows:
        data = self.chosen(data)

        def columns(at: slice) -> tuple[np.ndarray, np.ndarray]:
            return np.asarray(normaliser(jnp.asarray(data.observations[at]))), cloned_actions(data, at)

        return Rows.of_log(data, columns)

    def init(self, key: PRNGKeyArray, spec: Spec) -> TrainState:
        sizes = spec.observation_size, spec.action_size
        policy = policy_network(spec.discrete, *sizes, self.hidden, self.dropout, key)
        return TrainState.start({"policy": policy}, self.optimisers(spec))

    def optimisers(self, spec: Spec) -> Optimisers:
        return adam({"policy": optax.cosine_decay_schedule(self.learning_rate, spec.steps)})

    def sample(self, arrays: Rows, key: PRNGKeyArray) -> list[Array]:
        return arrays.sample(key, self.batch_size)

    def update(
        self, state: TrainState, batch: list[Array], key: PRNGKeyArray, spec: Spec, parts: tuple[Part, ...]
    ) -> tuple[TrainState, Metrics]:
        """−E[log π(a|s)]."""
        del parts
        features, actions = batch

        def loss(policy: PolicyNetwork) -> Array:
            return -jnp.mean(policy.log_density(features, key, actions))

        value, gradient = jax.value_and_grad(loss)(state.networks["policy"])
        return state.step({"policy": gradient}, self.optimisers(spec)), {"policy/loss": value}

    def actor(self, state: TrainState, arrays: Any, normaliser: Normaliser, spec: Spec) -> ClonedActor:
        del arrays, spec
        return ClonedActor(normaliser, state.networks["policy"])


@dataclass(frozen=True, repr=False)
class BCSafe(ForOneThreshold, BCAll):
    """Behaviour cloning on the episodes whose cost is at most the threshold."""

    name: ClassVar[str] = "bc-safe"
    share: ClassVar[Any] = None
    """First row, and how many, in a table for several thresholds; None: the table is for this one."""

    @classmethod
    def prepare_together(
        cls, methods: "Sequence[BCSafe]", data: Dataset, normaliser: Normaliser
    ) -> tuple[Rows, list[Method]]:
        """The rows of all thresholds one after another, and the methods, which know their own."""
        each = [method.prepare(data, normaliser) for method in methods]
        if any(isinstance(rows.table, np.ndarray) for rows in each):
            raise BCRLError(
                f"{data.source}: is too large for several thresholds at once: train a run for each"
            )
        ends = np.cumsum([len(rows.table) for rows in each]).tolist()
        starts = [0, *ends[:-1]]
        knowing = [
            with_traced(method, {SHARE: (start, end - start)})
            for method, start, end in zip(methods, starts, ends, strict=True)
        ]
        return Rows(jnp.concatenate([rows.table for rows in each]), each[0].widths), knowing

    def sample(self, arrays: Rows, key: PRNGKeyArray) -> list[Array]:
        if self.share is None:
            return super().sample(arrays, key)
        first, count = self.share
        return arrays.take(first + jax.random.randint(key, (self.batch_size,), 0, count))

    def chosen(self, data: Dataset) -> Dataset:
        kept = np.all(data.episode_costs.reshape(data.episode_count, -1) <= self.threshold, axis=1)
        if not kept.any():
            least = float(
                data.episode_costs.max(axis=-1).min() if data.cost_count > 1 else data.episode_costs.min()
            )
            raise BCRLError(
                f"{data.source}: no episode costs at most {self.threshold:g}; the least costs {least:g}"
            )
        return data.select_episodes(kept)
