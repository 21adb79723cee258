"""What looks wrong in a log that is in order: columns that never change, far values, unlikely units."""

from collections.abc import Iterator, Sequence

import numpy as np

from bcrl.data._dataset import Dataset, Floats
from bcrl.data.blocks import blocks

MOSTLY = 0.95
"""Share of rows with one and the same cost above 0 from which that cost looks like a label."""
MOST_CLASSES = 10
"""Whole costs of at most as many values look like classes."""
SMALL_COST, LARGE_COST = 1e-3, 1e4
"""The largest cost of a step is likely between these."""
LARGE_SPREAD = 1e6
"""Observations of a larger range are likely in another unit, or times, or ids."""

REPEATED = 3
"""Rows with one and the same far value from which it looks like a word for a missing one."""

MOST_FAR = 6
"""Columns with a far value that are named."""


def find_doubts(dataset: Dataset) -> list[str]:
    """What a user should look at before training, one sentence each; empty for a log without doubts."""
    schema = dataset.schema
    observations = _names(schema.observation_names, "observation", dataset.observation_size)
    names = schema.action_labels or schema.action_names
    actions = _names(names, "action", dataset.action_size)
    costs = _names(schema.cost_names, "cost", dataset.cost_count)
    found: list[str] = []
    low, high = dataset.observations.min(axis=0), dataset.observations.max(axis=0)
    never = [name for name, same in zip(observations, low == high, strict=True) if same]
    if never:
        found.append(f"{_listed(never)} never change{'s'[: len(never) == 1]}: leave constant columns out.")
    spread = high.astype(np.float64) - low
    wide = [name for name, size in zip(observations, spread, strict=True) if size > LARGE_SPREAD]
    if wide:
        found.append(
            f"{_listed(wide)} ranges over more than {LARGE_SPREAD:.0e}: a time, an id, another unit?"
        )
    far = list(_far_values(observations, dataset.observations, low, high))
    found += far[:MOST_FAR]
    if len(far) > MOST_FAR:
        found.append(f"{len(far) - MOST_FAR:,} more observations have such a value apart from the others.")
    still = dataset.actions.min(axis=0) == dataset.actions.max(axis=0)
    if still.any():
        said = _listed([name for name, same in zip(actions, still, strict=True) if same])
        what = "is never chosen" if schema.discrete else "never changes"
        found.append(f"{said} {what}: nothing can be learned of it.")
    for name, column in zip(costs, dataset.costs_2d.T, strict=True):
        found += _cost_doubts(name, column)
    return found


def _far_values(names: Sequence[str], values: Floats, low: Floats, high: Floats) -> Iterator[str]:
    """Columns whose least or largest value comes again and lies apart: −99 where a sensor was silent."""
    counts = np.zeros((2, len(names)), np.int64)
    after, before = np.full(len(names), np.inf), np.full(len(names), -np.inf)
    for at in blocks(values):
        part = values[at]
        counts += np.stack([(part == low).sum(axis=0), (part == high).sum(axis=0)])
        after = np.minimum(after, np.where(part > low, part, np.inf).min(axis=0))
        before = np.maximum(before, np.where(part < high, part, -np.inf).max(axis=0))
    for i, name in enumerate(names):
        for end, near, other, count in (
            (low[i], after[i], high[i], counts[0, i]),
            (high[i], before[i], low[i], counts[1, i]),
        ):
            # A column of two values, such as 0 and 1, has no range beside its end.
            if count >= REPEATED and 0 < abs(float(other) - near) < abs(near - float(end)):
                said = f"in {count:,} rows, the others are {min(near, other):g} to {max(near, other):g}"
                yield f"{name} is {end:g} {said}: does it mean no value (missing_words of the map)?"


def _cost_doubts(name: str, costs: Floats) -> Iterator[str]:
    values, counts = np.unique(costs, return_counts=True)
    largest, usual = float(values[-1]), float(values[np.argmax(counts)])
    share = counts.max() / len(costs)
    if largest == 0:
        yield f"{name} is 0 in every row: there is nothing to keep to."
    elif usual > 0 and share >= MOSTLY:
        yield f"{name} is {usual:g} in {share:.1%} of rows: a label of what is safe, not a cost?"
    elif 2 < len(values) <= MOST_CLASSES and (values == np.round(values)).all():
        shown = ", ".join(f"{value:g}" for value in values)
        yield f"{name} has only the values {shown}: looks like a class label. Costs are summed."
    if 0 < largest < SMALL_COST or largest > LARGE_COST:
        yield f"{name} is at most {largest:.2g} in a step: is that its unit? Thresholds are in the same one."


def _names(given: Sequence[str], kind: str, count: int) -> list[str]:
    """Names for messages: the user's, or the kind with a number."""
    return [f"{kind} {name}" for name in given or range(1, count + 1)] if given or count > 1 else [kind]


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - 6:,} more" if len(names) > 6 else ""
    return ", ".join(names[:6]) + more
