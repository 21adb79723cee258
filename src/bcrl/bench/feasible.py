"""The share of the log's actions that are feasible under a budget, by the learned cost critics."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bcrl.assess.critics import cost_critics
from bcrl.bench.cells import Work
from bcrl.bench.experiment import NOTHING, is_dsrl
from bcrl.bench.tables import Table, Text
from bcrl.data import Dataset, load_data
from bcrl.paper.published import feasible_marks
from bcrl.policy import Policy, load_learned
from bcrl.progress import progress
from bcrl.train.jobs import policy_file

BUDGETS = (0.0, 1.0, 2.0, 3.0, 5.0, 7.0, 10.0, 15.0, 20.0, 30.0, 50.0)
"""Discounted costs δ, in the user's unit."""


def feasible_shares(policy: Policy, data: Dataset, budgets: Sequence[float] = BUDGETS) -> list[float]:
    """For each budget δ the share of the log's (s, a) with Q_C(s, a) ≤ δ, by the larger of two critics."""
    costs = cost_critics(policy, data).critic
    return [float(np.mean(costs <= budget)) for budget in budgets]


def shares_of(works: Sequence[Work], runs: Path) -> list[dict[str, Any]]:
    """A row per task and budget: the mean over seeds, the least and the largest; and the paper's mark."""
    rows = []
    with progress("feasible actions", len(works), "tasks") as tick:
        for work in works:
            policies = [policy_file(work.job, runs, seed) for seed in work.job.seeds]
            if None in policies:  # its training failed, which was said
                continue
            data = load_data(work.log)
            found = np.array([feasible_shares(load_learned(p), data) for p in policies if p is not None])
            mark = feasible_marks().get(work.job.task, {})
            for budget, shares in zip(BUDGETS, found.T, strict=True):
                rows.append(
                    {
                        "task": work.job.task,
                        "log": "DSRL" if is_dsrl(work) else "own",
                        "steps": work.job.steps,
                        "seeds": len(policies),
                        "budget": budget,
                        "share": float(shares.mean()),
                        "least": float(shares.min()),
                        "largest": float(shares.max()),
                        "paper_share": mark["share"] if mark.get("budget") == budget else np.nan,
                    }
                )
            tick()
    return rows


def share_columns(rows: Sequence[dict[str, Any]]) -> Table:
    """A line per task, a column per budget; what the paper's text says stands after a slash."""
    budgets = list(dict.fromkeys(row["budget"] for row in rows))
    table = [[Text("task"), *(Text(f"δ = {budget:g}") for budget in budgets)]]
    for task in dict.fromkeys(row["task"] for row in rows):
        cells = [
            f"{row['share']:.2f}"
            + ("" if np.isnan(row["paper_share"]) else f" (paper {row['paper_share']:.2f})")
            for row in rows
            if row["task"] == task
        ]
        table.append([Text(task), *map(Text, cells or [NOTHING])])
    return table
