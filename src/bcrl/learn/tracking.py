"""Tracking a budget during an episode: what every actor of BCRL has (the paper's f and g, Algorithm 3)."""

from abc import abstractmethod
from typing import Any, Literal

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from bcrl import budget as budgets
from bcrl.learn.networks import MLP, apply_each
from bcrl.learn.protocol import Goal, Insight, Normaliser


class Memory(eqx.Module):
    """What an episode remembers. Three trackers run side by side; `goal.execution` says which decides."""

    goal: Goal
    key: PRNGKeyArray
    step: Int[Array, ""]
    spent: Float[Array, " k"]
    budget: Float[Array, " k"]  # direct tracking: δ
    slack: Float[Array, " k"]  # soft tracking: δ − V_C(s)
    charge: Float[Array, " k"]  # of the last action, Q_C − V_C: paid when the step is observed


class TrackingActor(eqx.Module):
    """Policies and critics, and the budget that the cost critics track; a subclass chooses the action."""

    actor: Any  # the policy network; its kind is the subclass's
    fallback: Any
    cost_value: MLP
    cost_critic: MLP  # twin, the slowly moving targets
    critic: MLP  # twin, the slowly moving targets
    normaliser: Normaliser
    mean_start_value: Float[Array, " k"]  # E[V_C(s₀)] over the log's initial states
    slack_limit: Float[Array, " k"]
    gamma_cost: float = eqx.field(static=True)
    horizon: int = eqx.field(static=True)
    tracking: budgets.Tracking = eqx.field(static=True)
    criterion: budgets.Criterion = eqx.field(static=True)
    budget_input: Literal["log", "raw"] = eqx.field(static=True)
    nonnegative_values: bool = eqx.field(static=True)
    cost_weights: tuple[float, ...] | None = eqx.field(static=True)
    safety_factor: float = eqx.field(static=True)  # of V_C and Q_C before they are compared with δ

    @abstractmethod
    def choose(
        self,
        memory: Memory,
        features: Float[Array, " f"],
        slack: Float[Array, " k"],
        cost_value: Float[Array, " k"],
    ) -> tuple[Float[Array, " a"], Bool[Array, ""]]:
        """An action, and whether it is the policy's own and not the fallback's."""

    @property
    def tracks_budgets(self) -> bool:
        return True

    @property
    def needs_reward(self) -> bool:
        return False

    @property
    def cost_discount(self) -> float:
        return self.gamma_cost

    @property
    def longest(self) -> int | None:
        """Episodic critics know the time up to the log's horizon alone."""
        return self.horizon if self.criterion == "episodic" else None

    def start(self, key: PRNGKeyArray, goal: Goal) -> Memory:
        zero = jnp.zeros_like(goal.threshold)
        slack = budgets.soft_slack_start(goal.budget, self.safety_factor * self.mean_start_value)
        return Memory(goal, key, jnp.zeros((), jnp.int32), zero, goal.budget, slack, zero)

    def act(
        self, memory: Memory, observation: Float[Array, " d"]
    ) -> tuple[Float[Array, " a"], Memory, Insight]:
        features = self.features(observation, memory.step)
        cost_value = self.safety_factor * self.least_cost(features)
        slack = self.slack_by_rule(memory, cost_value)
        action, allowed = self.choose(
            memory, features, self.without(memory.goal, observation, slack), cost_value
        )
        charge = self.safety_factor * self.cost_to_go(features, action) - cost_value
        memory = eqx.tree_at(lambda m: m.charge, memory, charge)
        return action, memory, Insight(slack, ~allowed)

    def observe(self, memory: Memory, cost: Float[Array, " k"], reward: Float[Array, ""]) -> Memory:
        del reward
        left = budgets.direct_next(memory.budget, cost, self.gamma_cost)
        soft = budgets.soft_slack_next(memory.slack, memory.charge, self.gamma_cost)
        return Memory(
            memory.goal,
            memory.key,
            memory.step + 1,
            memory.spent + cost,
            jnp.minimum(left, self.slack_limit),
            jnp.minimum(soft, self.slack_limit),
            jnp.zeros_like(soft),
        )

    def slack_by_rule(self, memory: Memory, cost_value: Float[Array, " k"]) -> Float[Array, " k"]:
        """The slack that decides now, by the rule the caller chose."""
        goal = memory.goal
        by_horizon = (
            budgets.finite_horizon_budget(
                goal.threshold, memory.spent, goal.horizon - memory.step, self.gamma_cost
            )
            - cost_value
        )
        rules = {
            "finite-horizon": by_horizon,
            "soft": memory.slack,
            "direct": memory.budget - cost_value,
            "min": jnp.minimum(by_horizon, memory.slack),
        }
        return rules[goal.execution]

    def without(
        self, goal: Goal, observation: Float[Array, " d"], slack: Float[Array, " k"]
    ) -> Float[Array, " k"]:
        """The slack to choose by: none at an observation outside the goal's limits, so the fallback acts."""
        if goal.within is None:
            return slack
        low, high = goal.within
        return jnp.where(jnp.any((observation < low) | (observation > high)), -jnp.inf, slack)

    def policy_inputs(
        self, features: Float[Array, " f"], slack: Float[Array, " k"], cost_value: Float[Array, " k"]
    ) -> Float[Array, " i"]:
        """What the policy sees: slack if it was trained on slack, the budget itself by direct tracking."""
        shown = slack if self.tracking == "soft" else slack + cost_value
        return jnp.concatenate([features, self.encoded(shown)])

    def compared(
        self, features: Float[Array, " f"], actions: Float[Array, "n a"], budget: Float[Array, " k"]
    ) -> tuple[Float[Array, "n k"], Float[Array, " n"]]:
        """Q_C, times the safety factor, and Q_R of n actions in one state."""
        rows = jnp.broadcast_to(features, (len(actions), features.shape[-1]))
        cost = self.safety_factor * self.cost_to_go(rows, actions)
        shown = budget - cost if self.tracking == "soft" else jnp.broadcast_to(budget, cost.shape)
        inputs = jnp.concatenate([rows, actions, self.encoded(shown)], axis=-1)
        return cost, jnp.min(apply_each(self.critic, inputs)[..., 0], axis=0)

    def encoded(self, budget: Float[Array, "*b k"]) -> Float[Array, "*b k"]:
        """A budget or slack as the networks take it, inside the range of training."""
        return budgets.encode(jnp.clip(budget, 0.0, self.slack_limit), self.budget_input)

    def features(self, observation: Float[Array, " d"], step: Int[Array, ""]) -> Float[Array, " f"]:
        """Normalised observation; with the episodic criterion also the time, as a share of the horizon."""
        normal = self.normaliser(observation)
        if self.criterion == "discounted":
            return normal
        return jnp.append(normal, jnp.minimum(step / self.horizon, 1.0))

    def least_cost(self, features: Float[Array, "*b f"]) -> Float[Array, "*b k"]:
        """V_C(s), never below zero (costs are not negative)."""
        value = self.cost_value(features)
        return jnp.maximum(value, 0.0) if self.nonnegative_values else value

    def cost_to_go(
        self, features: Float[Array, "*b f"], action: Float[Array, "*b a"]
    ) -> Float[Array, "*b k"]:
        """Q_C(s, a), the larger of the two critics."""
        return jnp.max(apply_each(self.cost_critic, jnp.concatenate([features, action], -1)), axis=0)
