"""The trainings of a benchmark as a list in a file, so that another machine can do them.

`python -m bcrl.train.jobs BENCH/jobs.json LOGS` trains them all into BENCH/runs, on a box that has jax,
optax, equinox, numpy and safetensors alone. `bcrl bench` writes the list, and evaluates what is trained.
"""

import argparse
import dataclasses
import hashlib
import json
import math
import os
import re
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bcrl.data import Dataset, load_data
from bcrl.errors import BCRLError, brief_repr, printable
from bcrl.files import write_text
from bcrl.learn.protocol import Method
from bcrl.learn.registry import find_method, from_record
from bcrl.train.folder import CONFIG, read_config
from bcrl.train.run import fit

FILE = "jobs.json"
RUNS = "runs"
SECONDS = "seconds.json"
ADDED = {"fallback_critic": False, "fallback_ramp": 0.0, "fallback_mixtures": 0}
"""Options that came later, with the value that changes nothing. With it they are no part of a job's identity,
so that what was trained and judged before them is found again. Every new option of a method belongs here."""


@dataclass(frozen=True)
class Job:
    """One training: a method with all its options on one log, the seeds as one program."""

    task: str
    """What the log is of; it names the log's file."""
    method: str
    options: dict[str, Any]
    """Every option of the method, those left at their defaults too."""
    steps: int
    seeds: tuple[int, ...]
    data_sha256: str
    """The fingerprint of the log, the same in every format."""
    data_file: str = ""
    """Another name the log's file may have."""
    keep_every: int = 0
    """As in `fit`."""

    @property
    def identity(self) -> dict[str, Any]:
        """All that decides what is learned, but for the seeds."""
        names = ("task", "method", "steps", "data_sha256", "keep_every")
        said = {
            name: value for name, value in self.options.items() if name not in ADDED or value != ADDED[name]
        }
        return {**{name: getattr(self, name) for name in names}, "options": said}

    @property
    def folder(self) -> Path:
        """Where its runs lie, one for each group of seeds that was trained together."""
        return Path(self.task) / f"{self.method}-{digest(self.identity)[:12]}"

    def make(self) -> Method:
        """The method."""
        return from_record(find_method(self.method).kind, self.options)


def digest(record: Any) -> str:
    """A name for the content of a record: the same for the same JSON."""
    text = json.dumps(record, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def policy_file(job: Job, runs: Path, seed: int) -> Path | None:
    """The finished policy of a seed, whichever seeds it was trained with."""
    return next(iter(sorted((runs / job.folder).glob(f"seeds-*/policy-{seed}.bcrl"))), None)


def kept_policies(policy: Path) -> dict[int, Path]:
    """The policies of the way to this one, by step."""
    found = [file for file in policy.parent.glob(f"steps/*/{policy.name}") if file.parent.name.isdecimal()]
    return dict(sorted((int(file.parent.name), file) for file in found))


def untrained(job: Job, runs: Path) -> list[tuple[int, ...]]:
    """Groups of seeds to train: those a stop has left unfinished as they were, the rest as one."""
    missing = [seed for seed in job.seeds if policy_file(job, runs, seed) is None]
    groups = []
    for folder in sorted((runs / job.folder).glob("seeds-*")):
        seeds = _seeds_in(folder)
        if set(seeds) & set(missing):
            groups.append(seeds)
            missing = [seed for seed in missing if seed not in seeds]
    return groups + ([tuple(missing)] if missing else [])


def seeds_folder(seeds: Sequence[int]) -> str:
    """The name of the folder for seeds that are trained together: the seeds, or their digest if many."""
    name = "-".join(["seeds", *map(str, seeds)])
    return name if len(name) <= 100 else f"seeds-sha256-{digest(list(seeds))[:16]}"


def _seeds_in(folder: Path) -> tuple[int, ...]:
    """The seeds of a folder that `seeds_folder` has named; none where its training has not begun."""
    if re.fullmatch(r"seeds(-\d+)+", folder.name):
        return tuple(int(word) for word in folder.name.split("-")[1:])
    if not (folder / CONFIG).is_file():
        return ()
    seeds = tuple(read_config(folder)["seeds"])
    return seeds if folder.name == seeds_folder(seeds) else ()


def train(
    job: Job,
    log: Path,
    runs: Path,
    *,
    log_every: int = 1_000,
    checkpoint_every: int = 10_000,
) -> None:
    """Trains what has no policy yet, from its checkpoint where it has one."""
    groups = untrained(job, runs)
    data = load_checked(log, job.data_sha256) if groups else None
    for seeds in groups:
        assert data is not None
        with _timed(runs / job.folder / SECONDS, seeds_folder(seeds)):
            fit(
                data,
                job.make(),
                seeds=seeds,
                steps=job.steps,
                out=runs / job.folder / seeds_folder(seeds),
                resume=True,
                log_every=min(log_every, job.keep_every or log_every),
                checkpoint_every=checkpoint_every,
                keep_every=job.keep_every,
            )


@contextmanager
def _timed(file: Path, name: str) -> Iterator[None]:
    """Adds the seconds inside to those of the name in the file; a stopped training goes on counting."""
    started = time.monotonic()
    try:
        yield
    finally:
        if file.parent.is_dir():  # a training that could not begin has made none
            spent = _read_seconds(file)
            spent[name] = round(spent.get(name, 0.0) + time.monotonic() - started, 3)
            with suppress(OSError):  # a full disk, say, which the training itself reports
                write_text(file, json.dumps(spent) + "\n")


def _read_seconds(file: Path) -> dict[str, float]:
    """Seconds by folder of seeds; none where the file is missing or damaged, since nothing depends on it."""
    try:
        return {str(name): float(x) for name, x in json.loads(file.read_text(encoding="utf-8")).items()}
    except (OSError, ValueError, TypeError, AttributeError, RecursionError):
        return {}


def training_seconds(job: Job, runs: Path) -> float:
    """The wall-clock time of the trainings of its seeds, with compilation; NaN where it is not known."""
    files = [file for seed in job.seeds if (file := policy_file(job, runs, seed)) is not None]
    spent = _read_seconds(runs / job.folder / SECONDS)
    return (
        sum(spent.get(folder, math.nan) for folder in {f.parent.name for f in files}) if files else math.nan
    )


def load_checked(log: Path, sha256: str) -> Dataset:
    """The log, if it is the one that was planned with."""
    data = load_data(log)
    if data.fingerprint() != sha256:
        raise BCRLError(f"{log}: is not the log the jobs were planned with; bring that one, or plan again")
    return data


def find_log(folder: Path, task: str, data_file: str = "") -> Path | None:
    """TASK.npz, TASK.hdf5, TASK.h5 or DSRL's own file name."""
    names = [f"{task}.npz", f"{task}.hdf5", f"{task}.h5", *([data_file] if data_file else [])]
    return next((folder / name for name in names if (folder / name).is_file()), None)


def write_jobs(jobs: Sequence[Job], path: Path) -> None:
    """The list, all or nothing."""
    rows = [dataclasses.asdict(job) for job in jobs]
    write_text(path, json.dumps({"format": "bcrl-jobs", "version": 1, "jobs": rows}, indent=1) + "\n")


def read_jobs(path: Path) -> list[Job]:
    """The jobs of a list, checked."""
    if not os.path.isfile(path):
        raise BCRLError(f"{path}: there is no such file; bcrl bench --plan-only writes it")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["format"] != "bcrl-jobs" or content["version"] != 1:
            raise BCRLError(f"{path}: not a list of jobs that this bcrl can read; plan again")
        return [_job(row, f"{path}: jobs[{number}]") for number, row in enumerate(content["jobs"])]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise BCRLError(
            f"{path}: damaged ({brief_repr(error)}); write it again with bcrl bench --plan-only"
        ) from None


def _job(row: dict[str, Any], where: str) -> Job:
    """One job of a list. Its names become paths, so they must be plain names."""
    job = Job(**{**row, "seeds": tuple(row["seeds"])})
    names = (job.task, *([job.data_file] if job.data_file != "" else []))
    checks = {
        "task or data_file": all(isinstance(n, str) and re.fullmatch(r"\w[\w.:+-]*", n) for n in names),
        "options": isinstance(job.options, dict),
        "steps": is_whole(job.steps, 1, 2**31),
        "keep_every": is_whole(job.keep_every, 0, 2**31),
        "seeds": bool(job.seeds) and all(is_whole(seed, 0, 2**32) for seed in job.seeds),
        "data_sha256": isinstance(job.data_sha256, str),
    }
    for name, right in checks.items():
        if not right:
            value = {field: row.get(field) for field in name.split(" or ")}
            raise BCRLError(
                f"{where}: {brief_repr(value)} cannot be; write the list again with bcrl bench --plan-only"
            )
    try:
        job.make()
    except BCRLError as error:
        raise BCRLError(f"{where}: {error}") from None
    return job


def is_whole(value: object, least: int, below: int) -> bool:
    """Whether a value is a whole number in a range."""
    return isinstance(value, int) and not isinstance(value, bool) and least <= value < below


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of `python -m bcrl.train.jobs`."""
    parser = argparse.ArgumentParser(prog="python -m bcrl.train.jobs", description=__doc__)
    parser.add_argument(
        "jobs", type=Path, help="the list that bcrl bench wrote; runs go into runs/ beside it"
    )
    parser.add_argument("logs", type=Path, help="folder with the logs, as TASK.npz (or .hdf5, with h5py)")
    parser.add_argument("--checkpoint-every", type=int, default=10_000, help="steps between checkpoints")
    words = parser.parse_args(arguments)
    failed = 0
    try:
        jobs = read_jobs(words.jobs)
    except BCRLError as error:
        print(f"bcrl.train.jobs: {printable(error)}", file=sys.stderr)
        raise SystemExit(2) from None
    for number, job in enumerate(jobs, start=1):
        seeds = ", ".join(map(str, job.seeds))
        at = f" at {job.options['threshold']:g}" if "threshold" in job.options else ""
        title = f"[{number}/{len(jobs)}] {job.task}: {job.method}{at}"
        print(f"{title}, seeds {seeds}, {job.steps:,} steps", flush=True)
        try:
            log = find_log(words.logs, job.task, job.data_file)
            if log is None:
                raise BCRLError(f"{words.logs}: there is no {job.task}.npz; copy the log there")
            train(job, log, words.jobs.parent / RUNS, checkpoint_every=words.checkpoint_every)
        except (BCRLError, OSError) as error:  # the others can still be trained
            failed += 1
            print(
                f"bcrl.train.jobs: {job.task}, {job.method}: {printable(error)}", file=sys.stderr, flush=True
            )
    if failed:
        print(f"bcrl.train.jobs: {failed} of {len(jobs)} jobs failed", file=sys.stderr)
        raise SystemExit(2)


if __name__ == "__main__":
    main()
