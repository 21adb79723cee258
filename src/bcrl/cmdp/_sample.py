"""Logs of known models: what a behaviour policy does there, recorded as any other log."""

from collections.abc import Sequence

import numpy as np

from bcrl.cmdp._checks import as_floats, check_shape
from bcrl.cmdp._model import CMDP
from bcrl.cmdp._simulate import Sampler
from bcrl.cmdp._values import unconstrained
from bcrl.data import Dataset, Schema
from bcrl.errors import BCRLError
from bcrl.progress import progress

TOGETHER = 256  # episodes that run side by side


def sample_log(
    model: CMDP,
    policy: float | np.ndarray = 0.5,
    steps: int = 100_000,
    horizon: int = 200,
    seed: int = 0,
    *,
    observations: np.ndarray | None = None,
    labels: Sequence[str] | None = None,
) -> Dataset:
    """A log of at least `steps` transitions in whole episodes of at most `horizon` steps.

    `policy` is (S, A) probabilities, (S,) actions, or a number ε: a random available action with probability
    ε, else that of the highest return. `observations` (S, d) is what is seen of each state, by default a
    one-hot vector; `labels` name the actions, by default by their numbers.
    """
    if steps < 1 or horizon < 1:
        raise BCRLError(f"steps is {steps} and horizon {horizon}, but both must be at least 1")
    rng = np.random.default_rng(seed)
    draw, chances = Sampler(model), np.cumsum(_probabilities(model, policy), axis=1)
    seen = np.eye(model.states) if observations is None else as_floats("observations", observations)
    check_shape("observations", seen, (model.states, *seen.shape[1:]))
    names = tuple(map(str, range(model.actions) if labels is None else labels))
    episodes, made = [], 0
    with progress("recording", steps) as tick:
        while made < steps:
            for episode in _play(model, draw, chances, horizon, rng):
                if made < steps:
                    episodes.append(episode)
                    made += len(episode)
                    tick(len(episode))
    state, action, after = np.concatenate(episodes).T
    last = np.zeros(len(state), bool)
    last[np.cumsum([len(episode) for episode in episodes]) - 1] = True
    ended = last & model.terminal[after]
    costs = model.costs[:, state, action].T
    return Dataset(
        observations=seen[state],
        actions=np.eye(model.actions)[action],
        rewards=model.rewards[state, action],
        costs=costs[:, 0] if costs.shape[1] == 1 else costs,
        next_observations=seen[after],
        terminals=ended,
        timeouts=last & ~ended,
        source=f"log of a model with {model.states:,} states",
        schema=Schema(action_labels=names),
    )


def _probabilities(model: CMDP, policy: float | np.ndarray) -> np.ndarray:
    """The behaviour policy as (S, A)."""
    if np.ndim(policy) == 0:
        if not 0 <= float(policy) <= 1:
            raise BCRLError(f"policy is {policy}, but as a number it is a probability, from 0 to 1")
        evenly = model.available / model.available.sum(1, keepdims=True)
        return float(policy) * evenly + (1 - float(policy)) * np.eye(model.actions)[unconstrained(model)]
    table = np.asarray(policy)
    table = np.eye(model.actions)[table] if table.ndim == 1 else as_floats("policy", table)
    check_shape("policy", table, (model.states, model.actions))
    if np.any(table < 0) or not np.allclose(table.sum(1), 1) or np.any(table[~model.available] > 0):
        raise BCRLError("policy must hold probabilities of available actions that add up to 1 in each state")
    return table


def _play(
    model: CMDP, draw: Sampler, chances: np.ndarray, horizon: int, rng: np.random.Generator
) -> list[np.ndarray]:
    """Episodes as rows (state, action, next state)."""
    state = rng.choice(model.states, TOGETHER, p=model.start)
    running = np.flatnonzero(~model.terminal[state])
    steps, who = [], []
    for _ in range(horizon):
        here = state[running]
        action = (rng.random((len(here), 1)) * chances[here, -1:] >= chances[here]).sum(1)
        state[running] = draw(here, action, rng)
        steps.append(np.stack([here, action, state[running]], axis=1))
        who.append(running)
        running = running[~model.terminal[state[running]]]
        if not len(running):
            break
    order = np.argsort(np.concatenate(who), kind="stable")
    cuts = np.cumsum(np.bincount(np.concatenate(who), minlength=TOGETHER))[:-1]
    return [rows for rows in np.split(np.concatenate(steps)[order], cuts) if len(rows)]
