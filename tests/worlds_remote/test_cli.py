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
    monkeypatch.setattr(module, "make_environment", quick)
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
    said = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["task", "observations", "actions", "steps", "thresholds"] in said
    assert ["PointGoal1", "60", "2", "1000", "20/40/80"] in said


@pytest.mark.parametrize("words", [[], ["--tasks"]])
def test_the_list_fits_into_80_columns_and_breaks_between_words(words, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    run(worlds, *words)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    found = {word.strip(",") for line in lines for word in line.split()}
    assert set(tasks()) <= found


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
