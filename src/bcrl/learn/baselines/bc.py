"""Behaviour cloning: on every episode (BC-All), or on those that kept a threshold (BC-Safe)."""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, PRNGKeyArray

from bcrl.data import Dataset
from bcrl.errors import BCRLError
from bcrl.learn.baselines.common import Memory, PlainActor, blank_normaliser, check_threshold
from bcrl.learn.checks import check_options
from bcrl.learn.losses import gaussian_log_density
from bcrl.learn.method import Metrics, Normaliser, Part, Spec
from bcrl.learn.networks import GaussianPolicy


class Arrays(eqx.Module):
    features: Float[Array, "n d"]
    actions: Float[Array, "n a"]


class State(eqx.Module):
    policy: GaussianPolicy
    optimiser: Any


class ClonedActor(PlainActor):
    """The mean action; budgets are accepted and ignored."""

    policy: GaussianPolicy

    def choose(self, features: Float[Array, " f"], memory: Memory, key: PRNGKeyArray) -> Float[Array, " a"]:
        del memory, key
        return self.policy(features)[0]


@dataclass(frozen=True)
class BCAll:
    """Options of behaviour cloning on the whole log."""

    name: ClassVar[str] = "bc-all"
    # As BCRL's policy there.
    family_options: ClassVar[dict[str, dict[str, Any]]] = {
        "metadrive": {"hidden": (256, 256), "dropout": 0.0}
    }

    hidden: tuple[int, ...] = (512, 512)
    """Hidden layers of the policy."""
    batch_size: int = 512
    """Transitions per gradient step."""
    learning_rate: float = 3e-4
    """Adam's step size, decaying to 0 along a cosine."""
    dropout: float = 0.1
    """Dropout after the last hidden layer."""

    def __post_init__(self) -> None:
        check_options(self)

    @property
    def schedule(self) -> tuple[tuple[Part, ...], ...]:
        return (("policy",),)

    def chosen(self, data: Dataset) -> Dataset:
        return data

    def prepare(self, data: Dataset, normaliser: Normaliser) -> Arrays:
        data = self.chosen(data)
        features = normaliser(jnp.asarray(data.observations))
        return Arrays(features, jnp.asarray(np.clip(data.actions, -1 + 1e-5, 1 - 1e-5)))

    def init(self, key: PRNGKeyArray, spec: Spec) -> State:
        policy = GaussianPolicy(spec.observation_size, spec.action_size, self.hidden, self.dropout, key)
        return State(policy, self._optimiser(spec).init(eqx.filter(policy, eqx.is_array)))

    def _optimiser(self, spec: Spec) -> optax.GradientTransformation:
        return optax.adam(optax.cosine_decay_schedule(self.learning_rate, spec.steps))

    def sample(self, arrays: Arrays, key: PRNGKeyArray) -> tuple[Array, Array]:
        index = jax.random.randint(key, (self.batch_size,), 0, len(arrays.features))
        return arrays.features[index], arrays.actions[index]

    def update(
        self, state: State, batch: tuple[Array, Array], key: PRNGKeyArray, spec: Spec, parts: tuple[Part, ...]
    ) -> tuple[State, Metrics]:
        """−E[log π(a|s)]."""
        del parts
        features, actions = batch

        def loss(policy: GaussianPolicy) -> Array:
            return -jnp.mean(gaussian_log_density(*policy(features, key), actions))

        value, gradients = jax.value_and_grad(loss)(state.policy)
        step, optimiser = self._optimiser(spec).update(gradients, state.optimiser)
        return State(optax.apply_updates(state.policy, step), optimiser), {"policy/loss": value}  # type: ignore[arg-type]

    def actor(self, state: State, arrays: Any, normaliser: Normaliser, spec: Spec) -> ClonedActor:
        del arrays, spec
        return ClonedActor(normaliser, state.policy)

    def blank_actor(self, spec: Spec) -> ClonedActor:
        state = self.init(jax.random.key(0), spec)
        return ClonedActor(blank_normaliser(spec), state.policy)


@dataclass(frozen=True)
class BCSafe(BCAll):
    """Options of behaviour cloning on the episodes whose cost kept a threshold."""

    name: ClassVar[str] = "bc-safe"

    threshold: float = math.nan
    """Largest cost of an episode to learn from: one policy per threshold."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_threshold(self)

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
