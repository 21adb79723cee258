"""kill −9 at any moment, then resume: the same files, byte for byte, as without the stop."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

import bcrl
from bcrl.data import load_data
from bcrl.errors import BCRLError
from bcrl.learn.loop import initial_state
from bcrl.learn.protocol import Spec
from bcrl.tensors import read_header, read_tensors, write_tensors
from bcrl.train.__main__ import main
from bcrl.train.run import fit, load_run

PLACES = [
    "before_training",
    "after_metrics_before_checkpoint",
    "in_the_middle_of_a_metrics_row",
    "in_the_middle_of_a_checkpoint",
    "after_training_before_the_policies",
]
KEPT = ["checkpoint.safetensors", "config.json", "metrics.csv", "policy-0.bcrl", "policy-3.bcrl"]


def arguments(log: Path, out: Path, steps: int = 40, phases: str = "in-turn") -> list[str]:
    """Three phases of 40 steps with a checkpoint at every second row of metrics."""
    words = f"--seeds 0,3 --steps {steps} --log-every 10 --checkpoint-every 20 --set batch_size=8"
    return [str(log), str(out), *words.split(), "--set", "hidden=[8]", "--set", f"phases={phases}"]


def learn(*words: str) -> None:
    """`python -m bcrl.train WORDS...`, in this process: it has imported jax and compiled the programs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["bcrl.train", *words])
        main()


def killed(place: str, *words: str) -> subprocess.CompletedProcess[str]:
    program = [str(Path(__file__).parent / "killed_run.py"), place]
    return subprocess.run([sys.executable, *program, *words], capture_output=True, text=True, check=False)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if not path.name.startswith(".")}


@pytest.fixture(scope="module")
def uninterrupted(tiny_log_file, tmp_path_factory) -> dict[str, bytes]:
    out = tmp_path_factory.mktemp("whole") / "run"
    learn(*arguments(tiny_log_file, out))
    kept = contents(out)
    assert sorted(kept) == KEPT
    assert kept["metrics.csv"].count(b"\n") == 1 + 2 * 12  # a header, and two seeds at 12 points
    return kept


@pytest.mark.slow
@pytest.mark.parametrize("place", PLACES)
def test_a_killed_run_resumes_to_the_same_bytes(place, tiny_log_file, uninterrupted, tmp_path):
    words = arguments(tiny_log_file, tmp_path / "run")
    done = killed(place, *words)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert "policy-0.bcrl" not in contents(tmp_path / "run")
    learn(*words, "--resume")
    assert contents(tmp_path / "run") == uninterrupted


@pytest.mark.slow
def test_a_run_killed_from_outside_resumes_to_the_same_bytes(tiny_log_file, uninterrupted, tmp_path):
    """No arranged place: the kill comes whenever some checkpoint has been seen. Again until it is done."""
    words = [*arguments(tiny_log_file, tmp_path / "run"), "--resume"]
    checkpoint = tmp_path / "run" / "checkpoint.safetensors"
    process = subprocess.Popen([sys.executable, "-m", "bcrl.train", *words], stderr=subprocess.DEVNULL)
    while not checkpoint.exists() and process.poll() is None:
        time.sleep(0.001)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    learn(*words)
    assert contents(tmp_path / "run") == uninterrupted


@pytest.fixture
def log(tiny_log_file):
    return load_data(tiny_log_file)


@pytest.fixture
def finished(tiny_run, tmp_path) -> dict:
    """The arguments of a run that has been trained."""
    shutil.copytree(tiny_run.folder, tmp_path / "run")
    return {"seeds": (0, 10), "steps": 40, "out": tmp_path / "run", "log_every": 10, "checkpoint_every": 20}


def test_a_finished_run_is_left_as_it_is(log, tiny_method, finished):
    before = contents(finished["out"])
    run = fit(log, tiny_method, **finished, resume=True)
    assert contents(finished["out"]) == before
    assert [row["step"] for row in run.metrics] == [10, 10, 20, 20, 30, 30, 40, 40]
    run.policy(0).save(finished["out"] / "again.bcrl")
    assert (finished["out"] / "again.bcrl").read_bytes() == before["policy-0.bcrl"]


def test_a_run_from_before_summaries_of_logs_goes_on(log, tiny_method, finished):
    path = finished["out"] / "config.json"
    config = json.loads(path.read_text())
    del config["provenance"]["log"]
    path.write_text(json.dumps(config))
    assert fit(log, tiny_method, **finished, resume=True).metrics[-1]["step"] == 40


def forget(option: str, log, method, finished) -> None:
    """Makes the run one of a version that did not have this option yet."""
    out = finished["out"]
    config = json.loads((out / "config.json").read_text())
    del config["options"][option]
    (out / "config.json").write_text(json.dumps(config))
    path = out / "checkpoint.safetensors"
    header = read_header(path, "checkpoint")
    state = read_tensors(path, initial_state(method, Spec.of(log, 40), finished["seeds"]), header)
    del header["run"]["options"][option]
    write_tensors(path, state, header)


def test_a_run_from_before_an_option_goes_on(log, tiny_method, finished):
    forget("fallback_critic", log, tiny_method, finished)
    assert fit(log, tiny_method, **finished, resume=True).metrics[-1]["step"] == 40
    with pytest.raises(BCRLError, match="fallback_critic was False and is now True"):
        fit(log, replace(tiny_method, fallback_critic=True), **finished, resume=True)


def test_a_run_from_before_actions_were_checked_goes_on_unchecked(log, tiny_method, finished):
    forget("check_action", log, tiny_method, finished)
    method = load_run(finished["out"]).method
    assert method == replace(tiny_method, check_action=False)
    assert fit(log, method, **finished, resume=True).metrics[-1]["step"] == 40
    with pytest.raises(BCRLError, match="check_action was False and is now True"):
        fit(log, tiny_method, **finished, resume=True)


def test_resume_refuses_another_run(log, tiny_method, finished):
    before = contents(finished["out"])

    def refuse(pattern: str, log=log, method=tiny_method, **other) -> None:
        with pytest.raises(BCRLError, match=pattern) as refused:
            fit(log, method, **{**finished, **other}, resume=True)
        assert str(finished["out"] / "config.json") in str(refused.value)
        assert "\n" not in str(refused.value)

    refuse("options.tau_c was 0.2 and is now 0.3", method=replace(tiny_method, tau_c=0.3))
    refuse("options.phases was together and is now in-turn", method=replace(tiny_method, phases="in-turn"))
    refuse(r"seeds was \[0, 10\] and is now \[0, 1\]", seeds=(0, 1))
    refuse("steps were 40 and are now 10: a run can be given more steps", steps=10)
    refuse("provenance.data_sha256", log=replace(log, rewards=log.rewards * 2))
    assert contents(finished["out"]) == before


def test_a_folder_with_a_run_is_not_trained_over(log, tiny_method, finished):
    before = contents(finished["out"])
    with pytest.raises(BCRLError, match="holds a run already: give --resume"):
        fit(log, tiny_method, **finished)
    assert contents(finished["out"]) == before


@pytest.mark.parametrize(
    ("file", "damage"),
    [
        ("config.json", lambda text: b"{"),
        ("config.json", lambda text: b"[]"),
        ("checkpoint.safetensors", lambda text: text[:100]),
        ("checkpoint.safetensors", lambda text: b""),
        ("config.json", lambda text: re.sub(rb'"steps": (\d+)', rb'"steps": "\1"', text)),
        ("config.json", lambda text: text.replace(b'"method": "', b'"method": "\\u001b')),
        ("metrics.csv", lambda text: text.replace(b"10,0,", b"10,nan,")),
        ("metrics.csv", lambda text: text.replace(b"10,0,", b"10,0.5,")),
    ],
)
def test_resume_of_a_damaged_run_is_refused(file, damage, log, tiny_method, finished):
    path = finished["out"] / file
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(BCRLError, match=file) as refused:
        fit(log, tiny_method, **finished, resume=True)
    assert str(refused.value).isprintable()


@pytest.mark.parametrize(
    "partial", [5, {"sums": 5}, {"sums": {"loss": [1, 2, 3]}}, {"count": "x"}, {"count": -1}]
)
def test_damaged_sums_of_a_checkpoint_are_refused(partial, log, tiny_method, finished):
    path = finished["out"] / "checkpoint.safetensors"
    header = read_header(path, "checkpoint")
    state = initial_state(tiny_method, Spec.of(log, finished["steps"]), finished["seeds"])
    write_tensors(path, read_tensors(path, state, header), header | {"partial": partial})
    with pytest.raises(BCRLError, match="its sums of metrics are damaged"):
        fit(log, tiny_method, **finished, resume=True)


@pytest.mark.parametrize(
    "change",
    [
        {"provenance": "x"},
        {"seeds": []},
        {"seeds": ["../../x"]},
        {"how": 5},
        {"how": {"data": 5}},
        {"spec": {"steps": "x"}},
    ],
    ids=str,
)
def test_a_config_with_odd_values_is_refused(change, tiny_run, tmp_path):
    config = json.loads((tiny_run.folder / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | change))
    with pytest.raises(BCRLError, match=rf"config.json: not a readable config \({next(iter(change))} is "):
        load_run(tmp_path)


def test_the_config_tells_the_whole_run(tiny_run):
    config = json.loads((tiny_run.folder / "config.json").read_text())
    assert config["method"] == "bcrl"
    assert config["options"]["tau_c"] == 0.2
    assert config["seeds"] == [0, 10]
    assert config["spec"]["observation_size"] == 6
    assert config["provenance"]["data"] == "tiny.npz"
    assert config["provenance"]["bcrl"] == bcrl.__version__


def test_a_run_with_cost_critics_of_an_older_version_goes_on(log, tiny_method, tmp_path):
    donor = fit(log, tiny_method, steps=2, log_every=2).policy()
    run = {"steps": 4, "out": tmp_path / "run", "log_every": 2}
    fit(log, tiny_method, **run, cost_critics=donor)
    path = tmp_path / "run" / "config.json"
    config = json.loads(path.read_text())
    del config["provenance"]["cost_critics"]["options"]["safety_factor"]  # older versions did not know it
    path.write_text(json.dumps(config))
    resumed = fit(log, tiny_method, **run | {"steps": 6}, cost_critics=donor, resume=True)
    assert resumed.metrics[-1]["step"] == 6
    other = fit(log, tiny_method, steps=2, seeds=(1,), log_every=2).policy()
    with pytest.raises(BCRLError, match="cost_critics"):
        fit(log, tiny_method, **run | {"steps": 8}, cost_critics=other, resume=True)
