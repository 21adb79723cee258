"""Episodes are chosen evenly over the reward–cost plane."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bcrl.worlds._recorder import thin


@given(st.integers(0, 2**31), st.integers(1, 400), st.integers(1, 3000))
def test_chosen_episodes_are_allowed_distinct_and_about_enough(seed: int, count: int, wanted: int) -> None:
    random = np.random.default_rng(seed)
    returns, costs = random.normal(size=count), random.integers(0, 200, count).astype(float)
    lengths = random.integers(1, 30, count)
    chosen = thin(returns, costs, lengths, wanted, 120.0, random)
    allowed = lengths[costs <= 120].sum()
    assert len(set(chosen)) == len(chosen)
    assert (costs[chosen] <= 120).all()
    assert min(wanted, allowed) <= lengths[chosen].sum() < min(wanted, allowed) + 30


def test_rare_cells_are_kept_and_crowded_ones_cut() -> None:
    returns = np.concatenate([np.zeros(1000), np.full(5, 100.0)])
    costs = np.concatenate([np.zeros(1000), np.full(5, 50.0)])
    chosen = thin(returns, costs, np.ones(1005, int), 20, 120.0, np.random.default_rng(0))
    assert (costs[chosen] == 50).sum() == 5
    assert (costs[chosen] == 0).sum() == 15
