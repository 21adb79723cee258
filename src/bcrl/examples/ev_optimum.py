"""What rules and perfect foresight buy under a CO₂ budget for each car, in closed form."""

import numpy as np

from bcrl.examples.ev_sessions import HOURS, POWER, Sessions

Bought = tuple[np.ndarray, np.ndarray]
"""(n,) kWh and kg of each car."""
LEVELS = np.linspace(0.1, 0.7, 13)
"""kg/kWh: the rates among which a rule's limit is chosen; the largest is above all."""
TUNING = 3_000
"""Sessions on which it is chosen, at most, evenly spaced."""


def foresight(sessions: Sessions, budget: float) -> Bought:
    """The best schedule of each car within its budget, which needs the rates of its whole stay beforehand.

    A fractional knapsack: steps are filled from the cleanest on, until the car is full or nothing is left.
    """
    rate, there = sessions.rates()
    rate = np.sort(np.where(there, rate, np.inf), axis=1)
    there = np.isfinite(rate)
    return _fill(np.where(there, rate, 0.0), there, sessions.wanted, budget)


def at_once(sessions: Sessions, budget: float) -> Bought:
    """Full power from the arrival on, until the car is full or the budget is spent."""
    return _fill(*sessions.rates(), sessions.wanted, budget)


def below(sessions: Sessions, level: float, budget: float) -> Bought:
    """The same in those steps alone whose rate is at most `level`."""
    rate, there = sessions.rates()
    return _fill(rate, there & (rate <= level), sessions.wanted, budget)


def best_level(sessions: Sessions, budget: float) -> float:
    """The level at which `below` delivers most within the budget."""
    some = sessions.take(np.linspace(0, len(sessions) - 1, min(len(sessions), TUNING)).astype(int))
    delivered = [below(some, float(level), budget)[0].mean() for level in LEVELS]
    return float(LEVELS[int(np.argmax(delivered))])


def _fill(rate: np.ndarray, used: np.ndarray, wanted: np.ndarray, budget: float) -> Bought:
    """Full power in the steps used, in their order; the last one in part."""
    room = np.where(used, POWER * HOURS, 0.0)
    energy = np.clip(wanted[:, None] - (np.cumsum(room, axis=1) - room), 0.0, room)
    cost = energy * rate
    left = budget - (np.cumsum(cost, axis=1) - cost)
    share = np.clip(np.divide(left, cost, out=np.ones_like(cost), where=cost > 0), 0.0, 1.0)
    # When nothing is left, steps without any emission are still free.
    free = (np.cumsum(share < 1, axis=1) > 0) & (rate == 0)
    kwh, kg = np.where(free, 0.0, share * energy).sum(axis=1), (share * cost).sum(axis=1)
    return kwh + np.minimum(wanted - kwh, np.where(free, room, 0.0).sum(axis=1)), kg
