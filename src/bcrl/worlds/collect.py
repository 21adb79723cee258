"""Recording a log in a built-in world, for learning offline."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from bcrl.data import Dataset
from bcrl.errors import BCRLError
from bcrl.progress import progress
from bcrl.worlds._base import JaxWorld
from bcrl.worlds._ppo import Agent, Learner, Played, Recipe, draw_shares, learn, start_learner, with_share
from bcrl.worlds._recorder import Arrays, Recorder

TRANSITIONS = 200_000
STEPS = 6_000_000  # played and learned from; the log is a part of them
EPISODES = 256  # played side by side, then learned from
COST_CAP = 120.0  # an episode
# Steps are cheap here, so each is used in few updates.
RECIPE = Recipe(gamma=0.98, entropy=0.01, log_std=-0.2, epochs=3, minibatches=16, learning_rate=2e-3)


def collect(
    world: JaxWorld,
    transitions: int = TRANSITIONS,
    seed: int = 0,
    *,
    steps: int = STEPS,
    episodes: int = EPISODES,
    cost_cap: float = COST_CAP,
) -> Dataset:
    """A log of about `transitions` steps (whole episodes, so up to one episode more) that covers the plane.

    One agent, told each episode's penalty on cost, learns online from random to good. Its episodes of every
    age go to one recorder; those that cost at most `cost_cap` are thinned evenly over return and cost. So the
    log has safe and unsafe, good and bad behaviour, like the logs of the DSRL benchmark. A short log is drawn
    from the same `steps` as a long one, hence takes as long. The same seed gives the same log.
    """
    if transitions < world.horizon:
        raise BCRLError(
            f"transitions is {transitions}; one episode of {world.name} has up to {world.horizon}"
        )
    rounds = max(1, round(steps / (episodes * world.horizon)))
    start, *keys = jax.random.split(jax.random.key(seed), rounds + 1)
    learner = start_learner(start, world.observation_size, world.action_size, RECIPE, rounds)
    recorder = Recorder(transitions, cost_cap, seed)
    with progress(f"recording {world.name}", rounds * episodes, "episodes") as tick:
        for key in keys:
            learner, played = play_and_learn(world, learner, key, episodes, rounds)
            recorder.add(whole_episodes(played))
            tick(episodes, recorder.note)
    return Dataset.from_arrays(recorder.log(), source=f"{world.name}, noise {world.noise}, seed {seed}")


class Episodes(NamedTuple):
    """A batch of episodes, time first; `observations` has one more row in time."""

    observations: jax.Array  # (T + 1, N, d)
    drawn: jax.Array  # (T, N, a): before clipping
    rewards: jax.Array  # (T, N)
    costs: jax.Array  # (T, N)
    terminals: jax.Array  # (T, N)
    alive: jax.Array  # (T, N): False after a terminal
    shares: jax.Array  # (T, N)


@eqx.filter_jit
def play_and_learn(
    world: JaxWorld, learner: Learner, key: jax.Array, count: int, rounds: int
) -> tuple[Learner, Episodes]:
    """One round: `count` episodes are played, returned, and learnt from."""
    play, learn_key = jax.random.split(key)
    episodes = roll_out(world, learner.agent, play, count)
    played = Played(
        episodes.observations[:-1],
        episodes.observations[1:],
        episodes.drawn,
        episodes.rewards,
        episodes.costs,
        episodes.terminals,
        episodes.terminals,
        episodes.alive,
        episodes.shares,
    )
    return learn(learner, played, learn_key, RECIPE, rounds), episodes


def roll_out(world: JaxWorld, agent: Agent, key: jax.Array, count: int) -> Episodes:
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
        drawn = jax.vmap(agent.actor)(with_share(observation, share)) + noise
        state, reward, cost, terminal = jax.vmap(world.step)(state, jnp.clip(drawn, -1.0, 1.0), key)
        return (state, alive & ~terminal), (observation, drawn, reward, cost, terminal, alive)

    start = jax.vmap(world.reset)(jax.random.split(starts, count))
    (last, _), (observations, drawn, rewards, costs, terminals, alive) = jax.lax.scan(
        step, (start, jnp.ones(count, bool)), (shares, noise, keys)
    )
    observations = jnp.concatenate([observations, jax.vmap(world.observe)(last)[None]])
    return Episodes(observations, drawn, rewards, costs, terminals, alive, shares)


def whole_episodes(episodes: Episodes) -> Arrays:
    """The batch as a recorder takes it."""
    fields = {name: np.asarray(array) for name, array in episodes._asdict().items()}
    alive = fields["alive"].T
    lengths = alive.sum(1)
    observations = fields["observations"].swapaxes(0, 1)
    seen = np.arange(observations.shape[1]) <= lengths[:, None]
    return {
        "observations": observations[seen],
        "actions": np.clip(fields["drawn"], -1.0, 1.0).swapaxes(0, 1)[alive],
        "rewards": fields["rewards"].T[alive],
        "costs": fields["costs"].T[alive],
        "lengths": lengths,
        "ended": np.any(fields["terminals"].T & alive, axis=1),
        "returns": (fields["rewards"] * fields["alive"]).sum(0),
        "total_costs": (fields["costs"] * fields["alive"]).sum(0),
    }
