"""Worlds as pure functions of one episode, to be jitted and vmapped by the caller."""

from abc import abstractmethod
from typing import Any, cast

import equinox as eqx
import jax
import jax.numpy as jnp

from bcrl.learn.protocol import Spec
from bcrl.worlds.protocol import References, check_sizes, normalise

State = Any  # a PyTree of arrays; each world has its own
Step = tuple[State, jax.Array, jax.Array, jax.Array]  # next state, reward, cost, terminal


class JaxWorld(eqx.Module):
    """A `World` whose functions see one episode at a time.

    An instance of a built-in world holds no arrays: it is hashable, can be closed over by jitted code or
    passed to it, and two worlds with equal settings are equal. The horizon is a timeout that the roll-out
    applies, not a terminal of the world, so that learners may bootstrap from the last state.
    """

    # Attributes of the class, not fields: hence without annotations. A world sets those that are empty here.
    engine = "scan"
    name = ""
    family = "point"
    observation_size = 0
    observation_bound = 5.0
    """Largest absolute value of an entry of an observation."""
    action_size = 0
    cost_count = 1
    discrete = False
    horizon = 0
    reference_returns = cast(References | None, None)
    thresholds = cast(tuple[float, ...], (10.0, 20.0, 40.0))
    caveat = ""
    data_file = ""

    noise: float = eqx.field(static=True, default=0.0)
    """Standard deviation of the actuators' error, in units of the action: more than 0 makes moves random."""

    @abstractmethod
    def reset(self, key: jax.Array) -> State:
        """Draws the first state of an episode."""

    @abstractmethod
    def observe(self, state: State) -> jax.Array:
        """The observation `(observation_size,)`, scaled to be of order one."""

    @abstractmethod
    def move(self, state: State, action: jax.Array, key: jax.Array) -> Step:
        """One step with the action after noise and clipping."""

    def step(self, state: State, action: jax.Array, key: jax.Array) -> Step:
        """One step with a commanded action `(action_size,)`, which is clipped to [-1, 1]."""
        actuators, world = jax.random.split(key)
        if self.noise:
            action = action + self.noise * jax.random.normal(actuators, action.shape)
        return self.move(state, jnp.clip(action, -1.0, 1.0), world)

    def trace(self, state: State) -> Any:
        """A PyTree of what a roll-out records of the state after each step; nothing by default."""
        return ()

    @property
    def label(self) -> str:
        return f"{self.name} noise {self.noise:g}" if self.noise else self.name

    def normalise(self, returns: Any) -> Any:
        """Returns on the scale where the reference returns are 0 and 1."""
        return normalise(returns, self.reference_returns)

    def check(self, spec: Spec) -> None:
        """Refuses a policy of other sizes."""
        check_sizes(self, spec)
