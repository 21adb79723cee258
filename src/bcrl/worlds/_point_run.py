"""Run down a corridor fast, though there is a speed limit."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from bcrl.worlds._base import JaxWorld, Step

SECONDS = 0.1  # per step
ACCELERATION = 3.5  # of a full throttle
DRAG = 1.0  # so that the top speed is ACCELERATION / DRAG
TURN = 2.0  # radians a second of a full rudder
SPEED_LIMIT = 1.2
HALF_WIDTH = 0.5  # of the corridor
WALL = 2.0  # offset at most


class Runner(NamedTuple):
    offset: jax.Array  # from the corridor's axis
    heading: jax.Array  # 0 is down the corridor
    speed: jax.Array


class PointRun(JaxWorld):
    """The conflict of Bullet's Run task on a vehicle with a throttle and a rudder.

    Reward is the speed down the corridor; a step above SPEED_LIMIT or outside the corridor costs 1. Each
    step of speeding earns more than a legal one, so the best return rises all the way with the budget, but
    speeding pays only once the vehicle is fast: a budget is best spent in one go.
    """

    name = "point-run"
    observation_size = 4
    action_size = 2
    horizon = 200
    # Random play earns about 0; the best return in a log from `bcrl collect` with seed 0 is the maximum.
    reference_returns = (0.0, 480.0)

    def reset(self, key: jax.Array) -> Runner:
        offset, heading = jax.random.uniform(key, (2,), minval=-1.0, maxval=1.0)
        return Runner(0.8 * HALF_WIDTH * offset, heading, jnp.zeros(()))

    def observe(self, state: Runner) -> jax.Array:
        heading = jnp.cos(state.heading), jnp.sin(state.heading)
        return jnp.stack([state.offset, *heading, state.speed - SPEED_LIMIT])

    def move(self, state: Runner, action: jax.Array, key: jax.Array) -> Step:
        throttle, rudder = action
        speed = state.speed + SECONDS * (ACCELERATION * throttle - DRAG * state.speed)
        heading = state.heading + SECONDS * TURN * rudder
        offset = jnp.clip(state.offset + SECONDS * speed * jnp.sin(heading), -WALL, WALL)
        outside = jnp.abs(offset) > HALF_WIDTH
        cost = (outside | (jnp.abs(speed) > SPEED_LIMIT)).astype(jnp.float32)
        return Runner(offset, heading, speed), speed * jnp.cos(heading), cost, jnp.zeros((), bool)
