"""`bcrl certify`: tables, sentences, certificate.json and exit statuses."""

import dataclasses
import hashlib
import json

import pytest

from bcrl import certify
from bcrl.cli import main


@pytest.fixture
def files(tmp_path, monkeypatch):
    """Good at 10, 20 and 40; too few; too costly; and all thresholds in one file."""
    monkeypatch.chdir(tmp_path)
    for name, costs in {
        "at-10.csv": [4, 6] * 30,
        "at-20.csv": [8, 12] * 30,
        "at-40.csv": [16, 24] * 30,
        "few.csv": [8, 12],
        "costly.csv": [30, 26] * 30,
    }.items():
        (tmp_path / name).write_text("cost\n" + "".join(f"{cost}\n" for cost in costs))
    lines = [f"{told},{0.4 * told},{n}" for n in range(60) for told in (10, 20, 40)]
    (tmp_path / "all.csv").write_text("threshold,cost,episode\n" + "\n".join(lines) + "\n")
    return tmp_path


def run(capsys, line: str) -> tuple[int, str]:
    """The exit status and what was printed; nothing is wider than 80 columns."""
    status = 0
    try:
        main(["certify", *line.split()])
    except SystemExit as stop:
        status = int(stop.code or 0)
    said = capsys.readouterr()
    assert all(len(line) <= 80 for line in said.out.splitlines()), said.out
    return status, said.out + said.err


@pytest.mark.parametrize(
    ("line", "status", "wanted"),
    [
        ("at-20.csv --threshold 20 --abort-at 60", 0, "Certified: the mean cost is below 20 with 95 %"),
        ("at-20.csv --threshold 20 --largest 200 --confidence 0.9", 0, "below 20 with 90 % confidence."),
        ("few.csv --threshold 20 --abort-at 60", 1, "Not yet: about"),
        ("costly.csv --threshold 20 --abort-at 60", 1, "No: the mean cost is above 20"),
        ("all.csv --threshold 10,20,40 --largest 60", 0, "3. Certified"),
        ("all.csv --threshold 20 --told 10,20,40 --largest 60", 0, "2. Certified"),
        ("at-10.csv at-20.csv at-40.csv --threshold 10,20,40 --abort-at 30,60,120", 0, "3. Certified"),
        ("at-10.csv few.csv at-20.csv --threshold 20 --abort-at 60", 1, "3. Not tested"),
        ("all.csv --threshold 20 --where episode=3 --largest 200", 1, "Not yet"),
        ("all.csv --threshold 20 --where threshold=10 --largest 200", 0, "Certified"),
    ],
)
def test_verdicts(line, status, wanted, files, capsys):
    found, said = run(capsys, line)
    assert wanted in said
    assert found == status


def test_the_order_is_that_of_the_command_line(files, capsys):
    first, said = run(capsys, "few.csv at-20.csv --threshold 20 --abort-at 60")
    assert first == 1
    assert "1. Not yet" in said
    assert "2. Not tested" in said


def test_the_table_of_one_test(files, capsys):
    _, said = run(capsys, "at-20.csv --threshold 20 --abort-at 60")
    head, row = (line.split() for line in said.splitlines()[:2])
    assert head == ["threshold", "episodes", "mean", "cost", "below", "verdict"]
    one = certify([8, 12] * 30, 20, abort_at=60)
    assert row == ["20", "60", "10", f"{one.cost_high:.4g}", "certified"]


def test_the_file_holds_all_numbers(files, capsys):
    line = "all.csv few.csv --threshold 20 --abort-at 60 --out deep/certificate.json"
    assert run(capsys, line)[0] == 1
    whole = json.loads((files / "deep/certificate.json").read_text())
    assert (whole["format"], whole["version"], whole["certified"]) == ("bcrl-certificate", 1, False)
    first, second = whole["tests"]
    wanted = dataclasses.asdict(certify([8.0] * 60, 20, abort_at=60))
    assert {name: first[name] for name in wanted} == wanted
    assert first["file"] == "all.csv"
    assert first["sha256"] == hashlib.sha256((files / "all.csv").read_bytes()).hexdigest()
    assert second["verdict"] == "not yet"
    assert second["more"] > 0
    assert "exists" in run(capsys, line)[1]
    assert run(capsys, f"{line} --overwrite")[0] == 1


def test_what_bcrl_evaluate_writes_is_read(tiny_run, files, capsys):
    policy = tiny_run.folder / "policy-10.bcrl"
    main(["evaluate", str(policy), "--world", "point-circle", "--episodes", "3", "--out", "results.csv"])
    capsys.readouterr()
    status, said = run(capsys, "results.csv --threshold 10,20,40 --largest 200")
    assert status in (0, 1)
    assert "mean cost" in said
    assert "results.csv" in said


BAD = {
    "no bound": ("at-20.csv --threshold 20", ["--abort-at", "--largest", "deployment too"]),
    "no threshold": ("at-20.csv --abort-at 60", ["--threshold"]),
    "no file": ("--threshold 20 --abort-at 60", ["no file was given"]),
    "missing file": ("none.csv --threshold 20 --abort-at 60", ["none.csv", "no such file"]),
    "missing file and bound": ("none.csv --threshold 20", ["none.csv", "no such file"]),
    "a cost above the bound": ("at-20.csv --threshold 5 --abort-at 10", ["at-20.csv: line 3", "cost is 12"]),
    "threshold is a word": ("at-20.csv --threshold low --abort-at 60", ["--threshold is 'low'"]),
    "bound is a word": ("at-20.csv --threshold 20 --abort-at x", ["--abort-at is 'x'"]),
    "a threshold above the bound": ("at-20.csv --threshold 70 --abort-at 60", ["threshold is 70"]),
    "percent": ("at-20.csv --threshold 20 --abort-at 60 --confidence 95", ["confidence is 95", "0.95"]),
    "two thresholds for three files": (
        "at-10.csv at-20.csv at-40.csv --threshold 10,20 --largest 200",
        ["2 values of --threshold for 3 tests"],
    ),
    "the same test twice": ("at-20.csv --threshold 20,20 --abort-at 60", ["test 2 is the same"]),
    "one file without thresholds for two": (
        "at-20.csv --threshold 20 --told 10,20 --abort-at 60",
        ["at-20.csv", "no column 'threshold'"],
    ),
    "no pair": ("at-20.csv --threshold 20 --abort-at 60 --where seed", ["--where is 'seed'", "COLUMN=VALUE"]),
    "another suffix": ("at-20.csv --threshold 20 --abort-at 60 --out c.txt", ["c.txt", ".json"]),
    "a folder": ("at-20.csv --threshold 20 --abort-at 60 --out .", ["--out"]),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_command_lines_end_in_one_line(name, files, capsys):
    line, wanted = BAD[name]
    status, said = run(capsys, line)
    assert status == 2
    assert len(said.splitlines()) == 1
    for word in wanted:
        assert word in said
