"""A running episode of a policy in JAX: `act`, then `observe` what the step cost."""

import os
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from bcrl.errors import BCRLError
from bcrl.learn.protocol import Actor, Goal, Insight
from bcrl.runtime import Asked, CheckedEpisode

if TYPE_CHECKING:
    from bcrl.policy import Policy


class Episode(CheckedEpisode):
    """A running episode, or a batch of them: `act`, then `observe` what the step cost.

    `memory` is the whole of its state, a PyTree; the pure functions behind it are `policy.actor`'s.
    """

    policy: "Policy"

    def __init__(self, policy: "Policy", asked: Asked, key: jax.Array, out_of_range: str = "warn"):
        super().__init__(policy, asked, out_of_range)
        self.needs_reward = policy.actor.needs_reward
        self._goal = policy.goal_of(asked, self._range if out_of_range == "fallback" else None)
        self._key = key
        self.memory = self._begin()

    def _begin(self) -> Any:
        self._key, key = jax.random.split(self._key)
        keys = jax.random.split(key, len(self._goal.horizon)) if self.batched else key
        return _start(self.policy.actor, keys, self._goal, self.batched)

    def _ready(self) -> None:
        check_process()

    def _act(self, observed: np.ndarray) -> tuple[np.ndarray, tuple[Any, Any]]:
        action, memory, insight = _act(self.policy.actor, self.memory, observed, self.batched)
        action = np.asarray(action)
        if np.isfinite(action).all():  # else it is an error, and the memory stays as it was
            self.memory = memory
        return action, (insight.slack, insight.fallback)

    def _observe(self, costs: np.ndarray, rewards: np.ndarray) -> None:
        self.memory = _observe(self.policy.actor, self.memory, costs, rewards, self.batched)

    def _restart(self, marked: np.ndarray) -> None:
        mix = eqx.filter_vmap(lambda m, new, old: jax.tree.map(lambda x, y: jnp.where(m, x, y), new, old))
        self.memory = mix(marked, self._begin(), self.memory)


_PROCESS = os.getpid()


def check_process() -> None:
    """JAX hangs in a process that was forked after JAX had started."""
    if os.getpid() != _PROCESS:
        raise BCRLError(
            "this process was forked after bcrl was loaded, and JAX does not run there: start workers with "
            "multiprocessing.get_context('spawn'), or use bcrl.runtime"
        )


# Jitted once for every policy of the same shape. `batched` is a compile-time choice.


@eqx.filter_jit
def _start(actor: Actor, key: jax.Array, goal: Goal, batched: bool) -> Any:
    return eqx.filter_vmap(actor.start)(key, goal) if batched else actor.start(key, goal)


@eqx.filter_jit
def _act(actor: Actor, memory: Any, observation: Any, batched: bool) -> tuple[jax.Array, Any, Insight]:
    observation = jnp.asarray(observation)
    return eqx.filter_vmap(actor.act)(memory, observation) if batched else actor.act(memory, observation)


@eqx.filter_jit
def _observe(actor: Actor, memory: Any, cost: Any, reward: Any, batched: bool) -> Any:
    cost, reward = jnp.asarray(cost), jnp.asarray(reward)
    if batched:
        return eqx.filter_vmap(actor.observe)(memory, cost, reward)
    return actor.observe(memory, cost, reward)
