"""The vectorised cuts into episodes against a loop anyone can read."""

import dataclasses
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bcrl.data import FIELDS, Dataset
from bcrl.errors import BCRLError


@st.composite
def logs(draw: st.DrawFn) -> Dataset:
    lengths = draw(st.lists(st.integers(1, 6), min_size=1, max_size=8))
    costs = draw(st.integers(1, 3))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    rows = sum(lengths)
    terminals, timeouts = np.zeros(rows, dtype=bool), np.zeros(rows, dtype=bool)
    for end in np.cumsum(lengths) - 1:
        kind = draw(st.sampled_from(["terminal", "timeout", "both"]))
        terminals[end], timeouts[end] = kind != "timeout", kind != "terminal"
    return Dataset(
        observations=rng.normal(size=(rows, 2)),
        actions=rng.uniform(-1, 1, size=(rows, 1)),
        rewards=rng.integers(-8, 9, size=rows) / 4,  # quarters: sums are exact in any order
        costs=rng.integers(0, 9, size=(rows, costs)) / 4,
        next_observations=rng.normal(size=(rows, 2)),
        terminals=terminals,
        timeouts=timeouts,
        consecutive=False,
    )


def by_loop(data: Dataset) -> list[list[int]]:
    """The rows of each episode."""
    episodes, current = [], []
    for row in range(len(data)):
        current.append(row)
        if data.terminals[row] or data.timeouts[row]:
            episodes.append(current)
            current = []
    return episodes


@given(logs())
def test_episodes_equal_a_loop(data: Dataset):
    episodes = by_loop(data)
    assert data.episode_count == len(episodes)
    assert data.episode.tolist() == [number for number, rows in enumerate(episodes) for _ in rows]
    assert data.steps.tolist() == [step for rows in episodes for step in range(len(rows))]
    assert data.starts.tolist() == [rows[0] for rows in episodes]
    assert data.ends.tolist() == [rows[-1] for rows in episodes]
    assert data.episode_lengths.tolist() == [len(rows) for rows in episodes]
    assert data.horizon == max(len(rows) for rows in episodes)
    assert data.episode_returns.tolist() == [
        sum(float(data.rewards[row]) for row in rows) for rows in episodes
    ]
    costs = [
        [sum(float(data.costs_2d[row, k]) for row in rows) for k in range(data.cost_count)]
        for rows in episodes
    ]
    assert data.episode_costs.reshape(len(episodes), -1).tolist() == costs
    assert data.episode_costs.ndim == data.costs.ndim
    assert data.initial_observations.tolist() == [data.observations[rows[0]].tolist() for rows in episodes]
    assert data.max_cost.tolist() == [max(column) for column in data.costs_2d.T.tolist()]


@given(logs(), st.sampled_from([1.0, 0.9, 0.0]))
def test_sums_to_go_equal_a_loop(data: Dataset, gamma: float):
    for values in (data.rewards, data.costs):
        expected = np.zeros(values.shape)
        for rows in by_loop(data):
            rest = 0.0
            for row in reversed(rows):
                rest = values[row].astype(np.float64) + gamma * rest
                expected[row] = rest
        found = data.sums_to_go(values, gamma)
        assert found.dtype == np.float64
        np.testing.assert_array_equal(found, expected)


def test_sums_to_go_needs_a_value_for_each_row(arrays):
    with pytest.raises(BCRLError, match="log: sums_to_go got 3 rows for 12 transitions"):
        Dataset(**arrays, source="log").sums_to_go([1, 2, 3])


@given(logs(), st.data())
def test_selected_episodes_equal_a_loop(data: Dataset, draws: st.DataObject):
    episodes = by_loop(data)
    chosen = draws.draw(st.lists(st.sampled_from(range(len(episodes))), min_size=1, max_size=5))
    rows = [row for number in chosen for row in episodes[number]]
    part = data.select_episodes(chosen)
    for name in FIELDS:
        np.testing.assert_array_equal(getattr(part, name), getattr(data, name)[rows])
    mask = np.isin(np.arange(len(episodes)), chosen)
    assert data.select_episodes(mask).fingerprint() == data.select_episodes(sorted(set(chosen))).fingerprint()


def test_sizes_and_dtypes(arrays):
    data = Dataset(**arrays, source="log")
    assert (len(data), data.observation_size, data.action_size, data.cost_count) == (12, 3, 2, 1)
    assert data.costs.shape == (12,)
    assert data.costs_2d.shape == (12, 1)
    assert np.shares_memory(data.costs_2d, data.costs)
    assert data.episode_returns.dtype == np.float64
    assert "12 transitions, 3 episodes" in repr(data)


@pytest.mark.parametrize("dtype", [np.float64, np.float16, np.uint8, np.int64])
def test_from_arrays_casts_and_flattens(arrays, dtype):
    columns = ("rewards", "costs", "terminals", "timeouts")
    changed = {name: arrays[name][:, None] for name in columns}
    changed["terminals"], changed["timeouts"] = (changed[n].astype(dtype) for n in ("terminals", "timeouts"))
    changed["observations"] = arrays["observations"].astype(np.float64)
    data = Dataset.from_arrays(arrays | changed | {"extra": "ignored"})
    assert data.fingerprint() == Dataset(**arrays).fingerprint()
    for name in FIELDS:
        assert getattr(data, name).dtype == (np.bool_ if name in ("terminals", "timeouts") else np.float32)


def test_it_is_read_only_but_the_callers_array_is_not(arrays):
    data = Dataset(**arrays)
    with pytest.raises(dataclasses.FrozenInstanceError):
        data.rewards = arrays["rewards"]
    with pytest.raises(ValueError, match="read-only"):
        data.rewards[0] = 1.0
    arrays["rewards"][0] = 1.0


def test_fingerprint_sees_values_and_shapes_but_not_the_source(arrays):
    reference = Dataset(**arrays).fingerprint()
    assert Dataset(**arrays, source="elsewhere").fingerprint() == reference
    backwards = arrays | {"observations": arrays["observations"][:, ::-1]}
    assert Dataset(**backwards, consecutive=False).fingerprint() != reference
    assert Dataset(**arrays | {"costs": np.stack([arrays["costs"]] * 2, 1)}).fingerprint() != reference


def test_trailing_rows_are_an_error_unless_dropped_with_a_warning(arrays):
    arrays["timeouts"][11] = False
    with pytest.raises(BCRLError, match=r"log: timeouts: the 4 rows from row 8 on .* drop_incomplete=True"):
        Dataset.from_arrays(arrays, "log")
    with pytest.warns(UserWarning, match="log: dropped the last 4 of 12 rows"):
        data = Dataset.from_arrays(arrays, "log", drop_incomplete=True)
    assert (len(data), data.episode_count) == (8, 2)


@pytest.mark.parametrize(
    ("which", "words"),
    [
        ([False] * 3, "chose none of the 3 episodes"),
        ([], "chose none"),
        ([True, False], r"mask of shape \(2,\)"),
        ([3], "index 3"),
        ([-1], "index -1"),
        ([0.5], "float64"),
        ([[0, 1]], r"shape \(1, 2\)"),
    ],
)
def test_selecting_what_is_not_there(arrays, which, words):
    with pytest.raises(BCRLError, match=words):
        Dataset(**arrays, source="log").select_episodes(which)


@pytest.mark.parametrize("off", [1e-7, 9e-7])
def test_actions_may_round_past_one(arrays, off):
    arrays["actions"] = arrays["actions"].astype(np.float64)
    arrays["actions"][5, 1] = -1 - off
    assert len(Dataset(**arrays)) == 12
    arrays["actions"][5, 1] = -1 - 3e-6
    with pytest.raises(BCRLError, match=r"actions row 5 column 1 is -1\.000003, outside \[-1, 1\]"):
        Dataset(**arrays)


def test_importing_the_room_needs_numpy_only():
    """A bare GPU box reads NPZ logs: no h5py, no rich, no tyro, no jax."""
    code = (
        "import sys\n"
        "for name in ('h5py', 'rich', 'tyro', 'jax', 'gymnasium', 'safetensors'): sys.modules[name] = None\n"
        "import bcrl.data, bcrl.data.preprocess\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
