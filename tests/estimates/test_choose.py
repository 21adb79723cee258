"""The ranking of policies from the log alone."""

import pytest
from speeding import policy_of

import bcrl
from bcrl.errors import BCRLError


def test_the_better_policy_is_first(speeding_log, speeding_model):
    policies = {
        "slow": policy_of(speeding_log, throttle=0.05),
        "stubborn": policy_of(speeding_log, stubborn=True),
        "fast": policy_of(speeding_log),
        "fast too": policy_of(speeding_log),
    }
    ranking = bcrl.choose(policies, speeding_log, (5.0, 10.0), model=speeding_model, starts=16)
    assert [one.name for one in ranking] == ["fast", "fast too", "slow", "stubborn"]
    first, same, slow, stubborn = ranking
    assert first.behind is None
    assert same.indistinguishable
    assert slow.behind.low > 0
    assert stubborn.refused == (5.0, 10.0)
    assert not stubborn.indistinguishable


def test_no_ranking_where_every_policy_is_refused(speeding_log, speeding_model):
    policies = {name: policy_of(speeding_log, stubborn=True) for name in ("one", "two")}
    said = r"any of the thresholds 5,10: at 5,10: even told 0, the policy may cost [\d.]+: see docs"
    with pytest.raises(BCRLError, match=said):
        bcrl.choose(policies, speeding_log, (5.0, 10.0), model=speeding_model, starts=16)


def test_nothing_to_choose_from_is_refused(speeding_log):
    with pytest.raises(BCRLError, match="no policy was given"):
        bcrl.choose({}, speeding_log)
