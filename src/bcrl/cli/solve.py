"""`bcrl solve`: exact values for a known model, and the budgeted policy on it."""

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from bcrl.cli.out import check_file
from bcrl.errors import BCRLError


@dataclass(frozen=True)
class Command:
    """Solve a known model exactly: unconstrained, the CMDP optimum, and BCRL's budgeted policy."""

    model: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="gridworld|FILE.npz")]
    """`gridworld`, or a model saved by bcrl.cmdp.CMDP.save."""
    budget: tuple[float, ...]
    """Budget δ on the discounted cost from the start; with several costs one number each, such as 1,0.5."""
    map: str = "corridor"
    """Grid world: the name of a layout (a wrong name lists them) or a text file."""
    slip: float = 0.2
    """Grid world: probability that a move goes in one of the other three directions."""
    gamma: float = 0.99
    """Grid world: discount."""
    mode: Literal["slack", "paper"] = "slack"
    """`slack` never exceeds the budget; `paper` rounds budgets to bins as the paper does, and can."""
    bins: int | None = None
    """Levels of slack per cost (50), or budget bins in mode paper (101)."""
    shield: bool = False
    """Track the slack exactly at run time instead of sampling bins; evaluated by simulation."""
    save: Path | None = None
    """Also write the model to this NPZ file."""
    out: Path | None = None
    """Also write the budgeted policy to this .bcrl file, which `bcrl.load` reads."""
    overwrite: bool = False
    """Replace the file at --out."""

    def run(self) -> None:
        import numpy as np
        from rich.console import Console
        from rich.markup import escape

        from bcrl.cmdp import CMDP, GridWorld, least_cost

        if self.out is not None:
            check_file(self.out, (".bcrl",), self.overwrite)
        if self.model == "gridworld":
            world = GridWorld.load(self.map, self.slip, self.gamma)
            model, name = world.cmdp, f"grid world {world.name}, slip {self.slip:g}"
        elif self.model.endswith(".npz"):
            world, model, name = None, CMDP.load(self.model), self.model
        else:
            raise BCRLError(f"{self.model!r} is neither 'gridworld' nor an .npz file")
        budget = model.budget_vector(self.budget)
        if self.save is not None:
            model.save(self.save)
        console = Console(highlight=False)
        console.print(
            f"{escape(name)}: {model.states} states, {model.actions} actions, "
            f"{len(model.costs)} cost{'s' * (len(model.costs) > 1)}, γ = {model.gamma:g}",
            soft_wrap=True,
        )
        policy, visits = self._table(console, model, budget)
        # With several costs, each least cost alone is a weak test: see docs/cmdp.md.
        each = [least_cost(model, i).safe_states(limit + 1e-12) for i, limit in enumerate(budget)]
        safe = np.all(each, axis=0)
        if world is not None:
            from bcrl.cmdp.draw import draw

            # A pipe has no width, and a wide map must not be cut.
            console.width = max(console.width, world.cells.shape[1] + 4)
            console.print(draw(world, safe, visits))
        elif model.states <= 30:
            console.print(_states(model, safe, visits))
        if self.out is not None:
            policy.save(self.out)
            console.print(f"wrote {self.out}", soft_wrap=True, markup=False)

    def _table(self, console, model, budget):
        """Prints return and cost of each method; returns the budgeted policy and its discounted visits."""
        from rich.markup import escape
        from rich.table import Table

        from bcrl.cmdp import Column, joint_least_cost, optimum, plan, show, simulate, unconstrained

        table = Table("", "return", "cost", "", box=None, header_style="bold", pad_edge=False)
        for column in table.columns[1:3]:
            column.justify = "right"

        def add(name: str, earned: float, cost, note: str = "") -> None:
            table.add_row(name, f"{earned:.4f}", show(cost), note)

        least = Column.of(model, joint_least_cost(model))
        free = Column.of(model, unconstrained(model))
        add(
            "unconstrained",
            free.total_return,
            free.cost,
            "over the budget" if any(free.cost > budget) else "",
        )
        feasible = True
        try:
            best = optimum(model, budget)
            add("CMDP optimum", best.value, best.cost)
        except BCRLError as error:
            feasible = False
            console.print(f"[bold red]{escape(str(error))}[/]; BCRL takes least-cost actions", soft_wrap=True)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            policy = plan(model, budget, mode=self.mode, bins=self.bins, shield=self.shield)
            if self.shield and feasible:
                seen = simulate(policy, budget)
                visits, earned, cost = seen.occupancy, seen.total_return, seen.cost
                note = f"10,000 episodes, cost ± {show(2 * seen.cost_error)}"
            else:
                visits, exact = policy.occupancy(budget), policy.evaluate(budget)
                earned, cost, note = exact.total_return, exact.cost, "exact"
        if feasible and any(cost > budget * (1 + 1e-9)) and not self.shield:
            note = "over the budget"
        add(f"BCRL ({self.mode})" if feasible else "BCRL (fallback)", earned, cost, note)
        add("least cost", least.total_return, least.cost)
        console.print(f"budget {show(budget)}")
        console.print(table)
        for line in dict.fromkeys(str(one.message) for one in said):
            console.print(f"[yellow]note:[/] {escape(line)}", soft_wrap=True)
        return policy, visits


def _states(model, safe, visits):
    """A table with one row per state, for small models."""
    from rich.table import Table

    table = Table("state", "safe", "visits", "most frequent action", box=None, header_style="bold")
    for state in range(model.states):
        total = visits[state].sum()
        action = str(visits[state].argmax()) if total > 1e-9 and not model.terminal[state] else "–"
        table.add_row(str(state), "yes" if safe[state] else "no", f"{total:.4f}", action)
    return table
