"""Does what is missing of a benchmark on a Ray cluster. Tasks compute; only the driver writes the store."""

import logging
import os
import platform
import re
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bcrl.bench.cells import Evaluation, Work, missing
from bcrl.bench.run import Pace, failed, needs_training, to_evaluate
from bcrl.bench.store import Outcome, Store
from bcrl.errors import BCRLError
from bcrl.progress import Tick, progress

RETRIES = 3  # how often a task may lose its worker


@dataclass(frozen=True)
class Cluster:
    """Where tasks run and what one of them needs."""

    address: str
    """Ray's address (auto, HOST:PORT, ray://HOST:PORT), or `local` for a cluster on this machine alone."""
    train_cpus: float = 1.0
    train_gpus: float = 0.0
    evaluate_cpus: float = 1.0

    def needs(self, cpus: float, gpus: float = 0.0) -> dict[str, Any]:
        """Ray's options of a task. A task without a GPU of its own keeps JAX off those of others."""
        variables = {} if gpus else {"JAX_PLATFORMS": "cpu"}
        if 0 < gpus < 1:
            variables["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"  # or the first takes all of a shared memory
        return {
            "num_cpus": cpus,
            "num_gpus": gpus,
            "max_retries": RETRIES,
            "runtime_env": {"env_vars": variables},
        }


def run_on_ray(works: Sequence[Work], store: Store, runs: Path, pace: Pace, cluster: Cluster) -> list[str]:
    """As `run_here`: does all that is missing; returns one line for each work that failed.

    A task whose worker dies is started again; a training goes on from its checkpoint. The folders of the
    bench and of the logs must be the same on every machine.
    """
    if pace.workers is None:  # one per core would be many more than the task has asked for
        pace = replace(pace, workers=max(1, int(cluster.evaluate_cpus)))
    works = [replace(work, log=work.log.resolve()) for work in works]  # workers stand in other folders
    done = store.done()
    cells = sum(len(missing(work.reported(seed), done)) for work in works for seed in work.job.seeds)
    with _ray(cluster.address) as ray, progress("bench on Ray", len(works) + cells, "jobs and cells") as tick:
        return _Driver(ray, store, runs.resolve(), pace, cluster, tick).drive(works)


class _Driver:
    """Keeps the running tasks, and what to do when each of them ends."""

    def __init__(self, ray: Any, store: Store, runs: Path, pace: Pace, cluster: Cluster, tick: Tick):
        self.ray, self.store, self.runs, self.pace, self.tick = ray, store, runs, pace, tick
        self.train = ray.remote(**cluster.needs(cluster.train_cpus, cluster.train_gpus))(train_task)
        self.judge = ray.remote(**cluster.needs(cluster.evaluate_cpus))(judge_task)
        self.tasks: dict[Any, tuple[list[Work], Callable[[Any], None]]] = {}
        self.failures: list[str] = []

    def drive(self, works: Sequence[Work]) -> list[str]:
        sharing: dict[Path, list[Work]] = {}  # works of one training, which is done once
        for work in works:
            if needs_training(work, self.store, self.runs, self.pace):
                sharing.setdefault(work.job.folder, []).append(work)
            else:
                self.trained([work])(None)
        for group in sharing.values():
            self.start(group, self.train.remote(group[0], self.runs, self.pace), self.trained(group))
        while self.tasks:
            (task,), _ = self.ray.wait(list(self.tasks), num_returns=1)
            waiting, then = self.tasks.pop(task)
            try:
                then(self.ray.get(task))
            except (self.ray.exceptions.RayError, BCRLError) as error:  # one work's fault stops no other
                self.failures += [failed(work, _reason(error)) for work in waiting]
        return self.failures

    def start(self, waiting: list[Work], task: Any, then: Callable[[Any], None]) -> None:
        self.tasks[task] = (waiting, then)

    def trained(self, group: list[Work]) -> Callable[[Any], None]:
        def then(_: None) -> None:
            for work in group:
                self.tick(1, f"{work.name}: trained")
                for seed in () if self.pace.train_only else work.job.seeds:
                    self.evaluate(work, seed)

        return then

    def evaluate(self, work: Work, seed: int) -> None:
        """Starts what can be evaluated now for this seed, and asks again when the last of it is stored."""
        evaluations = to_evaluate(work, seed, self.store, self.runs)
        left = len(evaluations)

        def then(outcomes: list[Outcome]) -> None:
            nonlocal left
            self.store.add(outcomes)
            self.tick(sum(outcome.cell.reported for outcome in outcomes), f"{work.name}: seed {seed}")
            left -= 1
            if not left:
                self.evaluate(work, seed)

        for evaluation in evaluations:
            self.start([work], self.judge.remote(evaluation, self.runs, self.pace), then)


def train_task(work: Work, runs: Path, pace: Pace) -> None:
    """In a worker: trains what a work needs, into the folder of the bench."""
    _check_shared(runs)
    _check_shared(work.log)
    pace.train(work, runs)


def judge_task(evaluation: Evaluation, runs: Path, pace: Pace) -> list[Outcome]:
    """In a worker: runs a policy in its world."""
    _check_shared(runs)
    return pace.judge(evaluation)


def _check_shared(path: Path) -> None:
    if not path.exists():
        raise BCRLError(
            f"{path}: {platform.node()} does not see it; put --out and --logs where every machine does"
        )


@contextmanager
def _ray(address: str) -> Iterator[Any]:
    """Ray, connected; disconnected at the end, which ends a local cluster."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
        import ray.exceptions
    except ImportError:
        raise BCRLError("--ray needs one more package: pip install 'bcrl[ray]'") from None
    try:
        _check_answers(address)
        ray.init(address, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    except (OSError, ValueError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        raise BCRLError(f"--ray {address}: no cluster there ({reason}); ray start --head makes one") from None
    try:
        yield ray
    finally:
        ray.shutdown()


def _check_answers(address: str) -> None:
    """Refuses a host and port that do not answer; Ray itself would try for a quarter of an hour."""
    found = re.fullmatch(r"(?:ray://)?([^:/]+):(\d{1,5})", address)
    if found:
        socket.create_connection((found[1], int(found[2])), timeout=10).close()


def _reason(error: Exception) -> str:
    """One line: what the task said, or how it ended."""
    cause = getattr(error, "cause", None) or error
    return " ".join(str(cause).split()) or type(cause).__name__
