"""`bcrl demo`: from no data at all to a policy and a page about it."""

import shlex
from dataclasses import dataclass
from pathlib import Path

from bcrl.learn.registry import PRESETS


@dataclass
class Command:
    """Make a log, train, evaluate and report: the whole way, in minutes on two CPU cores.

    Run again with the same world, seed and transitions, it keeps the log; the rest is made anew.
    """

    world: str = "point-circle"
    """point-circle, point-run or point-goal."""
    out: Path = Path("runs/demo")
    """Folder for the page, the results, the policy, the log and the training run."""
    seed: int = 0
    """Decides the log, the training and the episodes of the evaluation."""
    steps: int = PRESETS["cpu"]["steps"]
    """Gradient steps."""
    transitions: int = 200_000
    """About how many steps the log keeps; whole episodes are kept."""
    thresholds: tuple[float, ...] = (5.0, 10.0, 20.0, 40.0, 60.0)
    """Episode costs at which the one policy is evaluated."""

    def run(self) -> None:
        from bcrl.cli.terminal import print_summary
        from bcrl.report.demo import run_demo

        results = run_demo(
            self.out,
            self.world,
            self.thresholds,
            seed=self.seed,
            steps=self.steps,
            transitions=self.transitions,
            command=self._command(),
            say=lambda line: print(line, flush=True),
        )
        title = f"One policy in {self.world}, told the threshold at run time"
        print_summary(results.summary(), title)
        print(f"\n  {self.out / 'report.html'}  open it in a browser")
        print(f"  {self.out / 'policy.bcrl'}  the policy\n  {self.out / 'results.csv'}  every episode")

    def _command(self) -> str:
        """What to type for the same numbers; only what differs from the defaults."""
        usual = Command()
        words = ["bcrl", "demo"]
        for name in ("world", "seed", "steps", "transitions", "thresholds"):
            value = getattr(self, name)
            shown = ",".join(f"{x:g}" for x in value) if isinstance(value, tuple) else str(value)
            words += [f"--{name}", shown] if value != getattr(usual, name) else []
        return shlex.join(words)
