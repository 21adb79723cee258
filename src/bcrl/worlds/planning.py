"""Plans by one who knows the world: an anchor of what a budget can buy, not a method.

A plan is a few numbers (knots) that a world's own function turns into an episode. The cross-entropy search
draws plans around a mean, orders them by what they come to, and moves the mean and spread to the best.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from bcrl.errors import BCRLError
from bcrl.progress import progress
from bcrl.worlds._base import JaxWorld


class Outcome(NamedTuple):
    """What a plan comes to. Of two plans the one with less of the first field that differs is better."""

    missed: jax.Array  # () how far the goal is; 0 if it is reached, or if there is none
    excess: jax.Array  # (k,) costs beyond what is allowed, the most important first
    value: jax.Array  # () here more is better


@dataclass(frozen=True)
class Search:
    """How hard to search."""

    population: int = 64
    """Plans per iteration."""
    elites: int = 8
    """The best of them, from which the next mean and spread come."""
    iterations: int = 40
    restarts: int = 2
    """Searches from each start with other random numbers; the best of all counts."""

    def __post_init__(self) -> None:
        least = {"population": self.elites, "elites": 2, "iterations": 1, "restarts": 1}
        for name, bound in least.items():
            if getattr(self, name) < bound:
                raise BCRLError(f"{name} of a search is {getattr(self, name)}, but must be at least {bound}")


SMOOTHING = 0.3
"""Of the mean and spread of the iteration before, this share stays."""
LEAST_SPREAD = 0.03
"""As a share of the first, so that a search never stands still."""


def search_plan(
    outcome: Callable[[jax.Array], Outcome], starts: jax.Array, spread: jax.Array, key: jax.Array, how: Search
) -> tuple[jax.Array, Outcome]:
    """The best plan found from any of the starts (s, ...), and what it comes to; no start is better."""
    keys = jax.random.split(key, (len(starts), how.restarts))
    again = jax.vmap(lambda start, key: _once(outcome, start, spread, key, how), (None, 0))
    found = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), jax.vmap(again)(starts, keys))
    return jax.tree.map(lambda x: x[_order(found[1])[0]], found)


def _once(
    outcome: Callable[[jax.Array], Outcome], start: jax.Array, spread: jax.Array, key: jax.Array, how: Search
) -> tuple[jax.Array, Outcome]:
    def iterate(carry: Any, key: jax.Array) -> tuple[Any, None]:
        mean, wide, best = carry
        plans = mean + wide * jax.random.normal(key, (how.population, *start.shape))
        plans = plans.at[0].set(best).at[1].set(mean)
        order = _order(jax.vmap(outcome)(plans))
        elite = plans[order[: how.elites]]
        mean = SMOOTHING * mean + (1 - SMOOTHING) * elite.mean(axis=0)
        wide = SMOOTHING * wide + (1 - SMOOTHING) * elite.std(axis=0)
        return (mean, jnp.maximum(wide, LEAST_SPREAD * spread), plans[order[0]]), None

    (_, _, best), _ = jax.lax.scan(iterate, (start, spread, start), jax.random.split(key, how.iterations))
    return best, outcome(best)


def _order(found: Outcome) -> jax.Array:
    """Best first."""
    return jnp.lexsort((-found.value, *found.excess.T[::-1], found.missed))


def interpolate(knots: jax.Array, at: jax.Array) -> jax.Array:
    """Between knots (n, ...), the value at a place from 0, the first, to 1, the last."""
    place = jnp.clip(at, 0.0, 1.0) * (len(knots) - 1)
    low = jnp.minimum(place.astype(jnp.int32), len(knots) - 2)
    share = (place - low).reshape(-1, *([1] * (knots.ndim - 1))) if place.ndim else place - low
    return knots[low] + share * (knots[low + 1] - knots[low])


class Bought(NamedTuple):
    """The best plans found, (thresholds, episodes) each."""

    returns: np.ndarray
    costs: np.ndarray


def plan_episodes(
    world: JaxWorld,
    follow: Callable[[Any, jax.Array], jax.Array],
    start: Callable[[float], np.ndarray],
    spread: float,
    thresholds: tuple[float, ...],
    *,
    episodes: int = 20,
    seed: int = 0,
    how: Search = Search(population=128, elites=12, iterations=60, restarts=1),
) -> Bought:
    """The best return found within each threshold, from random starts.

    A plan is what to follow, at knots (n, r) over the episode; `follow(state, target)` is the action towards
    the target (r,) of a step. Searches begin at the plan `start(threshold)`, and at the best plan for the
    threshold below.
    """
    if world.noise or world.cost_count != 1:
        raise BCRLError(f"{world.label}: plans are for worlds without noise, with one cost")
    keys = jax.random.split(jax.random.key(seed), episodes)
    states = jax.vmap(lambda key: world.reset(jax.random.split(key, 3)[0]))(keys)
    plans = None
    returns, costs = np.zeros((2, len(thresholds), episodes))
    with progress(f"planning in {world.name}", len(thresholds), "thresholds") as tick:
        for row in np.argsort(thresholds):
            first = jnp.tile(jnp.asarray(start(thresholds[row]), jnp.float32), (episodes, 1, 1))
            starts = jnp.stack([first, first if plans is None else plans], axis=1)
            allowed = jnp.asarray(thresholds[row], jnp.float32)
            plans, found = _plan(world, follow, states, starts, spread, allowed, keys, how)
            returns[row], costs[row] = found
            tick()
    return Bought(returns, costs)


@eqx.filter_jit
def _plan(
    world: JaxWorld,
    follow: Callable[[Any, jax.Array], jax.Array],
    states: Any,
    starts: jax.Array,
    spread: float,
    threshold: jax.Array,
    keys: jax.Array,
    how: Search,
) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    """The best plans, and their returns and costs."""

    def play(state: Any, plan: jax.Array) -> tuple[jax.Array, jax.Array]:
        def step(carry: Any, target: jax.Array) -> tuple[Any, None]:
            state, earned, spent, alive = carry
            after, reward, cost, terminal = world.step(state, follow(state, target), jax.random.key(0))
            return (after, earned + alive * reward, spent + alive * cost, alive & ~terminal), None

        targets = interpolate(plan, jnp.arange(world.horizon) / (world.horizon - 1))
        zero = jnp.zeros(())
        (_, earned, spent, _), _ = jax.lax.scan(step, (state, zero, zero, zero == 0), targets)
        return earned, spent

    def one(state: Any, starts: jax.Array, key: jax.Array) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
        def outcome(plan: jax.Array) -> Outcome:
            earned, spent = play(state, plan)
            return Outcome(jnp.zeros(()), jnp.maximum(spent - threshold, 0.0)[None], earned)

        best, _ = search_plan(outcome, starts, jnp.full_like(starts[0], spread), key, how)
        return best, play(state, best)

    return jax.vmap(one)(states, starts, keys)
