"""The point mass in a walled square that two of the worlds share."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

SECONDS = 0.1  # per step
ACCELERATION = 3.0  # of a full action along one axis
DRAG = 1.0  # so that the top speed along one axis is ACCELERATION / DRAG


class Point(NamedTuple):
    position: jax.Array  # (2,)
    velocity: jax.Array  # (2,)


def push(point: Point, action: jax.Array, wall: float) -> Point:
    """Accelerates along the action; the new velocity then moves the point (semi-implicit Euler).

    Walls at ±`wall` along both axes stop it: without them a bad episode would leave for far away, and its
    observations would stretch the scale of the whole log.
    """
    velocity = point.velocity + SECONDS * (ACCELERATION * action - DRAG * point.velocity)
    position = point.position + SECONDS * velocity
    velocity = jnp.where(jnp.abs(position) <= wall, velocity, 0.0)
    return Point(jnp.clip(position, -wall, wall), velocity)
