"""Networks that several baselines share: a squashed Gaussian policy and a variational auto-encoder."""

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, UInt32

from bcrl.learn.baselines.common import Memory, PlainActor
from bcrl.learn.networks import LOG_STD_RANGE, MLP

LATENT_LOG_STD_RANGE = (-4.0, 15.0)


class SquashedGaussian(eqx.Module):
    """a = tanh(μ(x) + σ(x) ε)."""

    trunk: MLP

    def __init__(self, input_size: int, action_size: int, hidden: Sequence[int], key: PRNGKeyArray):
        self.trunk = MLP((input_size, *hidden, action_size), key, heads=2)

    def __call__(self, x: Float[Array, "*b i"]) -> tuple[Float[Array, "*b a"], Float[Array, "*b a"]]:
        """μ and log σ, before the tanh."""
        mean, log_std = jnp.split(self.trunk(x), 2, axis=-1)
        return mean, jnp.clip(log_std, *LOG_STD_RANGE)

    def mode(self, x: Float[Array, "*b i"]) -> Float[Array, "*b a"]:
        """tanh μ(x)."""
        return jnp.tanh(self(x)[0])

    def sample(self, x: Float[Array, "*b i"], key: PRNGKeyArray) -> Float[Array, "*b a"]:
        """A reparametrised sample."""
        mean, log_std = self(x)
        return jnp.tanh(mean + jnp.exp(log_std) * jax.random.normal(key, mean.shape))


class ModeActor(PlainActor):
    """Executes the mode of a squashed Gaussian of the state alone."""

    policy: SquashedGaussian

    def choose(self, features: Float[Array, " f"], memory: Memory, key: PRNGKeyArray) -> Float[Array, " a"]:
        del memory, key
        return self.policy.mode(features)


class VAE(eqx.Module):
    """A conditional variational auto-encoder of actions: q(z|x, a) and a = tanh(decoder(x, z))."""

    encoder: MLP
    decoder: MLP

    def __init__(
        self, input_size: int, action_size: int, latent: int, hidden: Sequence[int], key: PRNGKeyArray
    ):
        encoder_key, decoder_key = jax.random.split(key)
        self.encoder = MLP((input_size + action_size, *hidden, latent), encoder_key, heads=2)
        self.decoder = MLP((input_size + latent, *hidden, action_size), decoder_key)

    def encode(
        self, x: Float[Array, "*b i"], action: Float[Array, "*b a"]
    ) -> tuple[Float[Array, "*b z"], Float[Array, "*b z"]]:
        """Mean and log standard deviation of the latent."""
        mean, log_std = jnp.split(self.encoder(jnp.concatenate([x, action], axis=-1)), 2, axis=-1)
        return mean, jnp.clip(log_std, *LATENT_LOG_STD_RANGE)

    def decode(self, x: Float[Array, "*b i"], latent: Float[Array, "*b z"]) -> Float[Array, "*b a"]:
        """The action of a latent."""
        return jnp.tanh(self.decoder(jnp.concatenate([x, latent], axis=-1)))

    def sample(self, x: Float[Array, "*b i"], key: PRNGKeyArray, limit: float = 0.5) -> Float[Array, "*b a"]:
        """An action whose latent is sampled from the prior and clipped to ±limit."""
        latent_size = self.encoder.biases[-1].shape[-1] // 2
        latent = jax.random.normal(key, (*x.shape[:-1], latent_size))
        return self.decode(x, jnp.clip(latent, -limit, limit))

    def errors(
        self, x: Float[Array, "*b i"], action: Float[Array, "*b a"], key: PRNGKeyArray
    ) -> tuple[Float[Array, "*b a"], Float[Array, "*b"]]:
        """Squared errors of a reconstruction per action dimension, and the latent's KL (`latent_kl`)."""
        mean, log_std = self.encode(x, action)
        latent = mean + jnp.exp(log_std) * jax.random.normal(key, mean.shape)
        return (self.decode(x, latent) - action) ** 2, latent_kl(mean, log_std)

    def loss(
        self, x: Float[Array, "*b i"], action: Float[Array, "*b a"], key: PRNGKeyArray, kl_weight: float
    ) -> Float[Array, ""]:
        """E[(â − a)²] + β KL(q(z|s, a) ‖ N(0, 1))."""
        squares, kl = self.errors(x, action, key)
        return jnp.mean(squares) + kl_weight * jnp.mean(kl)


def latent_kl(mean: Float[Array, "*b z"], log_std: Float[Array, "*b z"]) -> Float[Array, "*b"]:
    """KL(N(mean, std²) ‖ N(0, 1)), averaged over the latent's dimensions as the released codes do."""
    return -0.5 * jnp.mean(1.0 + 2.0 * log_std - mean**2 - jnp.exp(2.0 * log_std), axis=-1)


def dropout(x: Float[Array, "*b"], rate: float, key: PRNGKeyArray | None) -> Float[Array, "*b"]:
    """Zeroes entries with the probability `rate`, rounded to a 256th; none without a key.

    One random byte each, from the entry's number alone, so that the kernel that needs the bytes computes
    them. JAX's generator would take as long as the products around it.
    """
    if key is None or rate == 0.0:
        return x
    dropped = byte_limit(rate)
    number = jnp.zeros(x.shape, jnp.uint32)
    for axis, size in enumerate(x.shape):
        number = number * size + jax.lax.broadcasted_iota(jnp.uint32, x.shape, axis)
    return jnp.where(random_bytes(number, *key_words(key)) >= dropped, x * (256 / (256 - dropped)), 0.0)


def byte_limit(rate: float) -> int:
    """An entry is dropped if its random byte is below this."""
    return min(round(256 * rate), 255)


def key_words(key: PRNGKeyArray) -> UInt32[Array, " 2"]:
    """What `random_bytes` takes of a key."""
    return jax.random.key_data(key)[:2]


def random_bytes(
    number: UInt32[Array, "*b"], first: UInt32[Array, ""], second: UInt32[Array, ""]
) -> UInt32[Array, "*b"]:
    """A byte for each number, by a hash of the key's two words and the number: enough for dropout.

    Every four numbers share a word, twice mixed as at the end of MurmurHash3.
    """
    word = _mixed(_mixed((number >> 2) ^ first) + second)
    return (word >> ((number & 3) * 8)) & 255


def _mixed(x: UInt32[Array, "*b"]) -> UInt32[Array, "*b"]:
    x = (x ^ (x >> 16)) * jnp.uint32(0x85EBCA6B)
    x = (x ^ (x >> 13)) * jnp.uint32(0xC2B2AE35)
    return x ^ (x >> 16)
