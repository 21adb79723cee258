"""What the baselines share: options, transitions, gradient steps, and acting without a budget of slack."""

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int, PRNGKeyArray

from bcrl.budget import finite_horizon_budget
from bcrl.data import Dataset
from bcrl.errors import BCRLError
from bcrl.learn.checks import check_options
from bcrl.learn.method import Goal, Insight, Normaliser, Spec
from bcrl.learn.rows import Rows

Variant = Literal["fixed", "faithful"]


class Batch(eqx.Module):
    features: Float[Array, "b f"]
    action: Float[Array, "b a"]
    reward: Float[Array, " b"]
    cost: Float[Array, " b"]
    next_features: Float[Array, "b f"]
    goes_on: Float[Array, " b"]  # 0 where the backup ends


@dataclass(frozen=True)
class TwoVariants:
    """The option that every baseline has."""

    variant: Variant = "fixed"
    """fixed: made for a fair comparison; faithful: as released, faults included (docs/baselines.md)."""

    def __post_init__(self) -> None:
        check_options(self)

    @property
    def faithful(self) -> bool:
        return self.variant == "faithful"

    def seen_through(self, normaliser: Normaliser) -> Normaliser:
        """Observations are standardised as for BCRL; the released codes take them raw."""
        if not self.faithful:
            return normaliser
        return Normaliser(jnp.zeros_like(normaliser.mean), jnp.ones_like(normaliser.std))


@dataclass(frozen=True)
class Baseline(TwoVariants):
    """Options that most baselines have."""

    hidden: tuple[int, ...] = (256, 256)
    """Hidden layers of every network."""
    batch_size: int = 512
    """Transitions per gradient step."""
    gamma: float = 0.99
    """Discount of reward and cost."""
    target_rate: float = 0.005
    """Share by which target networks follow at each step."""

    def rows(
        self,
        data: Dataset,
        normaliser: Normaliser,
        reward_scale: float,
        *extra: np.ndarray,
    ) -> Rows:
        """The columns of `Batch`, then `extra` ones.

        A time limit ends the backup, as in the released codes (of reward at least: see BCQ-Lag and CPQ). κ
        counts to the end of the episode, and where states do not come back (a run straight ahead) the one
        after it is valued by extrapolation alone.
        """
        check_one_cost(data)
        seen = self.seen_through(normaliser)
        ended = data.terminals | data.timeouts
        return Rows.of(
            np.asarray(seen(jnp.asarray(data.observations))),
            np.clip(data.actions, -1 + 1e-5, 1 - 1e-5),
            reward_scale * data.rewards,
            data.costs_2d,
            np.asarray(seen(jnp.asarray(data.next_observations))),
            1.0 - ended,
            *extra,
        )

    def draw(self, rows: Rows, key: PRNGKeyArray) -> tuple[Batch, list[Array]]:
        """A batch, and what else `rows` was given."""
        features, action, reward, cost, next_features, goes_on, *extra = rows.draw(key, self.batch_size)
        return Batch(features, action, reward[:, 0], cost[:, 0], next_features, goes_on[:, 0]), extra


@dataclass(frozen=True)
class ForOneThreshold(Baseline):
    """A baseline that trains one policy per threshold."""

    threshold: float = math.nan
    """Cost that an episode may have: one policy is trained for it."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_threshold(self)

    def discounted_threshold(self, spec: Spec) -> Array:
        """d(κ): the discounted cost of an episode that spends κ evenly."""
        return finite_horizon_budget(self.threshold, 0.0, spec.horizon, self.gamma)


def check_threshold(method: Any) -> None:
    if math.isnan(method.threshold):
        raise BCRLError(f"{method.name} trains one policy per threshold: give threshold, a number from 0 up")
    if not 0 <= method.threshold < math.inf:
        raise BCRLError(f"threshold is {method.threshold}, but must be a number from 0 up")


def check_positive(options: Any, *names: str) -> None:
    """For options of one method's own; those that several have are known to `check_options`."""
    for name in names:
        if not getattr(options, name) > 0:
            raise BCRLError(f"{name} is {getattr(options, name)}, but must be above 0")


def check_whole(options: Any, *names: str) -> None:
    for name in names:
        if not isinstance(getattr(options, name), int) or getattr(options, name) < 1:
            raise BCRLError(f"{name} is {getattr(options, name)}, but must be a whole number from 1 up")


def check_one_cost(data: Dataset) -> None:
    if data.cost_count != 1:
        raise BCRLError(f"{data.source}: has {data.cost_count} costs, but this method knows one: use bcrl")


# ---- gradient steps ---------------------------------------------------------------------------------


def start_adam(networks: dict[str, Any], rates: dict[str, Any]) -> dict[str, Any]:
    """Adam's moments for the networks that `rates` names."""
    return {name: optax.adam(rate).init(networks[name]) for name, rate in rates.items()}


def adam_step(
    networks: dict[str, Any], gradients: dict[str, Any], moments: dict[str, Any], rates: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """One step of Adam on every network that `rates` names; the others stay."""
    networks, moments = dict(networks), dict(moments)
    for name, rate in rates.items():
        step, moments[name] = optax.adam(rate).update(gradients[name], moments[name])
        networks[name] = optax.apply_updates(networks[name], step)
    return networks, moments


# ---- acting -----------------------------------------------------------------------------------------


class Memory(eqx.Module):
    """What an episode remembers."""

    goal: Goal
    key: PRNGKeyArray
    step: Int[Array, ""]
    spent: Float[Array, " k"]


class PlainActor(eqx.Module):
    """An actor without slack: a subclass says what it chooses."""

    normaliser: Normaliser

    @abstractmethod
    def choose(
        self, features: Float[Array, " f"], memory: Memory, key: PRNGKeyArray
    ) -> Float[Array, " a"]: ...

    def start(self, key: PRNGKeyArray, goal: Goal) -> Memory:
        return Memory(goal, key, jnp.zeros((), jnp.int32), jnp.zeros_like(goal.threshold))

    def act(
        self, memory: Memory, observation: Float[Array, " d"]
    ) -> tuple[Float[Array, " a"], Memory, Insight]:
        """For the reports, slack is what is left of the threshold."""
        key = jax.random.fold_in(memory.key, memory.step)
        action = jnp.clip(self.choose(self.normaliser(observation), memory, key), -1.0, 1.0)
        return action, memory, Insight(memory.goal.threshold - memory.spent, jnp.zeros((), bool))

    def observe(self, memory: Memory, cost: Float[Array, " k"], reward: Float[Array, ""]) -> Memory:
        del reward
        return Memory(memory.goal, memory.key, memory.step + 1, memory.spent + cost)


def blank_normaliser(spec: Spec) -> Normaliser:
    """Of the right shape, to be filled from a file."""
    return Normaliser(jnp.zeros(spec.observation_size), jnp.ones(spec.observation_size))
