"""The files of a run: what `--overwrite` may remove, which policies a path stands for, damaged metrics."""

import pytest

from bcrl.errors import BCRLError
from bcrl.train.folder import BOARD, CONFIG, METRICS, STEPS, clear_run, policy_files, read_metrics


def write(folder, *names):
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")


def test_clearing_removes_the_folders_of_a_run(tmp_path):
    write(tmp_path, CONFIG, METRICS, f"{STEPS}/100/policy-0.bcrl", f"{BOARD}/events.out.tfevents.1")
    clear_run(tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "name", [f"{STEPS}/100/notes.txt", f"{STEPS}/policy-0.bcrl", f"{BOARD}/notes.txt", "own/policy-0.bcrl"]
)
def test_clearing_leaves_folders_with_anything_else(tmp_path, name):
    write(tmp_path, CONFIG, name)
    clear_run(tmp_path)
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == [name.split("/")[-1]]


def test_clearing_does_not_follow_links(tmp_path):
    write(tmp_path, "elsewhere/100/policy-0.bcrl", f"run/{CONFIG}")
    (tmp_path / "run" / STEPS).symlink_to(tmp_path / "elsewhere")
    clear_run(tmp_path / "run")
    assert (tmp_path / "elsewhere/100/policy-0.bcrl").is_file()


def test_a_path_stands_for_its_policies(tmp_path):
    for place, line in (
        (tmp_path, "no policy in this folder"),
        (tmp_path / "none", "no such file or folder"),
    ):
        with pytest.raises(BCRLError, match=line):
            policy_files(place)
    write(tmp_path, "policy-0.bcrl", "policy-10.bcrl", "other.bcrl")
    assert [path.name for path in policy_files(tmp_path)] == ["policy-0.bcrl", "policy-10.bcrl"]
    assert policy_files(tmp_path / "other.bcrl") == [tmp_path / "other.bcrl"]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("step,loss\n1,2\n", "the column step or seed is missing"),
        ("step,seed\n1.5,0\n", "a step or seed is not a whole number"),
        ("step,seed\none,0\n", "could not convert"),
    ],
)
def test_damaged_metrics_are_refused_with_the_way_out(tmp_path, text, line):
    assert read_metrics(tmp_path) == []
    (tmp_path / METRICS).write_text(text)
    with pytest.raises(BCRLError, match=rf"metrics.csv: damaged metrics \({line}.*remove the file"):
        read_metrics(tmp_path)


def test_a_row_that_a_stop_cut_short_is_left_out(tmp_path):
    (tmp_path / METRICS).write_text("step,seed,loss\n1,0,2.5\n2,0")
    assert read_metrics(tmp_path) == [{"step": 1.0, "seed": 0.0, "loss": 2.5}]
