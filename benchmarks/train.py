"""Training speed as JSON: steps/s, seed-steps/s, compile time, memory, for one and three seeds.

The baseline of the same run is the usual way to train: batches drawn on the host, one call per step.

    python benchmarks/train.py [--hidden 512 512] [--batch 512] [--steps 2000]
"""

import argparse
import json
import resource
import time
from functools import partial

import jax
import numpy as np

from bcrl.data import Dataset
from bcrl.learn.loop import initial_state, seed_keys, train
from bcrl.learn.method import Normaliser, Spec
from bcrl.learn.presets import make_method


def made_up_log(transitions: int, observation_size: int, action_size: int, horizon: int = 200) -> Dataset:
    """Random numbers in the shape of a Bullet log: speed does not depend on what they say."""
    random = np.random.default_rng(0)
    n = transitions // horizon * horizon
    observations = random.normal(size=(n, observation_size)).astype(np.float32)
    ends = np.arange(1, n + 1) % horizon == 0
    return Dataset.from_arrays(
        {
            "observations": observations,
            "actions": random.uniform(-1, 1, (n, action_size)).astype(np.float32),
            "rewards": random.normal(size=n).astype(np.float32),
            "costs": (random.random(n) < 0.2).astype(np.float32),
            "next_observations": np.roll(observations, -1, axis=0),
            "terminals": np.zeros(n, bool),
            "timeouts": ends,
        },
        source="made up",
    )


def fetched(tree) -> None:
    """Waits until everything is computed."""
    jax.block_until_ready(tree)


def loop_speed(method, arrays, spec: Spec, seeds: tuple[int, ...], steps: int) -> dict:
    state = initial_state(method, spec, seeds)
    fetched(state)
    points = train(method, arrays, spec, seeds, state, step=0, log_every=steps)
    marks = [time.perf_counter()]
    for point in points:
        if point.metrics is not None:
            fetched(point.state)
            marks.append(time.perf_counter())
    first, *times = np.diff(marks).tolist()
    best = min(times)
    return {
        "seeds": len(seeds),
        "steps_per_second": round(steps / best, 1),
        "seed_steps_per_second": round(steps * len(seeds) / best, 1),
        "compile_seconds": round(first - best, 2),
    }


def baseline_speed(method, arrays, spec: Spec, steps: int) -> float:
    """One seed, one call per step, batch indices and rows drawn in numpy."""
    state = jax.tree.map(lambda x: x[0], initial_state(method, spec, (0,)))
    rows = np.asarray(arrays.rows)
    random = np.random.default_rng(0)
    parts = method.schedule[0]

    @partial(jax.jit, donate_argnums=0)
    def step(state, rows, key):
        batch = method.sample(type(arrays)(rows, arrays.initial_features, arrays.widths), key)
        return method.update(state, batch, key, spec, parts)

    key = seed_keys((0,))[0]

    def walk(state, count: int):
        for i in range(count):
            batch = rows[random.integers(0, len(rows), method.batch_size)]
            state, _ = step(state, batch, jax.random.fold_in(key, i))
        fetched(state)
        return state

    state = walk(state, 20)  # compiles
    started = time.perf_counter()
    walk(state, steps)
    return steps / (time.perf_counter() - started)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--method", default="bcrl")
    parser.add_argument("--hidden", type=int, nargs="+", default=[512, 512])
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--steps", type=int, default=2000, help="steps per timed piece; three are timed")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 3], help="how many seeds at once")
    words = parser.parse_args()
    options = {"hidden": tuple(words.hidden), "batch_size": words.batch}
    method, _ = make_method(words.method, "paper", "bullet", options)
    data = made_up_log(200_000, 8, 2)
    spec = Spec(8, 2, 1, 200, (1.0,), 4 * words.steps)
    arrays = method.prepare(data, Normaliser.of(data.observations))
    rows = [loop_speed(method, arrays, spec, tuple(range(n)), words.steps) for n in words.seeds]
    usual = baseline_speed(method, arrays, spec, max(words.steps // 4, 50))
    device = jax.devices()[0]
    memory = (device.memory_stats() or {}).get("peak_bytes_in_use")
    print(
        json.dumps(
            {
                "device": device.device_kind,
                "jax": jax.__version__,
                "method": words.method,
                "hidden": words.hidden,
                "batch": words.batch,
                "runs": rows,
                "baseline_steps_per_second": round(usual, 1),
                "ratio_to_baseline": round(rows[0]["steps_per_second"] / usual, 2),
                "device_memory_mb": round(memory / 2**20) if memory else None,
                "host_memory_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10),
            },
            indent=2,
        )
    )


if __name__ == "__main__":
    main()
