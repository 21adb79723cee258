"""Controllers written by hand, each a family with one knob from cautious (0) to greedy (1).

They show the worlds' conflict without a learner: the knob is swept, many episodes at each setting.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from bcrl.worlds import JaxWorld, _point_circle, _point_goal, _point_run

Controller = Callable[[object, jax.Array, jax.Array], jax.Array]


def circle(state, greed, step):
    """Follows the ring for the first part of the episode, a narrow ellipse inside the limit after it."""
    width = jnp.where(step < greed * 200, 0.95 * _point_circle.RADIUS, 0.9 * _point_circle.LIMIT)
    radii = jnp.array([width, _point_circle.RADIUS])
    x, y = state.position / radii
    tangent = jnp.array([-y * radii[0], x * radii[1]])
    outwards = state.position / radii
    size = jnp.hypot(x, y)
    wanted = 2.2 * tangent / (jnp.linalg.norm(tangent) + 1e-3) + 4.0 * (1.0 - size) * outwards
    return 2.0 * (wanted - state.velocity) + state.velocity / 3.0


def run(state, greed, step):
    """Full speed for the first part of the episode, the speed limit after it."""
    limit = 0.85 * _point_run.SPEED_LIMIT  # room for noise
    wanted = jnp.where(step < greed * 200, 10.0, limit)
    throttle = (
        _point_run.DRAG * state.speed + (wanted - state.speed) / _point_run.SECONDS
    ) / _point_run.ACCELERATION
    return jnp.stack([throttle, -2.0 * state.heading - 3.0 * state.offset])


def goal(state, greed, step):
    """Heads for the goal; hazards deflect it sideways and push it off, less so with greed."""
    position, velocity = state.point
    to_goal = state.goal - position
    wanted = 2.0 * to_goal / (jnp.linalg.norm(to_goal) + 1e-3)
    away = position - state.hazards
    distances = jnp.linalg.norm(away, axis=-1, keepdims=True)
    away = away / distances
    sideways = jnp.stack([-away[:, 1], away[:, 0]], axis=-1)
    sideways = sideways * jnp.sign(sideways @ to_goal)[:, None]
    nearness = jnp.exp(-jnp.maximum(distances - _point_goal.HAZARD_RADIUS, -0.2) / 0.15)
    push = jnp.sum(nearness * (away * 1.5 + sideways), axis=0)
    wanted = wanted * (0.5 + 0.5 * greed) + (1.0 - greed) * 2.0 * push
    return 2.0 * (wanted - velocity) + velocity / 3.0


FAMILIES: dict[str, Controller] = {"point-circle": circle, "point-run": run, "point-goal": goal}


def sweep(world: JaxWorld, greeds: np.ndarray, episodes: int = 128) -> tuple[np.ndarray, np.ndarray]:
    """Mean return and mean cost at each setting of the knob."""
    controller = FAMILIES[world.name]

    def play(greed: jax.Array, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        start, moves = jax.random.split(key)

        def step(state, inputs):
            time, key = inputs
            state, reward, cost, _ = world.step(state, controller(state, greed, time), key)
            return state, (reward, cost)

        times = jnp.arange(world.horizon), jax.random.split(moves, world.horizon)
        _, (rewards, costs) = jax.lax.scan(step, world.reset(start), times)
        return rewards.sum(), costs.sum()

    keys = jax.random.split(jax.random.key(0), episodes)
    play_all = jax.jit(jax.vmap(jax.vmap(play, (None, 0)), (0, None)))
    returns, costs = play_all(jnp.asarray(greeds, jnp.float32), keys)
    return np.asarray(returns.mean(1)), np.asarray(costs.mean(1))
