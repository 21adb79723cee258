"""A running episode of a policy: `act`, then `observe` what the step cost."""

import os
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from bcrl.errors import BCRLError, brief_repr
from bcrl.learn.protocol import Actor, Goal, Insight

if TYPE_CHECKING:
    from bcrl.policy import Policy


class Episode:
    """A running episode, or a batch of them: `act`, then `observe` what the step cost.

    `memory` is the whole of its state, a PyTree; the pure functions behind it are `policy.actor`'s.
    """

    def __init__(self, policy: "Policy", goal: Goal, key: jax.Array, *, limited: bool = True):
        self.policy = policy
        self.batched = goal.horizon.ndim == 1
        self._goal = goal
        self._key = key
        self.memory = self._begin()
        self._insight: Insight | None = None
        self._horizon = np.asarray(goal.horizon) if limited else np.full(goal.horizon.shape, np.inf)
        self._step = np.zeros(self._horizon.shape, np.int64)
        self._acted = False  # an action waits for its cost

    def __repr__(self) -> str:
        steps = f"step {self._step.max():,} of {self._horizon.max():,}"
        many = f"{len(self._step):,} episodes, " if self.batched else ""
        return f"Episode({self.policy.method.name}, {many}{steps})"

    def _begin(self) -> Any:
        self._key, key = jax.random.split(self._key)
        keys = jax.random.split(key, len(self._goal.horizon)) if self.batched else key
        return _start(self.policy.actor, keys, self._goal, self.batched)

    def act(self, observation: ArrayLike) -> np.ndarray:
        """The action for this observation, (a,) or (batch, a), in [−1, 1] or the bounds of `policy.schema`.

        Of discrete actions it is the index of the label, () or (batch,).

        Each action is followed by `observe`; an episode has as many steps as its horizon.
        """
        check_process()
        if self._acted:
            raise BCRLError("act was called twice: tell the episode what its last action cost, observe(cost)")
        if np.any(self._step >= self._horizon):
            way = "restart those that ended" if self.batched else "start a new one, or give a longer horizon"
            raise BCRLError(f"the episode has had its {self._horizon.max():,} steps: {way}")
        observed = numbers("observation", observation)
        wanted = (self.policy.spec.observation_size,)
        wanted = (len(self._goal.horizon), *wanted) if self.batched else wanted
        if observed.shape != wanted:
            raise BCRLError(f"observation has shape {observed.shape}, but this episode expects {wanted}")
        if not np.isfinite(observed).all():
            raise BCRLError("observation holds NaN or infinity: mend the reading before acting on it")
        action, memory, insight = _act(self.policy.actor, self.memory, observed, self.batched)
        action = np.asarray(action)
        if not np.isfinite(action).all():
            raise BCRLError(
                f"the policy has no finite action for an observation as large as {np.abs(observed).max():g}: "
                "is it in the unit of the log?"
            )
        self.memory, self._insight, self._acted = memory, insight, True
        return action.argmax(-1) if self.policy.spec.discrete else action

    def observe(self, cost: ArrayLike, reward: ArrayLike | None = None) -> None:
        """Tells the episode what its last action cost (and earned, where the policy needs to know)."""
        check_process()
        if not self._acted:
            raise BCRLError("observe comes after act: no action is waiting for its cost")
        if reward is None and self.policy.actor.needs_reward:
            raise BCRLError(f"{self.policy.method.name} needs the reward too: observe(cost, reward)")
        shape = self._goal.threshold.shape
        costs = numbers("cost", cost)
        costs = costs[..., None] if shape[-1] == 1 and costs.shape == shape[:-1] else costs
        if costs.shape != shape:
            raise BCRLError(f"cost has shape {np.shape(cost)}, but this episode expects {shape}")
        if not np.all(np.isfinite(costs)) or np.any(costs < 0):
            raise BCRLError(f"cost is {brief_repr(cost)}, but must be finite and not negative")
        rewards = numbers("reward", np.zeros(shape[:-1]) if reward is None else reward)
        if rewards.shape != shape[:-1] or not np.isfinite(rewards).all():
            raise BCRLError(f"reward is {brief_repr(reward)}, but must be finite and of shape {shape[:-1]}")
        self.memory = _observe(self.policy.actor, self.memory, costs, rewards, self.batched)
        self._step, self._acted = self._step + 1, False

    def restart(self, which: ArrayLike) -> None:
        """Begins the marked episodes of a batch anew, for vectorised environments that reset themselves."""
        if not self.batched:
            raise BCRLError("restart is for batches: call policy.start for a new single episode")
        check_process()
        if self._acted:
            raise BCRLError("restart comes after observe: an action is waiting for its cost")
        marked = np.asarray(which, bool)
        if marked.shape != self._goal.horizon.shape:
            raise BCRLError(f"restart marks {marked.shape}, but the batch is {self._goal.horizon.shape}")
        self._step = np.where(marked, 0, self._step)
        mix = eqx.filter_vmap(lambda m, new, old: jax.tree.map(lambda x, y: jnp.where(m, x, y), new, old))
        self.memory = mix(marked, self._begin(), self.memory)

    @property
    def slack(self) -> np.ndarray:
        """The slack that decided the last action, (k,) or (batch, k); negative when overspent."""
        return np.asarray(self._decided().slack)

    @property
    def fallback(self) -> np.ndarray:
        """Whether the least-cost fallback chose the last action."""
        return np.asarray(self._decided().fallback)

    def _decided(self) -> Insight:
        if self._insight is None:
            raise BCRLError("nothing has been decided yet: call act first")
        return self._insight


_PROCESS = os.getpid()


def check_process() -> None:
    """JAX hangs in a process that was forked after JAX had started."""
    if os.getpid() != _PROCESS:
        raise BCRLError(
            "this process was forked after bcrl was loaded, and JAX does not run there: start workers with "
            "multiprocessing.get_context('spawn')"
        )


def numbers(name: str, value: ArrayLike | None) -> np.ndarray:
    """What a user gives, as float32; text, times and complex numbers are refused."""
    try:
        array = np.asarray(value)
        if array.dtype.kind not in "cmMSU":
            with np.errstate(over="ignore"):  # infinity is refused where it matters
                return array.astype(np.float32, copy=False)
    except (TypeError, ValueError, OverflowError):
        pass
    raise BCRLError(f"{name} is {brief_repr(value)}, but must be a number, or an array of them")


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
