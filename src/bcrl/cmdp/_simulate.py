"""Simulation of many episodes of a policy at once in a model."""

from dataclasses import dataclass

import numpy as np

from bcrl.cmdp._checks import ShortRepr
from bcrl.cmdp._controller import Budget, TabularPolicy
from bcrl.cmdp._model import CMDP
from bcrl.progress import progress


@dataclass(frozen=True, repr=False)
class Simulation(ShortRepr):
    """Mean discounted return and costs with their standard errors, and the share of fallback actions."""

    total_return: float
    return_error: float
    cost: np.ndarray
    cost_error: np.ndarray
    fallback: float
    occupancy: np.ndarray
    """Mean discounted visits, (S, A)."""


class Sampler:
    """Draws next states from the rows of a model's transitions, for many rows at once."""

    def __init__(self, model: CMDP):
        rows = model.transitions
        self._indices, self._first, self._last = rows.indices, rows.indptr[:-1], rows.indptr[1:] - 1
        self._cumulative = np.cumsum(rows.data)
        self._before = np.r_[0.0, self._cumulative][self._first]
        self._actions = model.actions

    def __call__(self, states: np.ndarray, actions: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        row = states * self._actions + actions
        at = np.searchsorted(self._cumulative, self._before[row] + rng.random(len(row)), side="right")
        # Rounding of the cumulative sum must not select an entry of a neighbouring row.
        return self._indices[np.clip(at, self._first[row], self._last[row])].astype(np.int64)


def simulate(
    policy: TabularPolicy, budget: Budget, episodes: int = 10_000, seed: int = 0, model: CMDP | None = None
) -> Simulation:
    """Estimates J_R and J_C of Eq. (1); episodes run until all have ended or γᵗ is below 1e-6.

    The episodes run in `model`, by default the policy's own.
    """
    model = policy.model if model is None else model
    rng = np.random.default_rng(seed)
    draw = Sampler(model)
    states = rng.choice(model.states, episodes, p=model.start)
    memory = policy.begin(budget, episodes, rng)
    returns, costs = np.zeros(episodes), np.zeros((len(model.costs), episodes))
    steps = int(np.ceil(np.log(1e-6) / np.log(max(model.gamma, 1e-6))))
    visits = np.zeros(model.rewards.size)
    discount, fallbacks, taken = 1.0, 0, 0
    with progress("simulating", steps) as tick:
        for _ in range(steps):
            running = ~model.terminal[states]
            if not running.any():
                break
            actions = policy.step(memory, states, rng)
            returns += discount * model.rewards[states, actions]
            costs += discount * model.costs[:, states, actions]
            visits += discount * np.bincount(states * model.actions + actions, minlength=visits.size)
            fallbacks += int(memory.fallback[running].sum())
            taken += int(running.sum())
            states = draw(states, actions, rng)
            discount *= model.gamma
            tick()
    root = np.sqrt(episodes)
    return Simulation(
        float(returns.mean()),
        float(returns.std() / root),
        costs.mean(1),
        costs.std(1) / root,
        fallbacks / max(taken, 1),
        (visits / episodes).reshape(model.rewards.shape),
    )
