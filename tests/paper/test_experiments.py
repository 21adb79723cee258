"""The paper's experiments: plans of the bench, resumable, with pages beside the published numbers."""

import csv
import json
import math
from dataclasses import replace

import pytest
from tiny_log_maker import make_log

from bcrl.assess.results import Result
from bcrl.bench.cells import Protocol
from bcrl.bench.experiment import beside, cautions, choose_tasks, plan_of, rows_beside
from bcrl.bench.plan import works
from bcrl.bench.store import Outcome
from bcrl.cli import main
from bcrl.errors import BCRLError
from bcrl.learn.registry import find_method, make_method
from bcrl.paper.experiments import EXPERIMENTS
from bcrl.paper.published import feasible_marks, find_in, published, time_table
from bcrl.train.jobs import seeds_folder
from bcrl.worlds.tasks import tasks

SCORES = [name for name, experiment in EXPERIMENTS.items() if experiment.kind == "scores"]
TINY = ["--tasks", "point-circle", "--steps", "100", "--seeds", "0,10", "--episodes", "2"]


@pytest.fixture
def logs(tmp_path):
    """A log under the name of a built-in world, so that none is recorded."""
    make_log().save(tmp_path / "logs" / "point-circle.npz")
    return tmp_path / "logs"


@pytest.fixture
def done(monkeypatch):
    """Trainings and evaluations that take no time; returns the list of what was done."""
    calls = []

    def train(job, log, runs, **_):
        calls.append(("train", job.method, job.options))
        folder = runs / job.folder / seeds_folder(job.seeds)
        kept = range(job.keep_every, job.steps, job.keep_every) if job.keep_every else ()
        for place in (folder, *(folder / "steps" / str(step) for step in kept)):
            place.mkdir(parents=True)
            for seed in job.seeds:
                (place / f"policy-{seed}.bcrl").touch()

    def judge(evaluation, workers):
        calls.append(("judge", evaluation.cells[0].policy))
        return [
            Outcome(cell, [episode(cell, i) for i in range(cell.episodes)], "{}") for cell in evaluation.cells
        ]

    monkeypatch.setattr("bcrl.bench.run.train", train)
    monkeypatch.setattr("bcrl.bench.run.judge", judge)
    monkeypatch.setattr("bcrl.bench.experiment.POLICIES", 4)
    return calls


def episode(cell, number):
    reward = 0.5 + cell.seed / 100 + number / 10
    who = (cell.method, "", "", cell.execution, cell.task, "log.npz", cell.seed, cell.threshold, number)
    return Result(*who, 100.0, cell.threshold / 2, reward, 0.5, 20, 0.0)


def run(name, logs, out, *words):
    main(["paper", "run", name, "--logs", str(logs), "--out", str(out), *words])


def table(path):
    return list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))


def test_the_list_names_them_all_in_80_columns(capsys):
    main(["paper", "list"])
    lines = capsys.readouterr().out.splitlines()
    assert set(EXPERIMENTS) <= set(lines)
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_column_is_a_method_for_every_task(name):
    experiment = EXPERIMENTS[name]
    families = (
        {"ship"}
        if experiment.kind == "ships"
        else {tasks()[t].family for t in experiment.tasks if t in tasks()}
    )
    for family in families:
        for column in experiment.columns:
            one = {"threshold": 10.0} if find_method(column.method).threshold == "before training" else {}
            make_method(column.method, family=family, **one, **column.options)
    assert len({column.label for column in experiment.columns}) == len(experiment.columns)


def test_every_published_pair_belongs_to_one_experiment():
    named = {
        (experiment.table, task, column.method, column.setting)
        for experiment in EXPERIMENTS.values()
        if experiment.table
        for task in experiment.tasks
        for column in experiment.columns
    }
    printed = {(row.table, row.task, row.method, row.setting) for row in published() if row.task in tasks()}
    assert named == printed
    assert find_in("tau_r", "CarRun", "bcrl", "tau_r=0.7").cost == 0.26
    assert find_in("non-adaptive", "AntCircle", "cpq", "") is None


def test_run_times_and_feasible_actions_as_printed():
    assert time_table() == {
        "bullet": {"training_minutes": 7.1, "evaluation_minutes": 1.1, "steps": 100_000},
        "safety-gym": {"training_minutes": 8.5, "evaluation_minutes": 4.1, "steps": 100_000},
        "metadrive": {"training_minutes": 18.4, "evaluation_minutes": 10.8, "steps": 200_000},
    }
    assert {task: tuple(mark.values()) for task, mark in feasible_marks().items()} == {
        "CarPush1": (5, 0.99),
        "mediummean": (5, 0.99),
        "AntCircle": (5, 0.65),
    }


@pytest.mark.parametrize("name", SCORES)
def test_each_runs_resumes_and_writes_four_files(name, logs, tmp_path, done, capsys):
    out, experiment = tmp_path / "out", EXPERIMENTS[name]
    run(name, logs, out, *TINY)
    rows = table(out / f"{name}.csv")
    assert [row["column"] for row in rows] == [column.label for column in experiment.columns]
    assert {(row["log"], row["task"], row["kept"]) for row in rows} == {("own", "point-circle", "3")}
    assert (out / f"{name}.png").read_bytes()[:4] == b"\x89PNG"
    for file in (out / f"{name}.md", out / f"{name}.tex"):
        text = file.read_text(encoding="utf-8")
        assert "Own logs, not DSRL's: point-circle" in text
        assert "steps 100, the paper's" in text
        assert all(word in text for word in experiment.note.split()[:3])
    again = f"bcrl paper run {name} --out {out} --tasks point-circle --logs {logs} --seeds 0,10 --steps 100"
    assert f"{again} --episodes 2\n" in (out / f"{name}.md").read_text(encoding="utf-8")
    trained = [options for what, *options in done if what == "train"]
    assert len(trained) >= len(experiment.columns)
    assert ("judge", "best") in done or not experiment.best
    # Again: everything is there.
    done.clear()
    page = (out / f"{name}.md").read_text(encoding="utf-8")
    run(name, logs, out, *TINY)
    assert done == []
    assert (out / f"{name}.md").read_text(encoding="utf-8") == page


def test_experiments_in_one_folder_share_trainings(logs, tmp_path, done):
    out = tmp_path / "out"
    run("tau-r", logs, out, *TINY)
    done.clear()
    run("tau-c", logs, out, *TINY)
    # τ_R = 0.7 and τ_C = 0.2 are the defaults of the point worlds, so the first is there.
    assert [options["tau_c"] for _, _, options in (call for call in done if call[0] == "train")] == [0.3, 0.4]
    assert [row["column"] for row in table(out / "tau-c.csv")] == ["tau_c 0.2", "tau_c 0.3", "tau_c 0.4"]


def test_some_columns(logs, tmp_path, done):
    run("main", logs, tmp_path, *TINY, "--columns", "caps,bcrl")
    assert [row["column"] for row in table(tmp_path / "main.csv")] == ["caps", "bcrl"]
    assert "without CDT, CCAC, LSPC;" in (tmp_path / "main.md").read_text(encoding="utf-8")


def test_which_tasks_are_run(tmp_path):
    experiment = EXPERIMENTS["tau-r"]
    assert choose_tasks(experiment, (), tmp_path) == ("point-circle", "point-run")
    (tmp_path / "CarCircle.npz").touch()
    assert choose_tasks(experiment, (), tmp_path) == ("CarCircle",)
    (tmp_path / tasks()["CarRun"].data_file).touch()
    assert choose_tasks(experiment, (), tmp_path) == ("CarRun",)
    assert choose_tasks(experiment, ("BallRun",), tmp_path) == ("BallRun",)


def test_with_dsrls_files_it_is_the_papers_size(tmp_path):
    """The size follows from the names of the files."""
    for task in ("CarRun", "BallRun"):
        (tmp_path / tasks()[task].data_file).touch()
    plan = plan_of(EXPERIMENTS["tau-r"], ("CarRun", "BallRun"), tmp_path)
    assert (plan.preset, plan.steps, plan.seeds, plan.protocol) == ("paper", None, (0, 10, 20), Protocol())
    best = plan_of(EXPERIMENTS["best-policy"], ("CarRun",), tmp_path)
    assert (best.steps, best.keep_every, best.protocol.best) == (1_000_000, 20_000, True)
    (tmp_path / "CarRun.npz").touch()  # the one that is taken, if both are there
    assert plan_of(EXPERIMENTS["tau-r"], ("CarRun", "BallRun"), tmp_path).preset == "cpu"


def test_what_is_said_with_dsrls_logs(logs):
    """Nothing of own logs, and nothing of a smaller size where there is none."""
    experiment = replace(EXPERIMENTS["tau-r"], tasks=("point-circle",))
    plan = plan_of(experiment, ("point-circle",), logs, preset="paper")
    found = works(plan, logs)
    assert cautions(experiment, plan, found)[0].startswith("Own logs")
    theirs = [replace(work, job=replace(work.job, data_file="point-circle.npz")) for work in found]
    assert cautions(experiment, plan, theirs) == ["DSRL's logs."]


def test_no_scores_give_no_rows():
    assert rows_beside(EXPERIMENTS["main"], [], []) == []
    assert len(beside([])) == 1


@pytest.mark.slow
def test_run_time_and_feasible_actions_of_a_real_training(logs, tmp_path, capsys):
    out = tmp_path / "out"
    run("run-time", logs, out, *TINY)
    (row,) = table(out / "run-time.csv")
    assert (row["family"], row["steps"], row["seeds"], row["log"]) == ("point", "100", "2", "own")
    assert row["device"] == "cpu"
    assert float(row["training_minutes"]) > 0
    assert float(row["evaluation_minutes"]) > 0
    capsys.readouterr()
    run("feasible", logs, out, *TINY)
    said = capsys.readouterr().out
    assert "training" not in said  # it is the same
    shares = [float(row["share"]) for row in table(out / "feasible.csv")]
    assert shares == sorted(shares)
    assert 0.0 <= shares[0] < shares[-1] <= 1.0
    # A stopped training goes on counting, and damage to the times is no reason to stop.
    (seconds,) = (out / "runs").glob("*/*/seconds.json")
    assert set(json.loads(seconds.read_text())) == {"seeds-0-10"}
    seconds.write_text("[")
    run("run-time", logs, out, *TINY)
    assert table(out / "run-time.csv")[0]["training_minutes"] == ""


def test_a_failed_method_leaves_the_others(logs, tmp_path, done, monkeypatch, capsys):
    def fails(job, log, runs, **_):
        raise BCRLError("training diverged")

    monkeypatch.setattr("bcrl.bench.run.train", fails)
    with pytest.raises(SystemExit) as stop:
        run("beta", logs, tmp_path / "out", *TINY)
    assert stop.value.code == 2
    assert "nothing could be trained" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (["tau-x"], "did you mean tau-r?"),
        (["beta", "--tasks", "CarRum"], "CarRun"),
        (["beta", "--steps", "0"], "steps is 0"),
        (["main", "--columns", "caps,cap"], "main has no column 'cap'"),
        (["maritime"], "bcrl ship data ny-harbor"),
        (["maritime", "--results", "none.csv"], "there is no such file"),
        (["synthetic", "--points", "1"], "at least 2"),
        (["synthetic", "--tasks", "corridor,rooms"], "one layout"),
        (["beta", "--logs", "nowhere"], "--yes"),
    ],
)
def test_mistakes_end_in_one_line(words, wanted, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as stop:
        main(["paper", "run", *words])
    assert stop.value.code == 2
    assert wanted in capsys.readouterr().err


def test_the_numbers_of_the_csv_are_empty_where_the_paper_has_none(logs, tmp_path, done):
    run("beta", logs, tmp_path / "out", *TINY)
    rows = table(tmp_path / "out" / "beta.csv")
    assert {row["paper_reward"] for row in rows} == {""}
    assert math.isclose(float(rows[0]["reward"]), 0.6, abs_tol=1e-6)
