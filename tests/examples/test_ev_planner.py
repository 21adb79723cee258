"""The planner: its step is a linear program's, it keeps budgets, and true forecasts make it foresight."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import linprog

from bcrl.examples.ev_compare import compare, curves
from bcrl.examples.ev_optimum import at_once, foresight
from bcrl.examples.ev_planner import FULL, planned, planner
from bcrl.examples.ev_replay import _rows
from bcrl.examples.ev_sessions import OBSERVATIONS, Sessions

SIGNALS = OBSERVATIONS[2:]


def test_a_planned_step_is_the_linear_programs() -> None:
    random = np.random.default_rng(0)
    for _ in range(200):
        rate, ahead = random.uniform(0.05, 0.6, 1), random.uniform(0.05, 0.6, (1, 5))
        room = FULL * random.integers(0, 6, (1, 5))
        wanted, budget = random.uniform(0, 6, 1), random.uniform(0, 2, 1)
        rates = np.concatenate([rate, ahead[0]])
        bounds = [(0.0, FULL), *((0.0, float(most)) for most in room[0])]
        limits = np.stack([np.ones(6), rates])
        best = linprog(-np.ones(6), limits, [wanted[0], budget[0]], bounds=bounds)
        # The same energy may be had at more than one emission: the least is the plan's.
        least = linprog(rates, limits[1:], budget, A_eq=limits[:1], b_eq=[-best.fun - 1e-9], bounds=bounds).x[
            0
        ]
        assert planned(rate, ahead, room, wanted, budget)[0] == pytest.approx(least, abs=1e-6)


@pytest.mark.parametrize("budget", [0.1, 0.4, 1.0, 3.0, 100.0])
def test_a_planner_keeps_the_budget_and_is_no_better_than_foresight(
    sessions: Sessions, budget: float
) -> None:
    kwh, kg = planner(sessions, budget)
    assert np.all(kg <= budget + 1e-9)
    assert np.all(kwh <= foresight(sessions, budget)[0] + 1e-6)
    assert kwh.mean() > at_once(sessions, budget)[0].mean() or budget == 100.0


@pytest.mark.parametrize("budget", [0.1, 0.3, 0.6])
def test_with_forecasts_that_come_true_it_is_foresight(sessions: Sessions, budget: float) -> None:
    """The first step of a stay is dirty, the half hour after it is clean and is forecast to be so."""
    first = np.array([300, 400, 500])
    rate, signals = np.full(len(sessions.rate), 0.2), sessions.signals.copy()
    rate[first] = 0.5
    signals[:, SIGNALS.index("co2_now")] = rate
    signals[:, SIGNALS.index("co2_30min")] = 0.2
    known = replace(
        sessions.take(np.arange(3)),
        first=first,
        steps=np.full(3, 7),
        wanted=np.array([1.0, 3.0, 7 * FULL]),
        rate=rate,
        signals=signals,
    )
    best = foresight(known, budget)
    np.testing.assert_allclose(planner(known, budget), best, atol=1e-6)
    assert at_once(known, budget)[0].mean() < 0.95 * best[0].mean()


def test_it_waits_for_a_cleaner_forecast_and_not_for_one_after_the_stay() -> None:
    rate, wanted, budget = np.array([0.4]), np.array([FULL]), np.array([9.0])
    ahead = np.array([[0.3, 0.5, 0.5, 0.5, 0.5]])
    assert planned(rate, ahead, np.full((1, 5), FULL), wanted, budget)[0] == 0
    assert planned(rate, ahead, np.zeros((1, 5)), wanted, budget)[0] == FULL


def test_a_comparison_shows_the_planner(sessions: Sessions) -> None:
    who = dict.fromkeys(("method", "tracking", "criterion", "execution", "world", "data"), "")
    kwh, kg = planner(sessions, 1.0)
    totals = np.stack([kwh, kg, sessions.steps, np.zeros(len(kwh))], axis=1)
    (row,) = compare(
        list(_rows(who | {"seed": 0}, 1.0, totals)), sessions, sessions, curves(sessions, sessions)
    )
    assert (row.planner_kwh, row.planner_kg) == pytest.approx((row.kwh, row.kg))
    assert row.planner_equal == pytest.approx(row.below_equal)
    assert row.planner_share == pytest.approx(row.share)
