"""`bcrl bench`: methods × tasks × seeds × thresholds into one store, and its tables."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
        from bcrl.cli.bench_table import write_tables
        from bcrl.train.jobs import FILE as JOBS
        from bcrl.train.jobs import write_jobs

        plan = self._plan()
        with only_writer(self.out), Store(self.out / FILE) as store:
            wanted = works(plan, self.logs)
            write_jobs([work.job for work in wanted], self.out / JOBS)
            if self.plan_only:
                print(f"trainings: {len(wanted)}, listed in {self.out / JOBS}")
                print(f"train them with: python -m bcrl.train.jobs {self.out / JOBS} {self.logs}")
                return
            failures = self._do(wanted, store)
            if self.train_only:
                print(f"{len(wanted) - len(failures)} of {len(wanted)} trainings done: {self.out / 'runs'}")
            else:
                write_tables(store, self.out, wanted)
            if failures:
                more = f" (and {len(failures) - 1} more, above)" if len(failures) > 1 else ""
                raise BCRLError(f"not all could be done: {failures[0]}{more}")

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
        """What is given here, then what the plan file says, then the protocol of the paper."""
        from bcrl.bench.cells import Protocol
        from bcrl.bench.plan import Entry, Plan, read_plan, task_names

        said: dict[str, Any] = {} if self.plan is None else read_plan(self.plan)
        given: dict[str, Any] = {
            "tasks": self.tasks or None,
            "seeds": self.seeds or None,
            "thresholds": self.thresholds or None,
            "episodes": self.episodes,
            "preset": self.preset,
            "steps": self.steps,
        }
        said |= {name: value for name, value in given.items() if value is not None}
        if self.methods:
            planned = {entry.label: entry for entry in said.get("entries", ())}
            said["entries"] = tuple(planned.get(label, Entry(label, label)) for label in self.methods)
        for name, option in (("entries", "--methods"), ("tasks", "--tasks")):
            if name not in said:
                raise BCRLError(f"nothing to do: give {option}, or --plan with it")
        protocol = Protocol(
            episodes=said.pop("episodes", 20),
            execution=self.execution,
            episode_seed=self.episode_seed,
            best=self.best_policy,
        )
        said["tasks"] = task_names(said["tasks"])
        lists = {name: tuple(said[name]) for name in ("seeds", "thresholds") if name in said}
        return Plan(**{**said, **lists}, protocol=protocol, keep_every=self.keep_every)
