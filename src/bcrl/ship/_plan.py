"""A planner that knows the scenario: the fewest steps in close quarters with which the goal is still reached.

It is an anchor, not a method: it knows where every ship will be. A plan follows the expert's track at another
pace and beside it; both are linear between a few knots along the track. The expert itself is the first plan.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from bcrl.assess.results import Results
from bcrl.assess.statistics import Estimate, Kept, estimate, kept
from bcrl.errors import BCRLError
from bcrl.progress import progress
from bcrl.ship._evaluate import PLANNER, ShipResult, episode_rows, world_label
from bcrl.ship._lines import Line, within
from bcrl.ship._metrics import measure
from bcrl.ship._rollout import Voyages
from bcrl.ship._rule import MAX_SPEED, SECONDS
from bcrl.ship._scenarios import CLOSE_METRES, Held, Scenarios
from bcrl.ship._simulator import ShipState, ShipWorld, make_ship_world
from bcrl.ship._water import known_water
from bcrl.worlds.planning import Outcome, Search, interpolate, search_plan

KNOTS = 8
"""Along the track. Beside the track, the first and the last are 0."""
BESIDE = 300.0
"""Metres: the first spread of the search beside the track."""
PACE = 0.5
"""The first spread of the search in pace, in doublings."""
SLOWEST, FASTEST = -2.0, 1.0
"""Doublings of the expert's pace: from a quarter to twice."""
BATCH = 16
"""Scenarios of one search."""
SHORTEST = 128
"""Steps of the shortest program; others have twice as many, and so on."""


class Route(NamedTuple):
    """What the plans of a scenario start from."""

    scenario: jax.Array  # ()
    track: jax.Array  # (n, 2) the expert's places; after its end the goal
    steps: jax.Array  # () of the expert
    reach: jax.Array  # () metres in a step at most


class Sailed(NamedTuple):
    """An episode of a plan, step by step."""

    path: jax.Array  # (steps, 5)
    sailing: jax.Array  # (steps,)
    reward: jax.Array  # (steps,)
    cost: jax.Array  # (steps, 2)
    nearest: jax.Array  # (steps,) metres
    missed: jax.Array  # () metres to the goal at the end; 0 if it was reached


def plan_ships(
    scenarios: Scenarios,
    which: np.ndarray | None = None,
    *,
    part: Held = "test",
    off_water: float | None = None,
    max_speed: float | None = None,
    how: Search = Search(),  # noqa: B008 (frozen)
    seed: int = 0,
) -> Results[ShipResult]:
    """A row of the run "planner" for each of these scenarios, by default the congested fifth of a part.

    The best plan is chosen by, in this order: reaching the goal; with `off_water`, no more steps off known
    water than that; fewer steps in close quarters; being farther from the others. A ship sails as fast as
    its expert ever did, or `max_speed` in m/s if that is more (by default what 99 % of logged steps keep).
    """
    which = scenarios.congested(part) if which is None else np.sort(which)
    if max_speed is None:
        max_speed = float(np.quantile(scenarios.samples[:, 2], 0.99))
    if not 0 < max_speed <= MAX_SPEED:
        raise BCRLError(f"max_speed is {max_speed:g} m/s, but must be above 0 and at most {MAX_SPEED:g}")
    if off_water is not None and not off_water >= 0:
        raise BCRLError(f"off_water is {off_water:g} steps, but must be 0 or more")
    world = make_ship_world(scenarios, among=which, frame="world", water=known_water(scenarios, part))
    limits = np.asarray(world.limit)[which]
    lengths = np.maximum(SHORTEST, 2 ** np.ceil(np.log2(limits)).astype(int))
    free = jnp.asarray(np.inf if off_water is None else off_water, jnp.float32)
    longest, count = int(lengths.max()), len(which)
    path, sailing = np.zeros((count, longest, 5), np.float32), np.zeros((count, longest), bool)
    reward, cost = np.zeros((2, count, longest), np.float32)
    with progress("planning", count, "scenarios") as tick:
        for length in np.unique(lengths).tolist():
            same = np.flatnonzero(lengths == length)
            for rows in np.split(same, range(BATCH, len(same), BATCH)):
                filled = np.resize(which[rows], BATCH)  # one program for all batches of a length
                routes = _routes(scenarios, filled, length, max_speed)
                keys = jax.vmap(jax.random.fold_in, (None, 0))(jax.random.key(seed), jnp.asarray(filled))
                best = _search(world, routes, free, keys, length, how)
                found = Sailed(*(np.asarray(x)[: len(rows)] for x in best))  # pyright: ignore[reportArgumentType]
                path[rows, :length], sailing[rows, :length] = found.path, found.sailing
                reward[rows, :length], cost[rows, :length] = found.reward, found.cost[..., 0]
                tick(len(rows))
    start = np.asarray(world.start)[which][:, None]
    voyages = Voyages(
        scenario=which,
        threshold=np.full(count, np.inf),
        path=np.concatenate([start, path], axis=1),
        sailing=sailing,
        reward=reward,
        cost=cost,
        fallback=np.zeros_like(sailing),
        success=reward.sum(axis=1) > 0,
    )
    who = dict.fromkeys(("tracking", "criterion", "execution", "data"), "")
    about = {"method": PLANNER, "run": PLANNER, "seed": seed, "world": world_label(world, part)}
    allowed = {} if off_water is None else {"off_water_threshold": float(off_water)}
    measures = measure(voyages, scenarios, part)
    return Results(episode_rows(who | about | allowed, world, np.full(count, np.nan), voyages, measures))


def _routes(scenarios: Scenarios, which: np.ndarray, length: int, max_speed: float) -> Route:
    tracks = np.empty((len(which), length // 2 + 1, 2), np.float32)
    for row, index in enumerate(which):
        place = scenarios.expert(index)[:, :2]
        tracks[row] = place[-1]
        tracks[row, : len(place)] = place
    own = np.hypot(*np.moveaxis(np.diff(tracks, axis=1), -1, 0)).max(axis=1)
    reach = np.maximum(own * (1 + 1e-5), SECONDS * max_speed)
    return Route(*map(jnp.asarray, (which, tracks, scenarios.steps[which], reach)))


@eqx.filter_jit
def _search(
    world: ShipWorld, routes: Route, free: jax.Array, keys: jax.Array, length: int, how: Search
) -> Sailed:
    """The episodes of the best plans; `length` is the number of steps of the program."""
    spread = jnp.tile(jnp.array([PACE, BESIDE, BESIDE]), (KNOTS, 1))

    def one(route: Route, key: jax.Array) -> Sailed:
        def outcome(plan: jax.Array) -> Outcome:
            sailed = _sail(world, route, plan, length)
            close, off = sailed.cost.sum(axis=0)
            depth = jnp.where(sailed.sailing, jnp.maximum(1.0 - sailed.nearest / CLOSE_METRES, 0.0), 0.0)
            return Outcome(sailed.missed, jnp.stack([jnp.maximum(off - free, 0.0), close]), -depth.sum())

        best, _ = search_plan(outcome, jnp.zeros((1, KNOTS, 3)), spread, key, how)
        return _sail(world, route, best, length)

    return jax.vmap(one)(routes, keys)


def _sail(world: ShipWorld, route: Route, plan: jax.Array, length: int) -> Sailed:
    """The episode of a plan (KNOTS, 3): the pace in doublings, and the metres beside the track."""
    ends = (jnp.arange(KNOTS) == 0) | (jnp.arange(KNOTS) == KNOTS - 1)
    beside = jnp.where(ends[:, None], 0.0, plan[:, 1:])
    steps = route.steps.astype(jnp.float32)
    box = jnp.array(world.size)

    def step(carry: tuple, _: None) -> tuple[tuple, tuple]:
        state, along, alive = carry
        pace = 2.0 ** jnp.clip(interpolate(plan[:, 0], along / steps), SLOWEST, FASTEST)
        along = jnp.minimum(along + pace, steps)
        low = jnp.minimum(along.astype(jnp.int32), len(route.track) - 2)
        place = route.track[low] + (along - low) * (route.track[low + 1] - route.track[low])
        place = jnp.clip(place + interpolate(beside, along / steps), 0.0, box)
        way = place - state.past[-1, :2]
        way = way * jnp.minimum(1.0, route.reach / jnp.maximum(jnp.linalg.norm(way), 1e-6))
        action = jnp.append(way, 0.0) / jnp.array(world.reach)
        after, reward, cost, ended = world.step(state, action, jax.random.key(0))
        after = jax.tree.map(lambda new, old: jnp.where(alive, new, old), after, state)
        seen = (after.past[-1], alive, alive * reward, alive * cost, world.nearest(after))
        return (after, along, alive & ~ended), seen

    begun: ShipState = world.begin(route.scenario)
    now = (begun, jnp.zeros(()), jnp.ones((), bool))
    (last, _, _), seen = jax.lax.scan(step, now, None, length=length)
    path, sailing, reward, cost, nearest = seen
    missed = jnp.where(reward.sum() > 0, 0.0, world.to_goal(last))
    return Sailed(path, sailing, reward, cost, nearest, missed)


@dataclass(frozen=True)
class Possible:
    """What plans say of a budget."""

    line: Line
    """A run with this budget."""
    share: float
    """Of the scenarios: those whose plan reaches the goal within the budget."""
    cost: Estimate
    """Of the plans, which all seek the least."""

    @property
    def kept(self) -> Kept:
        """Whether the plans keep the threshold in the mean."""
        return kept(self.cost, self.line.threshold)


def possible_budgets(
    plans: Sequence[ShipResult], results: Sequence[ShipResult], lines: Sequence[Line]
) -> list[Possible]:
    """Whether each budget of `lines` can be kept in the scenarios of `results`, by plans that know them."""
    met = {(result.world, result.scenario) for result in results}
    mine = [plan for plan in plans if (plan.world, plan.scenario) in met]
    if len(mine) < len(met) or any(plan.run != PLANNER for plan in plans):
        raise BCRLError(
            f"the anchor has plans for {len(mine)} of {len(met)} scenarios: make it with bcrl ship plan on "
            "the same scenario file and --part"
        )
    cost = estimate(np.array([plan.cost for plan in mine]), np.array([plan.seed for plan in mine]))
    budgets = {line.threshold: line for line in lines if np.isfinite(line.threshold)}
    return [
        Possible(line, float(np.mean([within(plan, threshold) for plan in mine])), cost)
        for threshold, line in sorted(budgets.items())
    ]
