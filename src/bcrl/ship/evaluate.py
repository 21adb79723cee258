"""Policies and experts in the congested test scenarios: one row per episode, and the paper's table."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from bcrl.assess.evaluation import identity
from bcrl.assess.results import Result, Results, normalised_cost
from bcrl.assess.statistics import Estimate, Kept, estimate, kept
from bcrl.budget import Execution
from bcrl.errors import BCRLError
from bcrl.policy import Policy
from bcrl.ship.metrics import measure
from bcrl.ship.rollout import Voyages, replay, sail
from bcrl.ship.scenario import Scenarios
from bcrl.ship.simulator import BUDGETS, Frame, ShipWorld, make_ship_world

EXPERT = "expert"


@dataclass(frozen=True)
class ShipResult(Result):
    """One episode: the columns of every results file, and those of ships after them."""

    identity: ClassVar[tuple[str, ...]] = (*Result.identity, "run", "budget")

    run: str
    """Name of the run, or "expert"."""
    budget: float
    """Allowed cost as a share of the median expert's; NaN for experts."""
    scenario: int
    ade: float
    gc_ade: float
    close_quarters: float
    acceleration: float
    speed: float
    success: float


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
) -> Results[ShipResult]:
    """Every policy at every budget, and the experts, in the congested fifth of the test.

    A budget is a share of the median cost of the experts there. Policies of the same training seed meet the
    same scenarios, drawn without repetition, whatever their method; the experts meet those of all seeds.
    """
    if not budgets or min(budgets) < 0 or not np.isfinite(budgets).all() or len(set(budgets)) < len(budgets):
        raise BCRLError(
            f"budgets are {tuple(budgets)}, but must be different shares of the expert's cost from 0 up"
        )
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
            who = identity(policy, execution) | {"run": run}
            results += _rows(who, world, shares, voyages, scenarios)
    for trained, which in (seeds or {0: _draw(scenarios, episodes, seed, 0)}).items():
        unbound = np.full(len(which), np.nan)
        results += _rows(_expert(trained), world, unbound, replay(world, scenarios, which), scenarios)
    return Results(results)


def _draw(scenarios: Scenarios, episodes: int, seed: int, trained: int) -> np.ndarray:
    among = scenarios.evaluation
    random = np.random.default_rng([seed, trained])
    return np.sort(random.permutation(among)[:episodes])


def _expert(seed: int) -> dict[str, Any]:
    """The columns that name the experts who met the scenarios of a training seed."""
    nothing = dict.fromkeys(("tracking", "criterion", "execution", "data"), "")
    return {**nothing, "method": EXPERT, "run": EXPERT, "seed": seed}


def _rows(
    who: dict[str, Any], world: ShipWorld, budgets: np.ndarray, voyages: Voyages, scenarios: Scenarios
) -> Iterable[ShipResult]:
    found = measure(voyages, scenarios)
    returns = voyages.reward.sum(axis=1)
    for i, threshold in enumerate(voyages.threshold):
        measures: dict[str, Any] = {name: float(getattr(found, name)[i]) for name in MEASURES}
        yield ShipResult(
            **who,
            world=world.label,
            threshold=float(threshold),
            episode=i % len(set(voyages.scenario)),
            return_=float(returns[i]),
            normalised_reward=float(world.normalise(returns[i])),
            normalised_cost=float(normalised_cost(found.cost[i], threshold)),
            length=int(found.length[i]),
            fallback_share=float(found.fallback[i]),
            budget=float(budgets[i]),
            scenario=int(voyages.scenario[i]),
            **measures,
        )


@dataclass(frozen=True)
class Line:
    """A line of the paper's table: a run at one budget, or the experts (budget NaN)."""

    run: str
    budget: float
    threshold: float
    episodes: int
    measures: dict[str, Estimate]
    """By the names in MEASURES."""

    @property
    def kept(self) -> Kept | None:
        """Whether the threshold is kept; None for experts, who have none."""
        return None if self.run == EXPERT else kept(self.measures["cost"], self.threshold)


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
