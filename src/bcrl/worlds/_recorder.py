"""The episodes recorded so far, from which a log is chosen."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bcrl.data.preprocess import draw_by_cell
from bcrl.errors import BCRLError

SPARE = 4  # the recorder is thinned when it holds this many times what is wanted
RETURN_CELLS, COST_CELLS = 30, 24

Arrays = dict[str, NDArray[Any]]
STEPS = ("actions", "rewards", "costs")
EPISODES = ("lengths", "ended", "returns", "total_costs")


class Recorder:
    """Whole episodes back to back, thinned now and then to bound memory."""

    def __init__(self, transitions: int, cost_cap: float, seed: int):
        self.transitions, self.cost_cap = transitions, cost_cap
        self.random = np.random.default_rng(seed)
        self.parts: list[Arrays] = []
        self.held = 0
        self.note = ""

    def add(self, part: Arrays) -> None:
        """Adds episodes, except those above the cost cap.

        By step (back to back): `actions`, `rewards`, `costs`, and `observations` with one more row for each
        episode, the last one it saw. By episode: `lengths`, `ended` (by a terminal), `returns` and
        `total_costs`.
        """
        if len(part["lengths"]):
            self.note = f"return {part['returns'].mean():.0f}, cost {part['total_costs'].mean():.0f}"
        self.parts.append(_select(part, np.flatnonzero(part["total_costs"] <= self.cost_cap)))
        self.held += int(self.parts[-1]["lengths"].sum())
        if self.held > 2 * SPARE * self.transitions:
            self._cut(SPARE * self.transitions)

    def log(self) -> Arrays:
        """The chosen episodes as transitions, the fields of a `Dataset`."""
        self._cut(self.transitions)
        (part,) = self.parts
        lengths = part["lengths"]
        if not len(lengths):
            raise BCRLError(f"no episode cost {self.cost_cap:g} or less; raise the cost cap (--cost-cap)")
        first, last = np.zeros((2, len(part["observations"])), bool)
        ends = np.cumsum(lengths + 1) - 1
        last[ends] = True
        first[ends - lengths] = True
        final = np.zeros(len(part["rewards"]), bool)
        final[np.cumsum(lengths) - 1] = True
        ended = np.repeat(part["ended"], lengths)
        return {
            "observations": part["observations"][~last],
            "actions": part["actions"],
            "rewards": part["rewards"],
            "costs": part["costs"],
            "next_observations": part["observations"][~first],
            "terminals": final & ended,
            "timeouts": final & ~ended,
        }

    def whole(self) -> Arrays:
        """All that is held, in one piece."""
        return {name: np.concatenate([part[name] for part in self.parts]) for name in self.parts[0]}

    def _cut(self, transitions: int) -> None:
        whole = self.whole()
        chosen = thin(
            whole["returns"], whole["total_costs"], whole["lengths"], transitions, self.cost_cap, self.random
        )
        self.parts = [_select(whole, chosen)]
        self.held = int(self.parts[0]["lengths"].sum())


def _select(part: Arrays, chosen: NDArray[np.intp]) -> Arrays:
    """The chosen episodes, in their order."""
    lengths = part["lengths"]
    steps = _rows(lengths, chosen)
    return (
        {"observations": part["observations"][_rows(lengths + 1, chosen)]}
        | {name: part[name][steps] for name in STEPS}
        | {name: part[name][chosen] for name in EPISODES}
    )


def _rows(lengths: NDArray[np.integer], chosen: NDArray[np.intp]) -> NDArray[np.intp]:
    """The rows of the chosen episodes, where episodes of these lengths lie back to back."""
    starts = np.cumsum(lengths) - lengths
    kept = lengths[chosen]
    # Row j of the result lies j rows after its start; shift each episode to where it was.
    return np.arange(kept.sum()) + np.repeat(starts[chosen] - (np.cumsum(kept) - kept), kept)


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
