"""Windows has no fcntl: everything imports there, and what locks files goes on without."""

import subprocess
import sys

import pytest

from bcrl import files
from bcrl.bench.store import only_writer
from bcrl.errors import BCRLError
from bcrl.serve.journal import held
from bcrl.train.folder import _locked
from bcrl.worlds.remote.install import install, read_lock

HIDDEN = """
import importlib, pkgutil, sys

class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name == "fcntl":
            raise ImportError("there is no fcntl")

sys.modules.pop("fcntl", None)
sys.meta_path.insert(0, Hidden())
import bcrl
names = [module.name for module in pkgutil.walk_packages(bcrl.__path__, "bcrl.")]
for name in names:
    if not name.endswith("__main__"):
        importlib.import_module(name)
print(len(names), "fcntl" in sys.modules, bcrl.files.can_lock())
"""


def test_every_module_imports():
    words = [sys.executable, "-W", "ignore", "-c", HIDDEN]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    number, *rest = done.stdout.split()
    assert int(number) > 150
    assert rest == ["False", "False"]


@pytest.fixture
def without(monkeypatch):
    monkeypatch.setattr(files, "fcntl", None)


def test_folders_are_left_unlocked(without, tmp_path):
    with held(tmp_path), held(tmp_path), only_writer(tmp_path), only_writer(tmp_path):
        assert _locked(tmp_path) is None


def test_what_needs_the_lock_says_so(without):
    with pytest.raises(BCRLError, match="run on Linux and macOS only"):
        install(read_lock("bullet"))


@pytest.mark.parametrize("hold", [held, only_writer])
def test_a_file_of_the_name_of_the_lock_keeps_its_content(hold, tmp_path):
    (tmp_path / ".lock").write_text("mine\n")
    with hold(tmp_path), pytest.raises(BCRLError, match="another"), hold(tmp_path):
        pass
    assert (tmp_path / ".lock").read_text() == "mine\n"
