"""What a person wants to know of a policy file: `bcrl.inspect`."""

import dataclasses
import hashlib
import math
import os
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from bcrl.errors import BCRLError
from bcrl.policy import Policy, load
from bcrl.progress import progress
from bcrl.report.facts import other_options

STEPS = 100


@dataclass(frozen=True)
class Inspection:
    """The facts of one policy file. Costs, rewards and actions are in the user's units."""

    file: str
    bytes: int
    sha256: str
    method: str
    sizes: dict[str, Any]
    """Of the task: observations, actions, costs, horizon, largest costs; states of a tabular policy."""
    parameters: int
    """Numbers in the file."""
    changed: dict[str, Any] = dataclasses.field(default_factory=dict)
    """Options that differ from the method's defaults."""
    defaults: dict[str, Any] = dataclasses.field(default_factory=dict)
    """The other options."""
    units: dict[str, Any] = dataclasses.field(default_factory=dict)
    """What 1 was in training."""
    schema: dict[str, Any] = dataclasses.field(default_factory=dict)
    """Names, units and bounds of the columns, where the log had them."""
    provenance: dict[str, Any] = dataclasses.field(default_factory=dict)
    """Where it comes from; `log` is a summary of the log, which older files do not have."""
    calibration: dict[str, Any] | None = None
    told: str = "at run time"
    """When the policy is told the threshold: at run time, before training, or never."""
    trained_for: float | None = None
    action_ms: float | None = None
    """Median milliseconds of one action here, without candidates."""
    first_action_s: float | None = None
    """Seconds to the first action after loading: compilation."""

    @property
    def tabular(self) -> bool:
        """Whether it acts in the states of a known model."""
        return "states" in self.sizes

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return dataclasses.asdict(self)


def inspect(path: str | os.PathLike, *, speed: bool = True) -> Inspection:
    """The facts of a policy file; with `speed`, some actions are timed."""
    policy = load(path)
    place = Path(path)
    about: dict[str, Any] = {
        "file": str(path),
        "bytes": place.stat().st_size,
        "sha256": hashlib.sha256(place.read_bytes()).hexdigest(),
    }
    return _learned(policy, about, speed) if isinstance(policy, Policy) else _tabular(policy, about)


def _learned(policy: Policy, about: dict[str, Any], speed: bool) -> Inspection:
    import jax

    from bcrl.learn.registry import METHODS

    options = dataclasses.asdict(policy.method)  # type: ignore[call-overload]
    changed = dict(other_options(policy.method))
    spec = dataclasses.asdict(policy.spec)
    del spec["max_cost"]
    first, each = _timed(policy) if speed else (None, None)
    return Inspection(
        **about,
        method=policy.method.name,
        sizes={**spec, "largest_costs": policy.largest_costs.tolist()},
        parameters=sum(np.size(leaf) for leaf in jax.tree.leaves(policy.learned)),
        changed=changed,
        defaults={name: value for name, value in options.items() if name not in changed},
        units=policy.units.to_dict(),
        schema=policy.schema.to_dict(),
        provenance=policy.provenance,
        calibration=None if policy.calibration is None else policy.calibration.header(),
        told=METHODS[policy.method.name].threshold,
        trained_for=policy.method.trained_for,
        first_action_s=first,
        action_ms=each,
    )


def _tabular(policy: Any, about: dict[str, Any]) -> Inspection:
    model = policy.model
    sizes = {
        "states": model.states,
        "actions": model.actions,
        "costs": len(model.costs),
        "gamma": model.gamma,
    }
    arrays = model.arrays()
    return Inspection(
        **about,
        method=f"tabular ({type(policy).__name__})",
        sizes={name: float(x) if isinstance(x, float | np.floating) else int(x) for name, x in sizes.items()},
        parameters=sum(np.size(array) for array in arrays.values()),
    )


def _timed(policy: Policy) -> tuple[float, float]:
    """Seconds to the first action, and the median milliseconds of one."""
    seen = np.asarray(policy.learned.normaliser.mean)  # type: ignore[attr-defined]
    cost, threshold = np.zeros(policy.spec.cost_count), np.ones(policy.spec.cost_count)
    spent, begun = [], time.perf_counter()
    first = math.nan
    with progress("timing actions", STEPS, "actions") as tick:
        while len(spent) < STEPS:
            episode = policy.start(threshold=threshold if len(threshold) > 1 else 1.0)
            for _ in range(min(policy.spec.horizon, STEPS - len(spent))):
                before = time.perf_counter()
                episode.act(seen)
                spent.append(time.perf_counter() - before)
                first = time.perf_counter() - begun if math.isnan(first) else first
                episode.observe(cost, 0.0)
                tick()
    return first, 1e3 * median(spent)


def log_summary(provenance: dict[str, Any]) -> dict[str, Any] | None:
    """The summary of the log in a provenance; None where there is none, or it is another's."""
    log = provenance.get("log")
    try:
        spreads = [log["episode_return"], *log["episode_cost"]]  # type: ignore[index]
        good = all(
            math.isfinite(spread[q]) for spread in spreads for q in ("min", "q10", "q50", "q90", "max")
        )
        whole = all(type(log[name]) is int for name in ("episodes", "transitions"))  # type: ignore[index]
        return log if good and whole else None
    except (KeyError, TypeError):
        return None


def evaluation_rows(facts: Inspection, path: str | os.PathLike) -> list[dict[str, Any]]:
    """Thresholds with what this policy cost and earned, from a file of results or of estimates."""
    from bcrl.assess.results import read_columns, read_results
    from bcrl.assess.statistics import summarise
    from bcrl.estimates import Estimates

    def mine(row: Any) -> bool:
        return (row.method, row.seed) == (facts.method, facts.provenance.get("seed", 0))

    if "cost_low" in read_columns(path):
        rows = [
            {
                "threshold": row.threshold,
                "cost": (row.cost, row.cost_low, row.cost_high),
                "over": row.over_share,
                "return": (row.return_, row.return_low, row.return_high),
                "verdict": row.light,
                "what": "estimated from the log alone",
            }
            for row in Estimates.load(path)
            if mine(row)
        ]
    else:
        found = [row for row in read_results(path) if mine(row)]
        rows = [
            {
                "threshold": line.threshold,
                "cost": (line.episode_cost.mean, line.episode_cost.low, line.episode_cost.high),
                "over": line.violation_rate,
                "return": (line.episode_return.mean, line.episode_return.low, line.episode_return.high),
                "verdict": str(line.kept),
                "what": f"{line.episodes:,} episodes in {', '.join(sorted({row.world for row in found}))}",
            }
            for line in (summarise(found) if found else [])
            if line.threshold is not None
        ]
    if not rows:
        seed = facts.provenance.get("seed", 0)
        raise BCRLError(f"{path}: has no row of {facts.method} with seed {seed}: give a file of this policy")
    return rows
