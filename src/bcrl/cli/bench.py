"""`bcrl bench`: methods × tasks × seeds × thresholds into one store, and its tables."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import tyro

from bcrl.budget import Execution
from bcrl.errors import BCRLError

if TYPE_CHECKING:
    from bcrl.bench.cells import Work
    from bcrl.bench.plan import Plan
    from bcrl.bench.store import Store

Flag = tyro.conf.FlagCreatePairsOff[bool]


@dataclass
class Command:
    """Train and evaluate methods on tasks by the paper's protocol, and put the results into tables.

    Run again, it goes on where it stopped and does only what is missing; another option is another result.
    """

    out: Path
    """Folder for the store (results.sqlite), the runs, results.csv, table.md and table.tex."""
    methods: tuple[str, ...] = ()
    """Methods, such as bcrl,bc-safe."""
    tasks: tuple[str, ...] = ()
    """Tasks, built-in worlds or families (bullet, safety-gym, metadrive, point, all)."""
    logs: Path = Path("data")
    """Folder with a log for each task, TASK.hdf5, TASK.npz or DSRL's own file."""
    plan: Path | None = None
    """A TOML file with what the options here say, and options for each method; options here win."""
    seeds: tuple[int, ...] = ()
    """Seeds, trained as one program (default: 0,10,20)."""
    thresholds: tuple[float, ...] = ()
    """Episode costs to keep (default: each task's own three)."""
    episodes: int | None = None
    """Episodes per seed and threshold (default 20)."""
    preset: str | None = None
    """Size of networks, batch and steps: paper (default) or cpu."""
    steps: int | None = None
    """Gradient steps (default: the preset's)."""
    execution: Execution = "finite-horizon"
    """How the budget is tracked while acting."""
    episode_seed: int = 0
    """Decides starts and noise of the episodes."""
    best_policy: Flag = False
    """Report the best policy of each training instead of the last, chosen on episodes of its own."""
    keep_every: int = 20_000
    """Steps between the policies that --best-policy chooses from."""
    plan_only: Flag = False
    """Write the list of trainings, jobs.json, and stop: python -m bcrl.train.jobs trains them elsewhere."""
    yes: Flag = False
    """Record missing logs of built-in worlds without asking: 6 million steps each, which takes minutes."""
    train_only: Flag = False
    """Train and stop, for an evaluation on another machine."""
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

    def run(self) -> None:
        from bcrl.bench.plan import works
        from bcrl.bench.store import FILE, Store, only_writer
        from bcrl.cli.bench_table import show_tables
        from bcrl.cli.terminal import next_step
        from bcrl.train.jobs import FILE as JOBS
        from bcrl.train.jobs import write_jobs

        plan = self._plan()
        self._ask(plan)
        with only_writer(self.out), Store(self.out / FILE) as store:
            wanted = works(plan, self.logs)
            write_jobs([work.job for work in wanted], self.out / JOBS)
            if self.plan_only:
                print(f"trainings: {len(wanted)}, listed in {self.out / JOBS}")
                next_step("python", "-m", "bcrl.train.jobs", self.out / JOBS, self.logs)
                return
            failures = self._do(wanted, store)
            if self.train_only:
                print(f"{len(wanted) - len(failures)} of {len(wanted)} trainings done: {self.out / 'runs'}")
                next_step("the same command without --train-only evaluates them")
            else:
                show_tables(store, self.out, wanted)
            if failures:
                more = f" (and {len(failures) - 1} more, above)" if len(failures) > 1 else ""
                raise BCRLError(f"not all could be done: {failures[0]}{more}")

    def _ask(self, plan: "Plan") -> None:
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

    def _do(self, wanted: "list[Work]", store: "Store") -> list[str]:
        from bcrl.bench.run import Pace, run_here
        from bcrl.train.jobs import RUNS

        runs = self.out / RUNS
        runs.mkdir(exist_ok=True)
        pace = Pace(train_only=self.train_only, workers=self.workers)
        if self.ray is None:
            return run_here(wanted, store, runs, pace)
        from bcrl.bench.ray_run import Cluster, run_on_ray

        cluster = Cluster(self.ray, self.train_cpus, self.train_gpus, self.evaluate_cpus)
        return run_on_ray(wanted, store, runs, pace, cluster)

    def _plan(self) -> "Plan":
        from bcrl.bench.cells import Protocol
        from bcrl.bench.plan import make_plan

        return make_plan(
            self.plan,
            methods=self.methods,
            episodes=self.episodes,
            protocol=Protocol(
                execution=self.execution, episode_seed=self.episode_seed, best=self.best_policy
            ),
            keep_every=self.keep_every,
            tasks=self.tasks,
            seeds=self.seeds,
            thresholds=self.thresholds,
            preset=self.preset,
            steps=self.steps,
        )
