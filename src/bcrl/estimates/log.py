"""What is read off a log: whether it can be simulated, and by which policies; held-out episodes; columns."""

import warnings
from collections.abc import Collection

import numpy as np

from bcrl.data import Dataset, Schema
from bcrl.errors import BCRLError, brief_repr
from bcrl.policy import Policy

HELD_OUT = 0.1
"""Share of the episodes that no member is trained on."""
FEWEST_EPISODES = 5


def check_log(data: Dataset) -> None:
    """Refuses logs from which no episode can be simulated."""
    if not isinstance(data, Dataset):
        raise BCRLError(f"data is {brief_repr(data)}, but must be a Dataset: bcrl.load_data(path) reads one")
    name = data.source or "data set"
    if data.cost_count > 1:
        raise BCRLError(f"{name}: has {data.cost_count} kinds of cost; estimates are for one")
    if not data.consecutive:
        raise BCRLError(f"{name}: its rows do not follow one another, so no episode can be replayed")
    if data.episode_count < FEWEST_EPISODES:
        raise BCRLError(
            f"{name}: has {data.episode_count} episodes, an estimate needs at least {FEWEST_EPISODES}"
        )
    if not data.costs_2d.any():
        raise BCRLError(f"{name}: every cost is 0, so nothing can be learned about cost; check costs")


def check_policies(policies: Collection[Policy], data: Dataset) -> None:
    """Refuses logs that cannot be simulated, and policies whose columns are others than the log's."""
    check_log(data)
    if not policies:
        raise BCRLError("no policy was given")
    ours = (data.observation_size, data.action_size, 1)
    for policy in policies:
        if not isinstance(policy, Policy):
            raise BCRLError(f"{brief_repr(policy)} is no policy that was trained on a log: see bcrl.load")
        spec = policy.spec
        sizes = (spec.observation_size, spec.action_size, spec.cost_count)
        if sizes != ours:
            raise BCRLError(
                f"the policy has (observations, actions, costs) {sizes}, but {data.source} {ours}: "
                "estimate with the log that it was trained on"
            )
        theirs = _facts(policy.schema)
        for what, known in _facts(data.schema).items():
            if theirs.get(what, known) != known:
                raise BCRLError(
                    f"{data.source or 'data set'}: {what} is {known}, but the policy learned from "
                    f"{theirs[what]}: estimate with the log that it was trained on, or import this one "
                    "in the same way"
                )


def warn_of_another_log(policies: Collection[Policy], data: Dataset) -> None:
    """One warning where policies learned from another log, of the same columns."""
    found, known = data.fingerprint(), [policy.provenance for policy in policies]
    others = {str(one.get("data")) for one in known if one.get("data_sha256", found) != found}
    if others:
        warnings.warn(
            f"the policy learned from another log ({', '.join(sorted(others))}): what is said holds for the "
            f"world of {data.source or 'the given one'}",
            stacklevel=3,
        )


def _facts(schema: Schema) -> dict[str, str]:
    """What a schema says of single columns, in words; what it leaves out is not there."""
    facts = {}
    for kind in ("observation", "action", "cost"):
        for number, name in enumerate(getattr(schema, f"{kind}_names"), 1):
            facts[f"{kind} {number}"] = repr(name)
    for number, label in enumerate(schema.action_labels, 1):
        facts[f"label {number} of the actions"] = repr(label)
    for name, unit in schema.units.items():
        facts[f"the unit of {name}"] = repr(unit)
    for number, bounds in enumerate(zip(schema.action_low, schema.action_high, strict=True), 1):
        facts[f"the range of action {number}"] = "{:g} to {:g}".format(*bounds)
    return facts


def cost_scale(data: Dataset) -> float:
    """c_max times the mean length of the log's episodes: what errors of a cost are measured by.

    Not times the longest: where lengths differ widely, few episodes come near that.
    """
    return float(data.max_cost[0]) * float(data.episode_lengths.mean())


def held_out(data: Dataset, seed: int) -> np.ndarray:
    """(E,) a mask of the episodes that no member is trained on."""
    mask = np.zeros(data.episode_count, bool)
    count = max(1, round(HELD_OUT * data.episode_count))
    mask[np.random.default_rng([seed, 1]).permutation(data.episode_count)[:count]] = True
    return mask


def actions_before(data: Dataset) -> np.ndarray:
    """(N, a) the action of the row before; 0 at the first of an episode."""
    before = np.concatenate([np.zeros_like(data.actions[:1]), data.actions[:-1]])
    before[data.starts] = 0.0
    return before


def steady_columns(data: Dataset) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The columns that no step changes, and those of the others that have two values."""
    before, after = data.observations, data.next_observations
    low, high = before.min(axis=0), before.max(axis=0)
    constant = (before == after).all(axis=0)
    two = np.all([((x == low) | (x == high)).all(axis=0) for x in (before, after)], axis=0)
    return tuple(np.flatnonzero(constant).tolist()), tuple(np.flatnonzero(two & ~constant).tolist())


def spaced(values: np.ndarray, most: int) -> np.ndarray:
    """At most this many of the values, evenly spaced."""
    return values[np.linspace(0, len(values) - 1, min(most, len(values))).astype(int)]
