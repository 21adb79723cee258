"""Training from a log larger than memory, as JSON: speed against a log in memory, and resident memory.

    python benchmarks/large_log.py --size 20 --folder /big/disk

writes a log of `--size` GB, trains BCRL on it from disk, and on a log of `--small` GB and the same widths in
memory, in two processes that take turns, so that both see the same load of the machine. In the cold turns
the system is told every two seconds to forget what it has cached of the packed table, so that rows come from
the disk itself. All files are deleted at the end. Linux only.
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
CALL = {"paper": 20, "cpu": 100}  # steps in one call of the train loop
TURNS = (("memory", "warm"), ("disk", "warm"), ("disk", "cold"))


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


class Cache:
    """What the system has cached of files without a name; dropped every two seconds while `cold`."""

    def __init__(self) -> None:
        from bcrl.data import mapped

        self.cold = False
        self._handles: list[int] = []
        self._made = mapped.tempfile.TemporaryFile
        mapped.tempfile.TemporaryFile = self._noted  # type: ignore[assignment]
        threading.Thread(target=self._drop, daemon=True).start()

    def _noted(self, *words, **more):
        file = self._made(*words, **more)
        self._handles.append(os.dup(file.fileno()))
        return file

    def _drop(self) -> None:
        while True:
            for handle in self._handles if self.cold else ():
                os.fdatasync(handle)  # what is not on the disk yet cannot be dropped
                os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
            time.sleep(2)


def serve(words: argparse.Namespace) -> None:
    """Prepares as `fit` does, then trains for a turn at each line of stdin."""
    memory, cache = Memory(), Cache()
    from bcrl.data import load_data
    from bcrl.learn.loop import initial_state, train
    from bcrl.learn.protocol import Normaliser, Spec
    from bcrl.learn.registry import make_method
    from bcrl.learn.units import Units

    marks = [time.perf_counter()]
    data = load_data(words.log, storage=words.storage)
    marks.append(time.perf_counter())
    data.fingerprint()
    marks.append(time.perf_counter())
    units = Units.of(data, make_method("bcrl"))
    log = units.log_inside(data)
    spec = Spec.of(log, 10_000_000)
    arrays = make_method("bcrl").prepare(log, Normaliser.of(log.observations))
    marks.append(time.perf_counter())
    trainings: dict = {}
    for preset in words.presets:
        method = units.inside(make_method("bcrl", preset=preset))
        state = initial_state(method, spec, (0,))
        trainings[preset] = train(method, arrays, spec, (0,), state, step=0, log_every=CALL[preset])
        next(trainings[preset])  # compiles
    seconds = dict(zip(("load", "fingerprint", "prepare"), np.diff(marks).round(1).tolist(), strict=True))
    facts = {"transitions": len(data), "on_disk": data.on_disk, "seconds": seconds}
    print(json.dumps(facts | {"peak_gb": memory.peak()}), flush=True)
    for line in sys.stdin:
        preset, how = line.split()
        cache.cold = how == "cold"
        for _ in range(UNTIMED):
            next(trainings[preset])
        began = time.perf_counter()
        for _ in range(words.calls):
            next(trainings[preset])
        rate = CALL[preset] * words.calls / (time.perf_counter() - began)
        cache.cold = False
        print(json.dumps({"steps_per_second": rate, "peak_gb": memory.peak()}), flush=True)


class Trainer:
    """A process that trains when it is asked to."""

    def __init__(self, log: Path, storage: str, presets: list[str], calls: int) -> None:
        words = [sys.executable, __file__, "--log", log, "--storage", storage, "--calls", calls]
        self.process = subprocess.Popen(
            [str(word) for word in (*words, "--presets", *presets)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.facts = self._answer()

    def turn(self, preset: str, how: str) -> float:
        """Steps a second."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{preset} {how}\n")
        self.process.stdin.flush()
        answer = self._answer()
        self.facts["peak_gb"] = answer["peak_gb"]
        return round(answer["steps_per_second"], 1)

    def _answer(self) -> dict:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit("a training ended early")
        return json.loads(line)


def compare(logs: dict[str, Path], words: argparse.Namespace) -> dict:
    """Speeds of both, turn by turn, and the ratio of their medians."""
    trainers = {name: Trainer(path, name, words.presets, words.calls) for name, path in logs.items()}
    report: dict = {}
    for preset in words.presets:
        rates: dict[str, list[float]] = {" ".join(turn): [] for turn in TURNS}
        for _ in range(words.turns):
            for name, how in TURNS:
                rates[f"{name} {how}"].append(trainers[name].turn(preset, how))
        plain = np.median(rates["memory warm"])
        ratios = {how: round(float(np.median(rates[f"disk {how}"]) / plain), 3) for how in ("warm", "cold")}
        report[preset] = {"steps_per_second": rates, "disk_over_memory": ratios}
    for trainer in trainers.values():
        trainer.process.communicate()
    return {name: trainer.facts for name, trainer in trainers.items()} | report


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--size", type=float, default=20, help="GB of the large log")
    parser.add_argument("--small", type=float, default=0.5, help="GB of the log in memory")
    parser.add_argument("--folder", type=Path, default=Path("large"), help="where twice the size is free")
    parser.add_argument("--presets", nargs="+", default=list(CALL))
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--calls", type=int, default=10, help="calls that are timed in a turn")
    parser.add_argument("--log", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--storage", help=argparse.SUPPRESS)
    words = parser.parse_args()
    if words.log is not None:
        return serve(words)
    folder = words.folder / f"large-log-{os.getpid()}"
    folder.mkdir(parents=True)
    os.environ["BCRL_CACHE"] = str(folder)
    try:
        logs = {"memory": folder / "small.npz", "disk": folder / "large.npz"}
        for path, size in zip(logs.values(), (words.small, words.size), strict=True):
            generate(path, int(size * 1e9 / ROW_BYTES))
        size = round(logs["disk"].stat().st_size / 1e9, 2)
        report = {"cores": len(os.sched_getaffinity(0)), "log_gb": size} | compare(logs, words)
        print(json.dumps(report, indent=2))
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
