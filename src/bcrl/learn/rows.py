"""The transitions of a log on the device, packed so that a batch is one gather."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray


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

    def draw(self, key: PRNGKeyArray, count: int) -> list[Float[Array, "count width"]]:
        """`count` rows at random, with replacement, as columns."""
        return self.take(jax.random.randint(key, (count,), 0, len(self.table)))

    def take(self, index: Array) -> list[Float[Array, "count width"]]:
        edges = np.cumsum(self.widths)[:-1].tolist()
        return jnp.split(self.table[index], edges, axis=-1)
