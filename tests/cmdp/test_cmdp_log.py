"""A log sampled from a model, solved as a fitted model, gets the true optimum within its sampling error."""

import numpy as np
import pytest
from cmdp_models import random_model, sample_log

from bcrl.cmdp import (
    CMDP,
    GridWorld,
    evaluate,
    from_log,
    optimum,
    policy_iteration,
    unconstrained,
)
from bcrl.cmdp._values import occupancy


def standard_error(model: CMDP, counts: np.ndarray, starts: int, budget: float) -> float:
    """Of the fitted optimum, by the delta method.

    At the optimum the Lagrangian r − λc is stationary in the policy, so the first-order error is that of its
    value: each (s, a) adds its visits times the error of a mean of `counts` draws of γ V(s').
    """
    best = optimum(model, budget)
    signal = model.rewards - best.multipliers[0] * model.costs[0]
    _, value = policy_iteration(model, signal)
    visits = sum(
        chance * occupancy(model, column.policy)
        for chance, column in zip(best.probabilities, best.columns, strict=True)
    )
    mean, mean_square = ((model.transitions @ each).reshape(signal.shape) for each in (value, value**2))
    spread = np.maximum(mean_square - mean**2, 0)
    variance = (np.asarray(visits) * model.gamma) ** 2 * spread / np.maximum(counts, 1)
    start = model.start @ value**2 - (model.start @ value) ** 2
    return float(np.sqrt(variance.sum() + start / starts))


def worlds() -> list[tuple[CMDP, float]]:
    grid = GridWorld("small", ("....", "SX.G", "...."), slip=0.2, gamma=0.95).cmdp
    wild = random_model(4, 8, 3, 0.9, 3, free=0.3)
    free = evaluate(wild, unconstrained(wild), wild.costs[0])[0]
    return [(grid, 0.3), (wild, 0.8 * float(free @ wild.start))]


@pytest.mark.parametrize("which", [0, 1])
def test_a_fitted_model_gets_the_true_optimum_within_its_sampling_error(which: int) -> None:
    model, budget = worlds()[which]
    behaviour = np.full((model.states, model.actions), 1 / model.actions)
    true = optimum(model, budget).value
    misses, sizes = {}, (20_000, 320_000)
    for size in sizes:
        errors = []
        for seed in range(6):
            log = sample_log(model, behaviour, size, horizon=50, seed=seed)
            fitted = from_log(**log, gamma=model.gamma)
            assert fitted.counts is not None
            assert fitted.counts.sum() == len(log["states"])
            error = optimum(fitted, budget).value - true
            allowed = standard_error(model, fitted.counts[: model.states], len(log["start_states"]), budget)
            assert abs(error) <= 4 * allowed
            errors.append(abs(error))
        misses[size] = np.mean(errors)
    assert misses[sizes[1]] < misses[sizes[0]] / 1.5  # sixteen times the data: a quarter, give or take


def test_the_fitted_optimum_is_good_in_the_true_model() -> None:
    model, budget = worlds()[0]
    behaviour = np.full((model.states, model.actions), 0.25)
    log = sample_log(model, behaviour, 200_000, horizon=50, seed=0)
    solved = optimum(from_log(**log, gamma=model.gamma), budget)
    signals = (model.rewards, model.costs[0])
    results = [evaluate(model, one.policy[: model.states], *signals) @ model.start for one in solved.columns]
    earned, cost = solved.probabilities @ np.array(results)
    assert cost <= budget + 0.02
    assert earned >= optimum(model, budget).value - 0.15
