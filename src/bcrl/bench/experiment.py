"""An experiment of the paper as a plan of the bench, and its results beside the published numbers."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bcrl.assess.statistics import Kept
from bcrl.bench.cells import Protocol, Work
from bcrl.bench.plan import Entry, Plan, task_names
from bcrl.bench.scores import Score, scores
from bcrl.bench.store import Store
from bcrl.bench.tables import Table, Text
from bcrl.errors import BCRLError
from bcrl.learn.registry import default_steps
from bcrl.paper.experiments import Experiment
from bcrl.paper.published import FAMILY_NAMES, find_in, time_table
from bcrl.train.jobs import find_log, training_seconds
from bcrl.worlds import make_world
from bcrl.worlds.tasks import tasks

POLICIES = 50
"""Among which the best is chosen: the paper's 1,000,000 steps, one every 20,000."""
POINT_WORLDS = ("point-circle", "point-run")
NOTHING = "–"


def choose_tasks(experiment: Experiment, words: Sequence[str], logs: Path) -> tuple[str, ...]:
    """The tasks of an experiment: those that are named, or those that have a log.

    That is the paper's tasks; if none of them has a log, any other of DSRL's; if there is no log at all, two
    built-in worlds.
    """
    if words:
        return task_names(words)
    there = [name for name, task in tasks().items() if find_log(logs, name, task.data_file)]
    return tuple(name for name in experiment.tasks if name in there) or tuple(there) or POINT_WORLDS


def plan_of(
    experiment: Experiment,
    names: tuple[str, ...],
    logs: Path,
    *,
    columns: tuple[str, ...] = (),
    seeds: tuple[int, ...] = (),
    thresholds: tuple[float, ...] = (),
    episodes: int | None = None,
    preset: str | None = None,
    steps: int | None = None,
) -> Plan:
    """The plan of an experiment on these tasks.

    What is not given is as in the paper, but the preset is `cpu` unless every log is DSRL's.
    """
    known = {column.label: column for column in experiment.columns}
    for label in columns:
        if label not in known:
            raise BCRLError(f"{experiment.name} has no column {label!r}; it has {', '.join(known)}")
    if preset is None:
        preset = "paper" if all(_has_dsrl_log(name, logs) for name in names) else "cpu"
    if steps is None and preset == "paper":
        steps = experiment.steps
    about = {"seeds": seeds, "thresholds": thresholds, "steps": steps}
    longest = max(steps or default_steps("bcrl", preset, make_world(name).family) for name in names)
    return Plan(
        entries=tuple(Entry(label, known[label].method, known[label].options) for label in columns or known),
        tasks=names,
        preset=preset,
        protocol=Protocol(Protocol.episodes if episodes is None else episodes, best=experiment.best),
        keep_every=max(1, longest // POLICIES),
        **{name: value for name, value in about.items() if value not in (None, ())},
    )


def _has_dsrl_log(name: str, logs: Path) -> bool:
    world = make_world(name)
    log = find_log(logs, name, world.data_file)
    return log is not None and log.name == world.data_file


def is_dsrl(work: Work) -> bool:
    """Whether a work learns from DSRL's file of its task, by the name of the file."""
    return work.log.name == work.job.data_file


def cautions(experiment: Experiment, plan: Plan, works: Sequence[Work]) -> list[str]:
    """What must be said wherever results of these works are shown: the logs, and what is smaller."""
    own = dict.fromkeys(work.job.task for work in works if not is_dsrl(work))
    said = [
        f"Own logs, not DSRL's: {', '.join(own)}. So this is not the paper's experiment: its numbers stand "
        "beside ours for orientation only."
        if own
        else "DSRL's logs."
    ]
    less = []
    there = set(experiment.tasks) & set(plan.tasks)
    if len(there) < len(experiment.tasks):
        less.append(f"{len(there)} of the paper's {len(experiment.tasks)} tasks")
    labels = {entry.label for entry in plan.entries}
    if left_out := [column.title for column in experiment.columns if column.label not in labels]:
        less.append(f"without {', '.join(left_out)}")
    if plan.preset != "paper":
        less.append(f"networks and batches of the preset {plan.preset}")
    for name, ours, theirs in (
        ("steps", {w.job.steps for w in works}, {_papers_steps(experiment, w) for w in works}),
        ("seeds", {len(plan.seeds)}, {3}),
        ("episodes per seed and threshold", {plan.protocol.episodes}, {20}),
    ):
        if max(ours) < max(theirs):
            less.append(f"{name} {_list(ours)}, the paper's {_list(theirs)}")
    if less:
        said.append(f"Smaller than the paper's: {'; '.join(less)}.")
    caveats = {name: make_world(name).caveat for name in plan.tasks}
    said += [f"{name}: {caveat}." for name, caveat in caveats.items() if caveat]
    return [*said, *([experiment.note] if experiment.note else [])]


def _papers_steps(experiment: Experiment, work: Work) -> int:
    return experiment.steps or default_steps("bcrl", "paper", make_world(work.job.task).family)


def _list(values: set[int]) -> str:
    return " and ".join(f"{x:,}" for x in sorted(values))


@dataclass(frozen=True)
class Row:
    """One column of an experiment on one task, beside what the paper prints (NaN where it prints nothing)."""

    task: str
    column: str
    method: str
    log: str
    """`DSRL`, or `own`."""
    steps: int
    seeds: int
    reward: float
    reward_std: float
    cost: float
    cost_std: float
    kept: int
    open: int
    broken: int
    paper_reward: float
    paper_reward_std: float
    paper_cost: float
    paper_cost_std: float


def wanted_scores(store: Store, works: Sequence[Work]) -> list[Score]:
    """The scores of these works alone; the store may hold other experiments too."""
    keys = {(work.label, work.job.task, work.protocol.best) for work in works}
    return [score for score in scores(store, works) if (score.label, score.task, score.best) in keys]


def rows_beside(experiment: Experiment, found: Sequence[Score], works: Sequence[Work]) -> list[Row]:
    """The scores in the order of the experiment's columns, task by task."""
    log = {(work.label, work.job.task): work for work in works}
    rows = []
    for task in dict.fromkeys(score.task for score in found):
        for column in experiment.columns:
            score = next((s for s in found if (s.task, s.label) == (task, column.label)), None)
            if score is None:
                continue
            work = log[column.label, task]
            verdicts = [line.kept for line in score.lines]
            theirs = find_in(experiment.table, task, column.method, column.setting)
            names = ("reward", "reward_std", "cost", "cost_std")
            paper = [np.nan] * 4 if theirs is None else [getattr(theirs, name) for name in names]
            rows.append(
                Row(
                    *(task, column.label, column.method, "DSRL" if is_dsrl(work) else "own"),
                    *(work.job.steps, score.seeds, *score.reward, *score.cost),
                    *(verdicts.count(word) for word in (Kept.KEPT, Kept.OPEN, Kept.BROKEN)),
                    *paper,
                )
            )
    return rows


def beside(rows: Sequence[Row]) -> Table:
    """A line per task and column: paper / here, and how many thresholds are kept, open and broken."""
    names = ("task", "column", "reward: paper / here", "cost: paper / here", "kept, open, broken")
    table = [[Text(name) for name in names]]
    for row in rows:
        table.append(
            [
                Text(row.task),
                Text(row.column),
                Text(f"{number(row.paper_reward)} / {number(row.reward)}"),
                Text(f"{number(row.paper_cost)} / {number(row.cost)}", "unsafe" if row.cost > 1.0 else ""),
                Text(f"{row.kept}, {row.open}, {row.broken}"),
            ]
        )
    return table


def number(value: float, digits: int = 2) -> str:
    """A number, or a dash where there is none."""
    return NOTHING if np.isnan(value) else f"{value:.{digits}f}"


def times(works: Sequence[Work], store: Store, runs: Path) -> list[dict[str, Any]]:
    """Minutes of training and evaluation of each family, the mean over its tasks, and the paper's."""
    by_family: dict[str, list[Work]] = {}
    for work in works:
        by_family.setdefault(make_world(work.job.task).family, []).append(work)
    rows = []
    for family, members in by_family.items():
        paper = time_table().get(family, {})
        row = {
            "family": FAMILY_NAMES.get(family, family),
            "tasks": len(members),
            "log": "DSRL" if all(map(is_dsrl, members)) else "own",
            "steps": members[0].job.steps,
            "paper_steps": paper.get("steps", np.nan),
            "seeds": len(members[0].job.seeds),
            "device": store.facts(members[0].reported(members[0].job.seeds[0])[0].key)[1],
            "training_minutes": np.mean([training_seconds(w.job, runs) for w in members]) / 60,
            "paper_training_minutes": paper.get("training_minutes", np.nan),
            "evaluation_minutes": np.mean([_evaluation_seconds(w, store) for w in members]) / 60,
            "paper_evaluation_minutes": paper.get("evaluation_minutes", np.nan),
        }
        rows.append({name: float(x) if isinstance(x, np.floating) else x for name, x in row.items()})
    return rows


def _evaluation_seconds(work: Work, store: Store) -> float:
    """Of all seeds; the cells of one seed are of one evaluation."""
    return sum(max(store.facts(cell.key)[0] for cell in work.reported(seed)) for seed in work.job.seeds)


def time_columns(rows: Sequence[dict[str, Any]]) -> Table:
    """The run times as a table."""
    names = ("family", "tasks", "seeds", "device", "steps: paper / here", "training, min", "evaluation, min")
    table = [[Text(name) for name in names]]
    for row in rows:
        pairs = [
            f"{number(row[f'paper_{what}'], 1)} / {number(row[what])}"
            for what in ("training_minutes", "evaluation_minutes")
        ]
        steps = f"{number(row['paper_steps'], 0)} / {row['steps']}"
        cells = (row["family"], row["tasks"], row["seeds"], row["device"], steps, *pairs)
        table.append([Text(str(cell)) for cell in cells])
    return table


def as_dicts(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Rows for a CSV file."""
    return [asdict(row) for row in rows]
