"""Cost critics against a log: V_C and Q_C beside the cost that followed, and slack along its episodes.

V_C and Q_C say the least cost from here on. A log's episodes spend at least that, so what followed should lie
above them on average. Q_F, where it is learned, says the fallback's own. In episodes of the fallback itself
(`bcrl evaluate --record` at threshold 0, without mixtures) what followed should equal all three.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from bcrl.budget import finite_horizon_budget
from bcrl.data import Dataset
from bcrl.errors import BCRLError
from bcrl.learn.acting import BudgetedActor
from bcrl.learn.bcrl_options import BCRLOptions
from bcrl.learn.tracking import TrackingActor
from bcrl.policy import Policy

ROWS = 10_000
"""Of the log at once."""

Floats = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class Bin:
    """Transitions of a log with about the same predicted cost-to-go."""

    predicted: float
    observed: float
    low: float
    """10 % of the observed ones are below."""
    high: float
    """10 % are above."""
    count: int


@dataclass(frozen=True)
class Alarm:
    """When the slack of a threshold κ ran out along the episodes of a log, and what followed."""

    threshold: float
    within: float
    """Share of the log's episodes with cost ≤ κ."""
    false: float
    """Of those, the share of steps at which the slack was too small all the same: V_C too high."""
    in_time: float
    """Of the episodes with cost > κ, the share in which the slack ran out before κ was spent."""
    left: float
    """What was left of κ at that step, in the mean."""
    spent: float
    """What the rest of the episode cost, in the mean."""


@dataclass(frozen=True)
class CostCritics:
    """What the cost critics of a policy say of a log's transitions, for one of its costs, in its unit."""

    data: Dataset
    value: Floats
    """(N,) V_C(s)."""
    critic: Floats
    """(N,) Q_C(s, a), the larger of two."""
    last_value: Floats
    """(E,) V_C of the state after each episode that a time limit ended, where values bootstrap; else 0."""
    gamma: float
    horizon: int
    """Steps of an episode, by which a threshold becomes a budget."""
    fallback_below: float
    cost: int = 0
    safety_factor: float = 1.0
    """Of V_C in the slack."""
    fallback_critic: Floats | None = None
    """(N,) Q_F(s, a), if it was learned."""

    @property
    def predictions(self) -> dict[str, Floats]:
        """What each critic says, by its name."""
        found = {"V_C(s)": self.value, "Q_C(s, a)": self.critic}
        return found if self.fallback_critic is None else found | {"Q_F(s, a)": self.fallback_critic}

    @cached_property
    def costs(self) -> Floats:
        """(N,)."""
        return self.data.costs_2d[:, self.cost].astype(np.float64)

    @cached_property
    def to_go(self) -> Floats:
        """(N,) the discounted cost that followed; after a time limit what V_C says is added."""
        costs = self.costs.copy()
        costs[self.data.ends] += self.gamma * self.last_value
        return self.data.sums_to_go(costs, self.gamma)

    def bins(self, predicted: Floats, count: int = 12) -> list[Bin]:
        """Equally many transitions each, from the least predicted cost-to-go to the largest."""
        parts = np.array_split(np.argsort(predicted, kind="stable"), min(count, len(predicted)))
        bins = []
        for part in parts:
            low, high = np.quantile(self.to_go[part], (0.1, 0.9))
            means = float(predicted[part].mean()), float(self.to_go[part].mean())
            bins.append(Bin(*means, float(low), float(high), len(part)))
        return bins

    def slack(self, threshold: float) -> Floats:
        """(N,) by the finite-horizon rule, as if the log's actions were taken at this threshold."""
        data = self.data
        spent = np.cumsum(self.costs) - self.costs
        spent -= spent[data.starts][data.episode]
        left = self.horizon - data.steps
        budget = np.asarray(finite_horizon_budget(threshold, spent, left, self.gamma))
        return budget - self.safety_factor * self.value

    def usual_thresholds(self) -> list[float]:
        """Quartiles of the log's episode costs, those above 0 and different."""
        costs = np.add.reduceat(self.costs, self.data.starts)
        return sorted({float(f"{q:.2g}") for q in np.quantile(costs, (0.25, 0.5, 0.75)) if q > 0}) or [1.0]

    def alarm(self, threshold: float) -> Alarm:
        """When the slack ran out, in episodes that kept the threshold and in those that did not."""
        data = self.data
        kept = np.add.reduceat(self.costs, data.starts) <= threshold
        low = self.slack(threshold) < self.fallback_below
        to_go = data.sums_to_go(self.costs)
        first = np.minimum.reduceat(np.where(low, np.arange(len(data)), len(data)), data.starts)
        warned = np.flatnonzero(~kept & (first < len(data)))
        spent_before = to_go[data.starts[warned]] - to_go[first[warned]]
        in_time = spent_before < threshold
        chosen = warned[in_time]
        return Alarm(
            threshold,
            float(kept.mean()),
            float(low[kept[data.episode]].mean()) if kept.any() else np.nan,
            float(len(chosen) / max((~kept).sum(), 1)),
            float((threshold - spent_before[in_time]).mean()) if len(chosen) else np.nan,
            float(to_go[first[chosen]].mean()) if len(chosen) else np.nan,
        )


def cost_critics(policy: Policy, data: Dataset, cost: int = 0) -> CostCritics:
    """V_C, Q_C and Q_F of the policy on every transition of a log, for one of its costs."""
    actor, method = policy.learned, policy.method
    if not isinstance(actor, TrackingActor) or not isinstance(method, BCRLOptions):
        raise BCRLError(f"{method.name} has no cost critics to ask: use BCRL")
    spec, log = policy.spec, data.source or "the log"
    sizes = (spec.observation_size, spec.action_size, spec.cost_count)
    theirs = (data.observation_size, data.action_size, data.cost_count)
    if sizes != theirs:
        raise BCRLError(
            f"the policy has (observations, actions, costs) {sizes}, but {log} {theirs}: "
            "give a log of the same task"
        )
    if not 0 <= cost < data.cost_count:
        raise BCRLError(f"cost is {cost}, but {log} has costs 0 to {data.cost_count - 1}")

    critics = [actor.cost_to_go]
    if isinstance(actor, BudgetedActor) and actor.fallback_critic is not None:
        critics.append(actor.cost_ahead)

    @jax.jit
    def ask(observations: jax.Array, actions: jax.Array, steps: jax.Array) -> list[jax.Array]:
        features = jax.vmap(actor.features)(observations, steps)
        found = [actor.least_cost(features), *(critic(features, actions) for critic in critics)]
        return [values[:, cost] for values in found]

    def asked(*columns: NDArray[Any]) -> list[Floats]:
        parts = [
            ask(*(jnp.asarray(column[first : first + ROWS]) for column in columns))
            for first in range(0, len(columns[0]), ROWS)
        ]
        return [np.concatenate(pieces).astype(np.float64) * unit for pieces in zip(*parts, strict=True)]

    unit = policy.units.cost[cost]
    value, critic, *ahead = asked(data.observations, data.actions, data.steps)
    ends = data.ends
    last_value, *_ = asked(data.next_observations[ends], data.actions[ends], data.steps[ends] + 1)
    bootstraps = data.timeouts[ends] & (not method.ends_at_timeouts)
    # Labels are compared with the budget itself.
    below = 0.0 if spec.discrete else method.fallback_below * unit
    last_value = np.where(bootstraps, last_value, 0.0)
    horizon = max(spec.horizon, data.horizon)
    known = (data, value, critic, last_value, actor.cost_discount, horizon, below, cost)
    return CostCritics(*known, actor.safety_factor, *ahead)
