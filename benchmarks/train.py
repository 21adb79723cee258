"""Training speed as JSON: steps/s, seed-steps/s, compile time, memory, for one and three seeds.

The baseline of the same run is the usual way to train: batches drawn on the host, one call per step.

    python benchmarks/train.py [--methods bcrl caps ...] [--hidden 512 512] [--batch 512] [--steps 2000]

With --sweep: 12 settings of BCRL with 3 seeds each as one program, and the settings one after another.
"""

import argparse
import json
import resource
import time
from functools import partial

import jax
import numpy as np

from bcrl.data import Dataset
from bcrl.learn.loop import NOTHING, initial_state, seed_keys, train
from bcrl.learn.protocol import Normaliser, Part, Spec
from bcrl.learn.registry import METHODS, find_method, make_method
from bcrl.learn.traced import differing
from bcrl.train.sweep import settings


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
    method, arrays, spec: Spec, parts: tuple[Part, ...], seeds: tuple[int, ...], steps: int, swept=NOTHING
) -> dict:
    """Of one phase: `parts` are what it trains together."""
    state = initial_state(method, spec, seeds, swept)
    fetched(state)
    points = train(
        method, arrays, spec, seeds, state, step=0, log_every=steps, schedule=(parts,), swept=swept
    )
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
        "seconds": round(marks[-1] - marks[0], 2),
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


def sweep_speed(words: argparse.Namespace) -> dict:
    """Up to 12 settings with 3 seeds each as one program, and one setting after another."""
    method = make_method("bcrl", **size(words))
    grid = {"tau_c": (0.1, 0.2, 0.3, 0.4), "beta": (1.0, 3.0, 8.0)}
    methods, seeds = list(settings(method, **grid).values())[: words.sweep], (0, 1, 2)
    data = made_up_log(200_000, 8, 2)
    spec = Spec(8, 2, 1, 200, (1.0,), 4 * words.steps)
    arrays = method.prepare(data, Normaliser.of(data.observations))
    (parts,) = method.schedule
    swept = {name: np.repeat(values, len(seeds)) for name, values in differing(methods).items()}
    members = seeds * len(methods)
    together = loop_speed(methods[0], arrays, spec, parts, members, words.steps, swept)
    alone = [loop_speed(one, arrays, spec, parts, seeds, words.steps) for one in methods]
    apart = len(alone) / sum(1 / row["seed_steps_per_second"] for row in alone)
    return {
        "sweep": {name: list(values) for name, values in grid.items()},
        "hidden": getattr(method, "hidden", None),
        "batch": getattr(method, "batch_size", None),
        "settings": len(methods),
        "seeds": len(seeds),
        "together": {
            "seed_steps_per_second": together["seed_steps_per_second"],
            "compile_seconds": together["compile_seconds"],
            "seconds": together["seconds"],
        },
        "one_after_another": {
            "seed_steps_per_second": round(apart, 1),
            "compile_seconds": round(sum(row["compile_seconds"] for row in alone), 2),
            "seconds": round(sum(row["seconds"] for row in alone), 2),
        },
        "ratio": round(together["seed_steps_per_second"] / apart, 2),
        "device_memory_mb": device_memory(),
    }


def size(words: argparse.Namespace) -> dict:
    """The options of size that were given."""
    options = {"batch_size": words.batch} if words.batch else {}
    if words.hidden:
        options["hidden"] = tuple(words.hidden)
    return options


def device_memory() -> int | None:
    """The most that was in use, in MB; None where the device does not say."""
    memory = (jax.devices()[0].memory_stats() or {}).get("peak_bytes_in_use")
    return round(memory / 2**20) if memory else None


def speed(name: str, words: argparse.Namespace) -> dict:
    """One method at its published size, or at the one that is asked for."""
    options = size(words)
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
    return {
        "method": name,
        "hidden": getattr(method, "hidden", None),
        "batch": getattr(method, "batch_size", None),
        "runs": rows,
        "baseline_steps_per_second": round(usual, 1),
        "ratio_to_baseline": round(rows[0]["steps_per_second"] / usual, 2),
        "device_memory_mb": device_memory(),
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
    parser.add_argument(
        "--sweep", type=int, nargs="?", const=12, help="so many settings at once against one after another"
    )
    words = parser.parse_args()
    print(json.dumps({"device": jax.devices()[0].device_kind, "jax": jax.__version__}))
    if words.sweep:
        print(json.dumps(sweep_speed(words), indent=2))
        return
    for name in words.methods:
        print(json.dumps(speed(name, words), indent=2), flush=True)


if __name__ == "__main__":
    main()
