"""Which threshold is told: the plain one unless another earns more, and no bound far below counts."""

from typing import Any, cast

import numpy as np
import pytest

from bcrl.estimates.calibrating import POINTS, best_told, calibration_episodes, choose_told
from bcrl.estimates.estimating import Cell
from bcrl.estimates.interval import Interval
from bcrl.estimates.light import Light, Verdict

NOISE = np.random.default_rng(0).normal(0.0, 1.0, (5, 16))


def cell(told: float, cost: float, earned: float = 100.0, noise: float = 0.0, light=Light.GREEN) -> Cell:
    """An estimate whose cost is sure, and whose return differs by `noise` between members and starts."""
    returns = earned + noise * NOISE
    mean = Interval(float(returns.mean()), float(returns.mean()), float(returns.mean()))
    sure = Interval(cost, cost, cost)
    return Cell(told, sure, cost, mean, 0.0, Verdict(light, ()), returns, np.full((5, 16), cost))


def told(cells: list[Cell], wanted: float) -> float | None:
    return best_told(cells, wanted).told


@pytest.mark.parametrize(("more", "expected"), [(0.1, 10.0), (2.0, 8.0), (-2.0, 10.0)])
def test_the_wanted_threshold_is_told_unless_another_earns_more_than_by_chance(more, expected):
    cells = [cell(8.0, 7.0, 100.0 + more, noise=1.0), cell(10.0, 9.0)]
    assert told(cells, 10.0) == expected


@pytest.mark.parametrize("count", [1, 12, 30])
def test_every_wanted_threshold_is_tried_itself_and_points_around_the_best(count):
    """However many there are."""
    tried: list[float] = []

    class Counting:
        largest = 1_000.0

        def cells(self, policy, thresholds, tick):
            tried.extend(map(float, thresholds))
            return [cell(told, told) for told in thresholds]

        def episodes(self, thresholds):
            return thresholds

    wanted = [float(threshold) for threshold in range(1, count + 1)]
    laboratory: Any = Counting()
    choices = choose_told(laboratory, cast(Any, None), wanted, cast(Any, None))
    assert [choice.told for choice in choices] == wanted
    assert set(wanted) < set(tried)
    assert len(set(tried) - set(wanted)) > POINTS - 2
    assert len(tried) == calibration_episodes(laboratory, wanted)


def test_where_the_wanted_threshold_is_not_kept_the_nearest_is_told():
    cells = [cell(4.0, 3.0), cell(8.0, 7.0), cell(10.0, 11.0), cell(12.0, 13.0)]
    assert told(cells, 10.0) == 8.0
    assert told(cells, 12.0) == 10.0


def test_more_is_told_to_a_policy_that_spends_little():
    cells = [cell(10.0, 3.0), cell(20.0, 9.0, 120.0, noise=1.0), cell(30.0, 14.0, 140.0)]
    assert told(cells, 10.0) == 20.0


def test_a_policy_that_fails_when_told_nearly_nothing_is_still_told_more():
    cells = [cell(0.0, 30.0), cell(1.0, 20.0), cell(9.0, 8.0), cell(10.0, 9.0)]
    assert told(cells, 10.0) == 10.0


def test_a_threshold_above_one_that_breaks_is_not_told():
    cells = [cell(6.0, 5.0), cell(8.0, 12.0), cell(10.0, 9.0)]
    assert told(cells, 10.0) == 6.0


def test_what_cannot_be_trusted_is_not_told():
    cells = [cell(8.0, 7.0), cell(10.0, 9.0, 200.0, light=Light.RED)]
    assert told(cells, 10.0) == 8.0
    refused = best_told([cell(8.0, 7.0, light=Light.RED)], 10.0)
    assert refused.told is None
    assert "cannot be trusted" in refused.refusal
    refused = best_told([cell(0.0, 30.0), cell(1.0, 20.0), cell(9.0, 25.0)], 10.0)
    assert refused.refusal == "even told 1, the policy may cost 20"
