"""A box with jax, optax, equinox, numpy and safetensors alone can train; `import bcrl` needs nothing."""

import subprocess
import sys
from pathlib import Path

import pytest

from bcrl.train.__main__ import main

BLOCKER = """
import sys

class Refuse:
    names = {"rich", "h5py", "gymnasium", "tyro", "matplotlib", "tensorboardX", "numba", "highspy", "pandas"}
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in self.names:
            raise ImportError(f"{name} is not installed on this box")

sys.meta_path.insert(0, Refuse())
"""


def python(code: str, *words: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", code, *words],
        capture_output=True,
        text=True,
        check=False,
        cwd=cwd,
    )


def test_the_blocker_blocks():
    for name in ("rich", "h5py", "gymnasium", "tyro", "matplotlib"):
        assert f"{name} is not installed" in python(f"{BLOCKER}\nimport {name}").stderr


def test_learning_needs_jax_optax_equinox_and_numpy_alone():
    """Everything that importing all of `learn` loads is theirs, the standard library's, or what they load."""
    code = """
import importlib, pkgutil, sys
before = set(sys.modules)
import equinox, jax, jax.numpy, numpy, optax
theirs = {name.partition(".")[0] for name in sys.modules}
import bcrl.learn
for module in pkgutil.walk_packages(bcrl.learn.__path__, "bcrl.learn."):
    importlib.import_module(module.name)
after = {name.partition(".")[0] for name in sys.modules} - theirs - set(sys.stdlib_module_names)
print(sorted(after))
"""
    done = python(code)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "['bcrl']"


@pytest.mark.slow
def test_training_end_to_end_on_a_bare_box(tiny_log_file, tmp_path):
    code = f"""{BLOCKER}
import runpy
sys.argv[0] = "bcrl.train"
runpy.run_module("bcrl.train", run_name="__main__", alter_sys=True)
import bcrl
policy = bcrl.load("out/policy-0.bcrl")
print(policy.start(threshold=5).act([0.0] * 6).shape)
"""
    # The programs that test_resume.py also trains with.
    words = (
        "out --seeds 0,3 --steps 40 --log-every 10 --set hidden=[8] --set batch_size=8 --set phases=in-turn"
    )
    done = python(code, str(tiny_log_file), *words.split(), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "(2,)"
    names = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert names == ["checkpoint.safetensors", "config.json", "metrics.csv", "policy-0.bcrl", "policy-3.bcrl"]


def test_import_bcrl_is_light():
    code = """
import sys, bcrl
heavy = {"jax", "jaxlib", "numpy", "optax", "equinox", "h5py", "gymnasium", "tyro", "rich", "safetensors"}
print(sorted(heavy & set(sys.modules)), bcrl.__version__, "fit" in dir(bcrl))
"""
    done = python(code)
    assert done.stdout.startswith("[] "), done.stdout + done.stderr
    assert done.stdout.strip().endswith("True")


def test_every_promised_name_is_there():
    done = python("import bcrl\nfor name in bcrl.__all__: getattr(bcrl, name)\nbcrl.nothing")
    assert "module 'bcrl' has no attribute 'nothing'" in done.stderr


def test_bad_words_of_the_bare_command_end_in_one_line(tiny_log_file, tmp_path, monkeypatch, capsys):
    log = str(tiny_log_file)
    monkeypatch.chdir(tmp_path)
    for words, wanted in (
        ((log, "out", "--steps", "0"), "steps is 0"),
        ((log, "out", "--seeds", "a"), "seeds are 'a'"),
        ((log, "out", "--set", "tau=1"), "no option 'tau'"),
        ((log, "out", "--set", "tau_c=high"), "tau_c"),
        ((log, "out", "--set", "hidden=5"), "hidden"),
        (("none.npz", "out"), "none.npz"),
    ):
        monkeypatch.setattr(sys, "argv", ["bcrl.train", *words])
        with pytest.raises(SystemExit) as stop:
            main()
        assert stop.value.code == 2
        line = capsys.readouterr().err.strip()
        assert line.startswith("bcrl.train: "), line
        assert wanted in line
        assert "\n" not in line
    assert not (tmp_path / "out").exists()
