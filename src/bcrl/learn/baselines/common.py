"""Shared by the baselines: options, transitions, and actors that track no slack."""

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from bcrl.budget import finite_horizon_budget
from bcrl.data import Dataset
from bcrl.errors import BCRLError
from bcrl.learn.batch import Rows
from bcrl.learn.options import MethodOptions, option
from bcrl.learn.protocol import Goal, Insight, Normaliser, Spec

Variant = Literal["fixed", "faithful"]


@dataclass(frozen=True, repr=False)
class TwoVariants(MethodOptions):
    """The option that every baseline has."""

    variant: Variant = "fixed"
    """fixed: repaired for a fair comparison; faithful: as released, faults included (docs/baselines.md)."""

    @property
    def faithful(self) -> bool:
        return self.variant == "faithful"

    @property
    def in_task_units(self) -> bool:
        """The constants of released code are for the units of its tasks."""
        return self.faithful

    def seen_through(self, normaliser: Normaliser) -> Normaliser:
        """The normaliser in use: that of the log, as for BCRL; faithful takes observations raw."""
        return Normaliser.identity(len(normaliser.mean)) if self.faithful else normaliser


@dataclass(frozen=True, repr=False)
class Baseline(TwoVariants):
    """Options that most baselines have."""

    hidden: tuple[int, ...] = option((256, 256), least=1, most=65_536)
    """Hidden layers of every network."""
    batch_size: int = option(512, least=1, most=10_000_000)
    """Transitions per gradient step."""
    gamma: float = option(0.99, least=0.0, most=1.0)
    """Discount of reward and cost."""
    target_rate: float = option(0.005, least=0.0, most=1.0, traced=True)
    """Rate at which target networks follow at each step."""

    def rows(
        self, data: Dataset, normaliser: Normaliser, *extra: np.ndarray, reward_scale: float = 1.0
    ) -> Rows:
        """The columns of `Batch`, then `extra` ones.

        A timeout ends the backup, as in the released codes (faithful BCQ-Lag and CPQ never end that of
        cost). κ counts to the end of the episode, and where states do not recur (a run straight ahead) the
        value of the state after a timeout would be extrapolation alone.
        """
        check_one_cost(data)
        seen = self.seen_through(normaliser)

        def features(observations: np.ndarray, step: np.ndarray) -> np.ndarray:
            del step
            return np.asarray(seen(jnp.asarray(observations)))

        ended = data.terminals | data.timeouts
        return Rows.of_transitions(data, features, ended, *extra, reward_scale=reward_scale)

    def sample(self, arrays: Any, key: PRNGKeyArray) -> Any:
        """A random batch, for methods whose arrays are rows alone."""
        return arrays.sample_batch(key, self.batch_size)[0]


@dataclass(frozen=True, repr=False)
class ForOneThreshold(MethodOptions):
    """A method that trains one policy per threshold."""

    threshold: float = option(math.nan, least=0.0, below=math.inf, unit="cost", traced=True)
    """Cost that an episode may have: one policy is trained for it."""

    def __post_init__(self) -> None:
        if isinstance(self.threshold, float) and math.isnan(self.threshold):
            raise BCRLError(
                f"{self.name} trains one policy per threshold: give threshold, a number from 0 up"
            )
        super().__post_init__()

    @property
    def trained_for(self) -> float | None:
        """The threshold."""
        return self.threshold

    def discounted_threshold(self, spec: Spec, gamma: float) -> Array:
        """d(κ): the discounted cost of an episode that spends κ evenly."""
        return finite_horizon_budget(self.threshold, 0.0, spec.horizon, gamma)


def check_one_cost(data: Dataset) -> None:
    """Raises unless the log has a single cost."""
    if data.cost_count != 1:
        raise BCRLError(f"{data.source}: has {data.cost_count} costs, but this method knows one: use bcrl")


# ---- acting -----------------------------------------------------------------------------------------


class Memory(eqx.Module):
    """The state of an episode."""

    goal: Goal
    key: PRNGKeyArray
    step: Int[Array, ""]
    spent: Float[Array, " k"]


class UnbudgetedActor(eqx.Module):
    """An actor that tracks no discounted budget and can act for any horizon."""

    @property
    def tracks_budgets(self) -> bool:
        return False

    @property
    def needs_reward(self) -> bool:
        return False

    @property
    def cost_discount(self) -> float:
        return 1.0

    @property
    def longest(self) -> int | None:
        return None


class PlainActor(UnbudgetedActor):
    """An actor that counts the cost so far; a subclass chooses the action."""

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
        """The chosen action; the slack in the reports is the threshold less the cost so far."""
        key = jax.random.fold_in(memory.key, memory.step)
        action = jnp.clip(self.choose(self.normaliser(observation), memory, key), -1.0, 1.0)
        return action, memory, Insight(memory.goal.threshold - memory.spent, jnp.zeros((), bool))

    def observe(self, memory: Memory, cost: Float[Array, " k"], reward: Float[Array, ""]) -> Memory:
        del reward
        return Memory(memory.goal, memory.key, memory.step + 1, memory.spent + cost)
