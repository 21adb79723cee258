"""The folder of a run belongs to the run alone: no other file is touched, and nobody else writes there."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

import bcrl
from bcrl.cli import main
from bcrl.errors import BCRLError, Stopped
from bcrl.learn.baselines.bc import BCAll
from bcrl.train.folder import RunFolder
from bcrl.train.interrupt import interrupts_noted
from bcrl.train.run import fit, load_run

METHOD = BCAll(hidden=(8,), batch_size=8)  # compiles in a second
FAST = {"seeds": (0,), "steps": 20, "log_every": 10, "checkpoint_every": 10}


@pytest.fixture
def out(tmp_path) -> Path:
    return tmp_path / "run"


@pytest.mark.parametrize("name", ["metrics.csv", "policy-best.bcrl", ".notes.2024.txt", "sub/.keys.1.pem"])
def test_a_folder_with_other_files_is_refused_and_left_alone(name, tiny_log, out):
    file = out / name
    file.parent.mkdir(parents=True)
    file.write_text("mine")
    with pytest.raises(BCRLError, match=f"holds {name.split('/')[0]}"):
        fit(tiny_log, METHOD, out=out, **FAST)
    assert file.read_text() == "mine"
    assert [path for path in out.rglob("*") if path.is_file()] == [file]


def test_overwriting_replaces_a_run_and_nothing_else(tiny_log, out):
    fit(tiny_log, METHOD, out=out, **FAST)
    before = (out / "policy-0.bcrl").read_bytes()
    again = fit(tiny_log, METHOD, out=out, overwrite=True, **FAST | {"steps": 40})
    assert (out / "policy-0.bcrl").read_bytes() != before
    assert [row["step"] for row in again.metrics] == [10, 20, 30, 40]
    (out / "policy-best.bcrl").write_text("mine")
    with pytest.raises(BCRLError, match=r"holds policy-best\.bcrl"):
        fit(tiny_log, METHOD, out=out, overwrite=True, **FAST)
    assert (out / "policy-best.bcrl").read_text() == "mine"
    assert (out / "policy-0.bcrl").exists()
    with pytest.raises(BCRLError, match="give one of them"):
        fit(tiny_log, METHOD, out=out, overwrite=True, resume=True, **FAST)


def test_resuming_leaves_other_files_alone(tiny_log, out):
    fit(tiny_log, METHOD, out=out, **FAST)
    (out / ".notes.2024.txt").write_text("mine")
    fit(tiny_log, METHOD, out=out, resume=True, **FAST)
    assert (out / ".notes.2024.txt").read_text() == "mine"
    (out / "policy-0.bcrl").unlink()
    (out / "policy-0.bcrl").mkdir()
    with pytest.raises(BCRLError, match="is a folder in the place of a policy"):
        fit(tiny_log, METHOD, out=out, resume=True, **FAST)


def test_a_checkpoint_without_its_config_is_refused_and_kept(tiny_log, out):
    fit(tiny_log, METHOD, out=out, **FAST)
    (out / "config.json").unlink()
    for resume in (True, False):
        with pytest.raises(BCRLError, match=r"config\.json: is missing"):
            fit(tiny_log, METHOD, out=out, resume=resume, **FAST)
    assert (out / "checkpoint.safetensors").exists()


def test_a_checkpoint_of_another_run_is_refused(tiny_log, out):
    fit(tiny_log, METHOD, out=out, **FAST)
    fit(tiny_log, METHOD, out=out.with_name("other"), **FAST | {"seeds": (1,)})
    (out.with_name("other") / "checkpoint.safetensors").replace(out / "checkpoint.safetensors")
    with pytest.raises(BCRLError, match="is of another run"):
        fit(tiny_log, METHOD, out=out, resume=True, **FAST)


def test_two_trainings_cannot_write_to_one_folder(tiny_log, out, monkeypatch):
    add, tried = RunFolder.add, []

    def patched(folder, rows):
        add(folder, rows)
        if not tried:
            tried.append(True)
            with pytest.raises(BCRLError, match="another training writes here"):
                fit(tiny_log, METHOD, out=out, resume=True, **FAST)

    monkeypatch.setattr(RunFolder, "add", patched)
    fit(tiny_log, METHOD, out=out, **FAST)
    assert tried


def test_a_finished_run_can_be_given_more_steps(tiny_log, out):
    fit(tiny_log, METHOD, out=out, **FAST)
    run = fit(tiny_log, METHOD, out=out, resume=True, **FAST | {"steps": 40})
    assert [row["step"] for row in run.metrics] == [10, 20, 30, 40]
    assert load_run(out).spec.steps == 40


def test_a_loaded_run_is_the_run(tiny_run):
    loaded = bcrl.load_run(tiny_run.folder)
    assert (loaded.method, loaded.spec, loaded.seeds) == (tiny_run.method, tiny_run.spec, tiny_run.seeds)
    assert loaded.metrics == tiny_run.metrics
    observation = [0.1] * 6
    actions = [run.policy(10).start(threshold=3).act(observation) for run in (loaded, tiny_run)]
    assert actions[0].tolist() == actions[1].tolist()
    assert repr(loaded) == f"Run(bcrl, seeds 0, 10, 40 steps, {tiny_run.folder})"
    with pytest.raises(BCRLError, match="holds no run"):
        bcrl.load_run(tiny_run.folder.parent)


def test_resume_needs_no_other_option(tiny_log_file, out, capsys):
    words = [
        "--method",
        "bc-all",
        "--hidden",
        "8",
        "--batch-size",
        "8",
        "--steps",
        "20",
        "--log-every",
        "10",
        "--seeds",
        "0,3",
    ]
    main(["train", "--data", str(tiny_log_file), "--out", str(out), *words])
    main(["train", "--out", str(out), "--resume", "--steps", "40"])
    config = json.loads((out / "config.json").read_text())
    assert (config["spec"]["steps"], config["seeds"], config["options"]["hidden"]) == (40, [0, 3], [8])
    assert "40 steps" in capsys.readouterr().out


def start_training(log: Path, out: Path) -> subprocess.Popen[str]:
    words = [
        "--data",
        str(log),
        "--out",
        str(out),
        "--method",
        "bc-all",
        "--hidden",
        "8",
        "--batch-size",
        "16",
        "--steps",
        "10000000",
    ]
    program = [sys.executable, "-m", "bcrl", "train", *words]
    return subprocess.Popen(program, stderr=subprocess.PIPE, text=True)


@pytest.mark.slow
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_stops_a_training_cleanly(number, status, tiny_log_file, out):
    """At any moment, compiling included: the signal comes as soon as the config is there."""
    process = start_training(tiny_log_file, out)
    while not (out / "config.json").exists() and process.poll() is None:
        time.sleep(0.01)
    os.kill(process.pid, number)
    _, said = process.communicate(timeout=120)
    assert process.returncode == status, said
    assert "Traceback" not in said
    assert "stopped at step " in said
    assert "go on with --resume" in said
    assert (out / "checkpoint.safetensors").exists()


def test_an_interrupt_that_was_lost_stops_the_training_that_begins(tiny_log, out):
    """Python drops a KeyboardInterrupt inside a callback of the garbage collector; JAX has one."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with interrupts_noted():
            with suppress(KeyboardInterrupt):
                signal.raise_signal(signal.SIGINT)
            with pytest.raises(Stopped, match="stopped at step 10; go on with --resume") as stopped:
                fit(tiny_log, METHOD, out=out, **FAST)
        assert stopped.value.status == 130
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)


def test_metrics_of_a_stopped_run_are_those_of_an_unbroken_one(tiny_log, out, monkeypatch):
    """Sums since the last row travel in the checkpoint."""
    given = {"seeds": (0, 3), "steps": 400, "log_every": 300, "checkpoint_every": 300}
    whole = fit(tiny_log, METHOD, out=out.with_name("whole"), **given)
    stopped = []

    def progress_that_interrupts(*words, **more):
        from bcrl.progress import progress

        class Ticking:
            def __enter__(self):
                self.bar = progress(*words, **more)
                tick = self.bar.__enter__()

                def ticked(advance=1, note=""):
                    tick(advance, note)
                    if words[0] == "training" and not stopped:
                        stopped.append(True)
                        os.kill(os.getpid(), signal.SIGINT)

                return ticked

            def __exit__(self, *error):
                return self.bar.__exit__(*error)

        return Ticking()

    with monkeypatch.context() as patch:
        patch.setattr("bcrl.train.run.progress", progress_that_interrupts)
        with pytest.raises(KeyboardInterrupt, match="stopped at step 200"):
            fit(tiny_log, METHOD, out=out, **given)
    assert stopped
    resumed = fit(tiny_log, METHOD, out=out, resume=True, **given)
    assert resumed.metrics == whole.metrics
    for name in ("metrics.csv", "policy-0.bcrl", "policy-3.bcrl"):
        assert (out / name).read_bytes() == (whole.folder / name).read_bytes()


@pytest.mark.parametrize(
    "odd",
    [
        {"method": "bcrl"},
        {"method": BCAll},
        {"seeds": 5},
        {"seeds": None},
        {"steps": "5"},
        {"steps": 2**40},
        {"log_every": None},
        {"keep_every": "x"},
        {"out": 5},
        {"out": ""},
    ],
    ids=str,
)
def test_odd_arguments_of_a_training_are_refused(odd, tiny_log):
    with pytest.raises(BCRLError, match=next(iter(odd))) as refused:
        fit(tiny_log, **{"method": METHOD, "steps": 1} | odd)
    assert str(refused.value).isprintable()


def test_a_folder_that_cannot_be_made_is_named(tiny_log, out):
    out.symlink_to("nowhere")
    with pytest.raises(BCRLError, match="run: the folder cannot be made"):
        fit(tiny_log, METHOD, out=out, **FAST)
