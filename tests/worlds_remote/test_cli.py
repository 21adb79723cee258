"""`bcrl worlds` and `bcrl worlds install`."""

import pytest

from bcrl.cli import worlds, worlds_install
from bcrl.cli.arguments import parse
from bcrl.errors import BCRLError
from bcrl.worlds.remote import install as module
from bcrl.worlds.remote.install import is_installed, read_lock
from bcrl.worlds.tasks import tasks

from .test_install import quick


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("BCRL_CACHE", str(tmp_path))
    monkeypatch.setattr(module, "_make", quick)
    monkeypatch.setattr(module, "find_python", lambda: "python3.11")


def run(command, *words: str) -> None:
    parse(command.Command, "bcrl worlds", words).run()


def test_the_list_names_every_task_and_how_to_install(capsys):
    run(worlds)
    said = capsys.readouterr().out
    assert all(name in said for name in tasks())
    assert "safety-gymnasium: 21 tasks, not installed (bcrl worlds install safety-gymnasium)" in said
    assert "259" in said  # MetaDrive's caveat
    run(worlds, "--tasks")
    assert "PointGoal1            60 observations 2 actions  1000 steps  thresholds 20/40/80" in (
        capsys.readouterr().out
    )


def test_install_and_install_again(capsys):
    run(worlds_install, "bullet", "metadrive")
    assert is_installed(read_lock("bullet"))
    assert is_installed(read_lock("metadrive"))
    run(worlds_install, "bullet")
    assert "bullet: already installed" in capsys.readouterr().out
    with pytest.raises(BCRLError, match="mujoco"):
        run(worlds_install, "mujoco")


def test_check_tells_a_family_that_cannot_be_stepped(capsys):
    run(worlds_install, "bullet")  # an environment without the packages
    with pytest.raises(BCRLError, match="bullet cannot be stepped: remove the folder"):
        run(worlds, "--check")
    assert "AntRun fails: AntRun failed in its worker: No module named" in capsys.readouterr().out
