"""One policy beside simple rules, a planner and perfect foresight, on the sessions of one period."""

import csv
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields

import numpy as np

from bcrl.assess.results import Result
from bcrl.assess.statistics import Estimate, Kept, estimate, kept
from bcrl.examples.ev_optimum import at_once, below, best_level, foresight
from bcrl.examples.ev_planner import planner
from bcrl.examples.ev_sessions import Sessions
from bcrl.files import atomic_path

GRID = np.concatenate([np.geomspace(0.1, 8.0, 16), [100.0]])
"""kg: budgets of the curves of the rules, so that they can be read at any emission."""


@dataclass(frozen=True)
class Compared:
    """The policy told one budget. Energies are kWh, emissions kg CO₂, both means over the cars."""

    period: str
    budget: float
    kg: float
    kg_low: float
    kg_high: float
    over: float
    """Share of the cars that emit more than the budget."""
    kwh: float
    optimum_kwh: float
    optimum_kg: float
    once_kwh: float
    once_kg: float
    below_kwh: float
    below_kg: float
    below_level: float
    """kg/kWh, chosen on the log's sessions."""
    once_equal: float
    """kWh of charging at once where it emits as much as the policy."""
    below_equal: float
    fleet_equal: float
    """kWh of one rate limit for all cars and no budget for any, where it emits as much as the policy."""
    planner_kwh: float
    planner_kg: float
    planner_equal: float
    """kWh of charging below a rate where it emits as much as the planner."""

    @property
    def kept(self) -> Kept:
        return kept(Estimate(self.kg, 0.0, self.kg_low, self.kg_high), self.budget)

    @property
    def share(self) -> float:
        """Energy as a share of the optimum's."""
        return self.kwh / self.optimum_kwh

    @property
    def planner_share(self) -> float:
        """The planner's energy as a share of the optimum's."""
        return self.planner_kwh / self.optimum_kwh


@dataclass(frozen=True)
class Curves:
    """Emission and energy (kg, kWh) of each rule from small budgets to large ones."""

    optimum: np.ndarray
    once: np.ndarray
    below: np.ndarray
    fleet: np.ndarray


def curves(sessions: Sessions, log: Sessions) -> Curves:
    """The curves on these sessions; rates below which to charge are chosen on the sessions of the log."""
    levels = {float(budget): best_level(log, float(budget)) for budget in GRID}
    return Curves(
        _means([foresight(sessions, float(budget)) for budget in GRID]),
        _means([at_once(sessions, float(budget)) for budget in GRID]),
        _means([below(sessions, level, budget) for budget, level in levels.items()]),
        _means([below(sessions, float(level), np.inf) for level in np.linspace(0.0, 0.7, 36)]),
    )


def _means(bought: list[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
    return np.array([(kg.mean(), kwh.mean()) for kwh, kg in bought])


def compare(results: Sequence[Result], sessions: Sessions, log: Sessions, drawn: Curves) -> list[Compared]:
    """A row per budget."""
    rows = []
    for budget in sorted({result.threshold for result in results}):
        mine = [result for result in results if result.threshold == budget]
        kg, kwh = np.array([r.cost for r in mine]), np.array([r.return_ for r in mine])
        spent = estimate(kg, np.zeros(len(kg)))
        level = best_level(log, budget)
        others = (foresight(sessions, budget), at_once(sessions, budget), below(sessions, level, budget))
        means = [float(column.mean()) for bought in others for column in bought]
        planned_kwh, planned_kg = (float(column.mean()) for column in planner(sessions, budget))
        lines = (drawn.once, drawn.below, drawn.fleet)
        values = (
            *(sessions.period, budget, spent.mean, spent.low, spent.high),
            *(float(np.mean(kg > budget * (1 + 1e-6))), float(kwh.mean()), *means, level),
            *(float(np.interp(spent.mean, *line.T)) for line in lines),
            *(planned_kwh, planned_kg, float(np.interp(planned_kg, *drawn.below.T))),
        )
        rows.append(Compared(*values))
    return rows


def save_compared(rows: Sequence[Compared], path: str | os.PathLike) -> None:
    """Writes the rows as CSV, all or nothing."""
    with atomic_path(path) as temporary, open(temporary, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, [field.name for field in fields(Compared)])
        writer.writeheader()
        writer.writerows(asdict(row) for row in rows)
