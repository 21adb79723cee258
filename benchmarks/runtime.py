"""The numpy runtime against JAX as a table: act, load to first action, memory. One core, one process each.

The policy has random networks: speed does not depend on what they say. Each figure is of the rule
finite-horizon; "soft" also charges each action. First actions are timed from the start of the process, with
Python's own start; the runtime is the module that `bcrl export --to numpy` writes, beside the policy.

    python benchmarks/runtime.py [--hidden 512 512] [--observations 60] [--actions 8]
        [--mixtures 0] [--repeats 5]
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

CHILD = r"""
import os, sys, time
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
kind, path, began, calls = sys.argv[1], sys.argv[2], float(sys.argv[3]), int(sys.argv[4])
imported = time.time()
if kind == "numpy":
    sys.path.insert(0, path.rpartition("/")[0])
    from bcrl_runtime import load
else:
    from bcrl import load
import json
import numpy as np
policy = load(path)
size = policy.spec.observation_size
policy.start(threshold=1e6, horizon=10).act(np.zeros(size, np.float32))
first = time.time()
found = {"first action": first - began, "from import": first - imported}
random = np.random.default_rng(0)
rules = {
    "act": {"threshold": 1e6},
    "act, the fallback": {"threshold": 0.0},
    "act, soft rule": {"threshold": 1e6, "execution": "soft"},
    "act, 32 candidates": {"threshold": 1e6, "candidates": 32},
}
for name, how in rules.items() if calls else ():
    episode = policy.start(horizon=10**6, out_of_range="ignore", **how)
    times = []
    for _ in range(calls):
        seen = random.normal(size=size).astype(np.float32)
        before = time.perf_counter()
        episode.act(seen)
        times.append(time.perf_counter() - before)
        episode.observe(0.0)
    found[name] = float(np.median(times))
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
found["memory"] = int(status["VmHWM"].split()[0]) / 1024
print(json.dumps(found))
"""
LIMITS = {"act": 0.5e-3, "act, 32 candidates": 3e-3, "first action": 0.2, "memory": 80.0}


def child(kind: str, path: Path, calls: int) -> dict[str, float]:
    """The figures of one fresh process."""
    isolated = ["-I"] if kind == "numpy" else []
    words = [sys.executable, *isolated, "-c", CHILD, kind, str(path), str(time.time()), str(calls)]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--hidden", type=int, nargs="+", default=[512, 512])
    parser.add_argument("--observations", type=int, default=60)
    parser.add_argument("--actions", type=int, default=8)
    parser.add_argument("--mixtures", type=int, default=0, help="tried by the fallback (fallback_mixtures)")
    parser.add_argument("--repeats", type=int, default=5, help="fresh processes for the first action")
    asked = parser.parse_args()
    from runtime_agreement import Case, make_policy

    from bcrl.export import export_numpy
    from bcrl.progress import progress

    figures: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "policy.bcrl"
        case = Case("speed", options={"fallback_mixtures": asked.mixtures})
        make_policy(case, tuple(asked.hidden), asked.observations, asked.actions).save(path)
        export_numpy(path, Path(folder) / "numpy")
        kinds = {"numpy": Path(folder) / "numpy" / path.name, "jax": path}
        with progress("measuring", 2 * (asked.repeats + 1), "processes") as tick:
            for kind, place in kinds.items():
                starts = []
                for _ in range(asked.repeats):
                    starts.append(child(kind, place, 0))
                    tick(note=kind)
                figures[kind] = child(kind, place, 2_000) | {
                    name: median(start[name] for start in starts) for name in ("first action", "from import")
                }
                figures[kind]["memory, first action"] = median(start["memory"] for start in starts)
                tick(note=kind)
    print(f"{asked.hidden}, {asked.observations} observations, {asked.actions} actions; one core")
    print(f"{'':<22}{'numpy':>12}{'jax':>12}{'ratio':>8}{'limit':>11}")
    for name, ours in figures["numpy"].items():
        theirs = figures["jax"][name]
        unit, scale = ("MB", 1.0) if "memory" in name else ("ms", 1e3)
        limit = f"{LIMITS[name] * scale:g} {unit}" if name in LIMITS else ""
        pair = f"{ours * scale:>9.3g} {unit}{theirs * scale:>9.4g} {unit}"
        print(f"{name:<22}{pair}{theirs / ours:>8.1f}{limit:>11}")


if __name__ == "__main__":
    main()
