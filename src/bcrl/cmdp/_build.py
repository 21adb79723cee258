"""Models from a Gymnasium toy-text table and from a log."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from scipy import sparse

from bcrl.cmdp._checks import as_integers
from bcrl.cmdp._model import CMDP
from bcrl.errors import BCRLError


def from_gymnasium(
    environment: Any,
    cost: Callable[[int, int, int, float], float | Sequence[float]],
    gamma: float,
    start: Any = None,
) -> CMDP:
    """A model of a toy-text environment, or of its `P[s][a] = [(probability, next state, reward, end), ...]`.

    The table has no costs: `cost(state, action, next_state, reward)` returns one or several. Transitions
    that terminate lead to one extra state, the last. `start` defaults to the environment's distribution.
    """
    table = environment if isinstance(environment, Mapping) else environment.unwrapped.P
    states, actions = len(table), max(len(of) for of in table.values())
    if start is None:
        start = getattr(getattr(environment, "unwrapped", None), "initial_state_distrib", np.eye(states)[0])
    entries: list[tuple[int, int, float]] = []
    rewards = np.zeros((states + 1, actions))
    costs: list[np.ndarray] = []
    available = np.zeros((states + 1, actions), bool)
    for state, of in table.items():
        for action, outcomes in of.items():
            available[state, action] = True
            for probability, following, reward, terminated in outcomes:
                if not 0 <= following < states:
                    raise BCRLError(
                        f"state {state}, action {action} leads to state {following}, "
                        f"but there are {states} states"
                    )
                paid = np.atleast_1d(np.asarray(cost(state, action, following, reward), float))
                if not costs:
                    costs = [np.zeros((states + 1, actions)) for _ in paid]
                entries.append((state * actions + action, states if terminated else following, probability))
                rewards[state, action] += probability * reward
                for total, amount in zip(costs, paid, strict=True):
                    total[state, action] += probability * amount
    row, column, probability = zip(*entries, strict=True)
    transitions = sparse.csr_array((probability, (row, column)), shape=((states + 1) * actions, states + 1))
    start = np.asarray(start)
    start = np.append(start, 0.0) if start.ndim else start
    terminal = np.arange(states + 1) == states
    return CMDP(transitions, rewards, np.stack(costs), gamma, start, terminal, available)


def from_log(
    *,
    states: Any,
    actions: Any,
    rewards: Any,
    costs: Any,
    next_states: Any,
    terminals: Any,
    start_states: Any,
    gamma: float,
) -> CMDP:
    """Maximum-likelihood model of a log of integer states and actions, with counts.

    `costs` is (transitions,) or (transitions, N). Terminal transitions lead to one extra state, the last.
    Actions that the log never takes are not available. A state that the log enters and never leaves is
    absorbing with the least reward and the highest costs of the log.
    """
    state, action, following, first = (
        as_integers(name, of)
        for name, of in (
            ("states", states),
            ("actions", actions),
            ("next_states", next_states),
            ("start_states", start_states),
        )
    )
    reward, ended = np.asarray(rewards, float), np.asarray(terminals, bool)
    cost = np.asarray(costs, float)
    cost = cost[:, None] if cost.ndim == 1 else cost
    for name, column in (
        ("actions", action),
        ("rewards", reward),
        ("costs", cost),
        ("next_states", following),
    ):
        if len(column) != len(state):
            raise BCRLError(f"{name} has {len(column)} entries but states has {len(state)}")
    number = 1 + int(max(state.max(), following.max(), first.max()))
    choices, end = 1 + int(action.max()), number
    shape = (number + 1, choices)
    row = state * choices + action
    counts = np.bincount(row, minlength=shape[0] * choices).reshape(shape)
    mean = np.maximum(counts, 1)

    def average(signal: np.ndarray) -> np.ndarray:
        return np.bincount(row, signal, shape[0] * choices).reshape(shape) / mean

    model_rewards, model_costs = average(reward), np.stack([average(each) for each in cost.T])
    target = np.where(ended, end, following)
    available = counts > 0
    stuck = ~available.any(1) & (np.arange(number + 1) != end)
    available[stuck, 0] = True
    model_rewards[stuck, 0] = reward.min()
    model_costs[:, stuck, 0] = cost.max(0)[:, None]
    stuck = np.flatnonzero(stuck)
    probability = np.append(1.0 / counts.reshape(-1)[row], np.ones(len(stuck)))
    rows, columns = np.append(row, stuck * choices), np.append(target, stuck)
    transitions = sparse.csr_array((probability, (rows, columns)), shape=(shape[0] * choices, number + 1))
    start = np.bincount(first, minlength=number + 1) / len(first)
    terminal = np.arange(number + 1) == end
    return CMDP(transitions, model_rewards, model_costs, gamma, start, terminal, available, counts)
