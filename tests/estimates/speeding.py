"""A world whose truth is known, a log of it, and policies by hand."""

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from bcrl.data import Dataset
from bcrl.learn.bcrl import BCRL
from bcrl.learn.protocol import Goal, Insight, Spec
from bcrl.policy import Policy
from bcrl.worlds import JaxWorld, Step

STEPS, LIMIT = 30, 1.2
SMALL = {"members": 3, "hidden": (32, 32), "steps": 1000}


class Speeding(JaxWorld):
    """A vehicle with a throttle: the reward is its speed, a step above the limit costs `fine`."""

    name = "speeding"
    observation_size = 1
    action_size = 1
    horizon = STEPS

    fine: float = eqx.field(static=True, default=1.0)

    def reset(self, key: jax.Array) -> jax.Array:
        return jax.random.uniform(key, (1,))

    def observe(self, state: jax.Array) -> jax.Array:
        return state

    def move(self, state: jax.Array, action: jax.Array, key: jax.Array) -> Step:
        speed = 0.9 * state + 0.35 * action
        return speed, speed[0], jnp.where(speed[0] > LIMIT, self.fine, 0.0), jnp.zeros((), bool)


def make_log(episodes: int = 80, fine: float = 1.0, seed: int = 0) -> Dataset:
    """Episodes of throttles that are nearly held for some steps, with full throttle and full brake."""
    rng = np.random.default_rng(seed)
    held = np.repeat(rng.uniform(-1.5, 1.8, (episodes, STEPS // 5)), 5, axis=1)
    actions = np.clip(held + rng.uniform(-0.3, 0.3, held.shape), -1, 1).astype(np.float32)
    speed = np.empty((episodes, STEPS + 1), np.float32)
    speed[:, 0] = rng.uniform(size=episodes)
    for step in range(STEPS):
        speed[:, step + 1] = 0.9 * speed[:, step] + 0.35 * actions[:, step]
    after = speed[:, 1:]
    return Dataset(
        observations=speed[:, :-1].reshape(-1, 1),
        actions=actions.reshape(-1, 1),
        rewards=after.ravel(),
        costs=np.where(after > LIMIT, fine, 0.0).ravel(),
        next_observations=after.reshape(-1, 1),
        terminals=np.zeros(after.size, bool),
        timeouts=np.arange(after.size) % STEPS == STEPS - 1,
        source="speeding.npz",
    )


class Spender(eqx.Module):
    """Full throttle until `share` of the threshold is spent, then the brake. `stubborn` never brakes."""

    tracks_budgets: ClassVar[bool] = True
    needs_reward: ClassVar[bool] = False
    cost_discount: ClassVar[float] = 1.0
    longest: ClassVar[None] = None

    share: Any
    throttle: Any
    stubborn: Any
    helpless: Any

    def start(self, key: jax.Array, goal: Goal) -> Any:
        return self.share * goal.threshold, jnp.zeros_like(goal.threshold)

    def act(self, memory: Any, observation: jax.Array) -> tuple[jax.Array, Any, Insight]:
        allowed, spent = memory
        go = jnp.all(spent < 0.9999 * allowed) | self.stubborn  # sums of costs are rounded
        # A legal speed is kept once the budget is spent.
        steady = jnp.clip((0.5 - 0.9 * observation) / 0.35, -1.0, 1.0)
        action = jnp.where(go, self.throttle, steady)
        return action, memory, Insight(allowed - spent, self.helpless)

    def observe(self, memory: Any, cost: jax.Array, reward: jax.Array) -> Any:
        return memory[0], memory[1] + cost


def policy_of(
    data: Dataset,
    share: float = 1.0,
    throttle: float = 1.0,
    stubborn: bool = False,
    helpless: bool = False,
) -> Policy:
    """Its options are arrays, so that one program runs all."""
    actor = Spender(*map(jnp.asarray, (share, throttle, stubborn, helpless)))
    return Policy(actor, BCRL(), Spec.of(data, 1), {"seed": 0, "data": "speeding.npz"})
