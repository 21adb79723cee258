"""Requests made up from the server's own schema find nothing (schemathesis)."""

import subprocess
import sys
from pathlib import Path

import pytest

import bcrl
from bcrl import runtime
from bcrl.calibration import Calibration

pytestmark = pytest.mark.slow


def fuzz(server, examples: int) -> None:
    program = Path(sys.executable).with_name("schemathesis")
    words = ["--checks", "all", "--max-examples", str(examples), "--seed", "1", "--max-failures", "5"]
    words += ["--generation-database", "none", "--no-color"]
    done = subprocess.run(
        [program, "run", f"{server.url}/openapi.json", *words],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd=server.out,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_schema_is_true(server):
    fuzz(server, 15)


def test_the_schema_of_a_calibrated_policy_is_true(serving, tiny_policy, tmp_path):
    table = Calibration(((1.0, 2.0), (3.0, 2.5)), "0" * 64, "min", 4, tiny_policy.spec.horizon)
    policy = bcrl.Policy(
        tiny_policy.learned,
        tiny_policy.method,
        tiny_policy.spec,
        tiny_policy.provenance,
        tiny_policy.units,
        tiny_policy.schema,
        table,
    )
    policy.save(tmp_path / "calibrated.bcrl")
    server = serving(policy=tmp_path / "calibrated.bcrl")
    goal = {"threshold": 3, "execution": "min", "candidates": 4, "calibrated": True, "seed": 0}
    episode = server.begin(**goal)
    local = runtime.load(tmp_path / "calibrated.bcrl")
    told = local.start(threshold=2.5, execution="min", candidates=4, seed=0)
    seen = [0.2] * 6
    assert server.act(episode, 0, seen).json()["action"] == told.act(seen).tolist()
    fuzz(server, 5)
