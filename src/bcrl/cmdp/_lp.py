"""The occupancy linear program of a CMDP, solved with HiGHS: a reference for small models."""

from collections.abc import Sequence
from dataclasses import dataclass

import highspy
import numpy as np
from scipy import sparse

from bcrl.cmdp._checks import ShortRepr, Sparse, show
from bcrl.cmdp._model import CMDP
from bcrl.cmdp._values import least_cost
from bcrl.errors import BCRLError
from bcrl.progress import progress


@dataclass(frozen=True, repr=False)
class LPSolution(ShortRepr):
    """The optimum of a CMDP over all policies."""

    value: float
    cost: np.ndarray
    policy: np.ndarray
    """Stationary and stochastic, (S, A), to run with `StationaryPolicy`; least cost where it never goes."""
    occupancy: np.ndarray
    """Discounted visits, (S, A)."""
    multipliers: np.ndarray
    """λ: the gain in return for one more unit of each budget."""


def solve_lp(model: CMDP, budget: float | Sequence[float] | np.ndarray) -> LPSolution:
    """max Σ r x with Σ c_i x ≤ δ_i over discounted occupancies x: the objective of Section 2.1."""
    limit = model.budget_vector(budget)
    flow, here = _flow(model)
    rewards = model.rewards[here]
    costs = model.costs[:, here]
    start = model.start[~model.terminal]
    matrix = sparse.vstack([flow, costs], format="csc")
    lower = np.concatenate([start, np.full(len(limit), -np.inf)])
    upper = np.concatenate([start, limit])
    solved = _highs(-rewards, matrix, lower, upper, "HiGHS on the occupancy program")
    if solved is None:
        raise infeasible(limit, smallest_budget(model, limit))
    visits, duals = solved
    x = np.zeros((model.states, model.actions))
    x[here] = visits
    total = x.sum(1, keepdims=True)
    safest = least_cost(model).policy[:, None] == np.arange(model.actions)
    policy = np.where(total > 1e-12, x / np.where(total > 1e-12, total, 1.0), safest)
    return LPSolution(
        value=float(rewards @ visits),
        cost=costs @ visits,
        policy=policy,
        occupancy=x,
        multipliers=np.maximum(-duals[len(start) :], 0.0),
    )


def smallest_budget(model: CMDP, budget: float | Sequence[float] | np.ndarray = 0.0) -> np.ndarray:
    """The least budgets δ + t that some policy keeps jointly; `budget` is δ.

    With one cost this is E[V_C*(s₀)], or δ itself if that is enough; with several, t is the least amount to
    add to every budget.
    """
    limit = np.broadcast_to(np.asarray(budget, float), len(model.costs))
    flow, here = _flow(model)
    rows, columns = flow.shape
    # One more variable t ≥ 0, the extra.
    extra = sparse.csc_array(np.r_[np.zeros(rows), -np.ones(len(limit))][:, None])
    matrix = sparse.hstack([sparse.vstack([flow, model.costs[:, here]]), extra], format="csc")
    start = model.start[~model.terminal]
    lower = np.concatenate([start, np.full(len(limit), -np.inf)])
    upper = np.concatenate([start, limit])
    solved = _highs(np.r_[np.zeros(columns), 1.0], matrix, lower, upper, "HiGHS on the least budget")
    assert solved is not None, "t is unbounded, so this program always has a solution"
    return limit + solved[0][-1]


def infeasible(budget: np.ndarray, smallest: np.ndarray) -> BCRLError:
    """The error for a budget that no policy keeps."""
    what = "the smallest feasible budget is" if len(budget) == 1 else "the nearest feasible budgets are"
    return BCRLError(f"no policy keeps the budget {show(budget)}: {what} {show(smallest)}")


def _flow(model: CMDP) -> tuple[Sparse, np.ndarray]:
    """Rows Σ_a x(s,a) − γ Σ T(s|s',a') x(s',a') for the states that are not terminal, and the (s,a) used."""
    here = model.available & ~model.terminal[:, None]
    used = np.flatnonzero(here)
    leave = sparse.csr_array(
        (np.ones(len(used)), (used // model.actions, np.arange(len(used)))), shape=(model.states, len(used))
    )
    flow = leave - model.gamma * model.transitions[used].T
    return sparse.csr_array(sparse.csr_array(flow)[~model.terminal]), here


def _highs(
    objective: np.ndarray, matrix: Sparse, lower: np.ndarray, upper: np.ndarray, label: str
) -> tuple[np.ndarray, np.ndarray] | None:
    """min objective·x, lower ≤ matrix x ≤ upper, x ≥ 0; the solution and row duals, or None if infeasible."""
    program = highspy.HighsLp()
    program.num_row_, program.num_col_ = matrix.shape
    program.col_cost_ = np.asarray(objective, float)
    program.col_lower_ = np.zeros(matrix.shape[1])
    program.col_upper_ = np.full(matrix.shape[1], highspy.kHighsInf)
    program.row_lower_ = np.where(np.isfinite(lower), lower, -highspy.kHighsInf)
    program.row_upper_ = upper
    program.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    program.a_matrix_.start_ = matrix.indptr
    program.a_matrix_.index_ = matrix.indices
    program.a_matrix_.value_ = matrix.data
    solver = highspy.Highs()
    solver.setOptionValue("output_flag", False)
    for name in ("primal_feasibility_tolerance", "dual_feasibility_tolerance"):
        solver.setOptionValue(name, 1e-9)
    solver.passModel(program)
    # Simplex takes about three iterations per row, so the bar is approximate.
    with progress(label, 3 * matrix.shape[0], "iterations") as tick:
        done = 0

        def count(event: "highspy.HighsCallbackEvent") -> None:
            nonlocal done
            now = event.data_out.simplex_iteration_count
            tick(max(now - done, 0))
            done = max(now, done)

        if matrix.shape[0] > 2000:  # smaller programs end before a bar would show
            solver.cbSimplexInterrupt.subscribe(count)
        solver.run()
    status = solver.getModelStatus()
    if status in (highspy.HighsModelStatus.kInfeasible, highspy.HighsModelStatus.kUnboundedOrInfeasible):
        return None
    if status != highspy.HighsModelStatus.kOptimal:
        raise BCRLError(f"HiGHS stopped with {solver.modelStatusToString(status)!r} on this model")
    solution = solver.getSolution()
    return np.array(solution.col_value), np.array(solution.row_dual)
