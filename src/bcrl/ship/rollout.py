"""Episodes in chosen scenarios, recorded step by step: of policies, and of the experts themselves."""

from dataclasses import dataclass
from typing import Any, Protocol

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from bcrl.budget import Execution
from bcrl.errors import BCRLError
from bcrl.learn.protocol import Actor, Goal
from bcrl.policy import Policy
from bcrl.progress import progress
from bcrl.ship.scenario import GOAL_METRES, Scenarios
from bcrl.ship.simulator import ShipState, ShipWorld

SEGMENT = 64
"""Steps between two looks at whether any ship still sails: most are done long before the longest."""


@dataclass(frozen=True)
class Voyages:
    """What happened, one row per episode. After an episode's end its rows repeat nothing: see `sailing`."""

    scenario: np.ndarray
    """(episodes,)."""
    threshold: np.ndarray
    """(episodes,) what it was allowed to cost; infinite for experts."""
    path: np.ndarray
    """(episodes, steps + 1, 5): x, y, speed to the east, speed to the north, heading, from the start on."""
    sailing: np.ndarray
    """(episodes, steps) whether the step was made."""
    reward: np.ndarray
    """(episodes, steps), 0 after the end."""
    cost: np.ndarray
    """(episodes, steps), 0 after the end."""
    fallback: np.ndarray
    """(episodes, steps) whether the fallback chose the action."""
    success: np.ndarray
    """(episodes,) whether the goal was reached."""

    @property
    def lengths(self) -> np.ndarray:
        """(episodes,) steps made."""
        return self.sailing.sum(axis=1)


class Driver(Protocol):
    """Who steers: its memory is a PyTree, one per episode."""

    def act(self, memory: Any, world: ShipWorld, state: ShipState) -> tuple[jax.Array, Any, jax.Array]:
        """The action, the next memory, and whether a fallback chose."""
        ...

    def observe(self, memory: Any, cost: jax.Array, reward: jax.Array) -> Any: ...


class PolicyDriver(eqx.Module):
    """A trained policy at the wheel."""

    actor: Actor

    def act(self, memory: Any, world: ShipWorld, state: ShipState) -> tuple[jax.Array, Any, jax.Array]:
        action, memory, insight = self.actor.act(memory, world.observe(state))
        return action, memory, insight.fallback

    def observe(self, memory: Any, cost: jax.Array, reward: jax.Array) -> Any:
        return self.actor.observe(memory, cost[None], reward)


class ExpertDriver(eqx.Module):
    """The logged ship itself. Its memory is its own track (steps + 1, 3): x, y, heading."""

    def act(self, memory: Any, world: ShipWorld, state: ShipState) -> tuple[jax.Array, Any, jax.Array]:
        # An expert who goes on after its log ends stays where it is.
        x, y, heading = memory[jnp.minimum(state.step + 1, len(memory) - 1)]
        return world.action_between(state, jnp.stack([x, y]), heading), memory, jnp.zeros((), bool)

    def observe(self, memory: Any, cost: jax.Array, reward: jax.Array) -> Any:
        return memory


def sail(
    policy: Policy,
    world: ShipWorld,
    scenario: np.ndarray,
    threshold: np.ndarray,
    *,
    seed: int = 0,
    execution: Execution | None = None,
    prune: int = 0,
) -> Voyages:
    """One episode per entry of `scenario` and `threshold`; each scenario's own time limit is its horizon."""
    sizes = (policy.spec.observation_size, policy.spec.action_size, policy.spec.cost_count)
    theirs = (world.observation_size, world.action_size, world.cost_count)
    if sizes != theirs:
        raise BCRLError(
            f"the policy has (observations, actions, costs) {sizes}, but the ship world {theirs} "
            f"in the frame {world.frame!r}: train on a log from bcrl ship log, and use the frame of that log"
        )
    goal = policy.goal(
        threshold=threshold, horizon=np.asarray(world.limit)[scenario], execution=execution, prune=prune
    )
    keys = jax.random.split(jax.random.key(seed), len(scenario))
    memory = _start(policy.actor, keys, goal)
    return _voyages(world, PolicyDriver(policy.actor), memory, scenario, np.asarray(threshold, float), seed)


def replay(world: ShipWorld, scenarios: Scenarios, scenario: np.ndarray) -> Voyages:
    """The experts of these scenarios, through the same steps, limits and judgement as a policy."""
    longest = int(scenarios.steps[scenario].max()) + 1
    tracks = np.empty((len(scenario), longest, 3), np.float32)
    for row, index in enumerate(scenario):
        samples = scenarios.expert(index)[:, [0, 1, 3]]
        tracks[row, : len(samples)] = samples
        tracks[row, len(samples) :] = samples[-1]
    free = np.full(len(scenario), np.inf)
    return _voyages(world, ExpertDriver(), jnp.asarray(tracks), scenario, free, 0)


def _voyages(
    world: ShipWorld, driver: Driver, memory: Any, scenario: np.ndarray, threshold: np.ndarray, seed: int
) -> Voyages:
    scenario = np.asarray(scenario)
    states = _begin(world, jnp.asarray(scenario, jnp.int32))
    start = np.asarray(states.past[:, -1])
    carry = (states, memory, jnp.ones(len(scenario), bool))
    longest = int(np.asarray(world.limit)[scenario].max())
    keys = jax.random.split(jax.random.fold_in(jax.random.key(seed), 1), longest + SEGMENT)
    parts: list[list[np.ndarray]] = []
    with progress("sailing", longest, "steps") as tick:
        for low in range(0, longest, SEGMENT):
            carry, rows = _segment(world, driver, carry, keys[low : low + SEGMENT])
            parts.append([np.asarray(row).swapaxes(0, 1) for row in rows])
            done = not carry[2].any()
            tick(longest - low if done else min(SEGMENT, longest - low))
            if done:
                break
    path, sailing, reward, cost, fallback, reached = (
        np.concatenate(columns, axis=1) for columns in zip(*parts, strict=True)
    )
    return Voyages(
        scenario=scenario,
        threshold=threshold,
        path=np.concatenate([start[:, None], path], axis=1),
        sailing=sailing,
        reward=reward,
        cost=cost,
        fallback=fallback,
        success=np.any(reached, axis=1),
    )


@eqx.filter_jit
def _start(actor: Actor, keys: jax.Array, goals: Goal) -> Any:
    return eqx.filter_vmap(actor.start)(keys, goals)


@eqx.filter_jit
def _begin(world: ShipWorld, scenario: jax.Array) -> ShipState:
    return jax.vmap(world.begin)(scenario)


@eqx.filter_jit
def _segment(world: ShipWorld, driver: Driver, carry: Any, keys: jax.Array) -> tuple[Any, tuple]:
    """Some steps of all episodes; the ones that have ended stay where they are."""

    def one(state: ShipState, memory: Any, sailing: jax.Array, key: jax.Array) -> tuple:
        action, memory, fallback = driver.act(memory, world, state)
        after, reward, cost, terminal = world.step(state, action, key)
        memory = driver.observe(memory, cost, reward)
        reached = world.to_goal(after) < GOAL_METRES
        state = jax.tree.map(lambda new, old: jnp.where(sailing, new, old), after, state)
        row = (
            state.past[-1],
            sailing,
            reward * sailing,
            cost * sailing,
            fallback & sailing,
            reached & sailing,
        )
        return (state, memory, sailing & ~terminal), row

    def step(carry: Any, key: jax.Array) -> tuple[Any, tuple]:
        keys = jax.random.split(key, len(carry[2]))
        return eqx.filter_vmap(one)(*carry, keys)

    return jax.lax.scan(step, carry, keys)
