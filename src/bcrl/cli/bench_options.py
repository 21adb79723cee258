"""The options of verbs that carry out a plan of the bench, and how they do it: here, elsewhere or on Ray."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import tyro

from bcrl.errors import BCRLError

if TYPE_CHECKING:
    from bcrl.bench.cells import Work
    from bcrl.bench.plan import Plan
    from bcrl.bench.store import Store

Flag = tyro.conf.FlagCreatePairsOff[bool]


@dataclass(kw_only=True)
class BenchOptions:
    """What `bcrl bench` and `bcrl paper run` share."""

    out: Path
    tasks: tuple[str, ...] = ()
    logs: Path = Path("data")
    """Folder with a log for each task, TASK.hdf5, TASK.npz or DSRL's own file."""
    seeds: tuple[int, ...] = ()
    """Seeds, trained as one program (default: 0,10,20)."""
    steps: int | None = None
    """Gradient steps (default: the preset's)."""
    episodes: int | None = None
    """Episodes per seed and threshold (default 20)."""

    # ---- where it runs -----------------------------------------------------------------------------

    plan_only: Flag = False
    """Write the list of trainings, jobs.json, and stop: python -m bcrl.train.jobs trains them elsewhere."""
    train_only: Flag = False
    """Train and stop, for an evaluation on another machine."""
    yes: Flag = False
    """Record missing logs of built-in worlds without asking: 6 million steps each, which takes minutes."""
    workers: int | None = None
    """Processes that step a world outside bcrl (default: one per core; on Ray, --evaluate-cpus)."""
    ray: str | None = None
    """Run on the Ray cluster at this address (auto, HOST:PORT), or on a `local` one."""
    train_cpus: float = 1.0
    """CPUs of a training on Ray."""
    train_gpus: float = 0.0
    """GPUs of a training on Ray; 0.25 lets four share one."""
    evaluate_cpus: float = 1.0
    """CPUs of an evaluation on Ray."""

    def carry_out(
        self,
        plan: "Callable[[], Sequence[Work]]",
        show: "Callable[[Store, Sequence[Work]], None]",
        *,
        train_only: bool = False,
        logs: Path | None = None,
    ) -> None:
        """Does what is missing of the trainings that `plan` gives, then shows what is there.

        `train_only`: nothing is evaluated by the bench, since `show` does that itself. `logs` is the folder
        of the logs, if it is not that of the option.
        """
        from bcrl.bench.store import FILE, Store, only_writer
        from bcrl.cli.terminal import next_step
        from bcrl.train.jobs import FILE as JOBS
        from bcrl.train.jobs import RUNS, untrained, write_jobs

        with only_writer(self.out), Store(self.out / FILE) as store:
            works = plan()
            jobs = list({work.job.folder: work.job for work in works}.values())  # works may share one
            write_jobs(jobs, self.out / JOBS)
            if self.plan_only:
                print(f"trainings: {len(jobs)}, listed in {self.out / JOBS}")
                next_step("python", "-m", "bcrl.train.jobs", self.out / JOBS, logs or self.logs)
                return
            failures = self._do(works, store, train_only or self.train_only)
            if self.train_only:
                done = sum(not untrained(job, self.out / RUNS) for job in jobs)
                print(f"{done} of {len(jobs)} trainings done: {self.out / RUNS}")
                next_step("the same command without --train-only evaluates them")
            else:
                show(store, works)
            if failures:
                more = f" (and {len(failures) - 1} more, above)" if len(failures) > 1 else ""
                raise BCRLError(f"not all could be done: {failures[0]}{more}")

    def _do(self, works: "Sequence[Work]", store: "Store", train_only: bool) -> list[str]:
        from bcrl.bench.run import Pace, run_here
        from bcrl.train.jobs import RUNS

        runs = self.out / RUNS
        runs.mkdir(exist_ok=True)
        pace = Pace(train_only=train_only, workers=self.workers)
        if self.ray is None:
            return run_here(works, store, runs, pace)
        from bcrl.bench.ray_run import Cluster, run_on_ray

        cluster = Cluster(self.ray, self.train_cpus, self.train_gpus, self.evaluate_cpus)
        return run_on_ray(works, store, runs, pace, cluster)

    def ask(self, plan: "Plan") -> None:
        """Asks before minutes of recording; without a terminal nobody can answer."""
        from bcrl.bench.plan import unrecorded
        from bcrl.worlds.collect import STEPS

        names = unrecorded(plan, self.logs)
        if not names or self.yes:
            return
        what = f"{self.logs} has no log of {', '.join(names)}: recording plays {STEPS:,} steps in each"
        if sys.stdin.isatty() and sys.stdout.isatty():
            if input(f"{what}. Record? [y/N] ").strip().lower() in ("y", "yes"):
                return
            raise BCRLError("nothing was recorded")
        raise BCRLError(f"{what}; give --yes for that, or name the folder of the logs with --logs")
