"""Execution: how trained networks act while a budget is spent (the paper's Algorithm 3 and its f and g)."""

from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from bcrl import budget as budgets
from bcrl.learn.losses import cost_weighting
from bcrl.learn.networks import MLP, GaussianPolicy, apply_each
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


class BudgetedActor(eqx.Module):
    """Policy and fallback, with the cost critics that decide between them and track the budget."""

    actor: GaussianPolicy
    fallback: GaussianPolicy
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
    fallback_below: float = eqx.field(static=True)
    guarded: bool = eqx.field(static=True, default=False)  # the fallback also replaces actions with Q_C > δ
    fallback_draws: int = eqx.field(static=True, default=0)
    fallback_beta: float = eqx.field(static=True, default=0.0)
    cost_weights: tuple[float, ...] | None = eqx.field(static=True, default=None)

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
        slack = budgets.soft_slack_start(goal.budget, self.mean_start_value)
        return Memory(goal, key, jnp.zeros((), jnp.int32), zero, goal.budget, slack, zero)

    def act(
        self, memory: Memory, observation: Float[Array, " d"]
    ) -> tuple[Float[Array, " a"], Memory, Insight]:
        features = self.features(observation, memory.step)
        cost_value = self.least_cost(features)
        slack = self.slack_by_rule(memory, cost_value)
        # A policy trained on slack sees slack, one trained by direct tracking the budget itself.
        shown = slack if self.tracking == "soft" else slack + cost_value
        shown = budgets.encode(jnp.clip(shown, 0.0, self.slack_limit), self.budget_input)
        mean, log_std = self.actor(jnp.concatenate([features, shown]))
        action, allowed = mean, jnp.all(slack >= self.fallback_below)
        draws = max(memory.goal.prune, int(self.guarded))
        if draws:
            key = jax.random.fold_in(memory.key, memory.step)
            action, some_safe = self.pruned(features, mean, log_std, slack + cost_value, key, draws)
            allowed &= some_safe
        action = jnp.where(allowed, action, self.careful(memory, features))
        action = jnp.clip(action, -1.0, 1.0)
        charge = self.cost_to_go(features, action) - cost_value
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

    def careful(self, memory: Memory, features: Float[Array, " f"]) -> Float[Array, " a"]:
        """The fallback's action: its mean, or the exp(−β Σ ω_i Q_C,i)-weighted mean of n samples.

        With about one logged action per state, the weights of the fallback's training rank states, not
        actions. Samples in one state are ranked by their actions alone.
        """
        mean, log_std = self.fallback(features)
        if not self.fallback_draws:
            return mean
        # Not the key of `pruned`: the two draw in the same step.
        key = jax.random.fold_in(jax.random.fold_in(memory.key, memory.step), 1)
        actions = drawn(mean, log_std, key, self.fallback_draws)
        rows = jnp.broadcast_to(features, (len(actions), features.shape[-1]))
        cost = self.cost_to_go(rows, actions)
        omega = cost_weighting(self.cost_weights, cost.shape[1])
        return jax.nn.softmax(-self.fallback_beta * (cost @ omega)) @ actions

    def pruned(
        self,
        features: Float[Array, " f"],
        mean: Float[Array, " a"],
        log_std: Float[Array, " a"],
        budget: Float[Array, " k"],
        key: PRNGKeyArray,
        draws: int,
    ) -> tuple[Float[Array, " a"], Bool[Array, ""]]:
        """Of n drawn actions the best by Q_R among those with Q_C ≤ δ, and whether there was one.

        The first is the mean, so that one draw asks only whether that is safe.
        """
        actions = drawn(mean, log_std, key, draws).at[0].set(mean)
        rows = jnp.broadcast_to(features, (len(actions), features.shape[-1]))
        cost = self.cost_to_go(rows, actions)
        safe = budgets.is_safe(cost, budget)
        shown = budget - cost if self.tracking == "soft" else jnp.broadcast_to(budget, cost.shape)
        shown = budgets.encode(jnp.clip(shown, 0.0, self.slack_limit), self.budget_input)
        inputs = jnp.concatenate([rows, actions, shown], axis=-1)
        worth = jnp.min(apply_each(self.critic, inputs)[..., 0], axis=0)
        return actions[jnp.argmax(jnp.where(safe, worth, -jnp.inf))], jnp.any(safe)

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


def drawn(
    mean: Float[Array, " a"], log_std: Float[Array, " a"], key: PRNGKeyArray, count: int
) -> Float[Array, "n a"]:
    """Actions of a Gaussian policy, inside their bounds."""
    noise = jax.random.normal(key, (count, mean.shape[-1]))
    return jnp.clip(mean + jnp.exp(log_std) * noise, -1.0, 1.0)
