"""Training speed as JSON: steps/s, seed-steps/s, compile time, memory, for one and three seeds.

The baseline of the same run is the usual way to train: batches drawn on the host, one call per step.

    python benchmarks/train.py [--methods bcrl caps ...] [--hidden 512 512] [--batch 512] [--steps 2000]
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
from bcrl.learn.protocol import Normaliser, Part, Spec
from bcrl.learn.registry import METHODS, find_method, make_method


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
        consecutive=False,
    )


def fetched(tree) -> None:
    """Waits until everything is computed."""
    jax.block_until_ready(tree)


def loop_speed(
    method, arrays, spec: Spec, parts: tuple[Part, ...], seeds: tuple[int, ...], steps: int
) -> dict:
    """Of one phase: `parts` are what it trains together."""
    state = initial_state(method, spec, seeds)
    fetched(state)
    points = train(method, arrays, spec, seeds, state, step=0, log_every=steps, schedule=(parts,))
    marks = [time.perf_counter()]
    for point in points:
        if point.metrics is not None:
            fetched(point.state)
            marks.append(time.perf_counter())
    first, *times = np.diff(marks).tolist()
    best = min(times)
    return {
        "trains": list(parts),
        "seeds": len(seeds),
        "steps_per_second": round(steps / best, 1),
        "seed_steps_per_second": round(steps * len(seeds) / best, 1),
        "compile_seconds": round(first - best, 2),
    }


def baseline_speed(method, arrays, spec: Spec, steps: int) -> float:
    """One seed, one call per step, batches drawn in the host's memory and sent over."""
    state = jax.tree.map(lambda x: x[0], initial_state(method, spec, (0,)))
    host, device = jax.devices("cpu")[0], jax.devices()[0]
    on_host = jax.device_put(arrays, host)
    draw = jax.jit(method.sample)
    parts = method.schedule[-1]

    @partial(jax.jit, donate_argnums=0)
    def step(state, batch, key):
        return method.update(state, batch, key, spec, parts)

    key = seed_keys((0,))[0]

    def walk(state, count: int):
        for i in range(count):
            batch = draw(on_host, jax.device_put(jax.random.fold_in(key, i), host))
            state, _ = step(state, jax.device_put(batch, device), jax.random.fold_in(key, i))
        fetched(state)
        return state

    state = walk(state, 5)  # compiles
    started = time.perf_counter()
    walk(state, steps)
    return steps / (time.perf_counter() - started)


def speed(name: str, words: argparse.Namespace) -> dict:
    """One method at its published size, or at the one that is asked for."""
    options = {"batch_size": words.batch} if words.batch else {}
    if words.hidden:
        options["hidden"] = tuple(words.hidden)
    if words.variant:
        options["variant"] = words.variant
    if find_method(name).threshold == "before training":
        options["threshold"] = 20.0
    method = make_method(name, **options)
    data = made_up_log(200_000, 8, 2)
    spec = Spec(8, 2, 1, 200, (1.0,), 4 * words.steps)
    arrays = method.prepare(data, Normaliser.of(data.observations))
    # The last phase comes first: it is the main one, on which the baseline is measured too.
    rows = [
        loop_speed(method, arrays, spec, parts, tuple(range(n)), words.steps)
        for parts in reversed(method.schedule)
        for n in words.seeds
    ]
    usual = baseline_speed(method, arrays, spec, max(words.steps // 4, 20))
    memory = (jax.devices()[0].memory_stats() or {}).get("peak_bytes_in_use")
    return {
        "method": name,
        "hidden": getattr(method, "hidden", None),
        "batch": getattr(method, "batch_size", None),
        "runs": rows,
        "baseline_steps_per_second": round(usual, 1),
        "ratio_to_baseline": round(rows[0]["steps_per_second"] / usual, 2),
        "device_memory_mb": round(memory / 2**20) if memory else None,
        "host_memory_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--methods", nargs="+", default=["bcrl"], choices=sorted(METHODS))
    parser.add_argument("--hidden", type=int, nargs="+", help="default: the method's own")
    parser.add_argument("--batch", type=int, help="default: the method's own")
    parser.add_argument("--variant", choices=["fixed", "faithful"], help="default: the method's own")
    parser.add_argument("--steps", type=int, default=2000, help="steps per timed piece; three are timed")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 3], help="how many seeds at once")
    words = parser.parse_args()
    print(json.dumps({"device": jax.devices()[0].device_kind, "jax": jax.__version__}))
    for name in words.methods:
        print(json.dumps(speed(name, words), indent=2), flush=True)


if __name__ == "__main__":
    main()
