"""Policy files that nobody trained, and numbers beyond float32, in the numpy runtime and in JAX."""

import json
import struct
import sys
from pathlib import Path

import numpy as np
import pytest
from policy_bytes import parts, split, write

import bcrl
from bcrl import runtime
from bcrl.errors import BCRLError

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from runtime_agreement import CASES, make_policy


@pytest.fixture(scope="module")
def path(tmp_path_factory) -> Path:
    place = tmp_path_factory.mktemp("runtime") / "policy.bcrl"
    make_policy(CASES[0], (8,)).save(place)
    return place


@pytest.mark.filterwarnings("ignore:cost is 3e")
def test_sums_beyond_float32_are_no_warning(path):
    """Other warnings are errors here."""
    episode = runtime.load(path).start(threshold=3e38, out_of_range="ignore")
    for _ in range(3):
        assert np.isfinite(episode.act(np.zeros(5))).all()
        episode.observe(3e38)
    assert episode.fallback


def test_more_labels_than_can_be_compared_are_refused(path, tmp_path):
    header, tensors = split(path.read_bytes())
    header["spec"] |= {"discrete": True, "action_size": 60_000}
    write(tmp_path / "p.bcrl", header, tensors)
    for load in (runtime.load, bcrl.load):
        with pytest.raises(BCRLError, match="action_size is 60000, but there may be 4,096 labels at most"):
            load(tmp_path / "p.bcrl")


@pytest.mark.parametrize(
    ("name", "odd"),
    [
        (".mean_start_value", {"shape": [True]}),
        (".mean_start_value", {"shape": [1.0]}),
        (".actor.trunk.biases[0]", {"data_offsets": [False, 32]}),
        (".actor.trunk.biases[0]", {"data_offsets": [0.0, 32]}),
        (".actor.trunk.biases[0]", {"more": float("nan")}),
    ],
)
def test_places_in_the_file_are_whole_numbers(name, odd, path, tmp_path):
    table, body = parts(path.read_bytes())
    table[name] |= odd
    text = json.dumps(table).encode()
    (tmp_path / "p.bcrl").write_bytes(struct.pack("<Q", len(text)) + text + body)
    for load in (runtime.load, bcrl.load):
        with pytest.raises(BCRLError, match="not a readable bcrl policy"):
            load(tmp_path / "p.bcrl")


@pytest.mark.parametrize(
    "schema",
    [
        {"action_names": ["a", 0.5, "c"]},
        {"action_names": ["a", "", "c"]},
        {"action_names": ["a", "b", "a"]},
        {"action_names": ["a", [], "c"]},
        {"max_cost": [0]},
        {"max_cost": ["x"]},
        {"units": {"a": 5}},
        {"units": ["m"]},
    ],
)
def test_a_schema_that_says_nothing_is_refused(schema, path, tmp_path):
    header, tensors = split(path.read_bytes())
    write(tmp_path / "p.bcrl", header | {"schema": schema}, tensors)
    for load in (runtime.load, bcrl.load):
        with pytest.raises(BCRLError, match="damaged"):
            load(tmp_path / "p.bcrl")


def test_whole_units_beyond_int32_are_numbers(path, tmp_path):
    header, tensors = split(path.read_bytes())
    header["units"] = {"cost": [10**30], "reward": 10**20}
    write(tmp_path / "p.bcrl", header, tensors)
    for load in (runtime.load, bcrl.load):
        assert load(tmp_path / "p.bcrl").units is not None
