"""The contract on the order of packages notices an upward import."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize(
    ("module", "line", "kept"),
    [
        ("cli/demo.py", "import bcrl.data", True),
        ("data/_checks.py", "import bcrl.policy", False),
        ("learn/bcrl.py", "from bcrl.train import run", False),
        ("cmdp/_model.py", "import bcrl.learn.losses", False),
    ],
)
def test_an_upward_import_breaks_the_contract(module, line, kept, tmp_path):
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    with open(tmp_path / "src" / "bcrl" / module, "a", encoding="utf-8") as file:
        file.write(f"\n{line}\n")
    done = subprocess.run(
        [Path(sys.executable).with_name("lint-imports"), "--no-cache"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(tmp_path / "src")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode == 0) == kept, done.stdout + done.stderr
    assert ("1 kept, 0 broken" in done.stdout) == kept
