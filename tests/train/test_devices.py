"""Several devices and processes give what one gives; the first process alone writes."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

from bcrl.data import load_data
from bcrl.errors import BCRLError
from bcrl.learn.baselines.bc import BCAll
from bcrl.learn.devices import join_processes
from bcrl.policy import load_learned
from bcrl.tensors import read_header
from bcrl.train.sweep import settings, sweep

PROGRAM = Path(__file__).parent / "several_devices.py"
NAMES = ("learning_rate=0.01", "learning_rate=0.001")
WORDS = "--method bc-all --steps 40 --log-every 10 --checkpoint-every 40 --seeds 0,10 --set batch_size=8"
WORDS += " --set hidden=[8] --sweep learning_rate=1e-2,1e-3"


def start(log: Path, out: Path, devices: int, *words: str, stopping: str = "-") -> subprocess.Popen:
    per_process = 1 if "--distributed" in words else devices
    flags = f"{os.environ['XLA_FLAGS']} --xla_force_host_platform_device_count={per_process}"
    return subprocess.Popen(
        [sys.executable, PROGRAM, str(devices), stopping, str(log), str(out), *WORDS.split(), *words],
        env={**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(*processes: subprocess.Popen) -> list[tuple[int, str]]:
    said = [process.communicate(timeout=300)[1] for process in processes]
    return [(process.returncode, text) for process, text in zip(processes, said, strict=True)]


@pytest.fixture(scope="module")
def alone(tiny_log_file):
    method = BCAll(hidden=(8,), batch_size=8)
    grid = settings(method, learning_rate=(1e-2, 1e-3))
    return sweep(load_data(tiny_log_file), grid, seeds=(0, 10), steps=40, log_every=10)


def check_same(out: Path, alone) -> None:
    """All files of both runs are there, the policies those of one device."""
    kept = ["checkpoint.safetensors", "config.json", "metrics.csv", "policy-0.bcrl", "policy-10.bcrl"]
    for name in NAMES:
        assert sorted(file.name for file in (out / name).iterdir()) == kept
        assert len((out / name / "metrics.csv").read_text().splitlines()) == 1 + 2 * 4
        for seed in (0, 10):
            here = load_learned(out / name / f"policy-{seed}.bcrl").learned
            there = alone[name].policy(seed).learned
            for x, y in zip(jax.tree.leaves(here), jax.tree.leaves(there), strict=True):
                np.testing.assert_allclose(x, y, rtol=1e-3, atol=1e-4)


@pytest.mark.slow
def test_four_devices(alone, tiny_log_file, tmp_path):
    ((code, said),) = finish(start(tiny_log_file, tmp_path, 4))
    assert code == 0, said
    check_same(tmp_path, alone)


def two_processes(log: Path, out: Path, *words: str, stopping: str = "-") -> list[tuple[int, str]]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    where = [f"127.0.0.1:{port},2,{number}" for number in (0, 1)]
    return finish(*(start(log, out, 2, "--distributed", w, *words, stopping=stopping) for w in where))


@pytest.mark.slow
def test_two_processes_stop_together_and_go_on(alone, tiny_log_file, tmp_path):
    """The signal comes to the second, which writes nothing; the resumed training ends as without it."""
    for code, said in two_processes(tiny_log_file, tmp_path, stopping="1"):
        assert code == 143, said
        assert "stopped at step 30; go on with --resume" in said
    for name in NAMES:
        assert read_header(tmp_path / name / "checkpoint.safetensors", "checkpoint")["step"] == 30
    for code, said in two_processes(tiny_log_file, tmp_path, "--resume"):
        assert code == 0, said
    check_same(tmp_path, alone)


@pytest.mark.parametrize("words", ["", "here", "10.0.0.1:1,2", "10.0.0.1:1,2,2", "10.0.0.1,2,0"])
def test_processes_are_named_in_one_way(words):
    with pytest.raises(BCRLError, match="must be auto or HOST:PORT,COUNT,NUMBER"):
        join_processes(words)
