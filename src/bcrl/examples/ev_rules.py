"""The charging rules that write the log."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from bcrl.examples.ev_sessions import HOURS, POWER, Sessions

RULES = ("at once", "late", "steady", "changing", "signal", "forecast")
"""Of the log; each session follows one of them.

at once: full power. late: full power from when 1 to 1.5 times the time it needs is left. steady: one power,
drawn. changing: a new power about every half hour, none in three of ten cases.
signal: full power while the CO₂ rate is below a drawn level. forecast: full power while it is below a drawn
share (0.7 to 1.1) of its forecast over the next three hours.
"""
CAPPED = 0.5
"""Share of the sessions that stop at a CO₂ cap of their own, drawn from CAPS (log-uniform, kg)."""
CAPS = (0.2, 6.0)
RANDOM = 0.2
"""Share of the steps in which another power is tried: none, full, or any between, each in a third of them."""
LOGGED = (
    "The log's powers are made by stated rules over real sessions, because power curves are not in the data."
)


@dataclass(frozen=True)
class Charged:
    """What rules did: arrays (n, steps), 0 after the end."""

    power: np.ndarray
    """kW, as commanded."""
    energy: np.ndarray
    """kWh delivered."""
    cost: np.ndarray
    """kg CO₂."""
    before: np.ndarray
    """kWh wanted before the step."""
    charging: np.ndarray
    """Whether the session still runs: the car is there and not full."""


Rule = Callable[[int, np.ndarray, np.ndarray], np.ndarray]
"""Power of all sessions from the step, kWh still wanted and kg spent."""


def charge(sessions: Sessions, rule: Rule, caps: np.ndarray | float = np.inf) -> Charged:
    """Every session by a rule, exactly: one car does not move the grid. No car emits more than its cap."""
    rate, there = sessions.rates()
    left, spent = sessions.wanted.astype(float).copy(), np.zeros(len(sessions))
    columns: list[tuple[np.ndarray, ...]] = []
    for step in range(rate.shape[1]):
        runs = there[:, step] & (left > 0)
        power = np.clip(rule(step, left, spent), 0.0, POWER)
        room = np.divide(caps - spent, rate[:, step], out=np.full(len(left), np.inf), where=rate[:, step] > 0)
        power = np.where(runs, np.minimum(power, np.maximum(room, 0.0) / HOURS), 0.0)
        energy = np.minimum(power * HOURS, left)
        cost = energy * rate[:, step]
        columns.append((power, energy, cost, left, runs))
        left, spent = np.where(left - energy < 1e-6, 0.0, left - energy), spent + cost
    return Charged(*(np.stack(column, axis=1) for column in zip(*columns, strict=True)))


def mixed(sessions: Sessions, random: np.random.Generator) -> tuple[Rule, np.ndarray, np.ndarray]:
    """The rules of the log, one drawn for each session: the rule, which it is, and the caps."""
    n = len(sessions)
    kind = random.integers(0, len(RULES), n)
    ease, share, level = random.uniform(1, 1.5, n), random.uniform(0.1, 1, n), random.uniform(0.05, 0.5, n)
    margin = random.uniform(0.7, 1.1, n)
    low, high = np.log(CAPS)
    caps = np.exp(random.uniform(low, high, n))
    caps = np.where(random.random(n) < CAPPED, caps, np.inf)
    now, held = np.zeros(n), _some_power(random, n)

    def rule(step: int, left: np.ndarray, spent: np.ndarray) -> np.ndarray:
        nonlocal held
        at = np.minimum(sessions.first + step, len(sessions.rate) - 1)
        rate, ahead = sessions.signals[at, 0], sessions.signals[at, 1:5] @ (np.array([1, 1, 2, 2]) / 6)
        hours = (sessions.steps - step) * HOURS
        held = np.where(random.random(n) < 1 / 6, _some_power(random, n), held)
        choice = np.stack(
            [
                np.ones(n),
                hours <= ease * left / POWER,
                share,
                held,
                rate <= level,
                rate <= margin * ahead,
            ]
        )
        usual = choice[kind, np.arange(n)]
        tried = np.choose(random.integers(0, 3, n), [now, now + 1, random.random(n)])
        return POWER * np.where(random.random(n) < RANDOM, tried, usual)

    return rule, kind, caps


def _some_power(random: np.random.Generator, n: int) -> np.ndarray:
    return np.where(random.random(n) < 0.3, 0.0, random.random(n))
