"""The log as a table, as any user has one: a row per 5-minute step, and a map that says what is what."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import numpy as np

from bcrl.examples.ev_rules import RULES, charge, mixed
from bcrl.examples.ev_sessions import HOURS, OBSERVATIONS, POWER, STEP, Sessions

if TYPE_CHECKING:
    import polars as pl

MAP = f"""\
# What the columns of sessions.parquet are. A session ends when the car is full or leaves: nothing follows.
observations = ["{'", "'.join(OBSERVATIONS)}"]
actions = ["power"]
reward = "kwh"
costs = ["co2"]
episode = "session"
time = "time"
ends = "terminal"

[action_bounds]
power = [0, {POWER}]

[max_cost]    # full power at the dirtiest rate of the grid
co2 = 0.4

[units]
hours_left = "h"
kwh_wanted = "kWh"
power = "kW"
kwh = "kWh"
co2 = "kg"
"""


def log_table(sessions: Sessions, seed: int) -> "pl.DataFrame":
    """Every session by a rule that is drawn for it: the table that `bcrl data import` reads."""
    import polars as pl

    rule, kind, caps = mixed(sessions, np.random.default_rng(seed))
    done = charge(sessions, rule, caps)
    number, step = np.nonzero(done.charging)
    at = sessions.first[number] + step
    seen = np.concatenate(
        [
            ((sessions.steps[number] - step) * HOURS)[:, None],
            done.before[number, step][:, None],
            sessions.signals[at],
        ],
        axis=1,
    )
    start = datetime.fromtimestamp(sessions.start, UTC)
    return pl.DataFrame(
        {
            "session": number,
            "rule": np.array(RULES)[kind][number],
            "time": pl.Series(at * STEP * 1_000_000, dtype=pl.Duration("us")) + start,
            **dict(zip(OBSERVATIONS, seen.astype(np.float32).T, strict=True)),
            "power": done.power[number, step],
            "kwh": done.energy[number, step],
            "co2": done.cost[number, step],
        }
    )
