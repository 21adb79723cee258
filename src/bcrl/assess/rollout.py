"""Episodes of a policy in a world: one step of acting, run by one of two engines.

`scan` runs worlds that are pure JAX functions, `pool` Gymnasium environments. Both run every threshold and
episode in one batch.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from bcrl.assess.recording import Recording
from bcrl.budget import Execution
from bcrl.errors import BCRLError
from bcrl.learn.protocol import Actor, Goal, Insight
from bcrl.policy import Policy
from bcrl.progress import Tick
from bcrl.worlds import JaxWorld, World
from bcrl.worlds.remote.pool import Envs, Rows
from bcrl.worlds.tasks import Task

SEGMENT = 64
"""At most this many steps of a scan between two looks at whether any episode still runs."""


@dataclass(frozen=True)
class Episodes:
    """What happened, one row per threshold and one column per episode."""

    returns: np.ndarray
    costs: np.ndarray
    lengths: np.ndarray
    fallback_share: np.ndarray


def roll_out(
    policy: Policy,
    world: World,
    thresholds: Sequence[float],
    *,
    episodes: int = 20,
    seed: int = 0,
    execution: Execution | None = None,
    candidates: int = 0,
    calibrated: bool = False,
    envs: Envs | None = None,
    record: Recording | None = None,
    tick: Tick = lambda advance=1, note="": None,
) -> Episodes:
    """`episodes` episodes at each threshold; the same starts and noise at all of them.

    `envs` are open environments of a world that runs in a pool, to be kept for the next policy; `record` is
    given every transition; `tick` counts episodes.
    """
    world.check(policy.spec)
    if world.cost_count != 1:
        raise BCRLError(f"{world.name} has {world.cost_count} costs, but results are of one")
    shape = (len(thresholds), episodes)
    horizon = world.horizon or policy.spec.horizon
    goal = policy.goal(
        threshold=np.repeat(thresholds, episodes),
        horizon=horizon,
        execution=execution,
        candidates=candidates,
        calibrated=calibrated,
    )
    if world.engine == "scan":
        key = jax.random.key(seed)
        states, begun, keys = _begin(policy.actor, cast(JaxWorld, world), goal, key, shape)
        rows, steps = scan(
            policy.actor, cast(JaxWorld, world), states, begun, keys, record=record is not None
        )
        if record is not None:
            record.add_scan(rows, *steps)
        totals = np.asarray(jnp.sum(rows, axis=0))
        tick(len(totals))
    elif envs is None:
        with cast(Task, world).open(len(thresholds) * episodes) as opened:
            totals = pool(policy, goal, opened, shape, seed, horizon, record, tick)
    else:
        totals = pool(policy, goal, envs, shape, seed, horizon, record, tick)
    returns, costs, lengths, fallback = (column.reshape(shape) for column in totals.T)
    return Episodes(returns, costs, lengths, fallback / lengths)


def next_action(
    actor: Actor, begun: Any, memory: Any, fresh: Any, cost: Any, reward: Any, observation: Any
) -> tuple[jax.Array, Any, Insight]:
    """The one step of acting: begins what is fresh, else takes in what the last action cost; then acts.

    `begun` is the memory of an episode that has just begun, `memory` that after the last action.
    """
    informed = actor.observe(memory, cost, reward)
    current = jax.tree.map(lambda new, old: jnp.where(fresh, new, old), begun, informed)
    return actor.act(current, observation)


@eqx.filter_jit
def start(actor: Actor, keys: jax.Array, goal: Goal) -> Any:
    """The memories of new episodes, one for each key."""
    return eqx.filter_vmap(actor.start)(keys, goal)


# The engine of JAX worlds.


class _Running(NamedTuple):
    """The episodes of a scan between two steps."""

    state: Any
    memory: Any
    cost: jax.Array | np.ndarray
    reward: jax.Array | np.ndarray
    alive: jax.Array | np.ndarray


def scan(
    actor: Actor,
    world: JaxWorld,
    states: Any,
    begun: Any,
    keys: jax.Array,
    *,
    observe: Callable[[Any], Any] | None = None,
    record: bool = False,
    tick: Tick = lambda advance=1, note="": None,
) -> tuple[np.ndarray, Any]:
    """Rows (steps made, n, 3 + k) of n episodes: reward, k costs, 1, whether the fallback acted; then 0.

    Then `world.trace` after every step, with leaves (steps made, n, ...); with `record` instead the
    observation, the action, whether it ended the episode, and the observation after it.

    `states` and `begun` are the first states and memories, `keys` (steps, n) those of the world's steps.
    `observe` is what the actor is shown of a state, by default the world's observation. `tick` counts steps.
    """
    steps, count = keys.shape
    length = -(-steps // -(-steps // SEGMENT))  # equal segments, so that one program runs them all
    # By numpy and in one program: outside of one, jax would compile every operation for each shape.
    zero = np.zeros(count, np.float32)
    now = _Running(states, begun, np.zeros((count, world.cost_count), np.float32), zero, zero == 0)
    parts = []
    for low, part in zip(range(0, steps, length), _cut(keys, length), strict=True):
        bounds = np.array([low, steps], np.int32)
        now, recorded = _segment(actor, world, observe or world.observe, record, begun, now, part, bounds)
        parts.append(recorded)
        ended = not np.asarray(now.alive).any()
        tick(steps - low if ended else min(length, steps - low))
        if ended:
            break
    rows, trace = jax.tree.map(lambda *pieces: np.concatenate(pieces)[:steps], *parts)
    _check(rows, world)
    return rows, trace


@partial(jax.jit, static_argnames="length")
def _cut(keys: jax.Array, length: int) -> list[jax.Array]:
    """Segments of one length; the last is filled with keys that are not used."""
    filled = jnp.concatenate([keys, keys[: -len(keys) % length]])
    return [filled[low : low + length] for low in range(0, len(keys), length)]


def _check(rows: np.ndarray, world: JaxWorld) -> None:
    """Refuses rewards that are not finite, and costs that are not finite or negative."""
    bad = ~np.isfinite(rows[..., :-2])
    bad[..., 1:] |= rows[..., 1:-2] < 0
    if bad.any():
        step, episode, column = (int(place[0]) for place in np.nonzero(bad))
        raise BCRLError(
            f"{world.name}: in episode {episode} the {'cost' if column else 'reward'} of step {step} is "
            f"{rows[step, episode, column]:g}; rewards must be finite, costs also 0 or more"
        )


@eqx.filter_jit
def _begin(
    actor: Actor, world: JaxWorld, goal: Goal, key: jax.Array, shape: tuple[int, int]
) -> tuple[Any, Any, jax.Array]:
    """First states, first memories, and the keys (steps, n) of the world's steps; alike at all thresholds."""
    thresholds, episodes = shape
    keys = jnp.tile(jax.random.split(key, episodes), thresholds)

    def one(goal: Goal, key: jax.Array) -> tuple[Any, Any, jax.Array]:
        reset, act, move = jax.random.split(key, 3)
        return world.reset(reset), actor.start(act, goal), jax.random.split(move, world.horizon)

    states, begun, moves = eqx.filter_vmap(one)(goal, keys)
    return states, begun, moves.swapaxes(0, 1)


@eqx.filter_jit
def _segment(
    actor: Actor,
    world: JaxWorld,
    observe: Any,
    record: bool,
    begun: Any,
    now: _Running,
    keys: jax.Array,
    bounds: np.ndarray,
) -> tuple[_Running, Any]:
    """Some steps of all episodes; the ones that have ended stay where they are."""

    def one(now: _Running, begun: Any, key: jax.Array, step: jax.Array) -> tuple[_Running, Any]:
        seen = observe(now.state)
        action, memory, insight = next_action(actor, begun, now.memory, step == 0, now.cost, now.reward, seen)
        after, reward, cost, terminal = world.step(now.state, action, key)
        spent = jnp.reshape(cost, -1)
        row = jnp.concatenate([reward[None], spent, jnp.stack([jnp.ones_like(reward), insight.fallback])])
        alive = now.alive & (step < steps)
        state = jax.tree.map(lambda new, old: jnp.where(alive, new, old), after, now.state)
        after = _Running(state, memory, jnp.reshape(cost, now.cost.shape), reward, alive & ~terminal)
        kept = (seen, action, terminal, observe(state)) if record else world.trace(state)
        return after, (jnp.where(alive, row, 0.0), kept)

    def step(now: _Running, inputs: Any) -> tuple[_Running, Any]:
        keys, number = inputs
        return eqx.filter_vmap(one, in_axes=(0, 0, 0, None))(now, begun, keys, number)

    low, steps = bounds
    return jax.lax.scan(step, now, (keys, low + jnp.arange(len(keys))))


# The engine of Gymnasium environments.


def pool(
    policy: Policy,
    goal: Goal,
    envs: Envs,
    shape: tuple[int, int],
    seed: int,
    horizon: int,
    record: Recording | None,
    tick: Tick,
) -> np.ndarray:
    """(n, 4) return, cost, length and steps of the fallback of n = thresholds × episodes episodes.

    An episode follows from (seed, its number) alone, so neither the number of workers nor a crash changes
    what comes out. `tick` counts episodes.
    """
    if seed < 0:
        raise BCRLError(f"seed is {seed}, but must be 0 or more")
    thresholds, episodes = shape
    numbers = jnp.tile(jnp.arange(episodes), thresholds)
    begun = start(policy.actor, jax.vmap(jax.random.fold_in, (None, 0))(jax.random.key(seed), numbers), goal)
    memory, count = begun, thresholds * episodes
    observations = np.zeros((count, policy.spec.observation_size), np.float32)
    actions = np.zeros((count, policy.spec.action_size), np.float32)
    costs, rewards = np.zeros((count, 1), np.float32), np.zeros(count, np.float32)
    totals, fresh = np.zeros((count, 4)), np.ones(count, bool)
    rows = Rows(count)
    steps: list[list[tuple[Any, ...]]] = [[] for _ in range(count)]
    while rows.open:
        if running := rows.running:
            # Always the whole batch: its shape does not depend on how many slots there are, so that an
            # episode's numbers do not either.
            chosen, memory, insight = _decide(
                policy.actor, begun, memory, fresh, costs, rewards, observations
            )
            actions = np.asarray(chosen)
            totals[running, 3] += np.asarray(insight.fallback)[running]
            fresh[running] = False
        outcome = rows.round(envs, actions, lambda row: episode_seed(seed, row % episodes))
        before = observations.copy()
        for row, seen in outcome.seen.items():
            observations[row] = seen
            if row not in outcome.stepped:  # a new episode, or one begun again
                totals[row], fresh[row], steps[row] = 0.0, True, []
        ended = []
        for row, (reward, cost, terminal, timeout) in outcome.stepped.items():
            rewards[row], costs[row] = reward, cost
            totals[row, :3] += reward, cost, 1.0
            if record is not None:
                steps[row].append((before[row], actions[row], reward, cost, terminal, outcome.seen[row]))
            if terminal or timeout or totals[row, 2] >= horizon:
                ended.append(row)
        rows.end(ended)
        if ended:
            tick(len(ended))
    if record is not None:
        record.add_pool(steps)
    return totals


def episode_seed(seed: int, number: int) -> int:
    """The seed of an episode's environment, below 2³² as old generators want it."""
    return int(np.random.SeedSequence([seed, number]).generate_state(1)[0])


@eqx.filter_jit
def _decide(actor: Actor, *rows: Any) -> tuple[jax.Array, Any, Insight]:
    """`next_action` of all rows in one call."""
    arrays = jax.tree.map(jnp.asarray, rows)
    return eqx.filter_vmap(lambda *row: next_action(actor, *row))(*arrays)
