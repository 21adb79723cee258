"""Random models for the property tests."""

import numpy as np
from hypothesis import strategies as st

from bcrl.cmdp import CMDP


def random_model(
    seed: int,
    states: int,
    actions: int,
    gamma: float,
    outcomes: int,
    costs: int = 1,
    free: float = 0.5,
    terminal: bool = False,
) -> CMDP:
    """`outcomes` next states per action, costs that are 0 with probability `free`."""
    rng = np.random.default_rng(seed)
    moves = np.zeros((states, actions, states))
    for state in range(states):
        for action in range(actions):
            targets = rng.choice(states, min(outcomes, states), replace=False)
            moves[state, action, targets] = rng.dirichlet(np.ones(len(targets)))
    rewards = rng.normal(size=(states, actions))
    prices = rng.random((costs, states, actions)) * (rng.random((costs, states, actions)) > free)
    ends = np.zeros(states, bool)
    if terminal:
        ends[-1] = True
        moves[-1], rewards[-1], prices[:, -1] = 0, 0, 0
    start = rng.dirichlet(np.ones(states))
    return CMDP(moves, rewards, prices, gamma, start, ends)


def models(
    costs: int = 1, min_actions: int = 1, max_states: int = 6, deterministic: bool = False
) -> st.SearchStrategy[CMDP]:
    return st.builds(
        random_model,
        seed=st.integers(0, 2**32 - 1),
        states=st.integers(2, max_states),
        actions=st.integers(min_actions, 4),
        gamma=st.sampled_from([0.0, 0.5, 0.9, 0.97]),
        outcomes=st.just(1) if deterministic else st.integers(1, 4),
        costs=st.just(costs),
        free=st.sampled_from([0.0, 0.5, 0.8]),
        terminal=st.booleans(),
    )


def random_policy(rng: np.random.Generator, allowed: np.ndarray) -> np.ndarray:
    """A random stochastic policy over the allowed actions (..., A), deterministic in half the states."""
    weights = rng.exponential(size=allowed.shape) * allowed
    pure = weights == weights.max(-1, keepdims=True)
    weights = np.where(rng.random(allowed.shape[:-1])[..., None] < 0.5, pure, weights)
    return weights / weights.sum(-1, keepdims=True)
