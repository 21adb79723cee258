"""The agent that records logs: PPO on reward minus a cost penalty that the agent is told.

One network behaves at every penalty, from greedy to cautious, so one training run visits the whole
reward–cost plane. It is here to make data, not to be a method of comparison.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

from bcrl.worlds.base import World

PENALTY = 10.0  # the heaviest, in units of the mean |reward| of a step
GAMMA, TRACE = 0.98, 0.95
CLIP, ENTROPY = 0.2, 0.01
EPOCHS, MINIBATCHES = 3, 16
LEARNING_RATE = 2e-3
WIDTH = 64


class Agent(eqx.Module):
    """A Gaussian actor and a critic; both see the observation and the penalty's share."""

    actor: eqx.nn.MLP
    critic: eqx.nn.MLP
    log_std: jax.Array

    def __init__(self, key: jax.Array, world: World):
        actor, critic = jax.random.split(key)
        inputs = world.observation_size + 1
        self.actor = eqx.nn.MLP(inputs, world.action_size, WIDTH, 2, jnp.tanh, key=actor)
        self.critic = eqx.nn.MLP(inputs, "scalar", WIDTH, 2, jnp.tanh, key=critic)
        self.log_std = jnp.full(world.action_size, -0.2)


class Episodes(NamedTuple):
    """What a batch of episodes left behind, time first; `observations` has one more row in time."""

    observations: jax.Array  # (T + 1, N, d)
    drawn: jax.Array  # (T, N, a): before clipping
    rewards: jax.Array  # (T, N)
    costs: jax.Array  # (T, N)
    terminals: jax.Array  # (T, N)
    alive: jax.Array  # (T, N): False after a terminal
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


def roll_out(world: World, agent: Agent, key: jax.Array, count: int) -> Episodes:
    """`count` whole episodes side by side."""
    steps = world.horizon
    starts, shares, actions, moves = jax.random.split(key, 4)
    shares = draw_shares(shares, steps, count)
    noise = jax.random.normal(actions, (steps, count, world.action_size)) * jnp.exp(agent.log_std)
    keys = jax.random.split(moves, (steps, count))

    def step(carry, inputs):
        state, alive = carry
        share, noise, key = inputs
        observation = jax.vmap(world.observe)(state)
        drawn = jax.vmap(agent.actor)(_with_share(observation, share)) + noise
        state, reward, cost, terminal = jax.vmap(world.step)(state, jnp.clip(drawn, -1.0, 1.0), key)
        return (state, alive & ~terminal), (observation, drawn, reward, cost, terminal, alive)

    start = jax.vmap(world.reset)(jax.random.split(starts, count))
    (last, _), (observations, drawn, rewards, costs, terminals, alive) = jax.lax.scan(
        step, (start, jnp.ones(count, bool)), (shares, noise, keys)
    )
    observations = jnp.concatenate([observations, jax.vmap(world.observe)(last)[None]])
    return Episodes(observations, drawn, rewards, costs, terminals, alive, shares)


class Batch(NamedTuple):
    inputs: jax.Array
    drawn: jax.Array
    log_density: jax.Array
    advantage: jax.Array
    target: jax.Array
    weight: jax.Array


def advantages(agent: Agent, episodes: Episodes, scale: jax.Array) -> Batch:
    """Generalised advantage estimates (Schulman et al. 2016) under each step's own penalty."""
    share = episodes.shares
    paid = (1.0 - share) * episodes.rewards / scale - share * episodes.costs
    # The root keeps the reward of cautious episodes audible; 1 − GAMMA makes values of order one.
    paid = paid * (1.0 - GAMMA) / jnp.sqrt(1.0 - share)
    critic = jax.vmap(jax.vmap(agent.critic))
    inputs = _with_share(episodes.observations[:-1], share)
    values = critic(inputs)
    # Where the penalty changes, the return under the old one is unknown: bootstrap and start anew.
    following = critic(_with_share(episodes.observations[1:], share)) * ~episodes.terminals
    goes_on = ~episodes.terminals & (jnp.roll(share, -1, axis=0) == share)
    surprises = paid + GAMMA * following - values

    def back(later, inputs):
        surprise, goes_on = inputs
        estimate = surprise + GAMMA * TRACE * goes_on * later
        return estimate, estimate

    _, estimates = jax.lax.scan(back, jnp.zeros(share.shape[1]), (surprises, goes_on), reverse=True)
    means = jax.vmap(jax.vmap(agent.actor))(inputs)
    batch = Batch(
        inputs,
        episodes.drawn,
        _log_density(means, agent.log_std, episodes.drawn),
        estimates,
        estimates + values,
        episodes.alive.astype(jnp.float32),
    )
    return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), batch)


def loss(agent: Agent, batch: Batch) -> jax.Array:
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
    return jnp.sum(per_step * batch.weight) / total - ENTROPY * jnp.sum(agent.log_std)


class Learner(NamedTuple):
    agent: Agent
    moments: Any  # of the optimiser
    scale: jax.Array  # running mean of |reward| a step


def optimiser(rounds: int) -> optax.GradientTransformation:
    rate = optax.linear_schedule(LEARNING_RATE, 0.1 * LEARNING_RATE, rounds * EPOCHS * MINIBATCHES)
    return optax.chain(optax.clip_by_global_norm(0.5), optax.adam(rate, eps=1e-5))


def start_learner(world: World, key: jax.Array, rounds: int) -> Learner:
    agent = Agent(key, world)
    arrays: Any = eqx.filter(agent, eqx.is_array)
    return Learner(agent, optimiser(rounds).init(arrays), jnp.zeros(()))


@eqx.filter_jit
def play_and_learn(
    world: World, learner: Learner, key: jax.Array, count: int, rounds: int
) -> tuple[Learner, Episodes]:
    """One round: `count` episodes are played, returned, and learnt from."""
    play, learn = jax.random.split(key)
    agent, moments, scale = learner
    episodes = roll_out(world, agent, play, count)
    reward_size = jnp.sum(jnp.abs(episodes.rewards) * episodes.alive) / jnp.sum(episodes.alive)
    scale = jnp.where(scale == 0.0, reward_size, 0.9 * scale + 0.1 * reward_size)
    batch = advantages(agent, episodes, scale)
    arrays, functions = eqx.partition(agent, eqx.is_array)
    adam = optimiser(rounds)

    def update(carry: Any, indices: jax.Array) -> tuple[Any, None]:
        arrays, moments = carry
        part = jax.tree.map(lambda x: x[indices], batch)
        gradient = jax.grad(lambda arrays: loss(eqx.combine(arrays, functions), part))(arrays)
        changes, moments = adam.update(gradient, moments)
        return (optax.apply_updates(arrays, changes), moments), None

    steps = len(batch.weight)
    orders = jax.vmap(lambda key: jax.random.permutation(key, steps))(jax.random.split(learn, EPOCHS))
    orders = orders[:, : steps - steps % MINIBATCHES].reshape(EPOCHS * MINIBATCHES, -1)
    (arrays, moments), _ = jax.lax.scan(update, (arrays, moments), orders)
    return Learner(eqx.combine(arrays, functions), moments, scale), episodes


def _with_share(observations: jax.Array, share: jax.Array) -> jax.Array:
    return jnp.concatenate([observations, 2.0 * share[..., None] - 1.0], axis=-1)


def _log_density(mean: jax.Array, log_std: jax.Array, drawn: jax.Array) -> jax.Array:
    """Of a diagonal Gaussian, up to a constant."""
    return jnp.sum(-0.5 * ((drawn - mean) / jnp.exp(log_std)) ** 2 - log_std, axis=-1)
