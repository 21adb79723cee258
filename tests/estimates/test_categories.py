"""Columns of a log that are no measurements: categories, constants of an episode, switches."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from speeding import make_log

from bcrl.assess.rollout import scan
from bcrl.data import Dataset
from bcrl.errors import BCRLError
from bcrl.estimates.ensemble import Model, fit_model
from bcrl.estimates.model_world import first_states, member_worlds
from bcrl.estimates.support import Logged
from bcrl.tensors import read_header, write_tensors

STEPS = 10
COLUMNS = 5  # speed, three columns of a category, whether the vehicle is slow


def categorical_log() -> Dataset:
    """The log of speeds with the kind of vehicle, which no step changes, and a switch, which steps change."""
    plain = make_log(episodes=30)
    arrays = plain.arrays()
    kind = np.eye(3, dtype=np.float32)[plain.episode % 3]
    for name in ("observations", "next_observations"):
        arrays[name] = np.concatenate([arrays[name], kind, arrays[name] < 0.3], axis=1, dtype=np.float32)
    return Dataset.from_arrays(arrays, "categories.npz")


@pytest.fixture(scope="module")
def log() -> Dataset:
    return categorical_log()


@pytest.fixture(scope="module")
def model(log) -> Model:
    return fit_model(log, members=2, hidden=(16,), steps=300)


def coasted(model: Model, log: Dataset, sampled: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """First observations, those after each step without throttle, and which steps left the log's range."""
    actor: Any = Logged()
    first = log.initial_observations
    states = first_states(first, np.zeros((len(first), 1)))
    begun = (jnp.zeros((len(first), STEPS, 1)), jnp.zeros(len(first), jnp.int32))
    keys = jax.random.split(jax.random.key(0), (STEPS, len(first)))
    pairs, clipped = scan(actor, member_worlds(model, sampled)[0], states, begun, keys)[1]
    return first, pairs[..., :COLUMNS], clipped


@pytest.mark.parametrize("sampled", [False, True])
def test_a_category_stays_exact_and_never_leaves_the_range(sampled, log, model):
    first, seen, clipped = coasted(model, log, sampled)
    np.testing.assert_array_equal(seen[..., 1:4], np.broadcast_to(first[:, 1:4], seen[..., 1:4].shape))
    assert set(np.unique(seen[..., 4])) == {0.0, 1.0}
    assert not clipped.any()


def test_a_log_of_measurements_has_no_such_columns(speeding_model):
    assert (speeding_model.constant, speeding_model.binary) == ((), ())


def test_files_keep_the_columns_and_older_files_predict_all(log, model, tmp_path):
    file = tmp_path / "log.model"
    model.save(file)
    again = Model.load(file)
    assert (again.constant, again.binary) == ((1, 2, 3), (4,))
    header = read_header(file, "model")
    del header["constant"], header["binary"]
    write_tensors(file, model, header)
    older = dataclasses.replace(model, constant=(), binary=())
    for said, wanted in zip(coasted(Model.load(file), log, False), coasted(older, log, False), strict=True):
        np.testing.assert_array_equal(said, wanted)


@pytest.mark.parametrize("columns", [[5], [-1], [1.0], 3, "ab"], ids=str)
def test_a_damaged_list_of_columns_is_refused(columns, model, tmp_path):
    file = tmp_path / "log.model"
    model.save(file)
    write_tensors(file, model, read_header(file, "model") | {"constant": columns})
    with pytest.raises(BCRLError, match="the header is damaged"):
        Model.load(file)
