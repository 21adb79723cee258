"""Odd arguments and damaged files of estimates: each is refused in one line that names what is odd."""

import math

import pytest
from speeding import policy_of

import bcrl
from bcrl.errors import BCRLError
from bcrl.estimates.estimating import COLUMNS
from bcrl.tensors import read_header, write_tensors

FUNCTIONS = {"estimate": bcrl.estimate, "calibrate": bcrl.calibrate, "choose": bcrl.choose}


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize(
    "odd",
    [
        {"thresholds": [10**400]},
        {"horizon": "x"},
        {"horizon": 2.5},
        {"starts": None},
        {"seed": -1},
        {"seed": 1.5},
        {"seed": 2**70},
        {"model": "log.model"},
        {"data": "log.npz"},
        {"polic": None},
        {"polic": "p.bcrl"},
        {"polic": [None]},
    ],
    ids=str,
)
def test_odd_arguments_are_refused(function, odd, speeding_log, speeding_model):
    policy = policy_of(speeding_log, helpless=True)
    given = {"thresholds": [3.0], "model": speeding_model, "starts": 2, "data": speeding_log}
    given |= {"polic": {"a": policy} if function == "choose" else policy} | odd
    places = [given.pop(name) for name in ("polic", "data", "thresholds")]
    with pytest.raises(BCRLError, match=next(iter(odd))) as refused:
        FUNCTIONS[function](*places, **given)
    assert str(refused.value).isprintable()


@pytest.mark.parametrize(
    "odd", [{"seed": math.inf}, {"seed": None}, {"hidden": [1] * 100_000}, {"sizes": [1, 1]}], ids=str
)
def test_a_model_with_a_damaged_header_is_refused(odd, speeding_model, tmp_path):
    speeding_model.save(tmp_path / "m")
    header = {name: x for name, x in read_header(tmp_path / "m", "model").items() if name != "sha256"}
    write_tensors(tmp_path / "m", speeding_model, header | odd)
    with pytest.raises(BCRLError, match="m: the header is damaged"):
        bcrl.Model.load(tmp_path / "m")


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("cost", "inf"),
        ("cost", "-1"),
        ("return_low", "nan"),
        ("fallback_share", "7"),
        ("over_share", "-0.1"),
        ("threshold", "-1"),
    ],
)
def test_estimates_that_no_policy_can_have_are_refused(column, value, tmp_path):
    row = dict.fromkeys(COLUMNS, "0") | {"light": "green", column: value}
    (tmp_path / "e.csv").write_text(",".join(COLUMNS) + "\n" + ",".join(row.values()) + "\n")
    with pytest.raises(BCRLError, match=r"e\.csv: line 2 is damaged"):
        bcrl.Estimates.load(tmp_path / "e.csv")


def test_a_file_of_estimates_is_named_by_its_path():
    with pytest.raises(BCRLError, match="not by None"):
        bcrl.Estimates.load(None)  # type: ignore[arg-type]
