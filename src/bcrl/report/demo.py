"""The demo: a log, a training, an evaluation and a page about them, all in one folder."""

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bcrl import __version__
from bcrl.assess import Results, evaluate
from bcrl.assess.results import Result
from bcrl.data import Dataset, load_data
from bcrl.errors import BCRLError
from bcrl.files import write_text
from bcrl.learn.registry import make_method
from bcrl.report.figure import matplotlib
from bcrl.report.page import write_report
from bcrl.train import run as training
from bcrl.train.folder import clear_run
from bcrl.worlds import JaxWorld, built_in_world
from bcrl.worlds import collect as recording

EPISODES = 50  # at each threshold
MARK = "demo.json"  # says that a folder is a demo's, and how its log was made

Say = Callable[[str], None]


def run_demo(
    out: str | os.PathLike,
    world: str,
    thresholds: Sequence[float],
    *,
    seed: int,
    steps: int,
    transitions: int,
    command: str,
    say: Say,
) -> Results[Result]:
    """Records a log, trains on it, evaluates the policy and writes a page; returns the episodes.

    A log that an earlier demo made in the same way is kept. What a user will open is written at the very end,
    from one and the same run. `say` is told each stage.
    """
    out, where = Path(out), built_in_world(world)
    _check(where, thresholds, seed, steps, transitions)
    _check_folder(out)
    dataset = _log(out, where, transitions, seed, say)
    within = (dataset.episode_costs <= 20).mean()
    say(f"      {dataset.episode_count:,} episodes, {within:.0%} of them with cost ≤ 20")

    say(f"[2/4] training BCRL on that log alone, {steps:,} steps")
    clear_run(out / "run")  # an earlier run, finished or not; only files that `fit` writes are removed
    method = make_method("bcrl", preset="cpu", family="point")
    policy = training.fit(dataset, method, seeds=(seed,), steps=steps, out=out / "run").policy()

    told = ", ".join(f"{threshold:g}" for threshold in thresholds)
    say(f"[3/4] evaluating the policy in {where.name} at thresholds {told} ({EPISODES} episodes each)")
    results = evaluate(policy, where, thresholds, episodes=EPISODES, seed=seed)

    say("[4/4] writing the page")
    policy.save(out / "policy.bcrl")
    results.save(out / "results.csv")
    write_report(results, out / "report.html", dataset=dataset, policies=[policy], command=command)
    return results


def _check(world: JaxWorld, thresholds: Sequence[float], seed: int, steps: int, transitions: int) -> None:
    """Refuses what would fail only after minutes of work."""
    matplotlib()
    shown = ",".join(f"{threshold:g}" for threshold in thresholds)
    if not thresholds or min(thresholds) < 0 or not np.all(np.isfinite(thresholds)):
        raise BCRLError(f"--thresholds is {shown}, but must be numbers from 0 up")
    if len(set(thresholds)) != len(thresholds):
        raise BCRLError(f"--thresholds is {shown}, but one number is there twice")
    if transitions < world.horizon:
        raise BCRLError(
            f"--transitions {transitions} is less than one episode of {world.name}; "
            f"give {world.horizon} or more"
        )
    if seed < 0:
        raise BCRLError(f"--seed {seed} is negative; give 0 or more")
    if steps < 1:
        raise BCRLError(f"--steps {steps}, but must be at least 1")


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


def _log(out: Path, world: JaxWorld, transitions: int, seed: int, say: Say) -> Dataset:
    """The log of an earlier demo if it was made in the same way and is whole, else a new one."""
    file, mark = out / "log.npz", out / MARK
    made = {"bcrl": __version__, "world": world.name, "transitions": transitions, "seed": seed}
    dataset = _kept_log(file, mark, made)
    if dataset is not None:
        say(f"[1/4] keeping the log of an earlier demo with the same settings, {file}")
        return dataset
    say(f"[1/4] recording a log of {transitions:,} steps in {world.name}, by an agent that learns")
    # Marked as unfinished until log and mark agree, so a stop at any moment means recording again.
    write_text(mark, _text(made))
    recording.collect(world, transitions, seed).save(file)
    dataset = load_data(file)
    write_text(mark, _text(made | {"log_sha256": dataset.fingerprint()}))
    return dataset


def _kept_log(file: Path, mark: Path, made: dict[str, Any]) -> Dataset | None:
    """The log at `file`, if the mark says that it was made as `made` and it is still the same."""
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
    except (ValueError, RecursionError):
        return {}
    return said if isinstance(said, dict) else {}


def _text(content: dict[str, Any]) -> str:
    return json.dumps(content, indent=2) + "\n"
