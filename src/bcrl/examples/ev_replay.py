"""Truth: every session of a period replayed by a policy that is told what each car may emit."""

from collections.abc import Iterator, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from bcrl.assess.evaluation import identity
from bcrl.assess.results import Result, normalised_cost
from bcrl.assess.rollout import scan, start
from bcrl.examples.ev_sessions import LONGEST, Sessions
from bcrl.examples.ev_world import Parked, charging_world
from bcrl.policy import Policy
from bcrl.progress import progress

ROWS = 512
"""Sessions that are replayed at once."""


def replay(
    policy: Policy,
    sessions: Sessions,
    budgets: Sequence[float],
    *,
    calibrated: bool = False,
) -> list[Result]:
    """One result per session and budget."""
    world = charging_world(sessions, policy.spec.horizon)
    world.check(policy.spec)
    order = np.argsort(sessions.steps, kind="stable")  # sessions of one length end together
    keys = jnp.broadcast_to(jax.random.key(0), (LONGEST, ROWS))  # a replay draws nothing
    totals = np.zeros((len(budgets), len(sessions), 4))
    with progress(f"replaying {sessions.period}", totals[..., 0].size, "sessions") as tick:
        for row, budget in enumerate(budgets):
            goal = policy.goal(threshold=np.full(ROWS, budget), calibrated=calibrated)
            begun = start(policy.actor, jax.random.split(jax.random.key(0), ROWS), goal)
            for low in range(0, len(order), ROWS):
                some = order[low : low + ROWS]
                # Pieces of one size: one program replays them all.
                padded = np.resize(some, ROWS)
                steps, _ = scan(policy.actor, world, _begin(world, jnp.asarray(padded)), begun, keys)
                totals[row, some] = steps.sum(axis=0, dtype=np.float64)[: len(some)]
                tick(len(some))
    who = identity(policy, None) | {"world": world.label}
    return [
        result for budget, rows in zip(budgets, totals, strict=True) for result in _rows(who, budget, rows)
    ]


def _rows(who: dict[str, Any], budget: float, totals: np.ndarray) -> Iterator[Result]:
    for episode, (energy, cost, length, fallback) in enumerate(totals.tolist()):
        yield Result(
            **who,
            threshold=float(budget),
            episode=episode,
            return_=energy,
            cost=cost,
            normalised_reward=float("nan"),
            normalised_cost=float(normalised_cost(np.asarray(cost), budget)),
            length=int(length),
            fallback_share=fallback / length,
        )


@eqx.filter_jit
def _begin(world: Any, sessions: jax.Array) -> Parked:
    return jax.vmap(world.begin)(sessions)
