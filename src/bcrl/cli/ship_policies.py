"""The policies that the ship verbs and `bcrl report` are given, each run under one name."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bcrl.budget import Execution
from bcrl.errors import BCRLError

if TYPE_CHECKING:
    from bcrl.policy import Policy
    from bcrl.ship import Frame, Scenarios, Voyages


def load_runs(places: Sequence[Path]) -> "dict[str, list[Policy]]":
    """The policies of policy files and of run folders, by name.

    A run is named by its folder. A policy file is named by its folder and its own name, since the files of
    all runs have the same names. Tables, results and maps use these names, so colours agree.
    """
    from bcrl.policy import load_learned
    from bcrl.ship import EXPERT
    from bcrl.train.folder import policy_files

    runs = {}
    for place in places:
        whole = place.resolve()
        name = f"{whole.parent.name}/{whole.stem}" if whole.is_file() else whole.name
        if name in (EXPERT, *runs):
            raise BCRLError(f"{place}: another run is called {name!r} already; rename the folder")
        runs[name] = [load_learned(file) for file in policy_files(place)]
    return runs


def sail_runs(
    places: Sequence[Path],
    scenarios: "Scenarios",
    which: Sequence[int],
    budgets: tuple[float, ...],
    thresholds: tuple[float, ...] | None,
    *,
    execution: Execution,
    frame: "Frame",
    seed: int,
) -> "tuple[dict[str, Voyages], str]":
    """The voyages of the first policy of each run, and a sentence about what they were allowed to cost."""
    from bcrl.ship import OFF_WATER, allowed_costs, sail_all

    first = {name: policies[0] for name, policies in load_runs(places).items()}
    allowed = allowed_costs(scenarios, budgets, thresholds, needed=bool(first))
    sailed = sail_all(
        first, scenarios, which, allowed.thresholds, execution=execution, frame=frame, seed=seed
    )
    note = f"The policies were allowed {allowed}: a step in close quarters costs 1."
    if any(policy.spec.cost_count == 2 for policy in first.values()):
        note += f" Those of two costs were allowed {OFF_WATER:g} steps off known water."
    return sailed, note if sailed else ""
