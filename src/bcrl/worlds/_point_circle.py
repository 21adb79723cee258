"""Circle a ring fast, though the sides of the ring are out of bounds."""

import jax
import jax.numpy as jnp

from bcrl.worlds._base import JaxWorld, Step
from bcrl.worlds._point import Point, push

RADIUS = 1.5
WALL = 2.5  # |x| and |y| at most
LIMIT = 0.75  # |x| beyond this costs
SCALE = 1.5  # of the reward


class PointCircle(JaxWorld):
    """The conflict of Bullet's Circle task on a point mass.

    Reward is the anticlockwise speed, shaped by the closeness to the ring; a step with |x| > LIMIT costs 1.
    Two thirds of the ring lie beyond the limit. A safe lap is a narrow loop that stays inside: its sides are
    far from the ring and its turns are tight, hence slow. Every lap can bulge as far as the budget allows.
    """

    name = "point-circle"
    observation_size = 6
    action_size = 2
    horizon = 200
    # Random play earns about 0; the best return in a log from `bcrl collect` with seed 0 is the maximum.
    reference_returns = (0.0, 590.0)

    def reset(self, key: jax.Array) -> Point:
        corner = jnp.array([0.5, 1.0])
        return Point(jax.random.uniform(key, (2,), minval=-corner, maxval=corner), jnp.zeros(2))

    def observe(self, state: Point) -> jax.Array:
        margins = jnp.stack([jnp.linalg.norm(state.position) - RADIUS, jnp.abs(state.position[0]) - LIMIT])
        return jnp.concatenate([state.position, state.velocity / 2.0, margins])

    def move(self, state: Point, action: jax.Array, key: jax.Array) -> Step:
        state = push(state, action, WALL)
        (x, y), (dx, dy) = state
        radius = jnp.sqrt(x**2 + y**2 + 1e-6)
        tangential_speed = (x * dy - y * dx) / radius
        reward = SCALE * tangential_speed / (1.0 + jnp.abs(radius - RADIUS))
        cost = (jnp.abs(x) > LIMIT).astype(jnp.float32)
        return state, reward, cost, jnp.zeros((), bool)
