"""The schema: names, units, bounds and labels, kept by every format."""

import numpy as np
import pytest

import bcrl
from bcrl.data import Dataset, Schema
from bcrl.errors import BCRLError

FULL = Schema(
    observation_names=("speed", "height"),
    action_names=("power",),
    cost_names=("heat",),
    action_low=(0.0,),
    action_high=(5.0,),
    max_cost=(2.0,),
    units={"power": "kW", "reward": "kWh"},
)


def log(schema: Schema, actions: np.ndarray | None = None) -> Dataset:
    n = 6
    observations = np.arange(2.0 * (n + 1)).reshape(n + 1, 2)
    ends = np.arange(n) == n - 1
    arrays = {
        "observations": observations[:-1],
        "next_observations": observations[1:],
        "actions": np.linspace(-1, 1, n)[:, None] if actions is None else actions,
        "rewards": np.ones(n),
        "costs": np.linspace(0, 1, n),
        "terminals": np.zeros(n, bool),
        "timeouts": ends,
    }
    return Dataset.from_arrays(arrays, schema=schema)


@pytest.mark.parametrize("suffix", [".npz", ".hdf5", ".minari"])
def test_every_format_keeps_it(tmp_path, suffix):
    data = log(FULL)
    data.save(tmp_path / f"log{suffix}")
    again = bcrl.load_data(tmp_path / f"log{suffix}")
    assert again.schema == FULL
    assert again.fingerprint() == data.fingerprint() != log(Schema()).fingerprint()
    assert again.select_episodes([0]).schema == FULL


def test_actions_come_and_go_in_the_users_unit():
    np.testing.assert_allclose(FULL.to_unit_box([[0.0], [5.0], [2.5]]), [[-1], [1], [0]])
    np.testing.assert_allclose(FULL.from_unit_box([[-1], [1], [0], [1.001]]), [[0.0], [5.0], [2.5], [5.0]])


def test_a_declared_largest_cost_is_used():
    assert log(FULL).max_cost == 2.0
    assert log(Schema()).max_cost == 1.0
    with pytest.raises(BCRLError, match=r"declared as 0\.5, but cost 0 of a step reaches 1"):
        log(Schema(max_cost=(0.5,)))


def test_labels_need_one_hot_actions():
    labels = Schema(action_labels=("left", "stay", "right"))
    assert log(labels, np.eye(3)[[0, 1, 2, 2, 1, 0]]).schema.discrete
    with pytest.raises(BCRLError, match="1 in one column"):
        log(labels, np.full((6, 3), 0.5))


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"action_names": ("a", "b")}, "action_names has 2 entries, but the log has 1"),
        ({"action_low": (0.0,)}, "action_high 0"),
        ({"action_low": (1.0,), "action_high": (1.0,)}, "low must be below high"),
        ({"action_low": (0.0,), "action_high": (float("inf"),)}, "finite"),
        ({"action_low": (0.0,), "action_high": (10**400,)}, "finite"),
        ({"cost_names": ("",)}, "not empty"),
        ({"observation_names": ("x", "x")}, "twice"),
        ({"max_cost": (0.0,)}, "above 0"),
        ({"units": {"x": 1}}, "texts by name"),
    ],
)
def test_a_schema_that_says_nonsense_is_refused(parts, message):
    with pytest.raises(BCRLError, match=message):
        log(Schema(**parts))


@pytest.mark.parametrize(
    "text", ["[]", '{"colour": 1}', "{", '{"max_cost": "1"}', "[" * 100_000, '{"units": []}']
)
def test_a_damaged_schema_in_a_file_is_one_line(tmp_path, text):
    data = log(Schema())
    np.savez(tmp_path / "log.npz", **data.arrays(), schema=np.array(text))
    with pytest.raises(BCRLError, match="schema"):
        bcrl.load_data(tmp_path / "log.npz")
