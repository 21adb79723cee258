"""On Ray: the same store as in one process, also when workers are killed."""

import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
from tiny_bench import PACE, SMALL, content, tiny_works

import bcrl.train.jobs
import bcrl.train.run
from bcrl.bench.plan import Entry
from bcrl.bench.ray_run import Cluster, _Driver, run_on_ray
from bcrl.bench.run import Pace
from bcrl.bench.store import FILE, Store
from bcrl.errors import BCRLError

PROGRAM = Path(__file__).parent / "ray_program.py"


class Started:
    """The bench on a cluster of its own, in a process of its own."""

    def __init__(self, logs: Path, out: Path, kill: str):
        self.out, self.kill = out, kill
        # Ray's own files, in a folder with a short name: its sockets allow no long ones.
        self.folder = tempfile.mkdtemp(prefix="bcrl-ray-")
        words = [sys.executable, "-W", "error", str(PROGRAM), str(logs), str(out), kill]
        # A token of its own, or Ray would put one into the home folder.
        ours = {"RAY_TMPDIR": self.folder, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
        self.process = subprocess.Popen(
            words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ | ours
        )


@pytest.fixture
def started(logs, tmp_path) -> Iterator[list[Started]]:
    """Both at the same time: a cluster is mostly waited for."""
    both = [Started(logs, tmp_path / kill, kill) for kill in ("plain", "killed")]
    yield both
    for one in both:
        one.process.kill()
        one.process.communicate()
        shutil.rmtree(one.folder)


def processes(mark: str) -> list[str]:
    """Command lines of processes that have `mark` in their environment."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (folder / "environ").read_bytes():
                found.append((folder / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:  # gone, or not ours
            continue
    return found


@pytest.mark.slow
def test_ray_gives_the_same_store(started, done_here):
    for one in started:
        check(one, done_here)


def check(started: Started, done_here: dict) -> None:
    said, errors = started.process.communicate()
    assert started.process.returncode == 0, errors
    # No failures. Before that, Ray tells of the workers that were killed.
    assert said.splitlines()[-1] == "[]", errors
    with Store(started.out / FILE) as store:
        found = content(store)
    wanted = {("bc-all", 10.0), ("bc-all", 20.0), ("bc-safe", 10.0)}
    assert {(cell.label, cell.threshold) for cell in found} == wanted
    assert found == {cell: rows for cell, rows in done_here.items() if (cell.label, cell.threshold) in wanted}
    notes = sorted(path.name for path in (started.out / "notes").iterdir())
    killed = [note for note in notes if note.startswith("killed")]
    assert killed == (["killed-evaluation", "killed-training"] if started.kill == "killed" else [])
    workers = {note.rpartition("-")[2] for note in notes if note not in killed}
    assert len(workers) >= (3 if started.kill == "killed" else 2)
    for _ in range(600):  # a worker may take a moment to notice that its cluster is gone
        if not processes(started.folder):
            break
        time.sleep(0.1)
    assert processes(started.folder) == [], "Ray is still running"


class AtOnce:
    """Stands for Ray: a task is done when it is started."""

    exceptions = SimpleNamespace(RayError=RuntimeError)

    def remote(self, **_):
        return lambda function: SimpleNamespace(remote=partial(self.call, function))

    def call(self, function, *args):
        try:
            return (lambda value: lambda: value)(function(*args))
        except BCRLError as error:
            return partial(self.fail, error)

    def fail(self, error):
        raise error

    def wait(self, tasks, num_returns):
        return tasks[:num_returns], tasks[num_returns:]

    def get(self, task):
        return task()


@pytest.mark.parametrize("fails", [False, True])
def test_works_of_one_training_train_once(logs, tmp_path, monkeypatch, capsys, fails):
    """Two at the same time would write into one folder."""
    entries = (Entry("bcrl", "bcrl", SMALL), Entry("eight", "bcrl", SMALL, candidates=8))
    begun = []

    def fit(data, method, **options):
        begun.append(method.name)
        if fails:
            raise BCRLError("diverged")
        return bcrl.train.run.fit(data, method, **options)

    monkeypatch.setattr(bcrl.train.jobs, "fit", fit)
    (tmp_path / "runs").mkdir()
    with Store(tmp_path / FILE) as store:
        driver = _Driver(AtOnce(), store, tmp_path / "runs", PACE, Cluster("local"), lambda *_: None)
        failures = driver.drive(tiny_works(logs, entries=entries))
        assert begun == ["bcrl"]
        assert {cell.label for cell in store.cells()} == (set() if fails else {"bcrl", "eight"})
    assert failures == [f"point-circle, {name}: diverged" for name in (("bcrl", "eight") if fails else ())]


def test_without_a_cluster_it_ends_at_once_and_in_one_line(tmp_path):
    with (
        Store(tmp_path / FILE) as store,
        pytest.raises(BCRLError, match=r"--ray 127\.0\.0\.1:1: no cluster there") as refused,
    ):
        run_on_ray([], store, tmp_path, Pace(), Cluster("127.0.0.1:1"))
    assert "\n" not in str(refused.value)


def test_without_ray_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with Store(tmp_path / FILE) as store, pytest.raises(BCRLError, match=r"pip install 'bcrl\[ray\]'"):
        run_on_ray([], store, tmp_path, Pace(), Cluster("local"))


def test_what_a_task_asks_of_the_cluster():
    """A task without a GPU stays off those of others; one with a part of a GPU leaves memory to the rest."""
    cluster = Cluster("local", train_cpus=2, train_gpus=0.25)
    evaluation, training = cluster.needs(1.0), cluster.needs(cluster.train_cpus, cluster.train_gpus)
    assert (evaluation["num_cpus"], evaluation["num_gpus"]) == (1.0, 0.0)
    assert evaluation["runtime_env"] == {"env_vars": {"JAX_PLATFORMS": "cpu"}}
    assert (training["num_cpus"], training["num_gpus"]) == (2, 0.25)
    assert training["runtime_env"] == {"env_vars": {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}}
    assert cluster.needs(1.0, 1.0)["runtime_env"] == {"env_vars": {}}
