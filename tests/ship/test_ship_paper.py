"""`bcrl paper run maritime`: trainings as jobs of the bench, then the congested scenarios."""

import csv
from dataclasses import replace

import pytest

from bcrl.cli import main
from bcrl.data import load_data
from bcrl.learn.baselines.bc import BCAll
from bcrl.learn.protocol import Spec, blank_actor
from bcrl.paper.experiments import EXPERIMENTS, Column
from bcrl.policy import Policy
from bcrl.ship import save_scenarios
from bcrl.train.jobs import read_jobs, seeds_folder


@pytest.fixture
def words(small_sea, tmp_path):
    save_scenarios(small_sea, tmp_path / "logs" / "sea.npz")
    where = ["--logs", str(tmp_path / "logs"), "--tasks", "sea", "--out", str(tmp_path / "out")]
    return ["paper", "run", "maritime", *where, "--seeds", "0", "--steps", "10"]


def test_every_method_of_the_table_is_planned(words, tmp_path, capsys):
    main([*words, "--plan-only"])
    jobs, logs = tmp_path / "out" / "jobs.json", tmp_path / "out" / "logs"
    assert capsys.readouterr().out.endswith(f"next: python -m bcrl.train.jobs {jobs} {logs}\n")
    jobs = read_jobs(jobs)
    assert [job.method for job in jobs] == ["caps", "ccac", "lspc", "bcrl"]
    log = load_data(tmp_path / "out" / "logs" / "sea.npz")
    assert {(job.task, job.steps, job.data_sha256) for job in jobs} == {("sea", 10, log.fingerprint())}


def test_policies_sail_and_a_second_run_trains_nothing(words, tmp_path, monkeypatch, capsys):
    method = BCAll(hidden=(8,))
    trained = []

    def train(job, log, runs, **_):
        trained.append(job.method)
        spec = Spec.of(load_data(log), steps=job.steps)
        policy = Policy(blank_actor(method, spec), method, spec, {"seed": 0})
        policy.save(runs / job.folder / seeds_folder(job.seeds) / "policy-0.bcrl")

    monkeypatch.setattr("bcrl.bench.run.train", train)
    monkeypatch.setitem(
        EXPERIMENTS, "maritime", replace(EXPERIMENTS["maritime"], columns=(Column("bc-all", "bc-all"),))
    )
    for _ in range(2):
        main([*words, "--episodes", "3", "--budgets", "1"])
    assert trained == ["bc-all"]
    page = (tmp_path / "out" / "maritime.md").read_text(encoding="utf-8")
    assert "Own scenarios: made for tests. Trained here with 10 steps, preset cpu, seeds 0." in page
    rows = list(csv.DictReader((tmp_path / "out" / "maritime.csv").read_text().splitlines()))
    assert [(row["run"], row["episodes"]) for row in rows] == [("expert", "3"), ("bc-all", "3")]
    assert rows[0]["paper_gc_ade"] == "0"
    assert (tmp_path / "out" / "maritime-episodes.csv").is_file()
