"""Charging electric cars under a carbon budget: what the example does beside the ordinary commands."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from bcrl.assess.results import Result, read_results, write_results
from bcrl.errors import BCRLError
from bcrl.examples.ev_compare import Compared, compare, curves, save_compared
from bcrl.examples.ev_log import MAP, log_table
from bcrl.examples.ev_picture import draw_energy
from bcrl.examples.ev_replay import replay
from bcrl.examples.ev_sessions import Sessions, read_sessions
from bcrl.examples.ev_wheel import Wheel, find_wheel
from bcrl.files import atomic_path, write_text
from bcrl.policy import load_learned
from bcrl.report import save_figure

MARK = "example.json"
"""Says that a folder is the example's, and how it was made."""
TRAINING = {
    "method": "bcrl-gradient",
    "criterion": "episodic",
    "tracking": "direct",
    "tau-c": "0.02",
    "tau-r": "0.7",
    "greed": "300",
    "gamma": "1",
    "cost-price": "1.5",
    "max-budget": "4",
    "learning-rate": "0.001",
    "target-rate": "0.03",
    "decay": "all",
    "hidden": "128,128",
    "batch-size": "512",
    "fallback-beta": "200",
    "fallback-below": "0.02",
    "safety-factor": "1",
}
"""Options of `bcrl train`, chosen on 2019 alone (docs/ev-charging.md)."""


@dataclass(frozen=True)
class Settings:
    """What the numbers of a folder depend on."""

    budgets: tuple[float, ...]
    steps: int
    sessions: int
    """Of each period at most, evenly spaced; 0: all."""
    seed: int


@dataclass(frozen=True)
class Truth:
    """What a replay found."""

    rows: list[Compared]
    clone: tuple[float, float]
    """kg and kWh of cloning."""
    calibrated: list[tuple[float, float, float]]
    """Wanted mean emission, and kg and kWh of the policy that is told what its calibration says."""
    sessions: int


def claim(out: Path, settings: Settings) -> None:
    """Makes the folder, or goes on in one that was begun with the same settings; others are left alone."""
    mark, text = out / MARK, json.dumps(asdict(settings), indent=2) + "\n"
    out.mkdir(parents=True, exist_ok=True)
    if not mark.is_file():
        others = [file.name for file in out.iterdir() if not file.name.startswith(".")]
        if others:
            raise BCRLError(f"--out {out}: holds other files, such as {others[0]}; choose another folder")
        write_text(mark, text)
    elif mark.read_text(encoding="utf-8", errors="replace") != text:
        raise BCRLError(
            f"--out {out}: was made with other options ({mark}); give them again, or choose another folder"
        )


class Example:
    """The folder of the example. The sessions are read when they are first needed."""

    def __init__(self, out: Path, settings: Settings, wheel: Path | None):
        self.out, self.settings, self._wheel = out, settings, wheel
        self._read: dict[str, Sessions] = {}

    def sessions(self, period: str) -> Sessions:
        if period not in self._read:
            found = read_sessions(Wheel(find_wheel(self._wheel)), period)
            most = self.settings.sessions or len(found)
            self._read[period] = found.take(
                np.unique(np.linspace(0, len(found) - 1, min(most, len(found))).astype(int))
            )
        return self._read[period]

    def write_table(self) -> tuple[int, int]:
        """Writes sessions.parquet and map.toml; returns how many sessions and rows."""
        sessions = self.sessions("2019")
        table = log_table(sessions, self.settings.seed)
        write_text(self.out / "map.toml", MAP)
        with atomic_path(self.out / "sessions.parquet") as temporary:
            table.write_parquet(temporary)
        return len(sessions), len(table)

    def replay(self, period: str, policy: Path, clone: Path, calibrated: Path) -> Truth:
        """Replays a period, unless its file is there, and compares; writes truth, comparison and picture."""
        told = self.settings.budgets
        mine = self._replayed(f"truth-{period}.csv", period, policy, told)
        cloned = self._replayed(f"truth-{period}-bc.csv", period, clone, told[:1])
        wanted: list[tuple[float, float, float]] = []
        if calibrated.is_file() and (known := load_learned(calibrated).calibration) is not None:
            at = [budget for budget, _ in known.table]
            found = self._replayed(f"truth-{period}-calibrated.csv", period, calibrated, at, calibrated=True)
            wanted = [(budget, *_point([r for r in found if r.threshold == budget])) for budget in at]
        sessions = self.sessions(period)
        drawn = curves(sessions, self.sessions("2019"))
        rows = compare(mine, sessions, self.sessions("2019"), drawn)
        point = _point(cloned)
        save_compared(rows, self.out / f"comparison-{period}.csv")
        save_figure(draw_energy(rows, drawn, point), self.out / f"energy-{period}.png")
        return Truth(rows, point, wanted, len(sessions))

    def _replayed(
        self, name: str, period: str, policy: Path, budgets: Sequence[float], *, calibrated: bool = False
    ) -> Sequence[Result]:
        path = self.out / name
        if not path.is_file():
            found = replay(load_learned(policy), self.sessions(period), budgets, calibrated=calibrated)
            write_results(found, path)
        return read_results(path)


def _point(results: Sequence[Result]) -> tuple[float, float]:
    """Mean kg and kWh."""
    return float(np.mean([r.cost for r in results])), float(np.mean([r.return_ for r in results]))
