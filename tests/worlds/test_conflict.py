"""Reward and cost really are at odds, shown with controllers written by hand rather than learnt."""

from functools import cache

import numpy as np
import pytest

from bcrl.worlds import WORLDS, make_world

from .scripted import sweep

GREEDS = np.linspace(0.0, 1.0, 41)


@cache
def swept(name: str, noise: float) -> tuple[np.ndarray, np.ndarray]:
    return sweep(make_world(name, noise), GREEDS)


@pytest.mark.parametrize("noise", [0.0, 0.2])
@pytest.mark.parametrize("name", WORLDS)
def test_greed_is_costly_and_every_budget_buys_return(name: str, noise: float) -> None:
    returns, costs = swept(name, noise)
    greedy = np.argmax(returns)
    assert costs[greedy] >= 80
    best = [returns[costs <= budget].max() for budget in (10, 20, 40, 80, np.inf)]
    assert 0 < best[0] <= 0.7 * best[-1]
    assert np.all(np.diff(best) >= 0.01 * best[-1]), best


@pytest.mark.parametrize("name", WORLDS)
def test_no_cost_is_possible_with_some_return(name: str) -> None:
    returns, costs = (values[GREEDS <= 0.1] for values in swept(name, 0.0))
    assert costs.min() < 1
    assert returns[costs < 1].max() > 0.1 * make_world(name).reference_returns[1]
