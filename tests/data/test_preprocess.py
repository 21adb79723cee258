"""Filters of logs: what stays, what changes, and that a seed decides."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bcrl.data import FIELDS, Dataset
from bcrl.data.preprocess import Box, Grid, add_noise, add_outliers, drop_best, inpaint, thin
from bcrl.errors import BCRLError

STEPS = 4


def log_of(costs, returns) -> Dataset:
    """Episodes of four steps with these costs and returns; the first observation is the episode's number."""
    costs, returns = np.asarray(costs, float), np.asarray(returns, float)
    episodes = len(costs)
    number = np.repeat(np.arange(episodes), STEPS)
    states = np.stack([number, np.tile(np.arange(STEPS), episodes)], axis=1).astype(float)
    return Dataset(
        observations=states,
        actions=np.zeros((episodes * STEPS, 1)),
        rewards=np.repeat(returns / STEPS, STEPS),
        costs=np.repeat(costs / STEPS, STEPS),
        next_observations=states + np.array([0, 1]),
        terminals=np.zeros(episodes * STEPS),
        timeouts=np.tile(np.arange(STEPS) == STEPS - 1, episodes),
        source="log",
    )


def numbers(data: Dataset) -> list[int]:
    return data.initial_observations[:, 0].astype(int).tolist()


def same_episodes(part: Dataset, whole: Dataset) -> bool:
    """Whether every episode of `part` is in `whole`, unchanged."""
    again = whole.select_episodes(numbers(part))
    return all(np.array_equal(getattr(part, name), getattr(again, name)) for name in FIELDS)


def test_a_crowded_cell_is_cut_a_sparse_one_dropped_and_the_others_stay():
    # Four cells: (0, 0) has 6 episodes, (0, 1) has 3, (1, 0) has 2, (1, 1) has 1.
    costs = [0] * 6 + [1] * 3 + [9] * 2 + [10]
    returns = [0] * 6 + [9] * 3 + [1] * 2 + [10]
    data = log_of(costs, returns)
    kept = thin(data, Grid(cost_cells=2, return_cells=2, most_per_cell=4, sparse_cell=1), seed=0)
    assert same_episodes(kept, data)
    assert Counter(number < 6 for number in numbers(kept))[True] == 4
    assert [number for number in numbers(kept) if number >= 6] == [6, 7, 8, 9, 10]
    assert numbers(kept) == sorted(numbers(kept)), "the order of the log is kept"


@settings(max_examples=60)
@given(
    seed=st.integers(0, 1000),
    episodes=st.integers(1, 80),
    grid=st.builds(
        Grid,
        cost_cells=st.integers(1, 6),
        return_cells=st.integers(1, 6),
        most_per_cell=st.integers(1, 5),
        sparse_cell=st.integers(0, 2),
    ),
)
def test_the_number_kept_of_each_cell(seed, episodes, grid):
    random = np.random.default_rng(seed)
    data = log_of(4 * random.integers(0, 12, episodes), 4 * random.integers(-6, 6, episodes))

    def cells(some: Dataset) -> Counter:
        """Cell by cell, without the code under test: edges from the whole log, the last one closed."""
        found = Counter()
        for cost, reward in zip(some.episode_costs, some.episode_returns, strict=True):
            place = []
            for value, of, count in (
                (cost, data.episode_costs, grid.cost_cells),
                (reward, data.episode_returns, grid.return_cells),
            ):
                edges = np.linspace(of.min(), of.max(), count + 1)[1:-1]
                place.append(
                    int(np.searchsorted(edges, value + 1e-9, side="right")) if of.max() > of.min() else 0
                )
            found[tuple(place)] += 1
        return found

    wanted = {
        cell: min(count, grid.most_per_cell)
        for cell, count in cells(data).items()
        if count > grid.sparse_cell
    }
    if not wanted:
        with pytest.raises(BCRLError, match="take fewer cells"):
            thin(data, grid, seed)
        return
    kept = thin(data, grid, seed)
    assert same_episodes(kept, data)
    assert cells(kept) == wanted


def test_the_largest_return_shares_the_last_cell():
    """In DSRL it has a cell of its own, which is sparse: the best episode of a log is always dropped."""
    data = log_of([0, 0, 0, 4, 4, 4], [0, 1, 2, 97, 98, 100])
    kept = thin(data, Grid(cost_cells=1, return_cells=10, most_per_cell=3, sparse_cell=2), seed=0)
    assert numbers(kept) == [0, 1, 2, 3, 4, 5]


def test_a_log_with_one_cost_has_one_cell_of_costs():
    kept = thin(log_of([0] * 8, [4] * 8), Grid(most_per_cell=3), seed=0)
    assert kept.episode_count == 3


COSTS = [0, 10, 20, 30, 40, 0, 40]
RETURNS = [0, 25, 50, 75, 100, 100, 0]


def test_episodes_inside_boxes_are_dropped():
    data = log_of(COSTS, RETURNS)
    assert numbers(inpaint(data, [Box(0.25, 0.5, 0, 1)])) == [0, 3, 4, 5, 6]
    assert numbers(inpaint(data, [Box(0, 1, 0.75, 1), Box(0.5, 0.5, 0.5, 0.5)])) == [0, 1, 6]
    assert numbers(inpaint(data, [Box(0.3, 0.4, 0, 1)])) == [0, 1, 2, 3, 4, 5, 6]


def test_fractions_are_of_the_log_before_other_filters():
    data = log_of(COSTS, RETURNS)
    half = data.select_episodes([0, 1, 2])
    assert numbers(inpaint(half, [Box(0.5, 1, 0.5, 1)])) == [0]
    assert numbers(inpaint(half, [Box(0.5, 1, 0.5, 1)], data)) == [0, 1]
    assert numbers(inpaint(half, [Box(0.75, 1, 0, 1)])) == [0, 1]
    assert numbers(inpaint(half, [Box(0.75, 1, 0, 1)], data)) == [0, 1, 2]


def test_the_best_safe_or_unsafe_episodes_are_dropped():
    data = log_of(COSTS, RETURNS)  # safe at 20: returns 0, 25, 50 and 100
    assert numbers(drop_best(data, 20, 10, safe=True)) == [0, 1, 2, 3, 4, 6]
    assert numbers(drop_best(data, 20, 50, safe=True)) == [0, 1, 3, 4, 6]
    assert numbers(drop_best(data, 20, 30, safe=False)) == [0, 1, 2, 5, 6]


def test_outliers_look_safe_and_earn_more():
    random = np.random.default_rng(1)
    costs, returns = 4 * random.integers(0, 20, 40), 4 * random.integers(0, 50, 40)
    data = log_of(costs, returns)
    spoiled = add_outliers(data, 0.1, threshold=4, seed=3)
    changed = np.flatnonzero(spoiled.episode_returns != data.episode_returns)
    assert len(changed) == 4
    assert (costs[changed] >= costs.max() / 2).all()
    assert (returns[changed] >= returns.max() / 2).all()
    np.testing.assert_allclose(spoiled.episode_returns[changed], 1.5 * returns[changed])
    assert (spoiled.episode_costs[changed] < 4).all()
    rows = np.isin(data.episode, changed)
    assert set(np.unique(spoiled.costs[rows])) <= {0, 1}
    for name in FIELDS:
        np.testing.assert_array_equal(getattr(spoiled, name)[~rows], getattr(data, name)[~rows])
    for name in ("observations", "actions", "next_observations", "timeouts"):
        np.testing.assert_array_equal(getattr(spoiled, name), getattr(data, name))


def test_the_costs_of_outliers_are_all_that_may_be():
    """0, 1 and 2 for a threshold of 3, and no more than there are steps for a large one."""
    data = log_of([40] * 60, [40] * 60)
    assert set(add_outliers(data, 1, threshold=3, seed=0).episode_costs) == {0, 1, 2}
    assert set(add_outliers(data, 1, threshold=99, seed=0).episode_costs) == {0, 1, 2, 3, 4}
    assert set(add_outliers(data, 1, threshold=0, seed=0).episode_costs) == {0}


def test_at_least_one_outlier():
    data = log_of([40] * 9, [40] * 9)
    assert (add_outliers(data, 0.01, 3, seed=0).episode_returns == 60).sum() == 1


def test_noise_has_its_size_and_is_the_same_where_the_state_is():
    random = np.random.default_rng(0)
    data = log_of(4 * random.integers(0, 5, 3000), np.zeros(3000))
    noisy = add_noise(data, 0.1, seed=5)
    error = noisy.observations - data.observations
    wanted = 0.1 * data.observations.std(dtype=np.float64)
    # 24,000 draws: their deviation is known to 0.5 %, their mean to 0.7 % of it; four times that is asked.
    assert error.std(dtype=np.float64) == pytest.approx(wanted, rel=0.02)
    assert abs(error.mean(dtype=np.float64)) < 0.03 * wanted
    inner = np.flatnonzero(~data.timeouts)
    np.testing.assert_array_equal(noisy.next_observations[inner], noisy.observations[inner + 1])
    last = data.ends
    assert (noisy.next_observations[last] != data.next_observations[last]).all()
    for name in ("actions", "rewards", "costs", "terminals", "timeouts"):
        np.testing.assert_array_equal(getattr(noisy, name), getattr(data, name))


def test_states_that_were_not_the_same_get_noise_of_their_own(arrays):
    arrays["next_observations"] += 1
    data = Dataset(**arrays, consecutive=False)
    noisy = add_noise(data, 0.5, seed=0)
    assert (noisy.next_observations != data.next_observations).all()
    assert (noisy.next_observations[:-1] != noisy.observations[1:]).all()


@pytest.mark.parametrize(
    "step",
    [
        lambda data, seed: thin(data, Grid(2, 2, 3, 0), seed),
        lambda data, seed: add_outliers(data, 0.1, 4, seed),
        lambda data, seed: add_noise(data, 0.1, seed),
    ],
)
def test_a_seed_decides(step):
    random = np.random.default_rng(0)
    data = log_of(4 * random.integers(0, 9, 90), 4 * random.integers(0, 9, 90))
    before = data.fingerprint()
    assert step(data, 0).fingerprint() == step(data, 0).fingerprint()
    assert step(data, 0).fingerprint() != step(data, 1).fingerprint()
    assert data.fingerprint() == before, "the log that was given is left as it was"


REFUSED = {
    "no cells": (lambda d: thin(d, Grid(cost_cells=0), 0), "cost_cells is 0; give 1 or more"),
    "none per cell": (lambda d: thin(d, Grid(most_per_cell=0), 0), "most_per_cell is 0"),
    "negative sparse": (lambda d: thin(d, Grid(sparse_cell=-1), 0), "sparse_cell is -1; give 0"),
    "all sparse": (lambda d: thin(d, Grid(), 0), "every cell has 2 episodes or fewer"),
    "box upside down": (lambda d: inpaint(d, [Box(0.5, 0.2, 0, 1)]), "no box"),
    "box in percent": (lambda d: inpaint(d, [Box(0, 50, 0, 1)]), "no box"),
    "box of all": (lambda d: inpaint(d, [Box(0, 1, 0, 1)]), "every episode lies inside"),
    "nothing is safe": (lambda d: drop_best(d, -1, 5, safe=True), "no episode costs at most -1"),
    "nothing is unsafe": (lambda d: drop_best(d, 99, 5, safe=False), "no episode costs more than 99"),
    "no margin": (lambda d: drop_best(d, 20, 0, safe=True), "margin is 0"),
    "all in the margin": (lambda d: drop_best(d, 99, 500, safe=True), "drops every episode"),
    "share in percent": (lambda d: add_outliers(d, 5, 20, 0), "share of outliers is 5"),
    "share of nothing": (lambda d: add_outliers(d, 0, 20, 0), "share of outliers is 0"),
    "too many outliers": (lambda d: add_outliers(d, 1, 20, 0), "7 outliers are asked for and 3 episodes"),
    "threshold below 0": (lambda d: add_outliers(d, 0.1, -1, 0), "threshold is -1"),
    "no noise": (lambda d: add_noise(d, 0, 0), "noise is 0"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_done_is_refused(name):
    step, words = REFUSED[name]
    with pytest.raises(BCRLError, match=words) as stop:
        step(log_of(COSTS, RETURNS))
    assert str(stop.value).startswith("log: ")


def test_several_kinds_of_cost_are_refused(arrays):
    arrays["costs"] = np.stack([arrays["costs"], arrays["costs"]], axis=1)
    with pytest.raises(BCRLError, match="has 2 kinds of cost"):
        thin(Dataset(**arrays), Grid(), 0)
    add_noise(Dataset(**arrays), 0.1, 0)
