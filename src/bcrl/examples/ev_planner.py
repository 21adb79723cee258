"""A yardstick without foresight: a plan that is made anew in each step from what the policy sees.

The rate now is known. The rates ahead are the forecasts of the observation, each taken for all steps of its
window, and the mean of the last day after the last window. The plan is the fractional knapsack of `foresight`
over these rates, the time, the energy and the budget that are left; its power for this step is executed.
"""

import numpy as np

from bcrl.examples.ev_optimum import Bought
from bcrl.examples.ev_rules import Rule, charge
from bcrl.examples.ev_sessions import HOURS, POWER, WINDOWS, Sessions

FULL = POWER * HOURS
"""kWh of a step at full power."""


def planner(sessions: Sessions, budget: float) -> Bought:
    """What each car gets by the plan, and what it emits."""
    done = charge(sessions, _rule(sessions, budget), budget)
    return done.energy.sum(axis=1), done.cost.sum(axis=1)


def _rule(sessions: Sessions, budget: float) -> Rule:
    before = np.array([low - 1 for low, _ in WINDOWS] + [WINDOWS[-1][1]])
    size = np.array([high - low + 1 for low, high in WINDOWS] + [np.inf])

    def rule(step: int, left: np.ndarray, spent: np.ndarray) -> np.ndarray:
        power, runs = np.zeros(len(left)), np.flatnonzero((sessions.steps > step) & (left > 0))
        seen = sessions.signals[sessions.first[runs] + step]
        after = (sessions.steps[runs] - step - 1)[:, None]
        room = FULL * np.clip(after - before, 0, size)
        power[runs] = planned(seen[:, 0], seen[:, 1:6], room, left[runs], budget - spent[runs]) / HOURS
        return power

    return rule


def planned(
    rate: np.ndarray, ahead: np.ndarray, room: np.ndarray, wanted: np.ndarray, budget: np.ndarray
) -> np.ndarray:
    """kWh of this step in the knapsack over this step and (n, m) rates ahead, with room for (n, m) kWh."""
    cleaner = np.where(ahead < rate[:, None], room, 0.0)
    order = np.argsort(ahead, axis=1)
    cleaner, ahead = (np.take_along_axis(array, order, axis=1) for array in (cleaner, ahead))
    first = np.clip(wanted[:, None] - (np.cumsum(cleaner, axis=1) - cleaner), 0.0, cleaner)
    money = np.maximum(budget - (first * ahead).sum(axis=1), 0.0)
    most = np.divide(money, rate, out=np.full(len(rate), np.inf), where=rate > 0)
    return np.minimum(np.minimum(FULL, wanted - first.sum(axis=1)), most)
