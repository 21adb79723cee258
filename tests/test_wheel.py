"""What is published works alone: the sdist builds the wheel, and its quick start runs outside the clone."""

import os
import site
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# The README's commands, as small as they get.
QUICK_START = (
    "collect point-circle --out log.npz --transitions 2000 --steps 2e4",
    "train --data log.npz --out runs/mine --preset cpu --family point --hidden 8 --batch-size 16 --steps 40",
    "evaluate runs/mine --world point-circle --thresholds 10,40 --episodes 2 --out results.csv",
    "report results.csv --out report.html",
)


def run(*words: object, cwd: Path) -> str:
    # Without PYTHONPATH: it may name the repository.
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    told = subprocess.run([str(w) for w in words], cwd=cwd, env=env, capture_output=True, text=True)
    assert told.returncode == 0, f"{words}\n{told.stdout}\n{told.stderr}"
    return told.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    pytest.importorskip("hatchling", reason="the wheel is built by hatchling: pip install 'bcrl[dev]'")
    out = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", out, cwd=ROOT)
    with tarfile.open(next(out.glob("*.tar.gz"))) as archive:
        archive.extractall(out, filter="data")
    unpacked = next(path for path in out.iterdir() if path.is_dir())
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", out, cwd=unpacked)
    return next(out.glob("*.whl"))


def test_the_wheel_holds_the_package_and_nothing_else(wheel):
    package = ROOT / "src"
    files = {
        path.relative_to(package).as_posix()
        for path in (package / "bcrl").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    names = zipfile.ZipFile(wheel).namelist()
    assert {name for name in names if ".dist-info/" not in name} == files
    assert [name for name in names if name.endswith("licenses/LICENSE")]


@pytest.mark.slow
def test_the_quick_start_runs_from_the_wheel_alone(wheel, tmp_path):
    """Dependencies are those of this Python, by a .pth file; the repository's package is not among them."""
    home = tmp_path / "venv"
    venv.create(home, with_pip=False)
    paths = {"base": str(home), "platbase": str(home)}
    packages, scripts = (Path(sysconfig.get_path(kind, vars=paths)) for kind in ("purelib", "scripts"))
    (packages / "present.pth").write_text("\n".join(site.getsitepackages()), encoding="utf-8")
    python = scripts / "python"
    pip = (sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", "--no-index")
    run(*pip, wheel, cwd=tmp_path)

    assert str(packages) in run(python, "-c", "import bcrl; print(bcrl.__file__)", cwd=tmp_path)
    for line in QUICK_START:
        run(scripts / "bcrl", *line.split(), cwd=tmp_path)
    act = "import bcrl; print(bcrl.load('runs/mine/policy-0.bcrl').start(threshold=20).act([0.0] * 6).shape)"
    assert run(python, "-c", act, cwd=tmp_path) == "(2,)\n"
    assert "<html" in (tmp_path / "report.html").read_text(encoding="utf-8")
