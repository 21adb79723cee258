"""A known model as a world, so that learned policies meet their exact dynamics in the one evaluator."""

from typing import TYPE_CHECKING

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from bcrl.errors import BCRLError
from bcrl.worlds._base import JaxWorld, State, Step

if TYPE_CHECKING:  # bcrl.cmdp needs an extra
    from bcrl.cmdp import CMDP


class KnownModel(JaxWorld):
    """The states of a CMDP, seen as rows of `observations` (S, d); actions are one-hot vectors.

    The model's discount is no part of the world: rewards and costs come undiscounted.
    """

    discrete = True

    observations: jax.Array = eqx.field(kw_only=True)
    chances: jax.Array = eqx.field(kw_only=True)  # (S, A, S) cumulated over the next state
    rewards: jax.Array = eqx.field(kw_only=True)
    costs: jax.Array = eqx.field(kw_only=True)
    first: jax.Array = eqx.field(kw_only=True)
    terminal: jax.Array = eqx.field(kw_only=True)
    horizon: int = eqx.field(kw_only=True, static=True)
    name: str = eqx.field(kw_only=True, static=True)

    def __init__(
        self, model: "CMDP", horizon: int, observations: np.ndarray | None = None, name: str = "known model"
    ):
        if len(model.costs) != 1:
            raise BCRLError(f"{name}: has {len(model.costs)} costs, but policies are evaluated with one")
        shape = (model.states, model.actions, model.states)
        moves = model.transitions.toarray().reshape(shape)
        self.observations = jnp.asarray(np.eye(model.states) if observations is None else observations)
        self.chances = jnp.asarray(np.cumsum(moves, axis=2))
        self.rewards, self.costs = jnp.asarray(model.rewards), jnp.asarray(model.costs[0])
        self.first, self.terminal = jnp.asarray(np.cumsum(model.start)), jnp.asarray(model.terminal)
        self.horizon, self.name, self.noise = horizon, name, 0.0

    @property
    def observation_size(self) -> int:  # type: ignore[override]
        return self.observations.shape[1]

    @property
    def action_size(self) -> int:  # type: ignore[override]
        return self.rewards.shape[1]

    def reset(self, key: jax.Array) -> State:
        return _draw(key, self.first)

    def observe(self, state: State) -> jax.Array:
        return self.observations[state]

    def move(self, state: State, action: jax.Array, key: jax.Array) -> Step:
        label = jnp.argmax(action)
        after = _draw(key, self.chances[state, label])
        # The cost is that of the state that is left, so none is charged in the terminal state.
        return after, self.rewards[state, label], self.costs[state, label], self.terminal[after]


def _draw(key: jax.Array, cumulated: jax.Array) -> jax.Array:
    """An index with the probabilities that were cumulated."""
    return jnp.searchsorted(cumulated, jax.random.uniform(key) * cumulated[-1], side="right")
