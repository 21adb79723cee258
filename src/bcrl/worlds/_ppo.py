"""The agent that records logs: PPO on reward minus a cost penalty that the agent is told.

One network behaves at every penalty, from greedy to cautious, so one training run visits the whole
reward–cost plane. It records data; it is not a comparison method. `worlds.collect` plays
the steps inside JAX, `worlds.remote.collect` in other processes.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

PENALTY = 10.0  # the heaviest, in units of the mean |reward| of a step
TRACE, CLIP = 0.95, 0.2
WIDTH = 64


@dataclass(frozen=True)
class Recipe:
    """Hyperparameters that differ between fast worlds and slow ones."""

    gamma: float
    entropy: float
    """Weight of the bonus for random actions."""
    log_std: float
    """Of the actions at the start."""
    epochs: int
    """Passes over the steps of a round."""
    minibatches: int
    """Per epoch."""
    learning_rate: float
    """At the start; a tenth at the end."""


class Agent(eqx.Module):
    """A Gaussian actor and a critic; both see the observation and the penalty's share."""

    actor: eqx.nn.MLP
    critic: eqx.nn.MLP
    log_std: jax.Array

    def __init__(self, key: jax.Array, observation_size: int, action_size: int, log_std: float):
        actor, critic = jax.random.split(key)
        self.actor = eqx.nn.MLP(observation_size + 1, action_size, WIDTH, 2, jnp.tanh, key=actor)
        self.critic = eqx.nn.MLP(observation_size + 1, "scalar", WIDTH, 2, jnp.tanh, key=critic)
        # With its type: else it is weakly typed before the first round alone, which compiles the round twice.
        self.log_std = jnp.full(action_size, log_std, jnp.float32)


class Played(NamedTuple):
    """T steps of N episodes side by side, with observations of order one."""

    observations: jax.Array  # (T, N, d)
    following: jax.Array  # (T, N, d): what the step led to
    drawn: jax.Array  # (T, N, a): before clipping
    rewards: jax.Array  # (T, N)
    costs: jax.Array  # (T, N)
    terminals: jax.Array  # (T, N)
    ends: jax.Array  # (T, N): the next row is of another episode, or of none
    alive: jax.Array  # (T, N): False in padding rows
    shares: jax.Array  # (T, N)


def draw_shares(key: jax.Array, steps: int, count: int) -> jax.Array:
    """The weight of cost in each episode's objective, (steps, count).

    With penalty u the share of cost is u / (1 + u), and the rest that of reward. Shares are drawn evenly
    between 0 and the heaviest, a sixth of them at either end. Half of the episodes draw anew at some step:
    where return is nearly linear in cost the best policy of a penalty is all or nothing, and only such
    episodes spend a middling cost well.
    """
    first, second, when, whether = jax.random.split(key, 4)
    heaviest = PENALTY / (1.0 + PENALTY)

    def draw(key: jax.Array) -> jax.Array:
        return heaviest * jnp.clip(jax.random.uniform(key, (count,), minval=-0.25, maxval=1.25), 0.0, 1.0)

    change = jnp.where(
        jax.random.bernoulli(whether, 0.5, (count,)), jax.random.randint(when, (count,), 0, steps), steps
    )
    return jnp.where(jnp.arange(steps)[:, None] < change, draw(first), draw(second))


def with_share(observations: Any, share: Any, concatenate: Any = jnp.concatenate) -> Any:
    """What the networks see; `concatenate` is numpy's where the actor runs in numpy."""
    return concatenate([observations, 2.0 * share[..., None] - 1.0], axis=-1)


class Batch(NamedTuple):
    inputs: jax.Array
    drawn: jax.Array
    log_density: jax.Array
    advantage: jax.Array
    target: jax.Array
    weight: jax.Array


def advantages(agent: Agent, played: Played, scale: jax.Array, gamma: float) -> Batch:
    """Generalised advantage estimates (Schulman et al. 2016) under each step's own penalty."""
    share = played.shares
    paid = (1.0 - share) * played.rewards / scale - share * played.costs
    # The root keeps reward from vanishing in cautious episodes; 1 − gamma makes values of order one.
    paid = paid * (1.0 - gamma) / jnp.sqrt(1.0 - share)
    critic = jax.vmap(jax.vmap(agent.critic))
    inputs = with_share(played.observations, share)
    values = critic(inputs)
    # Where the penalty changes, the return under the old one is unknown: bootstrap and start anew.
    following = critic(with_share(played.following, share)) * ~played.terminals
    goes_on = ~played.ends & (jnp.roll(share, -1, axis=0) == share)
    surprises = paid + gamma * following - values

    def back(later, inputs):
        surprise, goes_on = inputs
        estimate = surprise + gamma * TRACE * goes_on * later
        return estimate, estimate

    _, estimates = jax.lax.scan(back, jnp.zeros(share.shape[1]), (surprises, goes_on), reverse=True)
    means = jax.vmap(jax.vmap(agent.actor))(inputs)
    batch = Batch(
        inputs,
        played.drawn,
        _log_density(means, agent.log_std, played.drawn),
        estimates,
        estimates + values,
        played.alive.astype(jnp.float32),
    )
    return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), batch)


def loss(agent: Agent, batch: Batch, entropy: float) -> jax.Array:
    """The clipped surrogate of PPO (Schulman et al. 2017) with a value loss and an entropy bonus."""
    total = jnp.sum(batch.weight) + 1e-6
    centred = batch.advantage - jnp.sum(batch.advantage * batch.weight) / total
    advantage = centred / (jnp.sqrt(jnp.sum(centred**2 * batch.weight) / total) + 1e-6)
    means = jax.vmap(agent.actor)(batch.inputs)
    ratio = jnp.exp(_log_density(means, agent.log_std, batch.drawn) - batch.log_density)
    surrogate = jnp.minimum(ratio * advantage, jnp.clip(ratio, 1.0 - CLIP, 1.0 + CLIP) * advantage)
    value = (jax.vmap(agent.critic)(batch.inputs) - batch.target) ** 2
    # Means far outside the box would all clip to the same action and lose their gradient.
    outside = jnp.sum(jax.nn.relu(jnp.abs(means) - 1.0) ** 2, axis=-1)
    per_step = -surrogate + value + 0.1 * outside
    return jnp.sum(per_step * batch.weight) / total - entropy * jnp.sum(agent.log_std)


class Learner(NamedTuple):
    agent: Agent
    moments: Any  # of the optimiser
    scale: jax.Array  # running mean of |reward| a step


def optimiser(recipe: Recipe, rounds: int) -> optax.GradientTransformation:
    steps = rounds * recipe.epochs * recipe.minibatches
    rate = optax.linear_schedule(recipe.learning_rate, 0.1 * recipe.learning_rate, steps)
    return optax.chain(optax.clip_by_global_norm(0.5), optax.adam(rate, eps=1e-5))


def start_learner(
    key: jax.Array, observation_size: int, action_size: int, recipe: Recipe, rounds: int
) -> Learner:
    agent = Agent(key, observation_size, action_size, recipe.log_std)
    arrays: Any = eqx.filter(agent, eqx.is_array)
    return Learner(agent, optimiser(recipe, rounds).init(arrays), jnp.zeros(()))


def learn(learner: Learner, played: Played, key: jax.Array, recipe: Recipe, rounds: int) -> Learner:
    """One of `rounds` rounds: the learner after what was played. To be jitted by the caller."""
    agent, moments, scale = learner
    reward_size = jnp.sum(jnp.abs(played.rewards) * played.alive) / jnp.sum(played.alive)
    scale = jnp.where(scale == 0.0, reward_size, 0.9 * scale + 0.1 * reward_size)
    batch = advantages(agent, played, scale, recipe.gamma)
    arrays, functions = eqx.partition(agent, eqx.is_array)
    adam = optimiser(recipe, rounds)

    def update(carry: Any, indices: jax.Array) -> tuple[Any, None]:
        arrays, moments = carry
        part = jax.tree.map(lambda x: x[indices], batch)
        gradient = jax.grad(lambda arrays: loss(eqx.combine(arrays, functions), part, recipe.entropy))(arrays)
        changes, moments = adam.update(gradient, moments)
        return (optax.apply_updates(arrays, changes), moments), None

    steps = len(batch.weight)
    orders = jax.vmap(lambda key: jax.random.permutation(key, steps))(jax.random.split(key, recipe.epochs))
    orders = orders[:, : steps - steps % recipe.minibatches]
    orders = orders.reshape(recipe.epochs * recipe.minibatches, -1)
    (arrays, moments), _ = jax.lax.scan(update, (arrays, moments), orders)
    return Learner(eqx.combine(arrays, functions), moments, scale)


def _log_density(mean: jax.Array, log_std: jax.Array, drawn: jax.Array) -> jax.Array:
    """Of a diagonal Gaussian, up to a constant."""
    return jnp.sum(-0.5 * ((drawn - mean) / jnp.exp(log_std)) ** 2 - log_std, axis=-1)
