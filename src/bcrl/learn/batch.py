"""The transitions of a log, packed so that a batch is one gather: on the device, or on disk."""

from collections.abc import Callable, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from bcrl.data import Dataset
from bcrl.data.blocks import blocks, extremes, release, take
from bcrl.data.mapped import lay_down
from bcrl.learn.stretches import Stretches, one_step


class Batch(eqx.Module):
    """Transitions (s, a, r, c, s′) of the log, observations as the networks see them."""

    features: Float[Array, "b f"]
    action: Float[Array, "b a"]
    reward: Float[Array, " b"]
    cost: Float[Array, "b k"]
    next_features: Float[Array, "b f"]
    bootstrap: Float[Array, " b"]  # 0 where the backup ends, else 1
    steps: Float[Array, " b"] | None = None  # from s to s′, over which reward and cost are summed; None: 1

    def discount(self, gamma: float) -> Float[Array, " b"] | float:
        """γ from s to s′."""
        return gamma if self.steps is None else gamma**self.steps

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

    table: Float[Array | np.ndarray, "n w"]
    """On the device; or, of a log that is too large for it, a numpy array on disk (`streamed.py`)."""
    widths: tuple[int, ...] = eqx.field(static=True)

    def __len__(self) -> int:
        return len(self.table)

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
        features: Callable[[np.ndarray, np.ndarray], np.ndarray],
        ended: np.ndarray,
        *extra: np.ndarray,
        reward_scale: float = 1.0,
        stretches: Stretches | None = None,
    ) -> "Rows":
        """The columns of `Batch`, then `extra` ones. `ended` marks where the backup does not bootstrap.

        `features` returns what the networks see of observations and their times in the episode. With
        `stretches` a row goes several steps of the log at once.
        """
        step = one_step(data) if stretches is None else stretches

        def columns(at: slice) -> list[np.ndarray]:
            last = step.last(at)
            return [
                features(data.observations[at], data.steps[at]),
                cloned_actions(data, at),
                reward_scale * step.rewards[at],
                step.costs[at],
                features(data.next_observations[last], data.steps[last] + 1),
                1.0 - ended[last],
                *(column[at] for column in extra),
            ]

        return cls.of_log(data, columns)

    @classmethod
    def of_log(cls, data: Dataset, columns: Callable[[slice], Sequence[np.ndarray]]) -> "Rows":
        """The columns of all rows of a log; `columns` returns those of a slice.

        The table is on disk where the log is, and where a GPU has not twice the memory it takes.
        """

        def packed(at: slice) -> np.ndarray:
            wide = [np.asarray(column).reshape(at.stop - at.start, -1) for column in columns(at)]
            table = np.concatenate(wide, axis=1, dtype=np.float32)
            for field in (data.observations, data.actions, data.next_observations):
                release(field[: at.stop])
            return table

        widths = tuple(np.asarray(column).reshape(1, -1).shape[1] for column in columns(slice(0, 1)))
        shape = (len(data), sum(widths))
        if data.on_disk or 4 * shape[0] * shape[1] > device_memory() / 2:
            return cls(lay_down(packed, shape, data.source, "packing the log"), widths)
        table = np.empty(shape, np.float32)
        for at in blocks(table):
            table[at] = packed(slice(at.start, min(at.stop, len(data))))
        return cls(jnp.asarray(table), widths)

    def sample(self, key: PRNGKeyArray, count: int) -> list[Float[Array, "count width"]]:
        """`count` random rows, with replacement, as columns."""
        return self.take(jax.random.randint(key, (count,), 0, len(self)))

    def sample_batch(self, key: PRNGKeyArray, count: int) -> tuple[Batch, list[Array]]:
        """A batch from rows made by `of_transitions`, and the extra columns."""
        features, action, reward, cost, next_features, bootstrap, *extra = self.sample(key, count)
        return Batch(features, action, reward[:, 0], cost, next_features, bootstrap[:, 0]), extra

    def take(self, index: Array) -> list[Float[Array, "count width"]]:
        """The rows at `index`, as columns."""
        if isinstance(self.table, np.ndarray):
            return self.split(jnp.asarray(take(self.table, np.asarray(index))))
        return self.split(self.table[index])

    def extremes(self) -> tuple[Array | np.ndarray, Array | np.ndarray]:
        """The least and the largest of each number."""
        if isinstance(self.table, np.ndarray):
            return extremes(self.table)
        return self.table.min(axis=0), self.table.max(axis=0)

    def split(self, rows: Float[Array, "count w"]) -> list[Float[Array, "count width"]]:
        """Rows as columns."""
        return jnp.split(rows, np.cumsum(self.widths)[:-1].tolist(), axis=-1)


def cloned_actions(data: Dataset, at: slice = slice(None)) -> np.ndarray:
    """The log's actions inside the open interval, where the density of a squashed action is finite.

    One-hot vectors stay as they are.
    """
    actions = data.actions[at]
    return actions if data.schema.discrete else np.clip(actions, -1 + 1e-5, 1 - 1e-5)


def device_memory() -> float:
    """Bytes of memory of the device; infinite for a CPU, where a log in memory is where it must be."""
    stats = jax.devices()[0].memory_stats() if jax.default_backend() != "cpu" else None
    return float((stats or {}).get("bytes_limit", np.inf))
