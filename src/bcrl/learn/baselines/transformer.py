"""The sequence policy of CDT: a causal transformer over tokens (return to go, cost to go, state, action)."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from bcrl.learn.baselines.parts import dropout
from bcrl.learn.networks import LOG_STD_RANGE
from bcrl.learn.stages import stage

TOKENS = 4  # per step: return to go, cost to go, state, action
ANSWERS = 2  # the last two of them are read: the state's token for the action, the action's for the cost


class Linear(eqx.Module):
    weight: Float[Array, "*n i o"]
    bias: Float[Array, "*n o"]

    def __init__(self, key: PRNGKeyArray, *shape: int):
        """(inputs, outputs), and before them how many are stacked."""
        self.weight = 0.02 * jax.random.normal(key, shape)
        self.bias = jnp.zeros((*shape[:-2], shape[-1]))

    def __call__(self, x: Float[Array, "*b i"]) -> Float[Array, "*b o"]:
        return x @ self.weight.astype(x.dtype) + self.bias.astype(x.dtype)


class Block(eqx.Module):
    """x + attention(norm(x)), then x + mlp(norm(x)).

    The norms have no scale and offset: the linear maps that follow would only repeat them.
    """

    query: Linear
    key_and_value: Linear
    mix: Linear
    up: Linear
    down: Linear
    heads: int = eqx.field(static=True)
    dropout: float = eqx.field(static=True)

    def __init__(self, layers: int, width: int, heads: int, dropout: float, key: PRNGKeyArray):
        """All layers stacked on axis 0: a few large arrays are what the optimiser is fast with."""
        keys = jax.random.split(key, 5)
        self.query = Linear(keys[0], layers, width, width)
        self.key_and_value = Linear(keys[1], layers, width, 2 * width)
        self.mix = Linear(keys[2], layers, width, width)
        self.up = Linear(keys[3], layers, width, 4 * width)
        self.down = Linear(keys[4], layers, 4 * width, width)
        self.heads = heads
        self.dropout = dropout

    def __call__(
        self, x: Float[Array, "*b t w"], kept: int, key: PRNGKeyArray | None
    ) -> Float[Array, "*b q w"]:
        """What the last `kept` tokens of each step become; each sees itself and what came before it."""
        attention_key, mix_key, mlp_key = (None,) * 3 if key is None else jax.random.split(key, 3)
        normal, place = norm(x), np.arange(x.shape[-2])
        sees = last_tokens(place[:, None], kept) >= place
        query = self.query(last_tokens(normal, kept))
        mixed = self.attention(query, self.key_and_value(normal), sees, attention_key)
        x = last_tokens(x, kept) + dropout(self.mix(mixed), self.dropout, mix_key)
        return x + dropout(self.mlp(x), self.dropout, mlp_key)

    @stage("mlp")
    def mlp(self, x: Float[Array, "*b q w"]) -> Float[Array, "*b q w"]:
        return self.down(jax.nn.gelu(self.up(norm(x)), approximate=False))

    @stage("attention")
    def attention(
        self,
        query: Float[Array, "*b q w"],
        key_and_value: Float[Array, "*b t v"],
        sees: Bool[np.ndarray, "q t"],
        key: PRNGKeyArray | None,
    ) -> Float[Array, "*b q w"]:
        """softmax(q kᵀ/√h) v in each head of h units. The fused form has what `sees` says built in."""
        if can_fuse(query, key_and_value, self.heads):
            from bcrl.learn.baselines.attention import fused_attention  # Pallas takes 0.3 s to import

            return fused_attention(
                query, key_and_value, heads=self.heads, group=TOKENS, rate=self.dropout, key=key
            )
        query = query.reshape(*query.shape[:-1], self.heads, -1)
        keys, values = jnp.split(key_and_value, 2, axis=-1)
        keys, values = (x.reshape(*x.shape[:-1], self.heads, -1) for x in (keys, values))
        scores = jnp.einsum("...qhd,...khd->...hqk", query, keys) / query.shape[-1] ** 0.5
        weights = jax.nn.softmax(jnp.where(sees, scores.astype(self.mix.bias.dtype), -jnp.inf))
        weights = dropout(weights.astype(values.dtype), self.dropout, key)
        mixed = jnp.einsum("...hqk,...khd->...qhd", weights, values)
        return mixed.reshape(*mixed.shape[:-2], -1)


def can_fuse(query: Float[Array, "*b q w"], key_and_value: Float[Array, "*b t v"], heads: int) -> bool:
    """Whether attention can be one kernel: bfloat16, sizes that were tried, and a GPU that multiplies it."""
    units = query.shape[-1] // heads
    if query.dtype != jnp.bfloat16 or units not in (16, 32, 64) or key_and_value.shape[-2] > 64:
        return False
    device = jax.devices()[0]
    if jax.config.jax_default_device is not None or device.platform != "gpu":  # pyright: ignore[reportAttributeAccessIssue]
        return False
    return "NVIDIA" in device.device_kind and float(device.compute_capability) >= 8.0


class SequencePolicy(eqx.Module):
    """π(a_t | the last steps), and the logits of whether a_t costs something."""

    goals: Linear  # return and cost to go, stacked
    states: Linear
    actions: Linear
    times: Float[Array, "l w"]
    scale: Float[Array, " w"]  # of the first norm
    offset: Float[Array, " w"]
    blocks: Block
    act: Linear
    foresee: Linear

    def __init__(
        self,
        observation_size: int,
        action_size: int,
        longest: int,
        *,
        width: int,
        layers: int,
        heads: int,
        dropout: float,
        key: PRNGKeyArray,
    ):
        keys = jax.random.split(key, 7)
        self.goals = Linear(keys[0], 2, 1, width)
        self.states = Linear(keys[1], observation_size, width)
        self.actions = Linear(keys[2], action_size, width)
        self.times = 0.02 * jax.random.normal(keys[3], (longest, width))
        self.scale, self.offset = jnp.ones(width), jnp.zeros(width)
        self.blocks = Block(layers, width, heads, dropout, keys[4])
        self.act = Linear(keys[5], width, 2 * action_size)
        self.foresee = Linear(keys[6], width, 2)

    def __call__(
        self,
        goals: Float[Array, "*b k 2"],
        states: Float[Array, "*b k d"],
        actions: Float[Array, "*b k a"],
        time: Int[Array, "*b k"],
        key: PRNGKeyArray | None = None,
        half: bool = False,
    ) -> tuple[Float[Array, "*b k a"], Float[Array, "*b k a"], Float[Array, "*b k 2"]]:
        """Mean and log standard deviation of each step's action, and logits of "costs nothing, something".

        A step's action is chosen before its own token is read, so whatever stands there does not matter.
        Dropout acts only where a key is given, that is in training. `half` passes tokens on as bfloat16.
        """
        steps = goals.shape[-2]
        layers = self.blocks.mix.weight.shape[0]
        keys = (None,) * (layers + 1) if key is None else jax.random.split(key, layers + 1)
        x = norm(self.embed(goals, states, actions, time)) * self.scale + self.offset
        x = dropout(x.astype(jnp.bfloat16) if half else x, self.blocks.dropout, keys[0])
        for layer in range(layers):
            block = jax.tree.map(lambda p, layer=layer: p[layer], self.blocks)
            # Only some tokens are read at the end, so the last block need not work on the others.
            x = block(x, TOKENS if layer < layers - 1 else ANSWERS, keys[layer + 1])
        x = norm(x.astype(self.scale.dtype))
        x = x.reshape(*x.shape[:-2], steps, ANSWERS, -1)
        mean, log_std = jnp.split(self.act(x[..., 0, :]), 2, axis=-1)
        return mean, jnp.clip(log_std, *LOG_STD_RANGE), self.foresee(x[..., 1, :])

    @stage("embedding")
    def embed(self, goals: Array, states: Array, actions: Array, time: Array) -> Float[Array, "*b t w"]:
        """The tokens, step by step, each with the time of its step."""
        wishes = goals[..., None] * self.goals.weight[:, 0] + self.goals.bias
        both = [self.states(states), self.actions(actions)]
        tokens = jnp.concatenate([wishes, jnp.stack(both, axis=-2)], axis=-2)
        tokens = tokens + self.times[time][..., None, :]
        return tokens.reshape(*tokens.shape[:-3], -1, tokens.shape[-1])


def last_tokens(x: Any, kept: int) -> Any:
    """Of rows of tokens (..., t, w), the last `kept` tokens of each step."""
    steps = x.reshape(*x.shape[:-2], -1, TOKENS, x.shape[-1])[..., TOKENS - kept :, :]
    return steps.reshape(*x.shape[:-2], -1, x.shape[-1])


def norm(x: Float[Array, "*b w"]) -> Float[Array, "*b w"]:
    """LayerNorm: mean 0 and variance 1 over a token, reckoned in full precision."""
    wide = x if x.dtype == jnp.float64 else x.astype(jnp.float32)
    return jax.nn.standardize(wide, epsilon=1e-5).astype(x.dtype)
