"""The way of a user: train, resume, evaluate, read the table."""

import subprocess
import sys

import pytest

from bcrl.assess.results import read_results
from bcrl.cli import main


def test_train_and_evaluate(tiny_log_file, tmp_path, capsys):
    train = f"train --data {tiny_log_file} --out {tmp_path / 'run'} --hidden 8 --batch-size 16"
    train += " --learning-rate 0.01 --seeds 0,10 --steps 40 --log-every 10 --checkpoint-every 20"
    main(train.split())
    assert "trained bcrl for 40 steps: policy-0.bcrl, policy-10.bcrl" in capsys.readouterr().out
    main([*train.split(), "--resume"])
    capsys.readouterr()
    evaluate = f"evaluate {tmp_path / 'run'} --world point-circle --thresholds 5,10 --episodes 2"
    main([*evaluate.split(), "--out", str(tmp_path / "results.csv")])
    said = capsys.readouterr().out
    assert "8 episodes" in said
    for word in ("threshold", "reward", "cost", "5", "10", "all"):
        assert word in said
    rows = read_results(tmp_path / "results.csv")
    assert [(r.seed, r.threshold, r.episode) for r in rows] == [
        (seed, threshold, episode) for seed in (0, 10) for threshold in (5.0, 10.0) for episode in (0, 1)
    ]


def test_one_policy_file_can_be_evaluated(tiny_run, capsys):
    words = f"evaluate {tiny_run.folder / 'policy-0.bcrl'} --world point-circle --thresholds 5 --episodes 2"
    main(words.split())
    said = " ".join(capsys.readouterr().out.split())  # a long path wraps the title
    assert "policy-0.bcrl in point-circle" in said


def test_a_policy_for_one_threshold_is_judged_by_it(tiny_log_file, tmp_path, capsys):
    train = (
        f"train --data {tiny_log_file} --out {tmp_path / 'run'} --method bc-safe --threshold 12.5 --steps 4"
    )
    main([*train.split(), "--hidden", "8", "--batch-size", "16"])
    evaluate = ["evaluate", str(tmp_path / "run"), *["--world", "point-circle", "--episodes", "1"]]
    main([*evaluate, "--out", str(tmp_path / "own.csv")])
    assert "trained for" not in capsys.readouterr().out
    assert [row.threshold for row in read_results(tmp_path / "own.csv")] == [12.5]
    main([*evaluate, "--thresholds", "5,12.5"])
    assert "trained for a threshold of 12.5 alone" in capsys.readouterr().out


@pytest.mark.parametrize("verb", ["train", "evaluate"])
def test_help_tells_every_option(verb, capsys):
    with pytest.raises(SystemExit) as stop:
        main([verb, "--help"])
    assert stop.value.code == 0
    said = capsys.readouterr().out
    for option in {
        "train": [
            "--tracking",
            "--criterion",
            "--tau-c",
            "--seeds",
            "--resume",
            "--preset",
            "--cost-critics",
        ],
        "evaluate": ["--world", "--thresholds", "--episodes", "--execution", "--candidates", "--out"],
    }[verb]:
        assert option in said


def test_overview(capsys):
    main([])
    said = capsys.readouterr().out
    assert all(verb in said for verb in ("train", "evaluate", "collect", "data info"))


def test_the_program_itself(tmp_path):
    """As a program, not as a function: the exit status, and nothing but the line."""
    words = [sys.executable, "-m", "bcrl", "evaluate", "none.bcrl", "--world", "point-circle"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "bcrl: none.bcrl: no such file or folder\n"


def test_resume_where_no_run_is_says_so(tmp_path, capsys):
    with pytest.raises(SystemExit):
        main(["train", "--resume", "--out", str(tmp_path / "none")])
    assert "none: holds no run to go on with (config.json is missing): give --data" in capsys.readouterr().err
