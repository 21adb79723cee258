"""`calibrate`: which threshold to tell a policy so that a wanted one is kept, from the log alone."""

import copy
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from bcrl.budget import Execution
from bcrl.calibration import Calibration
from bcrl.data import Dataset
from bcrl.errors import BCRLError
from bcrl.estimates.ensemble import Model
from bcrl.estimates.estimating import STARTS, Cell, Laboratory, check_thresholds
from bcrl.estimates.interval import standard_error
from bcrl.estimates.light import Light, grouped
from bcrl.estimates.log import check_policies, warn_of_another_log
from bcrl.policy import Policy
from bcrl.progress import Tick, progress

POINTS = 25
"""Told thresholds that are tried at once; twice, since the first round is refined."""


@dataclass(frozen=True)
class Choice:
    """What to tell a policy for one wanted threshold."""

    wanted: float
    cell: Cell | None
    """The estimate at the told threshold; None where none will do."""
    refusal: str
    """Why none will do."""

    @property
    def told(self) -> float | None:
        return None if self.cell is None else self.cell.threshold

    @property
    def over_share(self) -> float | None:
        """The share of the simulated episodes that cost more than the wanted threshold."""
        return None if self.cell is None else self.cell.over_share(self.wanted)


@dataclass(frozen=True)
class Calibrated:
    """What `calibrate` returns: the policy with its table, and a choice for every wanted threshold."""

    policy: Policy
    choices: tuple[Choice, ...]


def calibrate(
    policy: Policy,
    data: Dataset,
    thresholds: Sequence[float],
    *,
    model: Model | None = None,
    horizon: int | None = None,
    execution: Execution | None = None,
    candidates: int = 0,
    starts: int = STARTS // 2,
    seed: int = 0,
) -> Calibrated:
    """The policy with a table from wanted thresholds to those it must be told, estimated from the log alone.

    For a wanted threshold κ it is κ itself, or the nearest told one that keeps κ for sure, unless another
    one that does earns more by a standard error. A wanted threshold that none keeps is refused and not in the
    table; if all are, that is an error. Arguments as for `bcrl.estimate`.
    """
    wanted = check_thresholds(thresholds)
    check_policies([policy], data)
    warn_of_another_log([policy], data)
    laboratory = Laboratory(
        data, model, horizon=horizon, execution=execution, candidates=candidates, starts=starts, seed=seed
    )
    with progress("calibrating", calibration_episodes(laboratory, wanted), "episodes") as tick:
        choices = choose_told(laboratory, policy, wanted, tick)
    table = tuple((choice.wanted, choice.told) for choice in choices if choice.told is not None)
    if not table:
        raise BCRLError(f"the policy keeps no threshold for sure: {refusals(choices)}")
    known = Calibration(
        table, data.fingerprint(), execution or "finite-horizon", candidates, laboratory.horizon
    )
    told = copy.copy(policy)
    told.calibration = known
    return Calibrated(told, tuple(choices))


def refusals(choices: Iterable[Choice]) -> str:
    """Why thresholds are refused, each reason once, and what helps."""
    pairs = ((f"{choice.wanted:g}", choice.refusal) for choice in choices if choice.cell is None)
    said = (f"at {','.join(dict.fromkeys(at))}: {reason}" for at, reason in grouped(pairs))
    return f"{'; '.join(said)}: see docs/estimate.md#when-nothing-can-be-trusted"


def calibration_episodes(laboratory: Laboratory, wanted: Sequence[float]) -> int:
    """How many episodes `choose_told` simulates."""
    return laboratory.episodes(POINTS) + laboratory.episodes(_second_look(wanted))


def _second_look(wanted: Sequence[float]) -> int:
    """How many told thresholds are tried after the first grid: one more at least for each that is wanted."""
    return max(POINTS, 2 * len(set(wanted)))


def choose_told(laboratory: Laboratory, policy: Policy, wanted: Sequence[float], tick: Tick) -> list[Choice]:
    """What to tell the policy for each wanted threshold: 25 told ones, then as many or more: the
    wanted ones and some around the best."""
    top = min(3 * max(wanted), laboratory.largest) or laboratory.largest
    # Dense at the low end, where small differences count.
    coarse = top * np.linspace(0.0, 1.0, POINTS) ** 2
    cells = laboratory.cells(policy, coarse, tick)
    best = [best_told(cells, threshold).told for threshold in wanted]
    cells += laboratory.cells(policy, _between(coarse, best, wanted), tick)
    cells.sort(key=lambda cell: cell.threshold)
    return [best_told(cells, threshold) for threshold in wanted]


def _between(grid: np.ndarray, best: Sequence[float | None], wanted: Sequence[float]) -> np.ndarray:
    """The wanted thresholds, and points around the best for each."""
    points = list(dict.fromkeys(wanted))
    gaps = []
    for told in best:
        at = 0 if told is None else int(np.searchsorted(grid, told))
        gaps += [(grid[max(at - 1, 0)], grid[at]), (grid[at], grid[min(at + 1, len(grid) - 1)])]
    gaps = [gap for gap in dict.fromkeys(gaps) if gap[0] < gap[1]]
    shares = np.array_split(np.zeros(_second_look(wanted) - len(points)), len(gaps))
    for (low, high), share in zip(gaps, shares, strict=True):
        points += np.linspace(low, high, len(share) + 2)[1:-1].tolist()
    return np.array(points)


def best_told(cells: Sequence[Cell], wanted: float) -> Choice:
    """What to tell for κ, of all κ′ with U(κ′) ≤ κ: the plain one, or one that earns more.

    The plain one is the nearest to κ. Gains over it are paired by member and start and count less one
    standard error, so that the plain one is told where no other is better than by chance.
    """
    bounds = _upper([cell.threshold for cell in cells], [cell.cost_bound for cell in cells])
    keeping = [cell for cell, bound in zip(cells, bounds, strict=True) if bound <= wanted]
    trusted = [cell for cell in keeping if cell.verdict.light is not Light.RED]
    if trusted:
        plain = min(trusted, key=lambda cell: abs(cell.threshold - wanted))

        def more(cell: Cell) -> float:
            gain = cell.returns - plain.returns
            return float(gain.mean()) - standard_error(gain)

        best = max(trusted, key=more)
        return Choice(wanted, best if more(best) > 0 else plain, "")
    if keeping:
        why = "; ".join(keeping[-1].verdict.reasons)
        return Choice(wanted, None, f"what would keep it cannot be trusted ({why})")
    least = cells[int(np.argmin(bounds))]
    return Choice(
        wanted,
        None,
        f"even told {least.threshold:g}, the policy may cost {min(bounds):.3g}",
    )


def _upper(told: Sequence[float], bounds: Sequence[float]) -> list[float]:
    """U(κ′): the largest cost bound of the told thresholds from κ′/2 to κ′, since single ones are noisy.

    Not of all smaller ones: told next to nothing, a policy may cost more than told a little.
    """
    lows = np.searchsorted(told, np.asarray(told) / 2)
    return [max(bounds[low : i + 1]) for i, low in enumerate(lows)]
