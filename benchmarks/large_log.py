"""Training from a log larger than memory, as JSON: speed against a log in memory, and resident memory.

    python benchmarks/large_log.py --size 20 --folder /big/disk

writes a log of `--size` GB, trains BCRL on it from disk, and on a log of `--small` GB and the same widths in
memory, in two processes that take turns, so that both see the same load of the machine. With `--cold` the
system is told every second to forget what it has cached of the packed table, so that every row is read from
the disk itself. All files are deleted at the end.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

OBSERVATIONS, ACTIONS, HORIZON = 136, 6, 200  # a packed row has 281 numbers
ROW_BYTES = 4 * (2 * OBSERVATIONS + ACTIONS + 2) + 2
BLOCK = 200  # episodes that are made at once
UNTIMED = 4  # calls at the start of a turn: their rows were read while the other process had its turn
CALL = 100  # steps in one call of the train loop on a CPU


def generate(path: Path, rows: int) -> None:
    """A log of random numbers whose next observations are those of the next row, as uncompressed NPZ."""
    episodes = rows // HORIZON
    counts = [min(BLOCK, episodes - first) for first in range(0, episodes, BLOCK)]

    def states(number: int, count: int) -> np.ndarray:
        random = np.random.default_rng(number)
        return random.random((count, HORIZON + 1, OBSERVATIONS), np.float32) - np.float32(0.5)

    def uniform(width: int, seed: int) -> Iterator[np.ndarray]:
        for number, count in enumerate(counts):
            shape = (count * HORIZON, width) if width else (count * HORIZON,)
            yield 2 * np.random.default_rng([seed, number]).random(shape, np.float32) - 1

    ends = np.tile(np.arange(HORIZON) == HORIZON - 1, BLOCK)
    flat = (-1, OBSERVATIONS)
    fields = {
        "observations": (states(i, n)[:, :-1].reshape(flat) for i, n in enumerate(counts)),
        "actions": uniform(ACTIONS, 1),
        "rewards": uniform(0, 2),
        "costs": ((x > 0.6).astype(np.float32) for x in uniform(0, 3)),
        "next_observations": (states(i, n)[:, 1:].reshape(flat) for i, n in enumerate(counts)),
        "terminals": (np.zeros(n * HORIZON, bool) for n in counts),
        "timeouts": (ends[: n * HORIZON] for n in counts),
    }
    widths = {"observations": OBSERVATIONS, "actions": ACTIONS, "next_observations": OBSERVATIONS}
    with zipfile.ZipFile(path, "w") as file:
        for name, pieces in fields.items():
            total = episodes * HORIZON
            shape = (total, widths[name]) if name in widths else (total,)
            kind = "|b1" if name in ("terminals", "timeouts") else "<f4"
            with file.open(f"{name}.npy", "w", force_zip64=True) as member:
                head = {"descr": kind, "fortran_order": False, "shape": shape}
                np.lib.format.write_array_header_1_0(member, head)
                for piece in pieces:
                    member.write(np.ascontiguousarray(piece).data)


class Memory:
    """The largest resident memory of this process and of its anonymous part, in GB."""

    def __init__(self) -> None:
        self.anonymous = 0.0
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        while True:
            self.anonymous = max(self.anonymous, _status("RssAnon"))
            time.sleep(0.05)

    def peak(self) -> dict:
        return {"resident": round(_status("VmHWM"), 2), "anonymous": round(self.anonymous, 2)}


def _status(field: str) -> float:
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) * 1024 / 1e9 for line in file if line.startswith(f"{field}:"))


def keep_cold() -> None:
    """Every file without a name that is made from now on is dropped from the page cache every second."""
    from bcrl.data import mapped

    made, handles = mapped.tempfile.TemporaryFile, []

    def noted(*words, **more):
        file = made(*words, **more)
        handles.append(os.dup(file.fileno()))
        return file

    def forget() -> None:
        while True:
            for handle in handles:
                os.fdatasync(handle)  # what is not on the disk yet cannot be dropped
                os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
            time.sleep(1)

    mapped.tempfile.TemporaryFile = noted
    threading.Thread(target=forget, daemon=True).start()


def serve(words: argparse.Namespace) -> None:
    """Prepares as `fit` does, then trains for a turn at each line of stdin."""
    memory = Memory()
    from bcrl.data import load_data
    from bcrl.learn.loop import initial_state, train
    from bcrl.learn.protocol import Normaliser, Spec
    from bcrl.learn.registry import make_method
    from bcrl.learn.units import Units

    if words.cold:
        keep_cold()
    began = time.perf_counter()
    data = load_data(words.log)
    seconds = {"load": time.perf_counter() - began}
    began = time.perf_counter()
    data.fingerprint()
    seconds["fingerprint"] = time.perf_counter() - began
    began = time.perf_counter()
    method = make_method("bcrl", preset=words.preset)
    units = Units.of(data, method)
    inside, log = units.inside(method), units.log_inside(data)
    spec = Spec.of(log, 10_000_000)
    arrays = inside.prepare(log, Normaliser.of(log.observations))
    seconds["prepare"] = time.perf_counter() - began
    state = initial_state(inside, spec, (0,))
    points = train(inside, arrays, spec, (0,), state, step=0, log_every=spec.steps)
    next(points)  # compiles
    facts = {"transitions": len(data), "on_disk": data.on_disk, "peak_gb": memory.peak()}
    print(json.dumps(facts | {"seconds": {name: round(x, 1) for name, x in seconds.items()}}), flush=True)
    for _ in sys.stdin:
        for _ in range(UNTIMED):
            next(points)
        began = time.perf_counter()
        for _ in range(words.calls):
            next(points)
        seconds_taken = time.perf_counter() - began
        print(json.dumps({"seconds": seconds_taken, "peak_gb": memory.peak()}), flush=True)


class Trainer:
    """A process that trains when it is asked to."""

    def __init__(self, log: Path, preset: str, calls: int, cold: bool) -> None:
        words = [sys.executable, __file__, "--log", log, "--preset", preset, "--calls", calls]
        self.process = subprocess.Popen(
            [str(word) for word in (*words, *(["--cold"] if cold else []))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.facts = self._answer()
        self.rates: list[float] = []

    def turn(self, calls: int) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        answer = self._answer()
        self.rates.append(CALL * calls / answer["seconds"])
        self.facts["peak_gb"] = answer["peak_gb"]

    def result(self) -> dict:
        self.process.communicate()
        return self.facts | {"steps_per_second": [round(rate, 1) for rate in self.rates]}

    def _answer(self) -> dict:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit("a training ended early")
        return json.loads(line)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--size", type=float, default=20, help="GB of the large log")
    parser.add_argument("--small", type=float, default=1, help="GB of the log in memory")
    parser.add_argument(
        "--folder", type=Path, default=Path("large"), help="twice the size must be free there"
    )
    parser.add_argument("--presets", nargs="+", default=["paper", "cpu"])
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--calls", type=int, default=10, help="calls of 100 steps that are timed in a turn")
    parser.add_argument("--cold", action="store_true", help="keep the table out of the page cache")
    parser.add_argument("--log", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--preset", help=argparse.SUPPRESS)
    words = parser.parse_args()
    if words.log is not None:
        return serve(words)
    folder = words.folder / f"large-log-{os.getpid()}"
    folder.mkdir(parents=True)
    os.environ["BCRL_CACHE"] = str(folder)
    try:
        logs = {"memory": (folder / "small.npz", words.small), "disk": (folder / "large.npz", words.size)}
        for path, size in logs.values():
            if os.fork() == 0:  # in its own process, so that its memory is given back
                generate(path, int(size * 1e9 / ROW_BYTES))
                os._exit(0)
            if os.wait()[1]:
                raise SystemExit("the log could not be written")
        report: dict = {"cores": len(os.sched_getaffinity(0)), "cold": words.cold}
        report["log_gb"] = round(logs["disk"][0].stat().st_size / 1e9, 2)
        for preset in words.presets:
            calls = words.calls
            both = {
                name: Trainer(path, preset, calls, words.cold and name == "disk")
                for name, (path, _) in logs.items()
            }
            for _ in range(words.turns):
                for trainer in both.values():
                    trainer.turn(calls)
            ratio = np.median(both["disk"].rates) / np.median(both["memory"].rates)
            found = {name: trainer.result() for name, trainer in both.items()}
            report[preset] = found | {"disk_over_memory": round(float(ratio), 3)}
        print(json.dumps(report, indent=2))
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
