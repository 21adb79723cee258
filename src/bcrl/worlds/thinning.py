"""Choosing the episodes of a log so that it covers the reward–cost plane evenly."""

import numpy as np
from numpy.typing import NDArray

from bcrl.data.preprocess import draw_by_cell

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
    rows = (returns[allowed] - low) / max(high - low, 1e-9)
    # The root makes cells narrow near cost 0, where thresholds lie.
    columns = np.sqrt(costs[allowed] / cost_cap)
    by_cell = draw_by_cell((rows, RETURN_CELLS), (columns, COST_CELLS), random)
    # Ties between cells in one turn are broken at random, since the last turn may not reach all of them.
    order = by_cell.episode[np.lexsort((random.random(len(by_cell.turn)), by_cell.turn))]
    before = np.cumsum(lengths[allowed[order]]) - lengths[allowed[order]]
    return random.permutation(allowed[order[before < transitions]])
