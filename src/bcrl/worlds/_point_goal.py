"""Reach one goal after another among hazards."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from bcrl.worlds._base import JaxWorld, Step
from bcrl.worlds._point import Point, push

WALL = 2.0  # |x| and |y| at most
GOAL_RADIUS = 0.3
HAZARD_RADIUS = 0.75
PLACES = ((-1.0, -1.0), (-1.0, 1.0), (1.0, -1.0), (1.0, 1.0))  # of the hazards, before they are shifted
SHIFT = 0.25  # along each axis at most, so that hazards never overlap
OVERLAP = 0.28  # how deep in a hazard the middle of a goal may lie; some of its rim is always outside
FAR = 2.2  # from the point to a new goal at least
PROGRESS, BONUS = 5.0, 15.0
CANDIDATES = 16


class Field(NamedTuple):
    point: Point
    goal: jax.Array  # (2,)
    hazards: jax.Array  # (4, 2)


class PointGoal(JaxWorld):
    """The conflict of Safety-Gymnasium's Goal task on a point mass.

    Reward is the progress towards the goal and a bonus for reaching it, whereupon a far one is drawn; a step
    inside a hazard costs 1. The hazards, shifted anew for each episode, leave a cross and a rim of narrow
    lanes between them: straight lines lead through hazards, safe ways wind and are slow. So a budget is
    spent goal by goal, on those where it saves most.
    """

    name = "point-goal"
    observation_size = 7 + 3 * len(PLACES)
    action_size = 2
    horizon = 300
    # Random play earns about 0; the best return in a log from `bcrl collect` with seed 0 is the maximum.
    reference_returns = (0.0, 435.0)

    def reset(self, key: jax.Array) -> Field:
        layout, start, goal = jax.random.split(key, 3)
        places = jnp.array(PLACES)
        hazards = places + jax.random.uniform(layout, places.shape, minval=-SHIFT, maxval=SHIFT)
        position = _draw_place(start, hazards, 0.0, jnp.full(2, jnp.inf))
        return Field(Point(position, jnp.zeros(2)), _draw_place(goal, hazards, -OVERLAP, position), hazards)

    def observe(self, state: Field) -> jax.Array:
        position, velocity = state.point
        to_goal = state.goal - position
        distance = jnp.linalg.norm(to_goal)
        to_hazards = state.hazards - position
        distances = jnp.linalg.norm(to_hazards, axis=-1)
        nearest_first = jnp.argsort(distances)
        return jnp.concatenate(
            [
                position / WALL,
                velocity / 2.0,
                to_goal / (distance + 1e-3),
                distance[None] / WALL,
                to_hazards[nearest_first].ravel(),
                distances[nearest_first] - HAZARD_RADIUS,
            ]
        )

    def move(self, state: Field, action: jax.Array, key: jax.Array) -> Step:
        point = push(state.point, action, WALL)
        position = point.position
        before = jnp.linalg.norm(state.goal - state.point.position)
        after = jnp.linalg.norm(state.goal - position)
        reached = after < GOAL_RADIUS
        reward = PROGRESS * (before - after) + BONUS * reached
        cost = (_clearance(position, state.hazards) < 0).astype(jnp.float32)
        goal = jnp.where(reached, _draw_place(key, state.hazards, -OVERLAP, position), state.goal)
        return Field(point, goal, state.hazards), reward, cost, jnp.zeros((), bool)


def _clearance(place: jax.Array, hazards: jax.Array) -> jax.Array:
    """Distance from a place to the rim of the nearest hazard; negative inside."""
    return jnp.min(jnp.linalg.norm(hazards - place, axis=-1)) - HAZARD_RADIUS


def _draw_place(key: jax.Array, hazards: jax.Array, clearance: float, other: jax.Array) -> jax.Array:
    """The first of some random places that is clear of hazards and far from the other place."""
    reach = WALL - GOAL_RADIUS
    places = jax.random.uniform(key, (CANDIDATES, 2), minval=-reach, maxval=reach)
    clear = jax.vmap(_clearance, in_axes=(0, None))(places, hazards) - clearance
    far = jnp.linalg.norm(places - other, axis=-1) - FAR
    # Every place that is good enough counts as equally good, and argmax takes the first, or else the best.
    return places[jnp.argmax(jnp.minimum(jnp.minimum(clear, far), 0.0))]
