"""`bcrl data filter` and `bcrl data convert`: new logs from old ones, and one line when that cannot be."""

import shlex

import numpy as np
import pytest

from bcrl.cli import main
from bcrl.data import Dataset, load_data


@pytest.fixture(scope="module")
def wide_log() -> Dataset:
    """Sixty episodes of five steps, with costs from 0 to 5 and states that follow one another."""
    random = np.random.default_rng(2)
    rows = 300
    states = random.normal(size=(rows + 1, 2))
    ends = np.arange(rows) % 5 == 4
    after = states[1:] + ends[:, None]
    return Dataset(
        observations=states[:-1],
        actions=random.uniform(-1, 1, (rows, 1)),
        rewards=np.repeat(random.uniform(0, 2, 60), 5),
        costs=random.random(rows) < np.repeat(random.random(60), 5),
        next_observations=after,
        terminals=np.zeros(rows),
        timeouts=ends,
        source="wide",
    )


@pytest.fixture
def folder(wide_log, tmp_path, monkeypatch):
    wide_log.save(tmp_path / "log.npz")
    (tmp_path / "empty").mkdir()
    (tmp_path / "there.npz").write_text("mine")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "store"))
    return tmp_path


def run(words: str) -> None:
    main(shlex.split(words))


def test_a_log_goes_through_all_formats_unchanged(folder, wide_log, capsys):
    ways = ["a.hdf5", "b.minari", "c.h5", "minari:box/walk-v0", "d.npz"]
    for before, after in zip(["log.npz", *ways], ways, strict=False):
        run(f"data convert {before} --out {after}")
        said = capsys.readouterr().out.splitlines()
        assert said == [f"60 episodes, 300 transitions: {after}", f"next: bcrl data info {after}"]
        assert load_data(after).fingerprint() == wide_log.fingerprint()


def test_the_name_of_the_costs_can_be_told(folder, wide_log):
    import h5py

    run("data convert log.npz --out a.minari")
    with h5py.File("a.minari/data/main_data.hdf5", "a") as file:
        for episode in file.values():
            episode["infos"].move("cost", "cost_sum")
    run("data convert a.minari --out b.npz --cost-key cost_sum")
    assert load_data("b.npz").fingerprint() == wide_log.fingerprint()


def test_what_is_there_is_replaced_only_when_told_to(folder, wide_log):
    run("data convert log.npz --out there.npz --overwrite")
    assert load_data("there.npz").fingerprint() == wide_log.fingerprint()


def test_all_steps_of_the_filter_in_their_order(folder, wide_log, capsys):
    from bcrl.data.preprocess import Box, Grid, add_noise, add_outliers, drop_best, inpaint, thin

    run(
        "data filter log.npz --out new.hdf5 --noise 0.1 --outliers 0.05 --drop-best-unsafe 0.5 --threshold 2 "
        "--drop-best-safe 0.5 --inpaint 0,0.2,0,0.5 0.9,1,0.9,1 --cost-cells 3 --return-cells 3 "
        "--sparse-cell 1 --most-per-cell 6 --seed 4"
    )
    data = thin(wide_log, Grid(3, 3, 6, 1), 4)
    counts = [60, data.episode_count]
    data = inpaint(data, [Box(0, 0.2, 0, 0.5), Box(0.9, 1, 0.9, 1)], wide_log)
    counts.append(data.episode_count)
    for safe in (True, False):
        data = drop_best(data, 2, 0.5, safe=safe)
        counts.append(data.episode_count)
    assert counts == sorted(counts, reverse=True)
    assert len(set(counts)) == 5, "every step drops something"
    data = add_noise(add_outliers(data, 0.05, 2, 4), 0.1, 4)
    assert load_data("new.hdf5").fingerprint() == data.fingerprint()
    said = capsys.readouterr().out.splitlines()
    names = ["thin", "inpaint", "drop best safe", "drop best unsafe"]
    for name, before, after, line in zip(names, counts, counts[1:], said, strict=False):
        assert line == f"{name}: {before} episodes, {after} kept"
    assert said[-2] == f"{data.episode_count} episodes, {len(data)} transitions: new.hdf5"


def test_one_option_of_the_grid_brings_the_others_of_dsrl(folder, wide_log):
    from bcrl.data.preprocess import Grid, thin

    run("data filter log.npz --out new.npz --sparse-cell 0")
    wanted = thin(wide_log, Grid(cost_cells=10, return_cells=50, most_per_cell=5, sparse_cell=0), 0)
    assert load_data("new.npz").fingerprint() == wanted.fingerprint()


BAD = {
    "no log": ("data filter --out NEW.npz --noise 1", ["LOG"]),
    "no out": ("data filter log.npz --noise 1", ["--out"]),
    "log missing": ("data filter none.npz --out NEW.npz --noise 1", ["none.npz", "no such file"]),
    "nothing to do": ("data filter log.npz --out NEW.npz", ["nothing to do", "bcrl data convert"]),
    "unknown suffix": ("data filter log.npz --out NEW.csv --noise 1", ["NEW.csv", "'.csv'", ".minari"]),
    "out is a folder": ("data filter log.npz --out empty.npz/../empty --noise 1", ["--out"]),
    "out exists": ("data filter log.npz --out there.npz --noise 1", ["there.npz exists", "--overwrite"]),
    "safe without threshold": (
        "data filter log.npz --out NEW.npz --drop-best-safe 5",
        ["--drop-best-safe needs --threshold"],
    ),
    "outliers without threshold": (
        "data filter log.npz --out NEW.npz --outliers 0.1",
        ["--outliers needs --threshold"],
    ),
    "half a box": ("data filter log.npz --out NEW.npz --inpaint 0,1", ["--inpaint 0,1 is 2 numbers", "four"]),
    "box of words": ("data filter log.npz --out NEW.npz --inpaint a,b,c,d", ["--inpaint", "'a,b,c,d'"]),
    "box in percent": ("data filter log.npz --out NEW.npz --inpaint 0,50,0,50", ["log.npz", "fractions"]),
    "no cells": ("data filter log.npz --out NEW.npz --cost-cells 0", ["cost_cells is 0"]),
    "noise is a word": ("data filter log.npz --out NEW.npz --noise loud", ["noise", "loud"]),
    "negative noise": ("data filter log.npz --out NEW.npz --noise=-1", ["noise is -1"]),
    "negative seed": ("data filter log.npz --out NEW.npz --noise 1 --seed=-1", ["--seed -1"]),
    "outliers in percent": ("data filter log.npz --out NEW.npz --outliers 10 --threshold 2", ["is 10"]),
    "out below a file": ("data filter log.npz --out there.npz/NEW.npz --noise 1", ["cannot be written"]),
    "convert nothing": ("data convert --out NEW.npz", ["LOG"]),
    "convert a folder": ("data convert empty --out NEW.npz", ["empty", "no Minari data set"]),
    "convert to itself": ("data convert log.npz --out log.npz", ["log.npz exists", "--overwrite"]),
    "convert onto a folder": ("data convert log.npz --out empty --overwrite", ["--out empty", "suffix"]),
    "no name of minari's": ("data convert log.npz --out minari:walk", ["minari:walk", "-v"]),
    "not in minari's store": ("data convert minari:a/walk-v0 --out NEW.npz", ["walk-v0", "no such data set"]),
    "a file is no data set": ("data convert log.npz --out there.npz/x.minari", ["cannot be written"]),
    "unknown option": ("data convert log.npz --out NEW.npz --colour red", ["colour"]),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_command_lines_end_in_one_line(name, folder, capsys):
    words, wanted = BAD[name]
    with pytest.raises(SystemExit) as stop:
        run(words)
    said = capsys.readouterr()
    assert stop.value.code == 2
    lines = said.err.splitlines()
    assert len(lines) == 1, said.err
    assert lines[0].startswith("bcrl: ")
    assert "Traceback" not in said.out + said.err
    for word in wanted:
        assert word in lines[0]
    left = sorted(file.name for file in folder.iterdir())
    assert left == ["empty", "log.npz", "there.npz"], "nothing is left behind"
    assert (folder / "there.npz").read_text() == "mine"
