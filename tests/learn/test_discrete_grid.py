"""From the log of a small grid world, BCRL learns a policy near the CMDP optimum within its budget."""

import jax
import numpy as np
import pytest
from optimised import optimised

from bcrl.assess.rollout import scan, start
from bcrl.cmdp import GridWorld, evaluate, least_cost, sample_log, solve_lp
from bcrl.learn.bcrl import BCRL
from bcrl.train.run import fit
from bcrl.worlds.known import KnownModel

GRID = GridWorld("detour", ("....", "SX.G", "...."), slip=0.1, gamma=0.9)
HORIZON, EPISODES = 60, 1_000


@pytest.mark.slow
def test_a_grid_world():
    model = GRID.cmdp
    log = sample_log(model, 0.5, 20_000, HORIZON, labels=("up", "right", "down", "left"))
    method = BCRL(
        gamma=0.9,
        gamma_cost=0.9,
        tau_c=0.01,
        tau_r=0.9,
        hidden=(32, 32),
        batch_size=128,
        learning_rate=1e-3,
        max_budget=3.0,
    )
    with optimised():
        policy = fit(log, method, steps=3_000, log_every=3_000).policy()
    low, least = evaluate(model, least_cost(model).policy, model.rewards, model.costs[0]) @ model.start
    # The learned least cost from the start is the exact one.
    assert abs(float(policy.learned.mean_start_value[0]) - least) < 0.03  # type: ignore[attr-defined]
    world, first = KnownModel(model, HORIZON), jax.random.split(jax.random.key(0), EPISODES)
    earned = []
    for budget in (least + 0.15, 1.1):
        goal = policy.goal(budget=np.full(EPISODES, budget), horizon=HORIZON)
        begun = start(policy.actor, first, goal)
        moves = jax.random.split(jax.random.key(1), (HORIZON, EPISODES))
        rows, _ = scan(policy.actor, world, jax.vmap(world.reset)(first), begun, moves)
        totals = np.tensordot(0.9 ** np.arange(len(rows)), rows[..., :2], 1)
        returns, cost = totals.mean(0)
        assert cost <= budget
        assert (returns - low) / (solve_lp(model, budget).value - low) >= 0.9
        earned.append(returns)
    # Crossing the hazard is shorter, and the large budget allows it.
    assert earned[1] > earned[0] + 0.3
