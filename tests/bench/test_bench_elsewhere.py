"""Trained on a bare box, evaluated here; and the verb itself."""

import subprocess
import sys

import pytest
from tiny_bench import ENTRIES, PACE, content, tiny_works

import bcrl.train.jobs
from bcrl.bench.run import run_here
from bcrl.bench.store import FILE, Store
from bcrl.cli import main
from bcrl.train.jobs import write_jobs

BARE = """
import sys

class Refuse:
    names = {"rich", "h5py", "gymnasium", "tyro", "matplotlib", "ray", "sqlite3", "scipy"}
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in self.names:
            raise ImportError(f"{name} is not installed on this box")

sys.meta_path.insert(0, Refuse())
from bcrl.train.jobs import main
main()
"""


def bare(*words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "error", "-c", BARE, *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_bare_box_trains_and_the_rest_is_done_here(logs, tmp_path, monkeypatch, done_here):
    wanted = tiny_works(logs, entries=ENTRIES[:1])
    write_jobs([work.job for work in wanted], tmp_path / "jobs.json")
    done = bare(tmp_path / "jobs.json", logs)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "[1/1] point-circle: bc-all, seeds 0, 10, 40 steps\n"
    monkeypatch.setattr(bcrl.train.jobs, "fit", lambda *_, **__: pytest.fail("trained again"))
    with Store(tmp_path / FILE) as store:
        assert run_here(wanted, store, tmp_path / "runs", PACE) == []
        found = content(store)
    assert found == {cell: rows for cell, rows in done_here.items() if cell.label == "bc-all"}


def test_what_a_bare_box_cannot_train_is_told(logs, tmp_path):
    """One log is missing, one is another: a line each, and exit status 2."""
    import dataclasses

    (work,) = tiny_works(logs, entries=ENTRIES[:1])
    jobs = [dataclasses.replace(work.job, **change) for change in ({"task": "BallRun"}, {"data_sha256": "0"})]
    write_jobs(jobs, tmp_path / "jobs.json")
    done = bare(tmp_path / "jobs.json", logs)
    assert done.returncode == 2
    missing, another, count = done.stderr.splitlines()
    assert missing.endswith("there is no BallRun.npz; copy the log there")
    assert "is not the log the jobs were planned with" in another
    assert count == "bcrl.train.jobs: 2 of 2 jobs failed"
    assert not (tmp_path / "runs").exists()


def test_the_verb(logs, tiny_bench_folder, tmp_path, capsys):
    """Planned first, then with policies that are there already: evaluated, and put into tables."""
    import shutil

    shutil.copytree(tiny_bench_folder / "runs", tmp_path / "runs")
    plan = tmp_path / "plan.toml"
    plan.write_text(
        "preset = 'cpu'\nsteps = 40\nepisodes = 2\nseeds = [0, 10]\nthresholds = [10, 20]\n"
        "[methods.bc-all]\noptions = { hidden = [8], batch_size = 8 }\n"
    )
    words = f"bench --plan {plan} --tasks point-circle --logs {logs} --out {tmp_path}"
    main([*words.split(), "--plan-only"])
    said = capsys.readouterr().out
    assert f"trainings: 1, listed in {tmp_path / 'jobs.json'}" in said
    assert f"python -m bcrl.train.jobs {tmp_path / 'jobs.json'} {logs}" in said
    main(words.split())
    said = capsys.readouterr().out
    assert "training" not in said
    assert "8 episodes" in said
    assert "| point-circle | " in said
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_file()) == [
        *(".lock", "jobs.json", "plan.toml", "results.csv", FILE, "table.md", "table.tex"),
    ]
    with pytest.raises(SystemExit) as stop:
        main([*words.split(), "--thresholds", "0", "--methods", "bc-safe"])
    assert stop.value.code == 2
    assert "not all could be done: point-circle, bc-safe at 0: " in capsys.readouterr().err
