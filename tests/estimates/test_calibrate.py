"""Calibrated thresholds: what is told keeps what is wanted; other settings than the table's are refused."""

import json

import numpy as np
import pytest
from speeding import Speeding, policy_of

import bcrl
from bcrl.assess.rollout import roll_out
from bcrl.calibration import Calibration
from bcrl.errors import BCRLError
from bcrl.policy import Policy

WANTED = (5.0, 10.0)


@pytest.fixture(scope="module")
def greedy(speeding_log, speeding_model):
    """A policy that spends a third of what it is told, calibrated."""
    policy = policy_of(speeding_log, share=0.3)
    return bcrl.calibrate(policy, speeding_log, WANTED, model=speeding_model, starts=16)


def test_calibrated_thresholds_are_kept_and_earn_more(greedy):
    plain = roll_out(greedy.policy, Speeding(), WANTED, episodes=100)
    told = roll_out(greedy.policy, Speeding(), WANTED, episodes=100, calibrated=True)
    assert np.all(told.costs.mean(axis=1) <= WANTED)
    assert np.all(told.returns.mean(axis=1) > plain.returns.mean(axis=1))
    assert all(choice.told > choice.wanted for choice in greedy.choices)
    for choice, costs in zip(greedy.choices, told.costs, strict=True):
        assert choice.over_share == pytest.approx(np.mean(costs > choice.wanted), abs=0.15)


def test_evaluate_takes_the_table(greedy):
    results = bcrl.evaluate(greedy.policy, Speeding(), episodes=4, calibrated=True)
    assert {row.threshold for row in results} == set(WANTED)


def test_an_overspending_policy_is_refused(speeding_log, speeding_model):
    policy = policy_of(speeding_log, stubborn=True)
    with pytest.raises(BCRLError, match=r": at 5,10: even told 0, the policy may cost [\d.]+: see docs"):
        bcrl.calibrate(policy, speeding_log, WANTED, model=speeding_model, starts=16)


def test_one_refused_threshold_leaves_the_others(speeding_log, speeding_model):
    policy = policy_of(speeding_log, share=0.3)
    found = bcrl.calibrate(policy, speeding_log, (0.01, 10.0), model=speeding_model, starts=16)
    assert [choice.told is None for choice in found.choices] == [True, False]
    assert [wanted for wanted, _ in found.policy.calibration.table] == [10.0]


@pytest.fixture
def calibrated(tiny_policy) -> Policy:
    table = Calibration(((5.0, 7.5), (10.0, 12.25)), "0" * 64, "finite-horizon", 0, 20)
    parts = (tiny_policy.learned, tiny_policy.method, tiny_policy.spec, tiny_policy.provenance)
    return Policy(*parts, calibration=table)


def test_a_policy_file_keeps_its_table(calibrated, tmp_path):
    calibrated.save(tmp_path / "policy.bcrl")
    loaded = bcrl.load(tmp_path / "policy.bcrl")
    assert loaded.calibration == calibrated.calibration
    goal = loaded.goal(threshold=[5, 10], horizon=20, calibrated=True)
    assert goal.threshold[:, 0].tolist() == [7.5, 12.25]
    assert loaded.goal(threshold=5).threshold.tolist() == [5.0]
    loaded.start(threshold=10.0, calibrated=True).act(np.zeros(6))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"threshold": 7}, "threshold is 7, but the policy was calibrated for 5, 10: give one of these"),
        ({"threshold": 5, "horizon": 10}, "horizon is 10, but the policy was calibrated with 20"),
        ({"threshold": 5, "execution": "soft"}, "execution is soft, but .* with finite-horizon"),
        ({"threshold": 5, "candidates": 4}, "candidates is 4, but the policy was calibrated with 0"),
        ({"budget": 5}, "needs threshold"),
        ({"threshold": 10**400}, "but the policy was calibrated for 5, 10"),
        ({"threshold": 5, "calibrated": "yes"}, "calibrated is 'yes', but must be True or False"),
    ],
)
def test_other_settings_are_refused(options, message, calibrated):
    with pytest.raises(BCRLError, match=message):
        calibrated.start(**{"calibrated": True} | options)


def test_a_policy_without_a_table_is_refused(tiny_policy):
    with pytest.raises(BCRLError, match="the policy is not calibrated: see bcrl calibrate"):
        tiny_policy.start(threshold=5, calibrated=True)


@pytest.mark.parametrize(
    "change",
    [
        {"table": [[5.0, -1.0]]},
        {"table": [[5.0, 1.0], [5.0, 2.0]]},
        {"table": []},
        {"table": [[5.0, 10**400]]},
        {"table": [[float("nan"), 1.0]]},
        {"table": [[5.0]]},
        {"table": 3},
        {"horizon": 0},
        {"horizon": "20"},
        {"candidates": None},
        {"execution": 1},
        {"more": 1},
    ],
    ids=json.dumps,
)
def test_a_damaged_table_is_refused(change, calibrated):
    header = {"calibration": calibrated.calibration.header() | change}
    with pytest.raises(BCRLError, match=r"p\.bcrl: the header's calibration is damaged"):
        Calibration.read(header, "p.bcrl")
