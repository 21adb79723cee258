"""Random models, policies and logs for the property tests."""

import numpy as np
from hypothesis import strategies as st

from bcrl.cmdp import CMDP
from bcrl.cmdp._simulate import Sampler


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


def sample_log(
    model: CMDP, behaviour: np.ndarray, transitions: int, horizon: int, seed: int = 0
) -> dict[str, np.ndarray]:
    """A log of episodes of a stochastic policy (S, A), as `from_log` takes it; cut after `horizon` steps."""
    rng = np.random.default_rng(seed)
    draw = Sampler(model)
    episodes = max(1, transitions // horizon)
    states = rng.choice(model.states, episodes, p=model.start)
    starts, cumulative = [states.copy()], np.cumsum(behaviour, 1)
    columns: list[tuple[np.ndarray, ...]] = []
    age = np.zeros(episodes, np.int64)
    while sum(len(column[0]) for column in columns) < transitions:
        part = cumulative[states]
        actions = (rng.random(episodes)[:, None] * part[:, -1:] >= part).sum(1)
        following = draw(states, actions, rng)
        ended = model.terminal[following]
        columns.append(
            (
                states,
                actions,
                model.rewards[states, actions],
                model.costs[:, states, actions].T,
                following,
                ended,
            )
        )
        age += 1
        over = ended | (age >= horizon)
        fresh = rng.choice(model.states, int(over.sum()), p=model.start)
        starts.append(fresh)
        states = following.copy()
        states[over], age[over] = fresh, 0
    names = ("states", "actions", "rewards", "costs", "next_states", "terminals")
    log = {
        name: np.concatenate(column) for name, column in zip(names, zip(*columns, strict=True), strict=True)
    }
    log["start_states"] = np.concatenate(starts)
    return log
