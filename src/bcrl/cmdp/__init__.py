"""Tabular CMDPs: exact answers, the budget-augmented MDP with its guarantee kept, and the grid world."""

from bcrl.cmdp._extras import need

need("scipy", "highspy", "numba")

from bcrl.cmdp.augmented import SlackPolicy  # noqa: E402
from bcrl.cmdp.build import from_gymnasium, from_log  # noqa: E402
from bcrl.cmdp.controller import (  # noqa: E402
    BudgetWarning,
    Episode,
    Evaluation,
    MixturePolicy,
    StationaryPolicy,
    TabularPolicy,
)
from bcrl.cmdp.frontier import Column, Frontier, Optimum, frontier, optimum  # noqa: E402
from bcrl.cmdp.grid_env import GridWorldEnv  # noqa: E402
from bcrl.cmdp.gridworld import GridWorld, layouts  # noqa: E402
from bcrl.cmdp.lp import LPSolution, smallest_budget, solve_lp  # noqa: E402
from bcrl.cmdp.model import CMDP  # noqa: E402
from bcrl.cmdp.paper_mode import PaperPolicy  # noqa: E402
from bcrl.cmdp.plan import plan  # noqa: E402
from bcrl.cmdp.simulate import Simulation, sample_log, simulate  # noqa: E402
from bcrl.cmdp.values import (  # noqa: E402
    CostCritic,
    cost_critic,
    evaluate,
    expectile_critic,
    least_cost,
    policy_iteration,
    unconstrained,
    value_iteration,
)

__all__ = [
    "CMDP",
    "BudgetWarning",
    "Column",
    "CostCritic",
    "Episode",
    "Evaluation",
    "Frontier",
    "GridWorld",
    "GridWorldEnv",
    "LPSolution",
    "MixturePolicy",
    "Optimum",
    "PaperPolicy",
    "Simulation",
    "SlackPolicy",
    "StationaryPolicy",
    "TabularPolicy",
    "cost_critic",
    "evaluate",
    "expectile_critic",
    "from_gymnasium",
    "from_log",
    "frontier",
    "layouts",
    "least_cost",
    "optimum",
    "plan",
    "policy_iteration",
    "sample_log",
    "simulate",
    "smallest_budget",
    "solve_lp",
    "unconstrained",
    "value_iteration",
]
