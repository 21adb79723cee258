"""Choosing the episodes of a log so that it covers the reward–cost plane evenly."""

import numpy as np
from numpy.typing import NDArray

RETURN_CELLS, COST_CELLS = 30, 24


def thin(
    returns: NDArray[np.floating],
    costs: NDArray[np.floating],
    lengths: NDArray[np.integer],
    transitions: int,
    cost_cap: float,
    random: np.random.Generator,
) -> NDArray[np.intp]:
    """Indices of episodes with about `transitions` steps in all, as even over the cells as the pool allows.

    Each cell of a grid over return and cost gives one random episode, then each gives a second one, and so
    on until there are enough: rare cells are kept whole, crowded ones are cut. The indices come shuffled.
    """
    allowed = np.flatnonzero(costs <= cost_cap)
    if not len(allowed):
        return allowed
    low, high = returns[allowed].min(), returns[allowed].max()
    rows = _cells((returns[allowed] - low) / max(high - low, 1e-9), RETURN_CELLS)
    # The root makes cells narrow near no cost, where thresholds lie and where a safe policy must live.
    columns = _cells(np.sqrt(costs[allowed] / cost_cap), COST_CELLS)
    cells = rows * COST_CELLS + columns
    shuffled = random.permutation(len(allowed))
    by_cell = shuffled[np.argsort(cells[shuffled], kind="stable")]
    _, starts, sizes = np.unique(cells[by_cell], return_index=True, return_counts=True)
    turns = np.arange(len(by_cell)) - np.repeat(starts, sizes)
    # Ties between cells in one turn are broken at random, since the last turn may not reach all of them.
    order = by_cell[np.lexsort((random.random(len(turns)), turns))]
    before = np.cumsum(lengths[allowed[order]]) - lengths[allowed[order]]
    return random.permutation(allowed[order[before < transitions]])


def _cells(fractions: NDArray[np.floating], count: int) -> NDArray[np.intp]:
    """The cell of each number from 0 to 1 among `count` equal ones."""
    return np.minimum((fractions * count).astype(np.intp), count - 1)
