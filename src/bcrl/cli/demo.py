"""`bcrl demo`: the whole way, from no data at all to a policy and a page about it."""

import json
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bcrl.cli.arguments import numbers
from bcrl.cli.collect import check_recording
from bcrl.errors import BCRLError
from bcrl.files import write_text
from bcrl.learn.registry import PRESETS, make_method

if TYPE_CHECKING:
    from bcrl.data import Dataset
    from bcrl.train.run import Run
    from bcrl.worlds import JaxWorld

EPISODES = 50  # at each threshold
MARK = "demo.json"  # says that a folder is a demo's, and how its log was made


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
    thresholds: str = "5,10,20,40,60"
    """Episode costs to try the one policy at, with commas."""

    def run(self) -> None:
        """Four stages. What a user will open is written at the very end, from one and the same run."""
        from rich.console import Console

        from bcrl.assess import evaluate
        from bcrl.assess.tables import summary_table
        from bcrl.report import report_page
        from bcrl.worlds import built_in_world

        world = built_in_world(self.world)
        thresholds = self._checked(world)
        dataset = self._log(world)
        run = self._train(dataset)

        _say(
            3,
            f"trying the policy in {world.name}, told to keep {self.thresholds} ({EPISODES} episodes each)",
        )
        policy = run.policy()
        results = evaluate(policy, world, thresholds, episodes=EPISODES, seed=self.seed)
        title = f"One policy in {world.name}, told the threshold at run time"
        Console().print(summary_table(results.summary(), title))

        _say(4, "writing the page")
        page = report_page(results, dataset=dataset, policies=[policy], command=self._command())
        policy.save(self.out / "policy.bcrl")
        results.save(self.out / "results.csv")
        write_text(self.out / "report.html", page)
        print(f"\n  {self.out / 'report.html'}  open it in a browser")
        print(f"  {self.out / 'policy.bcrl'}  the policy\n  {self.out / 'results.csv'}  every episode")

    def _checked(self, world: "JaxWorld") -> tuple[float, ...]:
        """The thresholds, after refusing what could only fail once minutes of work are done."""
        from bcrl.report.figure import matplotlib

        matplotlib()
        thresholds = numbers("thresholds", self.thresholds)
        if min(thresholds) < 0 or not np.all(np.isfinite(thresholds)):
            raise BCRLError(f"--thresholds is {self.thresholds}, but must be numbers from 0 up")
        if len(set(thresholds)) != len(thresholds):
            raise BCRLError(f"--thresholds is {self.thresholds}, but one number is there twice")
        check_recording(world, self.transitions, self.seed)
        if self.steps < 1:
            raise BCRLError(f"--steps {self.steps}, but must be at least 1")
        _check_folder(self.out)
        return thresholds

    def _log(self, world: "JaxWorld") -> "Dataset":
        """The log: the one of an earlier demo if it was made the same way and is whole, else a new one."""
        from bcrl import __version__
        from bcrl.data import load_data
        from bcrl.worlds.collect import collect

        file, mark = self.out / "log.npz", self.out / MARK
        made = {"bcrl": __version__, "world": world.name, "transitions": self.transitions, "seed": self.seed}
        dataset = _kept_log(file, mark, made)
        if dataset is not None:
            _say(1, f"keeping the log of an earlier demo with the same settings, {file}")
        else:
            _say(1, f"recording a log of {self.transitions:,} steps in {world.name}, by an agent that learns")
            # Marked as unfinished until log and mark agree, so a stop at any moment means recording again.
            write_text(mark, _text(made))
            collect(world, self.transitions, self.seed).save(file)
            dataset = load_data(file)
            write_text(mark, _text(made | {"log_sha256": dataset.fingerprint()}))
        within = (dataset.episode_costs <= 20).mean()
        print(f"      {dataset.episode_count:,} episodes, {within:.0%} of them with cost ≤ 20")
        return dataset

    def _train(self, dataset: "Dataset") -> "Run":
        from bcrl.train.folder import clear_run
        from bcrl.train.run import fit

        method = make_method("bcrl", preset="cpu", family="point")
        folder = self.out / "run"
        # An earlier run, finished or not, makes way; only files that `fit` writes are removed.
        clear_run(folder)
        _say(2, f"training BCRL on that log alone, {self.steps:,} steps")
        return fit(dataset, method, seeds=(self.seed,), steps=self.steps, out=folder)

    def _command(self) -> str:
        """What to type for the same numbers; only what differs from the defaults."""
        usual = Command()
        words = ["bcrl", "demo"]
        for name in ("world", "seed", "steps", "transitions", "thresholds"):
            value = getattr(self, name)
            words += [f"--{name}", str(value)] if value != getattr(usual, name) else []
        return shlex.join(words)


def _say(stage: int, what: str) -> None:
    print(f"[{stage}/4] {what}", flush=True)


def _check_folder(out: Path) -> None:
    """A new folder, an empty one, or a demo's: other people's files are left alone."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        others = [file for file in out.iterdir() if not file.name.startswith(".")]
        mark = _read(out / MARK)
        if others and mark is None:
            raise BCRLError(
                f"--out {out}: holds other files, such as {others[0].name}; choose another folder"
            )
        write_text(out / MARK, _text(mark or {}))  # shows now whether the folder can be written
    except OSError as error:
        reason = error.strerror or str(error)
        raise BCRLError(f"--out {out}: cannot be used ({reason}); choose another folder") from None


def _kept_log(file: Path, mark: Path, made: dict[str, Any]) -> "Dataset | None":
    """The log at `file`, if the mark says that it was made as `made` and it is still the same."""
    from bcrl.data import load_data

    said = _read(mark) or {}
    if {name: value for name, value in said.items() if name != "log_sha256"} != made or not file.is_file():
        return None
    try:
        dataset = load_data(file)
    except BCRLError:
        return None
    return dataset if dataset.fingerprint() == said.get("log_sha256") else None


def _read(mark: Path) -> dict[str, Any] | None:
    """What the mark says; None where there is none, an empty one where it is damaged."""
    if not mark.is_file():
        return None
    try:
        said = json.loads(mark.read_text(encoding="utf-8"))
    except ValueError:
        return {}
    return said if isinstance(said, dict) else {}


def _text(content: dict[str, Any]) -> str:
    return json.dumps(content, indent=2) + "\n"
