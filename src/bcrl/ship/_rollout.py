"""Episodes in chosen scenarios, recorded step by step: of policies, and of the experts themselves."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from bcrl.assess.rollout import SEGMENT, scan, start
from bcrl.budget import Execution
from bcrl.learn.protocol import Insight
from bcrl.policy import Policy
from bcrl.progress import progress
from bcrl.ship._scenarios import Held, Scenarios
from bcrl.ship._simulator import Frame, ShipState, ShipWorld, make_ship_world
from bcrl.ship._water import known_water

OFF_WATER = 2.0
"""Steps off known water that a policy of two costs is allowed by default."""


@dataclass(frozen=True)
class Voyages:
    """Episodes, one row each; `sailing` marks the steps before the end."""

    scenario: np.ndarray
    """(episodes,)."""
    threshold: np.ndarray
    """(episodes,) the threshold of each; infinite for experts."""
    path: np.ndarray
    """(episodes, steps + 1, 5): x, y, speed to the east, speed to the north, heading, from the start on."""
    sailing: np.ndarray
    """(episodes, steps) whether the step was made."""
    reward: np.ndarray
    """(episodes, steps), 0 after the end."""
    cost: np.ndarray
    """(episodes, steps) 1 in close quarters, 0 after the end."""
    fallback: np.ndarray
    """(episodes, steps) whether the fallback chose the action."""
    success: np.ndarray
    """(episodes,) whether the goal was reached."""

    @property
    def lengths(self) -> np.ndarray:
        """(episodes,) steps made."""
        return self.sailing.sum(axis=1)


class Expert(eqx.Module):
    """An actor that repeats a logged track. It is shown the state; its memory is the track (steps + 1, 3)."""

    world: ShipWorld

    def act(self, memory: jax.Array, observation: ShipState) -> tuple[jax.Array, Any, Insight]:
        # After the log ends the expert stays where it is.
        x, y, heading = memory[jnp.minimum(observation.step + 1, len(memory) - 1)]
        action = self.world.action_between(observation, jnp.stack([x, y]), heading)
        return action, memory, Insight(jnp.full(1, jnp.inf), jnp.zeros((), bool))

    def observe(self, memory: Any, cost: jax.Array, reward: jax.Array) -> Any:
        return memory


def sail(
    policy: Policy,
    world: ShipWorld,
    scenario: np.ndarray,
    threshold: np.ndarray,
    *,
    off_water: float = OFF_WATER,
    seed: int = 0,
    execution: Execution | None = None,
    candidates: int = 0,
) -> Voyages:
    """One episode per entry of `scenario` and `threshold`; each scenario's own time limit is its horizon.

    In a world of two costs, `off_water` steps off known water are allowed too.
    """
    world.check(policy.spec)
    allowed = np.asarray(threshold, float)
    if world.cost_count == 2:
        allowed = np.stack([allowed, np.full(len(allowed), off_water)], axis=1)
    goal = policy.goal(
        threshold=allowed,
        horizon=np.asarray(world.limit)[scenario],
        execution=execution,
        candidates=candidates,
    )
    begun = start(policy.actor, jax.random.split(jax.random.key(seed), len(scenario)), goal)
    return _voyages(policy.actor, world, begun, scenario, np.asarray(threshold, float), seed)


def sail_all(
    policies: Mapping[str, Policy],
    scenarios: Scenarios,
    which: Sequence[int] | np.ndarray,
    thresholds: Sequence[float] | np.ndarray,
    *,
    off_water: float = OFF_WATER,
    seed: int = 0,
    frame: Frame = "ego",
    execution: Execution | None = None,
) -> dict[str, Voyages]:
    """One episode of every policy, by its name, in each of these scenarios at each threshold."""
    if not policies:
        return {}
    world = make_ship_world(scenarios, frame=frame)
    scenario, threshold = np.repeat(which, len(thresholds)), np.tile(thresholds, len(which))
    more: Any = {"off_water": off_water, "seed": seed, "execution": execution}
    return {
        name: sail(policy, world_for(policy, world, scenarios), scenario, threshold, **more)
        for name, policy in policies.items()
    }


def world_for(policy: Policy, world: ShipWorld, scenarios: Scenarios, part: Held = "test") -> ShipWorld:
    """The world with the costs of the policy: it, or the same with leaving known water as a second cost."""
    if policy.spec.cost_count == 1:
        return world
    return replace(world, water=jnp.asarray(known_water(scenarios, part)))


def replay(world: ShipWorld, scenarios: Scenarios, scenario: np.ndarray) -> Voyages:
    """The experts of these scenarios, through the same steps, limits and costs as a policy."""
    longest = int(scenarios.steps[scenario].max()) + 1
    tracks = np.empty((len(scenario), longest, 3), np.float32)
    for row, index in enumerate(scenario):
        samples = scenarios.expert(index)[:, [0, 1, 3]]
        tracks[row, : len(samples)] = samples
        tracks[row, len(samples) :] = samples[-1]
    free = np.full(len(scenario), np.inf)
    return _voyages(Expert(world), world, jnp.asarray(tracks), scenario, free, 0, _whole)


def _whole(state: ShipState) -> ShipState:
    """The expert's observation: the whole state."""
    return state


def _voyages(
    actor: Any,
    world: ShipWorld,
    begun: Any,
    scenario: np.ndarray,
    threshold: np.ndarray,
    seed: int,
    observe: Any = None,
) -> Voyages:
    scenario = np.asarray(scenario)
    states = _begin(world, jnp.asarray(scenario, jnp.int32))
    longest = int(np.asarray(world.limit)[scenario].max())
    keys = jax.random.split(jax.random.fold_in(jax.random.key(seed), 1), longest + SEGMENT)[:longest]
    keys = jax.vmap(lambda key: jax.random.split(key, len(scenario)))(keys)
    with progress("sailing", longest, "steps") as tick:
        rows, (path, reached) = scan(actor, world, states, begun, keys, observe=observe, tick=tick)
    reward, cost, *_, sailing, fallback = rows.T  # each (episodes, steps)
    return Voyages(
        scenario=scenario,
        threshold=threshold,
        path=np.concatenate([np.asarray(states.past[:, -1:]), path.swapaxes(0, 1)], axis=1),
        sailing=sailing > 0,
        reward=reward,
        cost=cost,
        fallback=fallback > 0,
        success=reached.any(axis=0),
    )


@eqx.filter_jit
def _begin(world: ShipWorld, scenario: jax.Array) -> ShipState:
    return jax.vmap(world.begin)(scenario)
