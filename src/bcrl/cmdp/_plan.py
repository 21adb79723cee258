"""`plan`: a policy from the budget-augmented MDP, by the default scheme or the paper's."""

from typing import Literal, overload

from bcrl.cmdp._augmented import SlackPolicy, plan_slack
from bcrl.cmdp._controller import Budget
from bcrl.cmdp._model import CMDP
from bcrl.cmdp._paper_mode import PaperPolicy, Solver, Update, plan_paper
from bcrl.errors import BCRLError


@overload
def plan(
    model: CMDP,
    budget: Budget,
    *,
    mode: Literal["slack"] = "slack",
    bins: int | None = None,
    shield: bool = False,
    update: Update = "soft",
) -> SlackPolicy: ...
@overload
def plan(
    model: CMDP,
    budget: Budget,
    *,
    mode: Literal["slack", "paper"],
    bins: int | None = None,
    shield: bool = False,
    update: Update = "soft",
    solver: Solver = "value iteration",
) -> SlackPolicy | PaperPolicy: ...
def plan(
    model: CMDP,
    budget: Budget,
    *,
    mode: Literal["slack", "paper"] = "slack",
    bins: int | None = None,
    shield: bool = False,
    update: Update = "soft",
    solver: Solver = "value iteration",
) -> SlackPolicy | PaperPolicy:
    """A policy for any budget, planned around `budget` (discounted, one per cost).

    mode    "slack" never exceeds the budget; "paper" rounds budgets to the nearest bin and can.
    bins    levels of slack per cost (50), or budget bins in mode "paper" (101).
    shield  track the slack exactly at run time instead of drawing bins (mode "slack").
    update  "direct" tracks the cost paid; noise breaks it, so it needs mode "paper" or a deterministic model.
    solver  "lp" solves the extended MDP for starts with `budget` only (mode "paper").
    """
    if mode not in ("slack", "paper"):
        raise BCRLError(f"mode must be 'slack' or 'paper', not {mode!r}")
    if update not in ("soft", "direct"):
        raise BCRLError(f"update must be 'soft' or 'direct', not {update!r}")
    if solver not in ("value iteration", "lp"):
        raise BCRLError(f"solver must be 'value iteration' or 'lp', not {solver!r}")
    if mode == "paper":
        if shield:
            raise BCRLError("the shield tracks slack: it needs mode 'slack'")
        return plan_paper(model, budget, 101 if bins is None else bins, update, solver)
    if solver == "lp":
        raise BCRLError("mode 'slack' is solved by value iteration; solver 'lp' needs mode 'paper'")
    if update == "direct" and not model.deterministic:
        raise BCRLError("the direct update exceeds the budget when outcomes are random: use update 'soft'")
    # On a deterministic model the direct update and the soft one are the same (Lemma of appendix A.2).
    return plan_slack(model, budget, 50 if bins is None else bins, shield)
