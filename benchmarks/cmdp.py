"""How fast the exact solvers for known models are, as ratios taken in one run.

    python benchmarks/cmdp.py                 all comparisons; HiGHS alone takes minutes at 80 × 80
    python benchmarks/cmdp.py --size 40       smaller grids, seconds
    python benchmarks/cmdp.py --only memory   one of: secant, augmented, memory, gaps

Seconds are processor time. Grids have 20 % random hazards and moves that slip with probability 0.2; γ = 0.99,
budget 1.
"""

import argparse
import platform
import resource
import subprocess
import sys
import time
import warnings

import numpy as np
from scipy import sparse

from bcrl.cmdp import CMDP, BudgetWarning, GridWorld, optimum, plan, solve_lp
from bcrl.cmdp._augmented import SlackPolicy, iterate
from bcrl.cmdp._paper_mode import plan_paper
from bcrl.progress import progress

BUDGET, BINS, TOLERANCE = 1.0, 50, 1e-5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--size", type=int, default=80, help="cells along an edge of the grid (80)")
    parser.add_argument("--large", type=int, default=200, help="cells along an edge in the memory test (200)")
    parser.add_argument(
        "--only", choices=["secant", "augmented", "memory", "gaps"], help="one comparison only"
    )
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.worker:
        memory_worker(chosen.large)
        return
    print(f"Python {platform.python_version()}, numpy {np.__version__}, {platform.machine()}", flush=True)
    warm = GridWorld.random(6).cmdp
    plan(warm, BUDGET, bins=5)  # compiles, or reads the compiled code from the cache
    if chosen.only in (None, "gaps"):
        compare_gaps()
    if chosen.only in (None, "augmented"):
        compare_augmented(chosen.size)
    if chosen.only in (None, "memory"):
        compare_memory(chosen.large)
    if chosen.only in (None, "secant"):
        compare_secant(chosen.size)


def compare_gaps() -> None:
    """What rounding costs: exact return below the optimum and exact cost over the budget, on 30 instances."""
    instances = [
        (GridWorld.load(layout, slip).cmdp, budget)
        for layout in ("corridor", "blocked")
        for slip in (0.4, 0.3, 0.2, 0.1, 0.05)
        for budget in (0.2, 0.5, 1.0)
    ]
    best = [optimum(model, budget).value for model, budget in instances]
    schemes = {
        "paper: 51 bins of δ on [0, 100], nearest": lambda m, b: plan_paper(m, b, 51),
        "paper: 101 bins of δ on [0, 100], nearest": lambda m, b: plan_paper(m, b, 101),
        "paper: 51 bins of δ on [0, 10], nearest": lambda m, b: plan_paper(m, b, 51, budget_max=10.0),
        "paper: 101 bins of δ on [0, 10], nearest": lambda m, b: plan_paper(m, b, 101, budget_max=10.0),
        "default: 20 bins of slack": lambda m, b: plan(m, b, bins=20),
        "default: 50 bins of slack": lambda m, b: plan(m, b, bins=50),
    }
    print(
        "| scheme | mean gap to the optimum | worst gap | worst J_C/δ | largest excess, any state and bin |"
    )
    print("|---|---|---|---|---|", flush=True)
    warnings.simplefilter("ignore", BudgetWarning)
    for name, scheme in schemes.items():
        gaps, ratios, excesses = [], [], []
        with progress(name, len(instances), "instances") as tick:
            for (model, budget), value in zip(instances, best, strict=True):
                policy = scheme(model, budget)
                exact = policy.evaluate(budget)
                gaps.append(value - exact.total_return)
                ratios.append(exact.cost[0] / budget)
                excesses.append(policy.excess())
                tick()
        print(
            f"| {name} | {np.mean(gaps):.3f} | {max(gaps):.3f} | {max(ratios):.3f} | {max(excesses):.1e} |",
            flush=True,
        )


def compare_secant(size: int) -> None:
    """The CMDP optimum: λ-secant with warm policy iteration against HiGHS on the occupancy program."""
    model = GridWorld.random(size).cmdp
    fast, solved = timed(lambda: optimum(model, BUDGET))
    slow, program = timed(lambda: solve_lp(model, BUDGET))
    assert abs(solved.value - program.value) <= 1e-6 * abs(program.value), (solved.value, program.value)
    report(f"CMDP optimum, {size}×{size}", "HiGHS", slow, "λ-secant", fast)


def compare_augmented(size: int) -> None:
    """The augmented MDP: compiled sweeps with the lottery against an explicit sparse matrix without it."""
    model = GridWorld.random(size).cmdp
    total, policy = timed(lambda: plan(model, BUDGET, bins=BINS))
    fast, _ = timed(lambda: iterate(policy.grid, policy.base, True, TOLERANCE))
    slow, value = timed(lambda: explicit_value_iteration(model, policy))
    # The lottery only adds: where it gains nothing both find the same values.
    assert np.all(policy.value >= value - TOLERANCE / (1 - model.gamma))
    name = f"augmented MDP, {size}×{size}×{BINS} bins"
    report(name, "numpy and sparse matrix, no lottery", slow, "compiled, with lottery", fast)
    print(f"  the whole default plan, with the CMDP optimum that anchors it: {total:.2f} s", flush=True)


def explicit_value_iteration(model: CMDP, policy: SlackPolicy) -> np.ndarray:
    """The same bins and the same stopping rule with numpy and scipy: one big matrix, one product a sweep."""
    grid = policy.grid
    states, actions, bins = model.states, model.actions, grid.bins
    allowed = grid.allowed()
    blocks = []
    for action in range(actions):
        choice = np.full((states, bins), action)
        blocks.append(grid.chain(choice))
    matrix = sparse.csr_array(sparse.vstack(blocks))
    rewards = np.repeat(model.rewards.T[:, :, None], bins, 2).reshape(actions, -1)
    usable = allowed.transpose(2, 0, 1).reshape(actions, -1)
    value = np.repeat(policy.base.value[:, None], bins, 1).ravel()
    with progress("explicit sparse matrix", 1000, "sweeps") as tick:
        while True:
            later = (matrix @ value).reshape(actions, -1)
            following = np.where(usable, rewards + model.gamma * later, -np.inf).max(0)
            change = np.abs(following - value).max()
            value = following
            tick(note=f"change {change:.1e}")
            if change <= TOLERANCE:
                return value.reshape(states, bins)


def compare_memory(size: int) -> None:
    """Time and peak memory of the default on a large grid, in a process of its own."""
    command = [sys.executable, __file__, "--worker", "--large", str(size)]
    subprocess.run(command, check=True)


def memory_worker(size: int) -> None:
    model = GridWorld.random(size).cmdp
    seconds, policy = timed(lambda: plan(model, BUDGET, bins=BINS))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(
        f"augmented MDP, {size}×{size}×{BINS} bins ({policy.value.size:,} values): "
        f"{seconds:.1f} s, peak memory {peak:.2f} GB",
        flush=True,
    )


def timed(work):
    """Seconds of processor time, which other programs disturb least; everything here is one thread."""
    started = time.process_time()
    result = work()
    return time.process_time() - started, result


def report(name: str, slow_name: str, slow: float, fast_name: str, fast: float) -> None:
    print(
        f"{name}: {slow_name} {slow:.2f} s, {fast_name} {fast:.2f} s: {slow / fast:.1f} × faster", flush=True
    )


if __name__ == "__main__":
    main()
