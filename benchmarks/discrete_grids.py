"""BCRL with discrete actions on grid worlds whose optimum is known: `docs/discrete.md`'s table.

    python benchmarks/discrete_grids.py [--out FOLDER] [--development] [--options '{"beta": 1}'] [--steps N]

For each grid: a log of 100k steps of an exploratory policy, one BCRL policy trained on it, and that policy's
true discounted cost and return at four budgets. Returns are shares of the way from the least-cost policy's
to the CMDP optimum of the same budget. `exact` is that share for `plan(..., shield=True)`, which has exact
critics and, as BCRL, never randomises; the optimum does. Writes `results.json`. `--development` runs the two
grids on which the options were chosen; `--options` changes some of them.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np

from bcrl.assess.rollout import scan, start
from bcrl.cmdp import (
    CMDP,
    GridWorld,
    evaluate,
    least_cost,
    plan,
    sample_log,
    simulate,
    solve_lp,
    unconstrained,
)
from bcrl.files import write_text
from bcrl.learn.bcrl import BCRL
from bcrl.policy import Policy
from bcrl.train.run import fit
from bcrl.worlds.known import KnownModel

GAMMA, SLIP, HORIZON = 0.95, 0.1, 200
"""γ of reward and cost; at the horizon γᵗ is 4e-5."""
DEVELOPMENT = ((7, 22), (8, 25))
"""Size and seed of the random maps."""
GRIDS = ((5, 8), (6, 3), (7, 5), (7, 12), (8, 7))
LABELS = ("up", "right", "down", "left")
SHARES = (0.1, 0.25, 0.5, 0.75)
"""Budgets, as shares of the way from the least cost to that of the highest return."""
EPISODES = 4_000
STEPS = 45_000
OPTIONS = {
    "gamma": GAMMA,
    "gamma_cost": GAMMA,
    "hidden": (64, 64),
    "batch_size": 512,
    "learning_rate": 1e-3,
    "target_rate": 0.01,
    "max_budget": 20.0,
    "cost_unit": (1.0,),
    "reward_unit": 1.0,
    "budget_input": "raw",
}


def grid(size: int, seed: int) -> CMDP:
    """A random map where a step on X costs 10, so that the smallest budgets are far below one such step."""
    model = GridWorld.random(size, SLIP, GAMMA, seed).cmdp
    return CMDP(
        model.transitions, model.rewards, 10 * model.costs, GAMMA, start=model.start, terminal=model.terminal
    )


def totals(model: CMDP, policy: np.ndarray) -> tuple[float, float]:
    """Return and cost of a tabular policy from the start, discounted."""
    values = evaluate(model, policy, model.rewards, model.costs[0]) @ model.start
    return float(values[0]), float(values[1])


def play(policy: Policy, model: CMDP, budgets: np.ndarray, seed: int = 0) -> dict[str, np.ndarray]:
    """Discounted return and cost (budgets, episodes), and the fallback's share of the steps."""
    world = KnownModel(model, HORIZON)
    world.check(policy.spec)
    goal = policy.goal(budget=np.repeat(budgets, EPISODES), horizon=HORIZON)
    first, acting, moves = jax.random.split(jax.random.key(seed), 3)
    count = len(budgets) * EPISODES
    states = jax.vmap(world.reset)(jax.random.split(first, count))
    begun = start(policy.actor, jax.random.split(acting, count), goal)
    rows, _ = scan(policy.actor, world, states, begun, jax.random.split(moves, (HORIZON, count)))
    discount = model.gamma ** np.arange(len(rows))
    shape = (len(budgets), EPISODES)
    returns, costs = (np.tensordot(discount, rows[..., i], 1).reshape(shape) for i in (0, 1))
    steps, fallback = (rows[..., i].sum(0).reshape(shape).sum(1) for i in (2, 3))
    return {"returns": returns, "costs": costs, "fallback": fallback / steps}


def measure(policy: Policy, model: CMDP) -> list[dict[str, float]]:
    """A row for each budget: what the policy costs and earns, and the optimum of that budget."""
    (least_return, least), (most_return, most) = (
        totals(model, best) for best in (least_cost(model).policy, unconstrained(model))
    )
    budgets = least + np.array(SHARES) * (most - least)
    played = play(policy, model, budgets)
    rows = []
    for i, budget in enumerate(budgets):
        optimum = solve_lp(model, budget).value
        earned, paid = played["returns"][i], played["costs"][i]
        exact = simulate(plan(model, budget, shield=True), budget, EPISODES).total_return
        rows.append(
            {
                "budget": float(budget),
                "cost": float(paid.mean()),
                "cost_error": float(paid.std() / EPISODES**0.5),
                "return": float(earned.mean()),
                "optimum": optimum,
                "least_cost_return": least_return,
                "highest_return": most_return,
                "share": float((earned.mean() - least_return) / (optimum - least_return)),
                "exact_share": float((exact - least_return) / (optimum - least_return)),
                "fallback": float(played["fallback"][i]),
            }
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("runs/discrete-grids"))
    parser.add_argument("--development", action="store_true")
    parser.add_argument("--options", type=json.loads, default={})
    parser.add_argument("--steps", type=int, default=STEPS)
    arguments = parser.parse_args()
    given = {name: tuple(x) if isinstance(x, list) else x for name, x in arguments.options.items()}
    options: dict[str, Any] = {**OPTIONS, **given}
    begun, table = time.time(), []
    print("grid    budget  cost ± s.e.      return  optimum  share  exact  fallback")
    for size, seed in DEVELOPMENT if arguments.development else GRIDS:
        model = grid(size, seed)
        data = sample_log(model, 0.5, 100_000, HORIZON, labels=LABELS)
        policy = fit(data, BCRL(**options), steps=arguments.steps).policy()
        for row in measure(policy, model):
            table.append({"size": size, "seed": seed, **row})
            over = "  over" if row["cost"] > row["budget"] else ""
            print(
                f"{size}×{size} {seed:2d}  {row['budget']:6.3f}  {row['cost']:.3f} ± {row['cost_error']:.3f} "
                f"{row['return']:8.2f} {row['optimum']:8.2f} {row['share']:6.1%} "
                f"{row['exact_share']:6.1%} {row['fallback']:7.1%}{over}"
            )
    seconds = time.time() - begun
    print(f"{seconds:.0f} s")
    result = {"options": options, "steps": arguments.steps, "seconds": seconds, "rows": table}
    write_text(arguments.out / "results.json", json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
