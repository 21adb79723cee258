"""Speed of the ship simulator as JSON: thousands of episodes at once, against one at a time in plain numpy.

    bcrl ship data ny-harbor --out ny-harbor.npz
    python benchmarks/ships.py ny-harbor.npz [--batch 2048] [--steps 200] [--repeats 5]

Actions are random. Every step includes the observation of 5 samples of the ship and its 10 nearest, reward,
cost, and the start of a new scenario where one ended. The numpy loop does the same for one episode, on the
same scenarios, in the same run. Needs jax, equinox, numpy and a scenario file, nothing else.
"""

import argparse
import json
import os
import time
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from bcrl.ship import (
    CLOSE_METRES,
    GOAL_METRES,
    Scenarios,
    ShipWorld,
    load_scenarios,
    make_scene,
    make_ship_world,
)
from bcrl.ship._scene import HISTORY
from bcrl.ship._simulator import FAST, KM, NEIGHBOURS


@eqx.filter_jit
def batched(world: ShipWorld, key: jax.Array, batch: int, steps: int) -> tuple[Any, jax.Array]:
    """The last observations, so that nothing leaves them out, and the summed reward, cost and ends."""
    first = jax.vmap(world.reset)(jax.random.split(key, batch))

    def step(carry: Any, key: jax.Array) -> tuple[Any, jax.Array]:
        state, _ = carry
        act_key, reset_key = jax.random.split(key)
        actions = jax.random.uniform(act_key, (batch, world.action_size), minval=-1.0, maxval=1.0)
        state, reward, cost, ended = jax.vmap(world.step, in_axes=(0, 0, None))(state, actions, key)
        fresh = jax.vmap(world.reset)(jax.random.split(reset_key, batch))
        state = jax.vmap(lambda end, new, old: jax.tree.map(lambda x, y: jnp.where(end, x, y), new, old))(
            ended, fresh, state
        )
        return (state, jax.vmap(world.observe)(state)), jnp.stack([reward.sum(), cost.sum(), ended.sum()])

    (_, observations), sums = jax.lax.scan(
        step, (first, jax.vmap(world.observe)(first)), jax.random.split(key, steps)
    )
    return observations, sums.sum(axis=0)


def plain_loop(scenarios: Scenarios, among: np.ndarray, seconds: float) -> float:
    """Steps per second of one episode after another in numpy."""
    limits = 2 * scenarios.steps
    scene, first = make_scene(scenarios, after=int(limits.max()), at_least=NEIGHBOURS)
    scene[..., 2:4] = scene[..., 2:3] * np.stack([np.cos(scene[..., 3]), np.sin(scene[..., 3])], axis=-1)
    size = np.array(scenarios.box.size)
    random = np.random.default_rng(0)
    begun, count = time.perf_counter(), 0
    while time.perf_counter() - begun < seconds:
        scenario = int(random.choice(among))
        track = scenarios.track[scenario]
        expert = scenarios.expert(scenario)
        goal, ship, moment = expert[-1, :2], int(scenarios.ship[track]), int(first[track])
        speed, heading = expert[0, 2:]
        past = np.zeros((HISTORY, 4), np.float32)
        past[-1] = [*expert[0, :2], speed * np.cos(heading), speed * np.sin(heading)]
        _observe(past, 1, scene, moment, goal, ship)
        for step in range(1, int(limits[scenario]) + 1):
            action = random.uniform(-1.0, 1.0, 3)
            ahead = goal - past[-1, :2]
            ahead = ahead / np.hypot(*ahead)
            way = 200.0 * (action[0] * ahead + action[1] * np.array([-ahead[1], ahead[0]]))
            heading = (heading + action[2] * np.pi) % (2 * np.pi)
            place = past[-1, :2] + way
            past = np.concatenate([past[1:], [[*place, *(way / 10.0)]]])
            nearest = _observe(past, step + 1, scene, moment + step, goal, ship)[1]
            _cost, reached = nearest < CLOSE_METRES, np.hypot(*(goal - place)) < GOAL_METRES
            count += 1
            if reached or (place < 0).any() or (place > size).any():
                break
    return count / (time.perf_counter() - begun)


def _observe(
    past: np.ndarray, known: int, scene: np.ndarray, moment: int, goal: np.ndarray, ship: int
) -> tuple[np.ndarray, float]:
    here, now = past[-1, :2], scene[moment]
    away = np.hypot(now[:, 0] - here[0], now[:, 1] - here[1])
    away[(now[:, 4] < 0) | (now[:, 4] == ship)] = np.inf
    slot = np.argsort(away)[:NEIGHBOURS]
    rows = scene[moment - HISTORY + 1 : moment + 1, slot].swapaxes(0, 1)
    seen = (rows[..., 4] == now[slot, 4][:, None]) & np.isfinite(away[slot])[:, None]
    own = np.arange(HISTORY - 1, -1, -1) < known
    every, present = np.concatenate([past[None], rows[..., :4]]), np.concatenate([own[None], seen])
    ahead = goal - here
    metres = np.hypot(*ahead)
    x, y = ahead / max(metres, 1e-3)
    turn = np.array([[x, -y], [y, x]])
    place, motion = (every[..., :2] - here) @ turn / KM, every[..., 2:] @ turn / FAST
    ships = np.concatenate([place, motion, np.ones_like(place[..., :1])], axis=-1) * present[..., None]
    rest = [metres / KM, np.exp(-metres / KM), *(here / KM), x, y]
    return np.concatenate([ships.ravel(), rest]).astype(np.float32), float(away[slot[0]])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("scenarios", help="a scenario file of bcrl ship data")
    parser.add_argument("--batch", type=int, help="episodes at once (default: 2048, on a GPU 65536)")
    parser.add_argument("--steps", type=int, default=200, help="steps of each in one program")
    parser.add_argument("--repeats", type=int, default=5, help="timed runs; the median counts")
    parser.add_argument("--plain-seconds", type=float, default=5.0, help="how long to time the numpy loop")
    words = parser.parse_args()
    scenarios = load_scenarios(words.scenarios)
    world = make_ship_world(scenarios, among=scenarios.training)
    device = jax.devices()[0]
    batch = words.batch or (2048 if device.platform == "cpu" else 65536)
    jax.block_until_ready(batched(world, jax.random.key(0), batch, words.steps))
    rates = []
    sums = jnp.zeros(3)
    for repeat in range(words.repeats):
        begun = time.perf_counter()
        _, sums = jax.block_until_ready(batched(world, jax.random.key(repeat), batch, words.steps))
        rates.append(batch * words.steps / (time.perf_counter() - begun))
    plain = plain_loop(scenarios, scenarios.training, words.plain_seconds)
    moments, slots, _ = world.scene.shape
    reward, cost, ended = (float(x) / (batch * words.steps) for x in sums)
    facts = {
        "device": device.device_kind,
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "jax": jax.__version__,
        "source": scenarios.about.get("source", ""),
        "slots": slots,
        "moments": moments,
        "observation_size": world.observation_size,
        "batch": batch,
        "steps": words.steps,
        "steps_per_second": round(float(np.median(rates))),
        "steps_per_second_of_each_run": [round(rate) for rate in rates],
        "numpy_loop_steps_per_second": round(plain),
        "times_faster": round(float(np.median(rates)) / plain, 1),
        "reward_per_step": reward,
        "cost_per_step": cost,
        "episodes_ended_per_step": ended,
    }
    print(json.dumps(facts, indent=2))


if __name__ == "__main__":
    main()
