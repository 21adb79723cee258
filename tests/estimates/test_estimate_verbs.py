"""`bcrl estimate`, `calibrate` and `choose` from a log file to a calibrated policy file."""

import pytest

import bcrl
from bcrl.cli import main
from bcrl.cli.terminal import print_reasons


@pytest.fixture(scope="module")
def place(speeding_log, speeding_model, tmp_path_factory):
    """A folder with a log, a model of it and a run of two seeds."""
    folder = tmp_path_factory.mktemp("verbs")
    speeding_log.save(folder / "log.npz")
    speeding_model.save(folder / "log.model")
    method = bcrl.BCAll(hidden=(8,), batch_size=16)
    bcrl.fit(bcrl.load_data(folder / "log.npz"), method, seeds=(0, 10), steps=40, out=folder / "run")
    return folder


@pytest.fixture
def said(place, monkeypatch, capsys):
    """Runs a verb in the folder and returns what it prints."""
    monkeypatch.chdir(place)

    def call(words: str) -> str:
        main([*words.split(), "--data", "log.npz", "--model", "log.model", "--starts", "4"])
        return capsys.readouterr().out

    return call


def test_estimate_writes_a_row_for_each_policy_and_threshold(said, place):
    text = said("estimate run --thresholds 5,10 --out estimates.csv")
    rows = bcrl.Estimates.load(place / "estimates.csv")
    assert [(row.seed, row.threshold) for row in rows] == [(0, 5), (0, 10), (10, 5), (10, 10)]
    assert "for episodes that start as the log's do, of 30 steps at most" in text
    assert "next: bcrl calibrate run/policy-0.bcrl --data log.npz --thresholds 5,10" in text
    assert "--model log.model" in text.splitlines()[-1]
    table = text[: text.index("4 estimates")].splitlines()
    assert max(map(len, table)) <= 80


def test_reasons_for_the_same_thresholds_are_all_printed(capsys):
    print_reasons([("5", "a"), ("5", "b"), ("10", "a"), ("10", "b"), ("10", "c")])
    assert capsys.readouterr().out.splitlines() == ["at 5,10: a", "at 5,10: b", "at 10: c"]


def test_training_on_a_log_of_ones_own_leads_to_an_estimate(place, monkeypatch, capsys):
    monkeypatch.chdir(place)
    words = "--data log.npz --out own --hidden 8 --batch-size 16 --steps 2"
    main(["train", "--method", "bc-all", *words.split()])
    costs = bcrl.load_data("log.npz").episode_costs
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith("next: bcrl estimate own --data log.npz --thresholds ")
    told = [float(x) for x in last.split("--thresholds ")[1].split()[0].split(",")]
    assert 0 < min(told) <= max(told) <= costs.max()
    assert last.endswith("--out estimates.csv --model log.model")


def test_calibrate_writes_a_policy_that_keeps_the_table(said, place):
    # The tiny clone tracks no budget: only a threshold that nothing can break is sure to be kept.
    text = said("calibrate run/policy-0.bcrl --thresholds 5,60 --out calibrated.bcrl")
    table = bcrl.load(place / "calibrated.bcrl").calibration
    assert table.data_sha256 == bcrl.load_data(place / "log.npz").fingerprint()
    assert (table.execution, table.candidates, table.horizon) == ("finite-horizon", 0, 30)
    assert 60.0 in dict(table.table)
    assert "the calibrated policy: calibrated.bcrl" in text


def test_choose_ranks_every_policy(said):
    text = said("choose run run/policy-0.bcrl --thresholds 60")
    assert "the best 2 of 2 at thresholds 60" in text
    assert "1: run/policy-" in text


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("estimate run --thresholds 5 --data log.npz --model run/policy-0.bcrl", "not a bcrl model"),
        (
            "estimate run --thresholds 5 --data log.npz --horizon 99 --model log.model",
            "nothing is logged past",
        ),
        ("estimate run --thresholds 5 --data log.npz --out estimates.txt", "unknown suffix '.txt'"),
        ("estimate gone --thresholds 5 --data log.npz", "gone: no such file or folder"),
        ("calibrate run/policy-0.bcrl --thresholds 5 --data log.npz --out a.npz", "unknown suffix"),
        ("choose --data log.npz", "no run was given"),
        ("evaluate run --world point-circle --calibrated --thresholds 5", "the policy has"),
    ],
)
def test_mistakes_are_one_line(words, message, place, monkeypatch, capsys):
    monkeypatch.chdir(place)
    with pytest.raises(SystemExit, match="2"):
        main(words.split())
    text = capsys.readouterr().err
    assert message in text
    assert text.count("\n") == 1
