"""What BCRL would reach on the grids of `discrete_grids.py` if its critics had no error.

    python benchmarks/discrete_exact.py [--development]

`plan` is the share of `plan(..., shield=True)`, which tracks slack above the cheaper policy of the optimum's
mixture. `tracked` is that of exact critics which track slack above the least-cost policy, as BCRL does.
Nothing is trained.
"""

import argparse

import numpy as np
from discrete_grids import DEVELOPMENT, EPISODES, GRIDS, OPTIONS, SHARES, grid, totals

from bcrl.cmdp import (
    CMDP,
    Column,
    MixturePolicy,
    SlackPolicy,
    least_cost,
    optimum,
    plan,
    simulate,
    unconstrained,
)
from bcrl.cmdp._augmented import iterate
from bcrl.cmdp._slack import SlackGrid

LEVELS = np.r_[np.linspace(0.0, 4.0, 400, endpoint=False), np.linspace(4.0, OPTIONS["max_budget"], 161)]
"""Of slack; between them values are interpolated."""


def above_least_cost(model: CMDP) -> SlackPolicy:
    """The policy with the highest return of those that keep slack above the least-cost policy, as BCRL."""
    critic = least_cost(model)
    base = Column.of(model, critic.policy)
    slack = SlackGrid(model, LEVELS[None], base.cost_value, critic.advantage[None])
    mixture = MixturePolicy(model, optimum(model, OPTIONS["max_budget"]))
    return SlackPolicy(model, slack, base, *iterate(slack, base, False, 1e-5), mixture, shield=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--development", action="store_true")
    print("grid    budget   plan  tracked  cost of tracked ± s.e.")
    for size, seed in DEVELOPMENT if parser.parse_args().development else GRIDS:
        model = grid(size, seed)
        (low, least), (_, most) = (totals(model, p) for p in (least_cost(model).policy, unconstrained(model)))
        tracked = above_least_cost(model)
        for budget in least + np.array(SHARES) * (most - least):
            best = optimum(model, budget).value
            planned, own = (
                simulate(policy, budget, EPISODES) for policy in (plan(model, budget, shield=True), tracked)
            )
            shares = ((played.total_return - low) / (best - low) for played in (planned, own))
            print(f"{size}×{size} {seed:2d}  {budget:6.3f}", *(f"{share:6.1%}" for share in shares), end=" ")
            print(f"{own.cost.item():9.3f} ± {own.cost_error.item():.3f}")


if __name__ == "__main__":
    main()
