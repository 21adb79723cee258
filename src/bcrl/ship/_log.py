"""The log: steps of experts and of varied tracks, with the simulator's observations, rewards and costs."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from bcrl.data import NO_SCHEMA, Dataset, Schema
from bcrl.errors import BCRLError
from bcrl.progress import progress
from bcrl.ship._rule import SECONDS
from bcrl.ship._scenarios import Scenarios
from bcrl.ship._scene import ABSENT, HISTORY
from bcrl.ship._simulator import Frame, ShipState, ShipWorld, make_ship_world, velocity
from bcrl.ship._vary import varied_tracks

BATCH = 4096
COSTS = ("close quarters", "off known water")


def expert_log(
    scenarios: Scenarios,
    which: np.ndarray | None = None,
    *,
    frame: Frame = "ego",
    water: np.ndarray | None = None,
    variations: int = 0,
    source: str = "",
) -> Dataset:
    """Transitions of these scenarios' experts (by default the training ones) until each reaches its goal.

    With `water`, such as `known_water(scenarios)`, there are two costs: close quarters, and leaving it. With
    `variations`, that many varied tracks of each expert follow (`varied_tracks`), each among the traffic of
    another time (`at_other_times`): no ship sailed them, but their costs are those of the traffic there was.
    """
    if variations < 0:
        raise BCRLError(f"variations is {variations}, but must be at least 0")
    which = scenarios.training if which is None else np.asarray(which)
    world = make_ship_world(scenarios, among=which, frame=frame, water=water)
    tracks = [scenarios.expert(scenario) for scenario in which]
    if variations:
        tracks += varied_tracks(tracks, variations, scenarios.box.size)
        steps = np.array([len(track) - 1 for track in tracks[len(which) :]])
        world, more = at_other_times(world, scenarios, which, steps)
        which = np.concatenate([which, more])
    states, place, heading = track_states(tracks, which)
    count = len(heading)
    parts = []
    with progress("expert log", count, "transitions") as tick:
        for low in range(0, count, BATCH):
            # The last batch is filled up with row 0, so that there is one program for all.
            rows = np.arange(low, low + BATCH)
            rows[rows >= count] = 0
            batch = jax.tree.map(lambda x, rows=rows: jnp.asarray(x[rows]), (states, place, heading))
            parts.append([np.asarray(x)[: count - low] for x in _transitions(world, *batch)])
            tick(min(BATCH, count - low))
    observations, actions, rewards, costs, after, terminals = map(np.concatenate, zip(*parts, strict=True))
    # An episode ends where the simulator ends it; the rest of the track, inside the goal, is dropped.
    ended = np.cumsum(terminals) - terminals
    keep = ended == ended[states.step == 0].repeat([len(track) - 1 for track in tracks])
    if (np.abs(actions) > 1 + 1e-5).any() or (rewards[keep].sum() != 100 * len(which)):
        raise BCRLError(f"{source or 'scenarios'}: a track needs actions outside [-1, 1] or misses its goal")
    return Dataset(
        observations=observations[keep],
        actions=np.clip(actions[keep], -1.0, 1.0),
        rewards=rewards[keep],
        costs=costs[keep],
        next_observations=after[keep],
        terminals=terminals[keep],
        timeouts=np.zeros(keep.sum(), bool),
        source=source,
        schema=NO_SCHEMA if water is None else Schema(cost_names=COSTS),
    )


def at_other_times(
    world: ShipWorld, scenarios: Scenarios, which: np.ndarray, steps: np.ndarray
) -> tuple[ShipWorld, np.ndarray]:
    """The world with new scenarios: those of `which`, over and over, of `steps` each, in the traffic of
    moments when experts of `which` sailed. Also returns their numbers.

    Every step of an expert is as likely to give the moment. None lasts beyond the end of the last expert,
    unless there is no time before that. A scenario's own ship is left out while it sails this very track.
    """
    random = np.random.default_rng(0)  # the same log from the same scenarios
    moment = np.asarray(world.moment)
    expert = random.choice(which, len(steps), p=scenarios.steps[which] / scenarios.steps[which].sum())
    drawn = moment[expert] + random.integers(0, scenarios.steps[expert])
    last = (moment[which] + scenarios.steps[which]).max()
    begin = np.maximum(np.minimum(drawn, last - steps), HISTORY - 1)
    like = np.resize(which, len(steps))
    itself = (begin < moment[like] + scenarios.steps[like]) & (moment[like] < begin + steps)
    more = {
        "start": world.start[like],
        "goal": world.goal[like],
        "moment": jnp.asarray(begin, world.moment.dtype),
        "ship": jnp.where(itself, world.ship[like], ABSENT),  # on another voyage it is one of the others
        "limit": world.limit[like],
    }
    longer = {name: jnp.concatenate([getattr(world, name), rows]) for name, rows in more.items()}
    return replace(world, **longer), len(world.moment) + np.arange(len(steps))


def track_states(tracks: Sequence[np.ndarray], which: np.ndarray) -> tuple[ShipState, np.ndarray, np.ndarray]:
    """The states before each step of these tracks, (n, 4) each, in the scenarios `which`, and the places and
    headings that the steps led to."""
    steps = np.array([len(track) - 1 for track in tracks])
    pasts, places, headings = [], [], []
    for samples, count in zip(tracks, steps, strict=True):
        rows = np.zeros((HISTORY - 1 + count, 5), np.float32)
        rows[HISTORY - 1 :] = own_rows(samples)[:-1]
        pasts.append(np.lib.stride_tricks.sliding_window_view(rows, HISTORY, axis=0).swapaxes(1, 2))
        places.append(samples[1:, :2])
        headings.append(samples[1:, 3])
    number = np.arange(steps.sum()) - np.repeat(np.cumsum(steps) - steps, steps)
    of = np.repeat(which, steps).astype(np.int32)
    states: Any = ShipState(of, number.astype(np.int32), np.concatenate(pasts))  # pyright: ignore[reportArgumentType]
    return states, np.concatenate(places), np.concatenate(headings)


def own_rows(samples: np.ndarray) -> np.ndarray:
    """Samples (n, 4) of a track as rows of `ShipState.past`: speeds are those of the steps made."""
    rows = np.column_stack([samples[:, :2], velocity(samples[:, 2], samples[:, 3]), samples[:, 3]])
    rows[1:, 2:4] = np.diff(samples[:, :2], axis=0) / SECONDS
    return rows


@eqx.filter_jit
def _transitions(world: ShipWorld, states: ShipState, places: jax.Array, headings: jax.Array) -> tuple:
    def one(state: ShipState, place: jax.Array, heading: jax.Array) -> tuple:
        action = world.action_between(state, place, heading)
        after, reward, cost, terminal = world.step(state, action, jax.random.key(0))
        return world.observe(state), action, reward, cost, world.observe(after), terminal

    return jax.vmap(one)(states, places, headings)
