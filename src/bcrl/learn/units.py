"""Units: by default a method sees costs in largest costs of a step and rewards in a unit of the log.

So its options are pure numbers, and another unit of cost or reward in the log gives the same policy. An
option in the user's unit says so where it is declared (`unit="cost"`, `"reward"` or `"reward/cost"`) and is
converted here.
"""

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from bcrl.data import Dataset, Schema
from bcrl.errors import BCRLError, brief_repr
from bcrl.learn.options import range_of
from bcrl.learn.protocol import Actor, Goal, Insight, Method

SPREAD = 80.0
"""Standard deviation of discounted returns-to-go in a method's unit of reward: that of the Bullet logs in
their own unit (BallCircle 79.7, CarRun 77.2), for which the paper chose β."""
SPREAD_DISCOUNT = 0.99


@dataclass(frozen=True)
class Units:
    """What 1 inside a method is in the user's units."""

    cost: tuple[float, ...]
    """For each cost."""
    reward: float = 1.0

    def __post_init__(self) -> None:
        for name, values in (("cost", self.cost), ("reward", (self.reward,))):
            if not all(_is_positive(value) for value in values):
                raise BCRLError(f"the unit of {name} is {brief_repr(values)}, but must be above 0")

    @classmethod
    def of(cls, data: Dataset, method: Method, cost: tuple[float, ...] | None = None) -> "Units":
        """The units for a method on a log; `cost` is taken over where cost critics are."""
        if method.in_task_units:
            return cls((1.0,) * data.cost_count)
        if method.cost_unit is not None and len(method.cost_unit) != data.cost_count:
            raise BCRLError(
                f"cost_unit has {len(method.cost_unit)} numbers, but the log {data.cost_count} costs"
            )
        # A cost that never occurs has no unit.
        own = tuple(float(largest) if largest > 0 else 1.0 for largest in data.max_cost)
        return cls(
            cost or method.cost_unit or own,
            _reward_unit(data) if method.reward_unit is None else method.reward_unit,
        )

    @property
    def plain(self) -> bool:
        """Whether nothing changes."""
        return set(self.cost) == {1.0} and self.reward == 1.0

    def inside(self, method: Method) -> Method:
        """The method with its options in its own units."""
        changes = {}
        for field in dataclasses.fields(method):  # type: ignore[arg-type]
            declared = range_of(type(method), field.name)
            value = getattr(method, field.name)
            units = {
                "cost": self.cost,
                "reward": (self.reward,),
                "reward/cost": tuple(self.reward / cost for cost in self.cost),
            }.get(declared.unit if declared else "")
            if value is None or units is None:
                continue
            if isinstance(value, tuple):
                if len(value) not in (1, len(units)):
                    raise BCRLError(
                        f"{field.name} has {len(value)} numbers, but the log's costs are {len(units)}: give "
                        "one number for all or one for each"
                    )
                each = value * len(units) if len(value) == 1 else value
                changes[field.name] = tuple(_divided(each, units))
            elif len(set(units)) == 1:
                changes[field.name] = value / units[0]
            else:
                raise BCRLError(
                    f"{field.name} is one number, but the log's costs are learned in units of "
                    f"{', '.join(f'{unit:g}' for unit in self.cost)}: give cost_unit, the same for all"
                )
        return dataclasses.replace(method, **changes)  # type: ignore[type-var]

    def log_inside(self, data: Dataset) -> Dataset:
        """The log in the method's units."""
        if self.plain:
            return data
        costs = data.costs.astype(np.float64) / np.array(self.cost if data.costs.ndim > 1 else self.cost[0])
        arrays = data.arrays() | {
            "rewards": (data.rewards.astype(np.float64) / self.reward).astype(np.float32),
            "costs": costs.astype(np.float32),
        }
        declared = tuple(_divided(data.schema.max_cost, self.cost))
        schema = dataclasses.replace(data.schema, max_cost=declared)
        return Dataset.of_checked(arrays, data.source, data.about._replace(schema=schema))

    def to_dict(self) -> dict[str, Any]:
        return {"cost": list(self.cost), "reward": self.reward}

    @classmethod
    def from_dict(cls, parts: Any, cost_count: int) -> "Units":
        """The units that a policy file carries."""
        known = isinstance(parts, dict) and set(parts) == {"cost", "reward"}
        if not known or not isinstance(parts["cost"], list) or len(parts["cost"]) != cost_count:
            raise BCRLError(f"units is {brief_repr(parts)}, but must have one for each cost and for reward")
        return cls(tuple(parts["cost"]), parts["reward"])


class UserActor(eqx.Module):
    """An actor in the user's units: of thresholds, costs, rewards, slack, and actions."""

    inside: Actor
    cost: Float[Array, " k"]
    reward: Float[Array, ""]
    low: Float[Array, " a"] | None
    high: Float[Array, " a"] | None

    @property
    def tracks_budgets(self) -> bool:
        return self.inside.tracks_budgets

    @property
    def needs_reward(self) -> bool:
        return self.inside.needs_reward

    @property
    def cost_discount(self) -> float:
        return self.inside.cost_discount

    @property
    def longest(self) -> int | None:
        return self.inside.longest

    def start(self, key: PRNGKeyArray, goal: Goal) -> Any:
        scaled = (goal.threshold / self.cost, goal.budget / self.cost)
        return self.inside.start(key, eqx.tree_at(lambda g: (g.threshold, g.budget), goal, scaled))

    def act(self, memory: Any, observation: Float[Array, " d"]) -> tuple[Float[Array, " a"], Any, Insight]:
        action, memory, insight = self.inside.act(memory, observation)
        if self.low is not None and self.high is not None:
            action = self.low + (action + 1) / 2 * (self.high - self.low)
            action = jnp.clip(action, self.low, self.high)
        return action, memory, Insight(insight.slack * self.cost, insight.fallback)

    def observe(self, memory: Any, cost: Float[Array, " k"], reward: Float[Array, ""]) -> Any:
        return self.inside.observe(memory, cost / self.cost, reward / self.reward)


def in_user_units(actor: Actor, units: Units, schema: Schema) -> Actor:
    """The actor with thresholds, costs, rewards and actions in the user's units."""
    if units.plain and not schema.action_low:
        return actor
    # By numpy: a file may hold whole numbers that JAX would take for int32.
    cost, reward, low, high = (
        None if part == () else jnp.asarray(np.asarray(part, np.float32))
        for part in (units.cost, units.reward, schema.action_low, schema.action_high)
    )
    return UserActor(actor, cost, reward, low, high)  # type: ignore[arg-type]


def _reward_unit(data: Dataset) -> float:
    """The reward that makes the spread of discounted returns-to-go `SPREAD`; 1 for rewards that are all 0."""
    to_go = data.sums_to_go(data.rewards, SPREAD_DISCOUNT)
    spread = float(to_go.std())
    largest = float(np.abs(data.rewards).max())
    if spread <= 1e-6 * largest:  # the same reward in every step of episodes of one length and one step
        spread = SPREAD * largest
    return spread / SPREAD if spread > 0 else 1.0


def _divided(values: Iterable[float], units: tuple[float, ...]) -> list[float]:
    return [value / unit for value, unit in zip(values, units, strict=bool(values))]


def _is_positive(value: Any) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and 1.2e-38 < value < 3.4e38  # in float32 neither 0 nor infinite
