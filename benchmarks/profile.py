"""Where the time of a training step goes: kernels by stage, their time, and what the hardware would allow.

    python benchmarks/profile.py [--methods bcrl cdt fisor] [--preset paper|cpu] [--out profile.json]
    python benchmarks/profile.py --markdown profile.json     # the tables of an earlier run, for a document

Kernels are timed by the profiler, one after another (on a GPU without CUDA graphs), and mapped to stages by
the names that `bcrl.learn.stages` leaves in the compiled program. A fused kernel counts for the stage of its
last operation. `steps_per_second` is of the program that training runs, without the profiler.

The bounds: multiplications and additions of matrix products over the speed of one large product, and bytes
that kernels read and write over the speed of a large copy. Both are measured in the same run. Data that stay
in a cache are faster than the second bound.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from profile_parts import Program, flops_by_stage
from train import made_up_log

from bcrl.learn.loop import _program, _scan_steps, initial_state, seed_keys
from bcrl.learn.protocol import Normaliser, Spec
from bcrl.learn.registry import METHODS, PRESETS, find_method, make_method

CONTAINERS = ("while", "call", "conditional")  # their kernels are events of their own
NO_GRAPHS = {"xla_gpu_graph_min_graph_size": 1_000_000}  # else a CUDA graph may be one event


class Prepared(NamedTuple):
    """A method ready to run `length` steps, by the program of training and by one for the profiler."""

    method: Any
    length: int
    trained: Any
    traced: Any
    flops: Mapping[tuple[str, str], float]
    state: Any
    rest: tuple[Any, ...]


def prepare(name: str, words: argparse.Namespace, pool: ThreadPoolExecutor) -> Prepared:
    options: dict[str, Any] = {"threshold": 20.0} if find_method(name).threshold == "before training" else {}
    method = make_method(name, preset=words.preset, **options)
    data = made_up_log(200_000, 8, 2)
    spec = Spec(8, 2, 1, 200, (1.0,), 1_000_000)
    arrays = method.prepare(data, Normaliser.of(data.observations))
    seeds, parts = tuple(range(words.seeds)), method.schedule[-1]
    state = initial_state(method, spec, seeds)
    rest = (arrays, None, seed_keys(seeds), np.int32(0), {})
    lowered = _program().lower(method, spec, parts, words.steps, None, state, *rest)
    trained = traced = pool.submit(lowered.compile)
    if jax.default_backend() == "gpu":
        traced = pool.submit(lowered.compile, NO_GRAPHS)
    one = jax.make_jaxpr(partial(_scan_steps, method, spec, parts, 1, None))(state, *rest)
    return Prepared(method, words.steps, trained, traced, flops_by_stage(one.jaxpr), state, rest)


def speed(ready: Prepared, program: Any, seconds: float) -> tuple[float, Any]:
    """Steps a second, the best of the calls that fit into so many seconds, and the state after them."""
    state, _ = jax.block_until_ready(program(ready.state, *ready.rest))
    times, end = [], time.perf_counter() + seconds
    while len(times) < 2 or time.perf_counter() < end:
        started = time.perf_counter()
        state, _ = jax.block_until_ready(program(state, *ready.rest))
        times.append(time.perf_counter() - started)
    return ready.length / min(times), state


def kernels(program: Any, state: Any, rest: tuple[Any, ...]) -> list[tuple[str, float]]:
    """(instruction, seconds) of every kernel of one call."""
    options = jax.profiler.ProfileOptions()
    options.python_tracer_level = 0
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder, profiler_options=options):
            jax.block_until_ready(program(state, *rest))
        (file,) = Path(folder).rglob("*.xplane.pb")
        profile = jax.profiler.ProfileData.from_file(str(file))
    devices = [plane for plane in profile.planes if plane.name.startswith("/device:GPU")]
    found = []
    for plane in devices or profile.planes:
        for line in plane.lines:
            if devices and not line.name.startswith("Stream"):
                continue  # lines that are derived from the streams
            for event in line.events:
                operation = dict(event.stats).get("hlo_op") or (event.name if devices else None)
                if operation:
                    found.append((str(operation), 1e-9 * event.duration_ns))
    return found


def profile(ready: Prepared, peaks: dict[str, float]) -> dict[str, Any]:
    """One method: its speed, and its stages if the profiler gives any."""
    row: dict[str, Any] = {
        "method": ready.method.name,
        "hidden": getattr(ready.method, "hidden", None),
        "batch": getattr(ready.method, "batch_size", None),
    }
    steps_per_second, state = speed(ready, ready.trained.result(), 3.0)
    row["steps_per_second"] = round(steps_per_second, 1)
    row["step_us"] = round(1e6 / steps_per_second, 1)
    try:
        program = ready.traced.result()
        hlo = Program(program.as_text())
        state, _ = jax.block_until_ready(program(state, *ready.rest))  # warm
        events = [
            (name, seconds)
            for name, seconds in kernels(program, state, ready.rest)
            if hlo.opcode(name) not in CONTAINERS
        ]
        if not events:
            raise RuntimeError("the trace has no kernels")
    except Exception as error:  # the profiler is no part of training: report what there is
        row["no_profile"] = f"{type(error).__name__}: {error}".splitlines()[0]
        print(f"{ready.method.name}: no profile ({row['no_profile']})", file=sys.stderr)
        return row
    stages: dict[str, dict[str, float]] = {}
    by_kernel: dict[str, float] = {}
    for name, seconds in events:
        stage = stages.setdefault(hlo.stage(name), dict.fromkeys(("kernels", "us", "mb"), 0.0))
        stage["kernels"] += 1 / ready.length
        stage["us"] += 1e6 * seconds / ready.length
        stage["mb"] += 1e-6 * hlo.bytes(name) / ready.length
        by_kernel[name] = by_kernel.get(name, 0.0) + 1e6 * seconds / ready.length
    for (name, kind), flops in ready.flops.items():
        stage = stages.setdefault(name, dict.fromkeys(("kernels", "us", "mb"), 0.0))
        speed_of = peaks["bfloat16_flops" if kind == "bfloat16" else "float32_flops"]
        stage["gflop"] = stage.get("gflop", 0.0) + 1e-9 * flops
        stage["arithmetic_us"] = stage.get("arithmetic_us", 0.0) + 1e6 * flops / speed_of
    for stage in stages.values():
        stage["memory_us"] = 1e12 * stage["mb"] / peaks["bytes_per_second"]
    row["stages"] = {
        name: {key: round(value, 3) for key, value in stage.items()}
        for name, stage in sorted(stages.items(), key=lambda item: -item[1]["us"])
    }
    row["kernels_per_step"] = round(sum(stage["kernels"] for stage in stages.values()), 1)
    row["kernel_us"] = round(sum(stage["us"] for stage in stages.values()), 1)
    longest = sorted(by_kernel.items(), key=lambda item: -item[1])[:15]
    row["longest_kernels"] = [
        {"kernel": name, "us": round(us, 2), "stage": hlo.stage(name), "of": hlo.op_name(name)[-120:]}
        for name, us in longest
    ]
    return row


def best_seconds(function: Any, x: jax.Array) -> float:
    """Of a function that returns what it takes, in place."""
    in_place, times = jax.jit(function, donate_argnums=0), []
    for _ in range(6):
        started = time.perf_counter()
        x = jax.block_until_ready(in_place(x))
        times.append(time.perf_counter() - started)
    return min(times)


def measured_peaks() -> dict[str, float]:
    """What one large matrix product and one large copy reach on this device."""
    gpu = jax.default_backend() == "gpu"
    size, words = (8192, 2**28) if gpu else (1024, 2**25)
    x = jnp.full((size, size), 1.0 / size)
    half = x.astype(jnp.bfloat16)
    return {
        "float32_flops": 2 * size**3 / best_seconds(lambda x: x @ x, x),
        "bfloat16_flops": 2 * size**3 / best_seconds(lambda x: x @ x, half),
        "bytes_per_second": 8 * words / best_seconds(lambda x: x + 1.0, jnp.zeros(words)),
    }


COLUMNS = ("stage", "kernels", "time, µs", "share", "arithmetic, µs", "memory, µs")


def table(row: dict[str, Any], markdown: bool) -> str:
    """The stages of one method, the longest first."""
    whole = row["kernel_us"]
    lines = [
        (
            name,
            f"{stage['kernels']:.0f}",
            f"{stage['us']:,.1f}",
            f"{stage['us'] / whole:.0%}",
            f"{stage.get('arithmetic_us', 0.0):,.1f}",
            f"{stage['memory_us']:,.1f}",
        )
        for name, stage in row["stages"].items()
    ]
    sums = [
        sum(stage.get(key, 0.0) for stage in row["stages"].values()) for key in ("arithmetic_us", "memory_us")
    ]
    total = ("all", f"{row['kernels_per_step']:.0f}", f"{whole:,.1f}", "", *(f"{x:,.1f}" for x in sums))
    lines = [COLUMNS, *lines, total]
    if markdown:
        rows = ["| " + " | ".join(line) + " |" for line in lines]
        return "\n".join([rows[0], "|" + "---|" * len(COLUMNS), *rows[1:]])
    widths = [max(len(line[i]) for line in lines) for i in range(len(COLUMNS))]
    return "\n".join(
        "  ".join(
            [line[0].ljust(widths[0]), *(w.rjust(n) for w, n in zip(line[1:], widths[1:], strict=True))]
        )
        for line in lines
    )


def report(found: dict[str, Any], markdown: bool) -> str:
    peaks = found["peaks"]
    text = [
        f"{found['device']}, JAX {found['jax']}: a large product {1e-12 * peaks['float32_flops']:.3g} "
        f"TFLOP/s (bfloat16 {1e-12 * peaks['bfloat16_flops']:.3g}), a large copy "
        f"{1e-9 * peaks['bytes_per_second']:,.0f} GB/s."
    ]
    for row in found["methods"]:
        size = f"{row['hidden']}, " if row["hidden"] else ""
        words = f"{row['method']}, {size}batch {row['batch']}: {row['steps_per_second']:,} steps/s, "
        text.append(f"{words}{row['step_us']:,} µs a step")
        text.append(table(row, markdown) if "stages" in row else f"No profile: {row['no_profile']}")
    return "\n\n".join(text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--methods", nargs="+", default=["bcrl"], choices=sorted(METHODS))
    parser.add_argument("--preset", default="paper", choices=sorted(PRESETS), help="size of the networks")
    parser.add_argument("--seeds", type=int, default=1, help="how many seeds at once")
    parser.add_argument("--steps", type=int, default=50, help="steps of a call, all of which are traced")
    parser.add_argument("--out", type=Path, help="file for the JSON (default: printed after the tables)")
    parser.add_argument(
        "--markdown", type=Path, help="print the tables of this JSON file, and profile nothing"
    )
    words = parser.parse_args()
    if words.markdown:
        print(report(json.loads(words.markdown.read_text()), markdown=True))
        return
    found: dict[str, Any] = {"device": jax.devices()[0].device_kind, "jax": jax.__version__}
    found["seeds"] = words.seeds
    with ThreadPoolExecutor(4) as pool:  # compiling takes longest: all at once
        ready = [prepare(name, words, pool) for name in words.methods]
        wait([program for method in ready for program in (method.trained, method.traced)])
    found["peaks"] = measured_peaks()
    found["methods"] = [profile(method, found["peaks"]) for method in ready]
    print(report(found, markdown=False))
    if words.out:
        words.out.write_text(json.dumps(found, indent=2) + "\n")
    else:
        print(json.dumps(found))


if __name__ == "__main__":
    main()
