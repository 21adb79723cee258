"""`evaluate`: policies in a world at every threshold, one result per episode."""

from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from bcrl.assess.recording import Recording
from bcrl.assess.results import Result, Results, normalised_cost
from bcrl.assess.rollout import Episodes, roll_out
from bcrl.budget import Execution
from bcrl.errors import BCRLError, brief_repr
from bcrl.policy import Policy
from bcrl.progress import progress
from bcrl.worlds import World, as_world
from bcrl.worlds.tasks import Task

if TYPE_CHECKING:
    import gymnasium


def evaluate(
    policies: Policy | Sequence[Policy],
    world: "World | str | gymnasium.Env",
    thresholds: Sequence[float] | None = None,
    *,
    episodes: int = 20,
    execution: Execution | None = None,
    candidates: int = 0,
    calibrated: bool = False,
    seed: int = 0,
    workers: int | None = None,
    record: Recording | None = None,
) -> Results[Result]:
    """One `Result` per policy, threshold and episode. Policies of different training seeds meet different
    episodes.

    `world` is a `World`, a name as `make_world` takes it, or a Gymnasium environment whose `info["cost"]` is
    the cost of a step. `thresholds` default to what the policies were trained for, if it was for one each,
    else to the world's. `execution` is the rule by which a budget is tracked (finite-horizon by default);
    `candidates` draws that many actions each step and takes the best of those that the cost critic allows.
    With `calibrated`, a policy is told what its calibration table says for each threshold (by default all of
    the first policy's table). `workers` is how many processes step a world outside bcrl, by default one per
    core. `record` is given every transition, to be looked at as a log.
    """
    policies = _listed(policies)
    world = as_world(world)
    if thresholds is None and calibrated and policies[0].calibration is not None:
        thresholds = [wanted for wanted, _ in policies[0].calibration.table]
    given = (trained_for(policies) or world.thresholds) if thresholds is None else thresholds
    try:
        chosen = () if isinstance(given, str) else tuple(float(threshold) for threshold in given)
    except (TypeError, ValueError, OverflowError):
        chosen = ()
    if not chosen or min(chosen) < 0 or not np.all(np.isfinite(chosen)):
        raise BCRLError(
            f"thresholds are {brief_repr(given)}, but must be numbers from 0 up, such as (10, 20)"
        )
    if len(set(chosen)) < len(chosen):
        raise BCRLError(f"thresholds are {chosen}, but one is there twice")
    for name, value, least in (("episodes", episodes, 1), ("seed", seed, 0)):
        if type(value) is not int or not least <= value < 2**31:
            raise BCRLError(
                f"{name} is {brief_repr(value)}, but must be a whole number, at least {least}, below 2³¹"
            )
    for policy in policies:  # before a family is installed and its workers are started
        world.check(policy.spec)
    rows, results = len(chosen) * episodes, []
    with ExitStack() as stack:
        envs = None
        if world.engine == "pool":
            envs = stack.enter_context(cast(Task, world).open(rows, workers))
        tick = stack.enter_context(progress(f"evaluating in {world.name}", rows * len(policies), "episodes"))
        for policy in policies:
            trained = int(policy.provenance.get("seed", 0))
            outcome = roll_out(
                policy,
                world,
                chosen,
                episodes=episodes,
                seed=seed * 1_000_003 + trained,
                execution=execution,
                candidates=candidates,
                calibrated=calibrated,
                envs=envs,
                record=record,
                tick=tick,
            )
            results += _rows(policy, world, chosen, outcome, execution)
    return Results(results)


def _listed(given: object) -> list[Policy]:
    """The policies as a list, after checking that each is one that was trained on a log."""
    policies: list[Any] = (
        list(given) if isinstance(given, Iterable) and not isinstance(given, str) else [given]
    )
    for policy in policies or [None]:
        if not isinstance(policy, Policy):
            raise BCRLError(
                f"policies hold {brief_repr(policy)}, but must be trained ones: bcrl.load(path), or "
                "run.policy(); a tabular policy has its own policy.evaluate(budget) (docs/cmdp.md)"
            )
    return policies


def trained_for(policies: Sequence[Policy]) -> tuple[float, ...]:
    """The thresholds of policies that were trained for one each; empty if there is none."""
    own = {policy.method.trained_for for policy in policies}
    return tuple(sorted(threshold for threshold in own if threshold is not None))


def identity(policy: Policy, execution: Execution | None) -> dict[str, Any]:
    """The columns of a result that say which policy acted, and how."""
    tracking, criterion = policy.method.budget_form
    return {
        "method": policy.method.name,
        "tracking": tracking,
        "criterion": criterion,
        "execution": execution or "finite-horizon",
        "data": policy.provenance.get("data", ""),
        "seed": int(policy.provenance.get("seed", 0)),
    }


def _rows(
    policy: Policy, world: World, thresholds: Sequence[float], outcome: Episodes, execution: Execution | None
) -> Iterable[Result]:
    who = identity(policy, execution)
    for i, threshold in enumerate(thresholds):
        earned = world.normalise(outcome.returns[i])
        spent = normalised_cost(outcome.costs[i], threshold)
        for episode in range(len(earned)):
            yield Result(
                **who,
                world=world.label,
                threshold=float(threshold),
                episode=episode,
                return_=float(outcome.returns[i, episode]),
                cost=float(outcome.costs[i, episode]),
                normalised_reward=float(earned[episode]),
                normalised_cost=float(spent[episode]),
                length=int(outcome.lengths[i, episode]),
                fallback_share=float(outcome.fallback_share[i, episode]),
            )
