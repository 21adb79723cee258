"""Charging sessions as rows of 5-minute steps, with the CO₂ rate and its forecast at each step."""

import io
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from bcrl.errors import BCRLError, brief, need
from bcrl.examples.ev_wheel import Wheel
from bcrl.progress import progress

if TYPE_CHECKING:
    import polars as pl

PERIODS = {
    "2019": (("2019-05-01 2019-08-31", "2019-09-01 2019-12-31"), range(5, 13)),
    "2020": (("2020-02-01 2020-05-31",), range(2, 6)),
    "2021": (("2021-05-01 2021-08-31",), range(5, 9)),
}
"""The files of sessions and the months of rates of each period."""
SITES = ("caltech", "jpl")
POWER = 6.656
"""kW: 32 A at 208 V, what a station of ACN gives at most."""
HOURS = 5 / 60
"""Length of a step."""
STEP = 300
"""The same in seconds."""
LONGEST = 288
"""Steps of a session at most: a day. Longer ones are left out, as are those of less than 15 minutes."""
SHORTEST = 3
MOST_RATE = 1.0
"""kg/kWh; a larger rate is no rate of a grid. The largest of the data is 0.664."""
WINDOWS = ((1, 6), (7, 12), (13, 24), (25, 36))
"""Steps ahead whose forecasts are averaged: the next half hour, the half after, the second and third hour."""
OBSERVATIONS = (
    *("hours_left", "kwh_wanted", "co2_now", "co2_30min", "co2_1h", "co2_2h", "co2_3h", "co2_day"),
    *("hour_sin", "hour_cos"),
)


@dataclass(frozen=True)
class Sessions:
    """Sessions of one period, with the rates of the whole period."""

    period: str
    first: np.ndarray
    """(n,) the index of the first step in `rate` and `signals`."""
    steps: np.ndarray
    """(n,) whole steps between arrival and departure."""
    wanted: np.ndarray
    """(n,) kWh: what the car took, at most what its steps can give."""
    rate: np.ndarray
    """(t,) kg CO₂ per kWh, marginal, of each step of the period."""
    signals: np.ndarray
    """(t, 8) what a charger sees of the time alone: OBSERVATIONS from co2_now on."""
    start: int
    """Seconds since 1970 (UTC) of the first step of the period."""

    def __len__(self) -> int:
        return len(self.first)

    def take(self, which: np.ndarray) -> "Sessions":
        """These sessions alone."""
        rest = (self.rate, self.signals, self.start)
        return Sessions(self.period, self.first[which], self.steps[which], self.wanted[which], *rest)

    def rates(self) -> tuple[np.ndarray, np.ndarray]:
        """(n, longest) the rate of each step, and which steps there are."""
        steps = np.arange(self.steps.max())
        there = steps < self.steps[:, None]
        at = np.minimum(self.first[:, None] + steps, len(self.rate) - 1)
        return self.rate[at], there


def read_sessions(wheel: Wheel, period: str, sites: tuple[str, ...] = SITES) -> Sessions:
    """The sessions of a period in the order of arrival."""
    need("polars", extra="tables")
    files, months = PERIODS[period]
    with progress(f"reading {period}", len(months) + len(files) * len(sites), "files") as tick:
        start, rate, signals = _rates(wheel, period, months, tick)
        parts = []
        for site in sites:
            for name in files:
                parts.append(_arrivals(wheel, f"evcharging/acn_data/{site}/{name}"))
                tick()
    arrival, departure, energy = np.concatenate(parts).T
    first = np.ceil((arrival - start) / STEP).astype(int)
    steps = np.floor((departure - start) / STEP).astype(int) - first
    inside = (steps >= SHORTEST) & (steps <= LONGEST) & (first >= 288) & (first + steps <= len(rate))
    order = np.flatnonzero(inside)[np.argsort(arrival[inside], kind="stable")]
    if not len(order):
        raise BCRLError(f"{wheel.path}: has no sessions of {period}")
    most = steps[order] * POWER * HOURS
    return Sessions(period, first[order], steps[order], np.minimum(energy[order], most), rate, signals, start)


def _rates(wheel: Wheel, period: str, months: range, tick: Any) -> tuple[int, np.ndarray, np.ndarray]:
    """Start, rates and signals of a period, from its months, which overlap by a day."""
    times, values = [], []
    for month in months:
        table = _table(wheel, f"moer/SGIP_CAISO_SCE_{period}-{month:02}", ["time", "moer", *_FORECAST])
        times.append(_seconds(table, "time", wheel))
        values.append(table.select("moer", *_FORECAST).to_numpy())
        tick()
    seconds, values = np.concatenate(times), np.concatenate(values)
    seconds, kept = np.unique(seconds, return_index=True)
    values = values[kept]
    if len(seconds) <= 288 or np.any(np.diff(seconds) != STEP):
        raise BCRLError(f"{wheel.path}: the CO₂ rates of {period} are not one for every 5 minutes")
    if not np.all((values >= 0) & (values <= MOST_RATE)):
        raise BCRLError(f"{wheel.path}: a CO₂ rate of {period} is not between 0 and {MOST_RATE:g} kg/kWh")
    rate = values[:, 0]
    ahead = [values[:, low : high + 1].mean(axis=1) for low, high in WINDOWS]
    sums = np.cumsum(np.concatenate([np.zeros(1), rate]))
    day = np.full(len(rate), np.nan)  # no session begins on the first day
    day[287:] = (sums[288:] - sums[:-288]) / 288
    # Pacific Standard Time all year: no jump in the midst of a session.
    angle = 2 * np.pi * ((seconds / 3600 - 8) % 24) / 24
    signals = np.stack([rate, *ahead, day, np.sin(angle), np.cos(angle)], axis=1)
    return int(seconds[0]), rate, signals


_FORECAST = [f"f{step}" for step in range(1, 37)]


def _arrivals(wheel: Wheel, name: str) -> np.ndarray:
    """(n, 3) arrival and departure in seconds, kWh delivered."""
    energy = "delivered_energy (kWh)"
    table = _table(wheel, name, ["arrival", "departure", energy])
    columns = [
        _seconds(table, "arrival", wheel),
        _seconds(table, "departure", wheel),
        table[energy].to_numpy(),
    ]
    rows = np.stack(columns, axis=1).astype(float)
    if not np.isfinite(rows).all() or np.any(rows[:, 2] < 0):
        raise BCRLError(f"{wheel.path}: {name} holds an energy that is no number from 0 up")
    return rows


def _table(wheel: Wheel, name: str, columns: list[str]) -> "pl.DataFrame":
    import polars as pl

    try:
        table = pl.read_csv(io.BytesIO(wheel.csv(name)), columns=columns, infer_schema_length=None)
    except pl.exceptions.PolarsError as error:
        raise BCRLError(f"{wheel.path}: {name} is damaged ({brief(error)})") from None
    odd = [c for c in columns if (table[c].dtype == pl.String) != (c in ("time", "arrival", "departure"))]
    if odd or sum(table.null_count().row(0)):
        raise BCRLError(
            f"{wheel.path}: {name} is damaged (column {(odd or columns)[0]} holds what it should not)"
        )
    return table


def _seconds(table: "pl.DataFrame", column: str, wheel: Wheel) -> np.ndarray:
    import polars as pl

    try:
        return table[column].str.to_datetime(time_zone="UTC").dt.epoch("s").to_numpy()
    except pl.exceptions.PolarsError as error:
        raise BCRLError(f"{wheel.path}: {column} is no time ({brief(error)})") from None
