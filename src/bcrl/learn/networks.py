"""The networks, in one place: multilayer perceptrons whose parameters may carry leading axes.

`ensemble` stacks independent critics on a leading axis so that all run as one batched matrix product; the
train loop stacks seeds the same way. Input is any batch of rows, `(..., features)`.
"""

from collections.abc import Sequence
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

Activation = Literal["relu", "tanh", "mish", "silu"]
LOG_STD_RANGE = (-20.0, 2.0)


class MLP(eqx.Module):
    """Layers of ReLU (or another activation), with LayerNorm before each or dropout after the last."""

    weights: tuple[Array, ...]
    biases: tuple[Array, ...]
    norms: tuple[tuple[Array, Array], ...]  # (scale, offset) per hidden layer, or empty
    dropout: float = eqx.field(static=True)
    activation: Activation = eqx.field(static=True)

    def __init__(
        self,
        sizes: Sequence[int],
        key: PRNGKeyArray,
        *,
        layer_norm: bool = False,
        dropout: float = 0.0,
        heads: int = 1,
        activation: Activation = "relu",
    ):
        keys = jax.random.split(key, len(sizes) - 2 + heads)
        hidden = zip(keys, sizes[:-2], sizes[1:-1], strict=False)
        last = [_weights(k, sizes[-2], sizes[-1]) for k in keys[len(sizes) - 2 :]]
        self.weights = (*(_weights(k, i, o) for k, i, o in hidden), jnp.concatenate(last, axis=1))
        self.biases = tuple(jnp.zeros(w.shape[1]) for w in self.weights)
        self.norms = tuple((jnp.ones(n), jnp.zeros(n)) for n in sizes[1:-1]) if layer_norm else ()
        self.dropout = dropout
        self.activation = activation

    def __call__(self, x: Float[Array, "*b i"], key: PRNGKeyArray | None = None) -> Float[Array, "*b o"]:
        """Dropout acts only where a key is given, that is in training."""
        for layer in range(len(self.weights) - 1):
            x = x @ self.weights[layer] + self.biases[layer]
            if self.norms:
                scale, offset = self.norms[layer]
                x = jax.nn.standardize(x, epsilon=1e-6) * scale + offset
            x = getattr(jax.nn, self.activation)(x)
        if key is not None and self.dropout > 0.0:
            keep = jax.random.bernoulli(key, 1.0 - self.dropout, x.shape)
            x = jnp.where(keep, x / (1.0 - self.dropout), 0.0)
        return x @ self.weights[-1] + self.biases[-1]


def _weights(key: PRNGKeyArray, inputs: int, outputs: int) -> Float[Array, "i o"]:
    """Gaussian with the spread of an orthogonal(√2) matrix: equally good here, and needs no factorisation,
    which takes long to compile on a GPU and can hang on small CPUs."""
    return jax.random.normal(key, (inputs, outputs)) * (2.0 / max(inputs, outputs)) ** 0.5


def ensemble(sizes: Sequence[int], key: PRNGKeyArray, members: int = 2, *, layer_norm: bool = False) -> MLP:
    """Independent critics in one module, parameters stacked on axis 0."""
    return eqx.filter_vmap(lambda k: MLP(sizes, k, layer_norm=layer_norm))(jax.random.split(key, members))


def apply_each(critics: MLP, x: Float[Array, "*b i"]) -> Float[Array, "m *b o"]:
    """What every member of an ensemble says of the same rows."""
    return eqx.filter_vmap(lambda critic: critic(x))(critics)


class GaussianPolicy(eqx.Module):
    """Unsquashed diagonal Gaussian: mean through tanh, standard deviation by state."""

    trunk: MLP

    def __init__(
        self, input_size: int, action_size: int, hidden: Sequence[int], dropout: float, key: PRNGKeyArray
    ):
        self.trunk = MLP((input_size, *hidden, action_size), key, dropout=dropout, heads=2)

    def __call__(
        self, x: Float[Array, "*b i"], key: PRNGKeyArray | None = None
    ) -> tuple[Float[Array, "*b a"], Float[Array, "*b a"]]:
        """Mean and log standard deviation."""
        mean, log_std = jnp.split(self.trunk(x, key), 2, axis=-1)
        return jnp.tanh(mean), jnp.clip(log_std, *LOG_STD_RANGE)

    def log_density(
        self, x: Float[Array, "*b i"], key: PRNGKeyArray | None, action: Float[Array, "*b a"]
    ) -> Float[Array, "*b"]:
        """log π(a|x)."""
        return gaussian_log_density(*self(x, key), action)

    def mode(self, x: Float[Array, "*b i"]) -> Float[Array, "*b a"]:
        """The most likely action, the mean."""
        return self(x)[0]


class CategoricalPolicy(eqx.Module):
    """Probabilities of n discrete actions; an action is a one-hot vector."""

    trunk: MLP

    def __init__(
        self, input_size: int, action_size: int, hidden: Sequence[int], dropout: float, key: PRNGKeyArray
    ):
        self.trunk = MLP((input_size, *hidden, action_size), key, dropout=dropout)

    def __call__(self, x: Float[Array, "*b i"], key: PRNGKeyArray | None = None) -> Float[Array, "*b n"]:
        """Log-probabilities."""
        return jax.nn.log_softmax(self.trunk(x, key))

    def log_density(
        self, x: Float[Array, "*b i"], key: PRNGKeyArray | None, action: Float[Array, "*b n"]
    ) -> Float[Array, "*b"]:
        """log π(a|x)."""
        return jnp.sum(self(x, key) * action, axis=-1)

    def mode(self, x: Float[Array, "*b i"]) -> Float[Array, "*b n"]:
        """The most likely action."""
        return one_hot(jnp.argmax(self(x), axis=-1), self.trunk.biases[-1].shape[-1])


PolicyNetwork = GaussianPolicy | CategoricalPolicy


def policy_network(
    discrete: bool,
    input_size: int,
    action_size: int,
    hidden: Sequence[int],
    dropout: float,
    key: PRNGKeyArray,
) -> PolicyNetwork:
    """A fresh policy over labels, or over a box of continuous actions."""
    kind = CategoricalPolicy if discrete else GaussianPolicy
    return kind(input_size, action_size, hidden, dropout, key)


def one_hot(index: Int[Array, "*b"], size: int) -> Float[Array, "*b n"]:
    """Discrete actions as the vectors that logs and networks have."""
    return jax.nn.one_hot(index, size)


def gaussian_log_density(
    mean: Float[Array, "*b a"], log_std: Float[Array, "*b a"], action: Float[Array, "*b a"]
) -> Float[Array, "*b"]:
    """log N(action; mean, diag(std²))."""
    scaled = (action - mean) * jnp.exp(-log_std)
    return jnp.sum(-0.5 * scaled**2 - log_std - 0.5 * jnp.log(2.0 * jnp.pi), axis=-1)
