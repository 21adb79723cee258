"""The transitions of a log on the device, packed so that a batch is one gather."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from bcrl.data import Dataset


class Batch(eqx.Module):
    """Transitions (s, a, r, c, s′) of the log, observations as the networks see them."""

    features: Float[Array, "b f"]
    action: Float[Array, "b a"]
    reward: Float[Array, " b"]
    cost: Float[Array, "b k"]
    next_features: Float[Array, "b f"]
    bootstrap: Float[Array, " b"]  # 0 where the backup ends, else 1

    @property
    def pairs(self) -> Float[Array, "b f+a"]:
        """(s, a), the input of an action value."""
        return jnp.concatenate([self.features, self.action], axis=1)

    @property
    def only_cost(self) -> Float[Array, " b"]:
        """The cost, for methods that know a single one."""
        return self.cost[:, 0]


class Rows(eqx.Module):
    """Columns side by side, one row per transition."""

    table: Float[Array, "n w"]
    widths: tuple[int, ...] = eqx.field(static=True)

    @classmethod
    def of(cls, *columns: np.ndarray) -> "Rows":
        """A column is (n,) or (n, width); one of width 1 comes back as (n, 1)."""
        wide = [np.asarray(column).reshape(len(column), -1) for column in columns]
        table = np.concatenate(wide, axis=1, dtype=np.float32)
        return cls(jnp.asarray(table), tuple(column.shape[1] for column in wide))

    @classmethod
    def of_transitions(
        cls,
        data: Dataset,
        features: np.ndarray,
        next_features: np.ndarray,
        ended: np.ndarray,
        *extra: np.ndarray,
        reward_scale: float = 1.0,
    ) -> "Rows":
        """The columns of `Batch`, then `extra` ones. `ended` marks where the backup does not bootstrap."""
        actions, rewards = cloned_actions(data), reward_scale * data.rewards
        return cls.of(features, actions, rewards, data.costs_2d, next_features, 1.0 - ended, *extra)

    def sample(self, key: PRNGKeyArray, count: int) -> list[Float[Array, "count width"]]:
        """`count` random rows, with replacement, as columns."""
        return self.take(jax.random.randint(key, (count,), 0, len(self.table)))

    def sample_batch(self, key: PRNGKeyArray, count: int) -> tuple[Batch, list[Array]]:
        """A batch from rows made by `of_transitions`, and the extra columns."""
        features, action, reward, cost, next_features, bootstrap, *extra = self.sample(key, count)
        return Batch(features, action, reward[:, 0], cost, next_features, bootstrap[:, 0]), extra

    def take(self, index: Array) -> list[Float[Array, "count width"]]:
        """The rows at `index`, as columns."""
        edges = np.cumsum(self.widths)[:-1].tolist()
        return jnp.split(self.table[index], edges, axis=-1)


def cloned_actions(data: Dataset) -> np.ndarray:
    """The log's actions inside the open interval, where the density of a squashed action is finite.

    One-hot vectors stay as they are.
    """
    return data.actions if data.schema.discrete else np.clip(data.actions, -1 + 1e-5, 1 - 1e-5)
