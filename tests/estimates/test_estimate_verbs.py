"""`bcrl estimate`, `calibrate` and `choose` from a log file to a calibrated policy file."""

from pathlib import Path

import numpy as np
import pytest

import bcrl
from bcrl.cli import main
from bcrl.cli.estimate import print_estimates
from bcrl.cli.model_options import ModelOptions
from bcrl.cli.terminal import print_reasons, span
from bcrl.data import Dataset
from bcrl.estimates import Estimates, ThresholdEstimate
from bcrl.estimates.light import grouped


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


def test_refusals_that_differ_in_numbers_are_one():
    pairs = [("5", "6.4% left (30% of 5)"), ("10", "7% left (30% of 10)"), ("20", "another")]
    assert grouped(pairs) == [(["5", "10"], "6.4% to 7% left (30% of 5 to 10)"), (["20"], "another")]


def test_a_table_that_is_too_wide_has_intervals_below(capsys):
    rows = [ThresholdEstimate("bcrl", "soft", "log", 0, 1234.5, *[-1234.5] * 6, 0.004, "red", "", 0.999)]
    print_estimates(rows, several=True)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[1].split() == ["0", "1234.5", "-1234", ">99%", "-1234", "<1%", "red"]
    assert lines[2].count("(−1234 to −1234)") == 2


def test_intervals_with_a_minus_are_readable():
    assert (span(0.27, 4), span(-0.45, 0.27)) == ("0.27–4", "−0.45 to 0.27")


@pytest.mark.parametrize("ends", [False, True])
def test_the_length_of_the_episodes_is_said(ends, speeding_log, capsys):
    first = {name: array[:45].copy() for name, array in speeding_log.arrays().items()}  # 30 steps, then 15
    first["timeouts"][-1], first["terminals"][-1] = not ends, ends
    ModelOptions(data=Path("log.npz")).print_episodes(Dataset.from_arrays(first, "log.npz"))
    said = "of 30 steps at most" if ends else "all of 30 steps; the log's episodes have 22.5 on average"
    text = capsys.readouterr().out
    assert " ".join(text.split()) == f"for episodes that start as the log's do, {said}"
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize(
    ("reasons", "low", "command"),
    [
        ("the fallback decides 90% of the steps", 1.0, False),
        ("the fallback decides 90% of the steps; the estimated cost, 9, is above the threshold", 8.0, False),
        ("the estimated cost, 9, is above the threshold", 8.0, True),
    ],
)
def test_a_red_estimate_leads_to_calibrate_only_for_its_cost(reasons, low, command, said, monkeypatch):
    row = ThresholdEstimate(
        "bc-all", "soft", "log", 0, 5.0, 9.0, low, 9.5, 1.0, 0.0, 2.0, 0.9, "red", reasons, 1.0
    )
    monkeypatch.setattr("bcrl.estimates.estimate", lambda *_, **__: Estimates([row]))
    last = said("estimate run --thresholds 5").splitlines()[-1]
    assert last.startswith("next: bcrl calibrate" if command else "next: no row can be trusted")


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


def test_calibrate_takes_a_run_and_learns_one_model_for_it(place, speeding_model, monkeypatch, capsys):
    monkeypatch.chdir(place)
    learned = []

    def fit(data, **arguments):
        learned.append(arguments)
        return speeding_model

    monkeypatch.setattr("bcrl.estimates.fit_model", fit)
    words = "calibrate run --data log.npz --starts 4 --thresholds 5,60 --out"
    main([*words.split(), "calibrated"])
    said = capsys.readouterr().out
    assert learned == [{"seed": 0}]
    assert [said.count(f"run/policy-{seed}.bcrl, from log.npz alone") for seed in (0, 10)] == [1, 1]
    assert "the calibrated policies: calibrated\n" in said
    (kept, _), *_ = bcrl.load("calibrated/policy-10.bcrl").calibration.table
    assert f"next: act with bcrl.load('calibrated/policy-10.bcrl').start(threshold={kept:g}," in said
    files = sorted(Path("calibrated").iterdir())
    assert [file.name for file in files] == ["policy-0.bcrl", "policy-10.bcrl"]
    assert all(60.0 in dict(bcrl.load(file).calibration.table) for file in files)
    for out, why in (("calibrated", "give --overwrite"), ("run", "holds a run: name another folder")):
        with pytest.raises(SystemExit, match="2"):
            main([*words.split(), out])
        assert why in capsys.readouterr().err


def test_what_one_seed_is_refused_loses_no_other(said, place, monkeypatch, capsys):
    import bcrl.estimates

    calibrate, seen = bcrl.estimates.calibrate, []

    def second_is_refused(policy, *rest, **arguments):
        seen.append(policy)
        if len(seen) == 2:
            raise bcrl.BCRLError("the policy keeps no threshold for sure: why")
        return calibrate(policy, *rest, **arguments)

    monkeypatch.setattr("bcrl.estimates.calibrate", second_is_refused)
    with pytest.raises(SystemExit, match="2"):
        said("calibrate run --thresholds 60 --out partly")
    told = capsys.readouterr()
    assert "the calibrated policies: partly" in told.out
    assert "run/policy-10.bcrl: the policy keeps no threshold for sure: why" in told.err
    assert [file.name for file in (place / "partly").iterdir()] == ["policy-0.bcrl"]


def test_another_log_is_one_warning_and_other_columns_are_refused_unlearned(
    place, speeding_log, monkeypatch, capsys
):
    monkeypatch.chdir(place)
    known = speeding_log.arrays()
    Dataset.from_arrays(known | {"rewards": known["rewards"] + 1}, "night").save("night.npz")
    wide = {name: np.repeat(known[name], 2, axis=1) for name in ("observations", "next_observations")}
    Dataset.from_arrays(known | wide, "wide").save("wide.npz")
    words = "estimate run --thresholds 5 --horizon 99 --data"  # refused after the warning
    with pytest.raises(SystemExit, match="2"):
        main([*words.split(), "night.npz"])
    assert capsys.readouterr().err.count("the policy learned from another log (log.npz)") == 1
    with pytest.raises(SystemExit, match="2"):
        main([*words.split(), "wide.npz", "--model", "wide.model"])
    assert "but wide.npz (2, 1, 1)" in capsys.readouterr().err
    assert not Path("wide.model").exists()


def test_choose_ranks_every_policy(said):
    text = said("choose run run/policy-0.bcrl --thresholds 60")
    assert "the best 2 of 2 at thresholds 60" in text
    assert "1: run/policy-" in text
    assert max(map(len, text[: text.index("next:")].splitlines())) <= 80


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("estimate run --thresholds 5 --data log.npz --model run/policy-0.bcrl", "not a bcrl model"),
        (
            "estimate run --thresholds 5 --data log.npz --horizon 99 --model log.model",
            "nothing is logged past",
        ),
        ("estimate run --thresholds 5 --data log.npz --out estimates.txt", "unknown suffix '.txt'"),
        (
            "estimate run --thresholds 5 --data log.npz --out run/metrics.csv",
            "run/metrics.csv exists; choose",
        ),
        ("evaluate run --world point-circle --thresholds 5 --out log.npz", "log.npz exists; choose another"),
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
