"""Tabular CMDPs: exact optima, a budget-augmented MDP that never exceeds its budget, and the grid world."""

from bcrl.errors import need

need("scipy", "highspy", "numba", extra="cmdp")

from bcrl.cmdp._augmented import SlackPolicy  # noqa: E402
from bcrl.cmdp._build import from_gymnasium, from_log  # noqa: E402
from bcrl.cmdp._checks import show  # noqa: E402
from bcrl.cmdp._controller import (  # noqa: E402
    BudgetWarning,
    Episode,
    Evaluation,
    MixturePolicy,
    StationaryPolicy,
    TabularPolicy,
    joint_least_cost,
)
from bcrl.cmdp._frontier import Column, Frontier, Optimum, frontier, optimum  # noqa: E402
from bcrl.cmdp._grid_env import GridWorldEnv  # noqa: E402
from bcrl.cmdp._gridworld import GridWorld, layouts  # noqa: E402
from bcrl.cmdp._lp import LPSolution, smallest_budget, solve_lp  # noqa: E402
from bcrl.cmdp._model import CMDP  # noqa: E402
from bcrl.cmdp._paper_mode import PaperPolicy  # noqa: E402
from bcrl.cmdp._plan import plan  # noqa: E402
from bcrl.cmdp._policy_file import load_tabular  # noqa: E402
from bcrl.cmdp._sample import sample_log  # noqa: E402
from bcrl.cmdp._simulate import Simulation, simulate  # noqa: E402
from bcrl.cmdp._values import (  # noqa: E402
    CostCritic,
    cost_critic,
    evaluate,
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
    "from_gymnasium",
    "from_log",
    "frontier",
    "joint_least_cost",
    "layouts",
    "least_cost",
    "load_tabular",
    "optimum",
    "plan",
    "policy_iteration",
    "sample_log",
    "show",
    "simulate",
    "smallest_budget",
    "solve_lp",
    "unconstrained",
    "value_iteration",
]
