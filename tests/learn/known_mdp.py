"""A small decision process with a log, and what learning from that log must arrive at, computed in tables.

The tables use the log's own frequencies: they are what a regression on the log converges to.
"""

from dataclasses import dataclass

import jax
import numpy as np
from optimised import optimised

from bcrl.data import Dataset
from bcrl.learn.acting import BudgetedActor
from bcrl.learn.bcrl import BCRL
from bcrl.learn.loop import initial_state, train
from bcrl.learn.protocol import Normaliser, Spec

STATES, ACTIONS = 4, 3
CODES = 0.9 * np.array([[1.0, 0.0], [-0.5, 0.87], [-0.5, -0.87]])
"""Three discrete actions as points of the continuous action space."""


@dataclass(frozen=True)
class Table:
    """The log as frequencies. Costs are (k, S, A)."""

    behaviour: np.ndarray  # (S, A)
    moves: np.ndarray  # (S, A, S), less than one in sum where episodes ended in a terminal state
    costs: np.ndarray
    starts: np.ndarray  # (S,)


def make_log(costs: int, seed: int = 7, episodes: int = 60, length: int = 12) -> tuple[Dataset, Table]:
    rng = np.random.default_rng(seed)
    behaviour = np.array([[0.5, 0.3, 0.2], [0.2, 0.5, 0.3], [0.3, 0.2, 0.5], [0.4, 0.3, 0.3]])
    moves = rng.dirichlet(np.ones(STATES), (STATES, ACTIONS))
    prices = np.round(0.3 + rng.random((costs, STATES, ACTIONS)), 1)
    rows = []
    for _ in range(episodes):
        state = rng.integers(STATES)
        for step in range(length):
            action = rng.choice(ACTIONS, p=behaviour[state])
            after = rng.choice(STATES, p=moves[state, action])
            terminal = state == 3 and action == 2 and rng.random() < 0.2
            rows.append((state, action, after, terminal, not terminal and step == length - 1))
            state = after
            if terminal:
                break
    s, a, after, terminals, timeouts = (np.array(column) for column in zip(*rows, strict=True))
    one_hot = np.eye(STATES)
    paid = prices[:, s, a].T
    data = Dataset(
        observations=one_hot[s],
        actions=CODES[a],
        rewards=rng.normal(size=len(s)),
        costs=paid[:, 0] if costs == 1 else paid,
        next_observations=one_hot[after],
        terminals=terminals.astype(bool),
        timeouts=timeouts.astype(bool),
        source=f"known process with {costs} costs",
    )
    count = np.zeros((STATES, ACTIONS))
    np.add.at(count, (s, a), 1)
    assert count.min() >= 8, "every action of every state must be in the log"
    went = np.zeros((STATES, ACTIONS, STATES))
    np.add.at(went, (s[~data.terminals], a[~data.terminals], after[~data.terminals]), 1)
    firsts = np.bincount(s[data.starts], minlength=STATES)
    table = Table(count / count.sum(1, keepdims=True), went / count[..., None], prices, firsts / firsts.sum())
    return data, table


def fixed_point(
    table: Table, gamma_cost: float, tau: float, omega: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """V (k, S) and Q (k, S, A) of the τ-expectile regression, and its base policy (S, A).

    V_i(s) is the mean of Q_i(s, ·) under weights μ(a|s)·|τ − 1[u < 0]|, u = Σ ω_i (Q_i − V_i): the same
    weights for every cost. So V_i is the value of that one policy.
    """
    omega = np.ones(len(table.costs)) if omega is None else omega
    value = np.zeros((len(table.costs), STATES))
    for _ in range(100_000):
        critic = table.costs + gamma_cost * np.einsum("ijk,ck->cij", table.moves, value)
        gap = np.einsum("c,cij->ij", omega, critic - value[..., None])
        weight = table.behaviour * np.where(gap < 0, 1 - tau, tau)
        base = weight / weight.sum(1, keepdims=True)
        new = np.einsum("ij,cij->ci", base, critic)
        # Half a step: the weights switch, and a whole step could go back and forth between two of them.
        if np.abs(new - value).max() < 1e-13:
            return value, critic, base
        value = (value + new) / 2
    raise AssertionError("the fixed point was not reached")


def evaluate(table: Table, base: np.ndarray, gamma_cost: float) -> np.ndarray:
    """(k, S) the value of a policy, from the linear equations."""
    chain = np.einsum("ij,ijk->ik", base, table.moves)
    paid = np.einsum("ij,cij->ci", base, table.costs)
    return np.linalg.solve(np.eye(STATES) - gamma_cost * chain, paid.T).T


def least_cost(table: Table, gamma_cost: float) -> np.ndarray:
    """V_C* (S,) of one cost, by value iteration over the actions of the log."""
    value = np.zeros(STATES)
    for _ in range(10_000):
        value = (table.costs[0] + gamma_cost * table.moves @ value).min(1)
    return value


def learned_costs(data: Dataset, method: BCRL, steps: int) -> BudgetedActor:
    """What `method` acts with after training the cost critics alone: nothing of the others enters them."""
    spec, normaliser = Spec.of(data, steps), Normaliser.of(data.observations)
    arrays, state = method.prepare(data, normaliser), initial_state(method, spec, (0,))
    with optimised():
        for point in train(method, arrays, spec, (0,), state, step=0, log_every=steps, schedule=(("cost",),)):
            state = point.state
    return method.actor(jax.tree.map(lambda x: x[0], state), arrays, normaliser, spec)
