"""The diffusion policy of FISOR: a network that predicts the noise in an action, and sampling with it."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from bcrl.learn.baselines.parts import dropout
from bcrl.learn.networks import MLP

TIME_FEATURES = 64
TIME_UNITS = 128


class NoisePredictor(eqx.Module):
    """ε(s, a_t, t): a residual network of [a_t, s, time], the time as Fourier features that are learned."""

    frequencies: Float[Array, " f"]
    time: MLP
    first: MLP
    blocks: MLP  # stacked on axis 0: [width, 4 width, width]
    scale: Float[Array, "n w"]  # of each block's LayerNorm
    offset: Float[Array, "n w"]
    last: MLP
    dropout: float = eqx.field(static=True)

    def __init__(
        self, input_size: int, action_size: int, width: int, blocks: int, dropout: float, key: PRNGKeyArray
    ):
        keys = jax.random.split(key, 5)
        self.frequencies = 0.2 * jax.random.normal(keys[0], (TIME_FEATURES // 2,))
        self.time = MLP((TIME_FEATURES, TIME_UNITS, TIME_UNITS), keys[1], activation="mish")
        self.first = MLP((action_size + input_size + TIME_UNITS, width), keys[2])
        sizes = (width, 4 * width, width)
        self.blocks = eqx.filter_vmap(lambda k: MLP(sizes, k, activation="mish"))(
            jax.random.split(keys[3], blocks)
        )
        self.scale, self.offset = jnp.ones((blocks, width)), jnp.zeros((blocks, width))
        self.last = MLP((width, action_size), keys[4])
        self.dropout = dropout

    def __call__(
        self,
        x: Float[Array, "*b i"],
        noisy: Float[Array, "*b a"],
        time: Int[Array, "*b"],
    ) -> Float[Array, "*b a"]:
        """The noise, without dropout."""
        return self.after_first(self.first(jnp.concatenate([noisy, x, self.when(time)], axis=-1)))

    def in_training(
        self,
        x: Float[Array, "b i"],
        noisy: Float[Array, "b a"],
        time: Int[Array, " b"],
        key: PRNGKeyArray,
        steps: int,
    ) -> Float[Array, "b a"]:
        """The noise, with dropout, for times below `steps`.

        There are few times and many rows: the network of the time, and its part of the first layer, are
        computed once for each time. Without dropout, up to the order of sums, this is `__call__`.
        """
        (weight,), (bias,) = self.first.weights, self.first.biases
        inputs = jnp.concatenate([noisy, x, jax.nn.one_hot(time, steps, dtype=x.dtype)], axis=-1)
        before = weight.shape[0] - TIME_UNITS
        by_time = self.when(jnp.arange(steps)) @ weight[before:]
        return self.after_first(inputs @ jnp.concatenate([weight[:before], by_time]) + bias, key)

    def when(self, time: Int[Array, "*b"]) -> Float[Array, "*b t"]:
        """What the network sees of the time."""
        phase = 2.0 * jnp.pi * time[..., None] * self.frequencies
        return self.time(jnp.concatenate([jnp.cos(phase), jnp.sin(phase)], axis=-1))

    def after_first(self, y: Float[Array, "*b w"], key: PRNGKeyArray | None = None) -> Float[Array, "*b a"]:
        """The residual blocks and the last layer."""
        count = len(self.scale)
        keys = (None,) * count if key is None else jax.random.split(key, count)
        for number in range(count):
            block = jax.tree.map(lambda p, number=number: p[number], self.blocks)
            inner = jax.nn.standardize(dropout(y, self.dropout, keys[number]), epsilon=1e-6)
            y = y + block(inner * self.scale[number] + self.offset[number])
        return self.last(jax.nn.mish(y))


class Diffusion(eqx.Module):
    """How noise is mixed into actions, in `steps` steps: a_t = √ᾱ_t a + √(1 − ᾱ_t) ε."""

    steps: int = eqx.field(static=True)

    @property
    def betas(self) -> Float[np.ndarray, " t"]:
        """The variance-preserving schedule 1 − exp(−0.1/T − 4.95 (2t − 1)/T²)."""
        t, total = np.arange(1, self.steps + 1), self.steps
        return 1.0 - np.exp(-0.1 / total - 0.5 * (10.0 - 0.1) * (2 * t - 1) / total**2)

    @property
    def kept(self) -> Float[np.ndarray, " t"]:
        """ᾱ: the share of an action's variance that is left."""
        return np.cumprod(1.0 - self.betas)

    def noised(
        self, action: Float[Array, "b a"], noise: Float[Array, "b a"], time: Int[Array, " b"]
    ) -> Float[Array, "b a"]:
        kept = jnp.asarray(self.kept, action.dtype)[time, None]
        return jnp.sqrt(kept) * action + jnp.sqrt(1.0 - kept) * noise

    def sample(
        self, predict: NoisePredictor, x: Float[Array, "n i"], key: PRNGKeyArray
    ) -> Float[Array, "n a"]:
        """An action for each row: from pure noise, step by step, clipped to [−1, 1]."""
        size = predict.last.biases[-1].shape[-1]
        noise = jax.random.normal(key, (self.steps + 1, len(x), size)).at[0].set(0.0)  # none at the very end

        def step(action: Array, t: Array) -> tuple[Array, None]:
            beta, kept = (jnp.asarray(schedule)[t] for schedule in (self.betas, self.kept))
            error = predict(x, action, jnp.broadcast_to(t, len(x)))
            action = (action - beta / jnp.sqrt(1.0 - kept) * error) / jnp.sqrt(1.0 - beta)
            return jnp.clip(action + jnp.sqrt(beta) * noise[t], -1.0, 1.0), None

        return jax.lax.scan(step, noise[-1], jnp.arange(self.steps), reverse=True)[0]
