"""`bcrl bench`: methods × tasks × seeds × thresholds into one store, and its tables."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bcrl.budget import Execution
from bcrl.cli.bench_options import BenchOptions, Flag

if TYPE_CHECKING:
    from bcrl.bench.plan import Plan


@dataclass(kw_only=True)
class Command(BenchOptions):
    """Train and evaluate methods on tasks by the paper's protocol, and put the results into tables.

    Run again, it goes on where it stopped and does only what is missing; another option is another result.
    """

    out: Path
    """Folder for the store (results.sqlite), the runs, results.csv, table.md and table.tex."""
    methods: tuple[str, ...] = ()
    """Methods, such as bcrl,bc-safe."""
    tasks: tuple[str, ...] = ()
    """Tasks, built-in worlds or families (bullet, safety-gym, metadrive, point, all)."""
    plan: Path | None = None
    """A TOML file with what the options here say, which win, and a table for each column: method, options,
    steps, acting, candidates, execution. What a column says holds for it."""
    thresholds: tuple[float, ...] = ()
    """Episode costs to keep (default: each task's own three)."""
    preset: str | None = None
    """Size of networks, batch and steps: paper (default) or cpu."""
    execution: Execution = "finite-horizon"
    """How the budget is tracked while acting."""
    episode_seed: int = 0
    """Decides starts and noise of the episodes."""
    best_policy: Flag = False
    """Report the best policy of each training instead of the last, chosen on episodes of its own."""
    keep_every: int = 20_000
    """Steps between the policies that --best-policy chooses from."""

    def run(self) -> None:
        from bcrl.bench.plan import works
        from bcrl.cli.bench_table import show_tables

        plan = self._plan()
        self.ask(plan)
        self.carry_out(
            lambda: works(plan, self.logs), lambda store, wanted: show_tables(store, self.out, wanted)
        )

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
