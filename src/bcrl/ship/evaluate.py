"""Policies and experts in the congested test scenarios: one row per episode, and the paper's table."""

import csv
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np

from bcrl.assess.statistics import Estimate, estimate
from bcrl.budget import Execution
from bcrl.errors import BCRLError
from bcrl.files import atomic_path
from bcrl.policy import Policy
from bcrl.ship.metrics import measure
from bcrl.ship.rollout import Voyages, replay, sail
from bcrl.ship.scenario import Scenarios
from bcrl.ship.simulator import BUDGETS, Frame, make_ship_world

EXPERT = "expert"


@dataclass(frozen=True)
class ShipResult:
    """One episode. The fields are the columns of the results file."""

    run: str
    """Name of the run, or "expert"."""
    method: str
    seed: int
    budget: float
    """Allowed cost as a share of the median expert's; NaN for experts."""
    threshold: float
    scenario: int
    ade: float
    gc_ade: float
    close_quarters: float
    acceleration: float
    speed: float
    success: float
    cost: float
    length: int
    fallback: float


MEASURES = ("ade", "gc_ade", "close_quarters", "acceleration", "speed", "success", "cost")


def evaluate_ships(
    runs: Mapping[str, Sequence[Policy]],
    scenarios: Scenarios,
    *,
    budgets: Sequence[float] = BUDGETS,
    episodes: int = 100,
    seed: int = 0,
    frame: Frame = "ego",
    execution: Execution | None = None,
    prune: int = 0,
    limit: int | None = None,
) -> list[ShipResult]:
    """Every policy at every budget, and the experts, in the congested fifth of the test.

    A budget is a share of the median cost of the experts there. Policies of the same training seed meet the
    same scenarios, drawn without repetition, whatever their method; the experts meet those of all seeds.
    """
    if not budgets or min(budgets) < 0 or not np.isfinite(budgets).all():
        raise BCRLError(f"budgets are {tuple(budgets)}, but must be shares of the expert's cost from 0 up")
    if EXPERT in runs:
        raise BCRLError(f"a run is called {EXPERT!r}, as the log's own rows are: rename its folder")
    if episodes < 1:
        raise BCRLError(f"episodes is {episodes}, but must be at least 1")
    world = make_ship_world(scenarios, frame=frame, limit=limit)
    expert_cost = float(np.median(scenarios.expert_cost[scenarios.evaluation]))
    results, seeds = [], {}
    for run, policies in runs.items():
        for policy in policies:
            trained = int(policy.provenance.get("seed", 0))
            which = _draw(scenarios, episodes, seed, trained)
            seeds[trained] = which
            voyages = sail(
                policy,
                world,
                np.tile(which, len(budgets)),
                np.repeat(np.asarray(budgets) * expert_cost, len(which)),
                seed=seed * 1_000_003 + trained,
                execution=execution,
                prune=prune,
            )
            shares = np.repeat(budgets, len(which))
            results += _rows(run, policy.method.name, trained, shares, voyages, scenarios)
    for trained, which in (seeds or {0: _draw(scenarios, episodes, seed, 0)}).items():
        unbound = np.full(len(which), np.nan)
        results += _rows(EXPERT, EXPERT, trained, unbound, replay(world, scenarios, which), scenarios)
    return results


def _draw(scenarios: Scenarios, episodes: int, seed: int, trained: int) -> np.ndarray:
    among = scenarios.evaluation
    random = np.random.default_rng([seed, trained])
    return np.sort(random.permutation(among)[:episodes])


def _rows(
    run: str, method: str, seed: int, budgets: np.ndarray, voyages: Voyages, scenarios: Scenarios
) -> list[ShipResult]:
    measures = measure(voyages, scenarios)
    return [
        ShipResult(
            run=run,
            method=method,
            seed=seed,
            budget=float(budgets[i]),
            threshold=float(voyages.threshold[i]),
            scenario=int(voyages.scenario[i]),
            ade=float(measures.ade[i]),
            gc_ade=float(measures.gc_ade[i]),
            close_quarters=float(measures.close_quarters[i]),
            acceleration=float(measures.acceleration[i]),
            speed=float(measures.speed[i]),
            success=float(measures.success[i]),
            cost=float(measures.cost[i]),
            length=int(measures.length[i]),
            fallback=float(measures.fallback[i]),
        )
        for i in range(len(budgets))
    ]


@dataclass(frozen=True)
class Line:
    """A line of the paper's table: a run at one budget, or the experts (budget NaN)."""

    run: str
    budget: float
    threshold: float
    episodes: int
    measures: dict[str, Estimate]
    """By the names in MEASURES."""


def table_lines(results: Sequence[ShipResult]) -> list[Line]:
    """The experts first, then the runs in their order, the tightest budget first."""
    names = list(dict.fromkeys(result.run for result in results))
    names.sort(key=lambda name: name != EXPERT)
    lines = []
    for name in names:
        mine = [result for result in results if result.run == name]
        shares = dict.fromkeys(str(result.budget) for result in mine)  # as text, since experts have NaN
        for share in sorted(shares, key=float):
            rows = [result for result in mine if str(result.budget) == share]
            seeds = np.array([row.seed for row in rows])
            measures = {
                key: estimate(np.array([getattr(row, key) for row in rows]), seeds) for key in MEASURES
            }
            lines.append(Line(name, rows[0].budget, rows[0].threshold, len(rows), measures))
    return lines


def write_ship_results(results: Sequence[ShipResult], path: str | os.PathLike[str]) -> None:
    """One row per episode as CSV, all or nothing."""
    with atomic_path(path) as temporary, open(temporary, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow([field.name for field in fields(ShipResult)])
        for result in results:
            writer.writerow([getattr(result, field.name) for field in fields(ShipResult)])


def read_ship_results(path: str | os.PathLike[str]) -> list[ShipResult]:
    """The rows of such a file, checked."""
    path = Path(path)
    if not path.is_file():
        raise BCRLError(f"{path}: there is no such file")
    results = []
    with open(path, newline="", encoding="utf-8", errors="replace") as file:
        reader = csv.reader(file)
        if next(reader, []) != [field.name for field in fields(ShipResult)]:
            raise BCRLError(f"{path}: not a file of ship results: write it with bcrl ship evaluate --out")
        for number, row in enumerate(reader, start=2):
            try:
                values = [field.type(text) for field, text in zip(fields(ShipResult), row, strict=True)]  # type: ignore[operator]
            except ValueError as error:
                raise BCRLError(f"{path}: line {number} is damaged ({error}): evaluate again") from None
            results.append(ShipResult(*values))
    return results
