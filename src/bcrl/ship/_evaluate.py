"""Policies and experts in congested scenarios: one row per episode."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from bcrl.assess.evaluation import identity
from bcrl.assess.results import Result, Results, normalised_cost
from bcrl.budget import Execution
from bcrl.errors import BCRLError
from bcrl.policy import Policy
from bcrl.ship._metrics import Measures, measure
from bcrl.ship._rollout import OFF_WATER, Voyages, replay, sail, world_for
from bcrl.ship._scenarios import Held, Scenarios
from bcrl.ship._simulator import BUDGETS, Frame, ShipWorld, make_ship_world

EXPERT = "expert"
PLANNER = "planner"


@dataclass(frozen=True)
class ShipResult(Result):
    """One episode: the columns of every results file, and those of ships after them."""

    identity: ClassVar[tuple[str, ...]] = (*Result.identity, "run", "budget")

    run: str
    """Name of the run, or "expert"."""
    budget: float
    """Allowed cost as a share of the median expert's; NaN for experts, and where that median is 0."""
    scenario: int
    ade: float
    gc_ade: float
    close_quarters: float
    acceleration: float
    speed: float
    success: float
    off_water: float = math.nan
    """Share of steps that end off known water; NaN in results of before it was measured."""
    off_water_cost: float = math.nan
    """The number of these steps."""
    off_water_threshold: float = math.nan
    """How many were allowed; NaN for experts and policies of one cost."""


MEASURES = (
    *("ade", "gc_ade", "close_quarters", "acceleration", "speed", "success", "cost"),
    *("off_water", "off_water_cost"),
)


def evaluate_ships(
    runs: Mapping[str, Sequence[Policy]],
    scenarios: Scenarios,
    *,
    part: Held = "test",
    budgets: Sequence[float] = BUDGETS,
    thresholds: Sequence[float] | None = None,
    off_water: float = OFF_WATER,
    episodes: int = 100,
    seed: int = 0,
    frame: Frame = "ego",
    execution: Execution | None = None,
    candidates: int = 0,
    limit: int | None = None,
) -> Results[ShipResult]:
    """Every policy at every budget, and the experts, in the congested fifth of a part of the scenarios.

    The part is the test, or validation to choose options on. A budget is a share of the median cost of the
    experts there; `thresholds`, if given, are costs and take the place of `budgets`. Policies of the same
    training seed meet the same scenarios, drawn without repetition, whatever their method; the experts meet
    those of all seeds.
    Policies of two costs may also make `off_water` steps off known water.
    """
    allowed = allowed_costs(scenarios, budgets, thresholds, part=part, needed=bool(runs))
    for taken in (EXPERT, PLANNER):
        if taken in runs:
            raise BCRLError(f"a run is called {taken!r}, as the {taken}s are; rename its folder")
    if episodes < 1:
        raise BCRLError(f"episodes is {episodes}, but must be at least 1")
    among = scenarios.congested(part)
    world = make_ship_world(scenarios, among=among, frame=frame, limit=limit)
    label = {"world": world_label(world, part)}
    results, seeds = [], {}
    for run, policies in runs.items():
        for policy in policies:
            trained = int(policy.provenance.get("seed", 0))
            which = _draw(among, episodes, seed, trained)
            seeds[trained] = which
            mine = world_for(policy, world, scenarios, part)
            voyages = sail(
                policy,
                mine,
                np.tile(which, len(allowed.thresholds)),
                np.repeat(allowed.thresholds, len(which)),
                off_water=off_water,
                seed=seed * 1_000_003 + trained,
                execution=execution,
                candidates=candidates,
            )
            shares = np.repeat(allowed.shares, len(which))
            who = identity(policy, execution) | {"run": run} | label
            if mine.cost_count == 2:
                who["off_water_threshold"] = float(off_water)
            results += episode_rows(who, world, shares, voyages, measure(voyages, scenarios, part))
    for trained, which in (seeds or {0: _draw(among, episodes, seed, 0)}).items():
        unbound, voyages = np.full(len(which), np.nan), replay(world, scenarios, which)
        who = _expert(trained) | label
        results += episode_rows(who, world, unbound, voyages, measure(voyages, scenarios, part))
    return Results(results)


@dataclass(frozen=True)
class Allowed:
    """What policies may cost in an episode."""

    thresholds: np.ndarray
    shares: np.ndarray
    """The same as shares of the median expert's cost; NaN where that is 0."""

    def __str__(self) -> str:
        """Such as: a cost of 4 or 8 (0.25 or 0.5 of the median expert's)."""
        costs, shares = (
            " or ".join(f"{value:g}" for value in values) for values in (self.thresholds, self.shares)
        )
        return f"a cost of {costs}" + (
            "" if np.isnan(self.shares).any() else f" ({shares} of the median expert's)"
        )


def allowed_costs(
    scenarios: Scenarios,
    budgets: Sequence[float] = BUDGETS,
    thresholds: Sequence[float] | None = None,
    *,
    part: Held = "test",
    needed: bool = True,
) -> Allowed:
    """The thresholds for budgets: shares of the median cost of the experts in the congested fifth of a part.

    `thresholds` are costs and take the place of budgets. Shares of a median of 0 are refused if `needed`.
    """
    name, values = ("budgets", budgets) if thresholds is None else ("thresholds", thresholds)
    given = np.array(values, float)
    if not len(given) or not np.isfinite(given).all() or given.min() < 0 or len(set(values)) < len(given):
        kind = "shares of the median expert's cost" if thresholds is None else "costs"
        raise BCRLError(f"{name} are {tuple(values)}, but must be different {kind} from 0 up")
    among = scenarios.congested(part)
    median = float(np.median(scenarios.expert_cost[among]))
    if thresholds is not None:
        return Allowed(given, given / median if median else np.full(len(given), np.nan))
    if needed and not median:
        raise BCRLError(
            f"the median cost of the experts in {len(among)} congested {part} scenarios is 0: "
            "every budget, a share of it, would be 0; give costs instead, such as --thresholds 5,10"
        )
    return Allowed(given * median, given)


def _draw(among: np.ndarray, episodes: int, seed: int, trained: int) -> np.ndarray:
    random = np.random.default_rng([seed, trained])
    return np.sort(random.permutation(among)[:episodes])


def _expert(seed: int) -> dict[str, Any]:
    """The columns that name the experts who met the scenarios of a training seed."""
    nothing = dict.fromkeys(("tracking", "criterion", "execution", "data"), "")
    return {**nothing, "method": EXPERT, "run": EXPERT, "seed": seed}


def world_label(world: ShipWorld, part: Held) -> str:
    """The column world of results."""
    return world.label if part == "test" else f"{world.label} {part}"


def episode_rows(
    who: dict[str, Any], world: ShipWorld, budgets: np.ndarray, voyages: Voyages, found: Measures
) -> Iterable[ShipResult]:
    """The rows of these episodes; `who` has the columns that name the run."""
    returns = voyages.reward.sum(axis=1)
    for i, threshold in enumerate(voyages.threshold):
        measures: dict[str, Any] = {name: float(getattr(found, name)[i]) for name in MEASURES}
        yield ShipResult(
            **who,
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
