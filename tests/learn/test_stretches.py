"""Several steps of the log as one transition: sums, ends, and the critics that are learned from them."""

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from known_mdp import ACTIONS, CODES, STATES, learned_costs, make_log

from bcrl.data import Dataset, blocks, load_data, save_data
from bcrl.errors import BCRLError
from bcrl.learn.bcrl import BCRL
from bcrl.learn.protocol import Normaliser
from bcrl.learn.registry import with_old_values
from bcrl.learn.stretches import stretches
from bcrl.learn.traced import program_key

GAMMA, GAMMA_COST = 0.9, 0.8


def log_of(lengths: list[int], costs: int, *, consecutive: bool = True) -> Dataset:
    rng = np.random.default_rng(sum(lengths))
    ends = np.cumsum(lengths) - 1
    rows = ends[-1] + 1
    ended = np.isin(np.arange(rows), ends)
    terminal = ended & (rng.random(rows) < 0.5)
    states = rng.normal(size=(rows, 2)).astype(np.float32)
    following = np.where(ended[:, None], rng.normal(size=(rows, 2)), np.roll(states, -1, axis=0))
    return Dataset(
        observations=states,
        actions=rng.uniform(-1, 1, (rows, 1)),
        rewards=rng.normal(size=rows),
        costs=rng.random((rows, costs)),
        next_observations=following,
        terminals=terminal,
        timeouts=ended & ~terminal,
        consecutive=consecutive,
    )


@given(
    lengths=st.lists(st.integers(1, 9), min_size=1, max_size=5), n=st.integers(1, 12), costs=st.integers(1, 2)
)
def test_a_stretch_sums_what_follows_inside_its_episode(lengths, n, costs):
    data = log_of(lengths, costs)
    found = stretches(data, n, GAMMA, GAMMA_COST)
    last = np.arange(len(data))[found.last(slice(0, len(data)))]
    for row, end in enumerate(np.repeat(np.cumsum(lengths) - 1, lengths)):
        steps = np.arange(min(n, end - row + 1))
        assert found.lengths[row] == len(steps)
        assert last[row] == row + len(steps) - 1
        np.testing.assert_allclose(found.rewards[row], GAMMA**steps @ data.rewards[row + steps], atol=1e-5)
        np.testing.assert_allclose(
            found.costs[row], GAMMA_COST**steps @ data.costs_2d[row + steps], atol=1e-5
        )


def test_a_batch_has_the_state_after_the_stretch_and_its_length():
    data = log_of([6], 1)
    method = BCRL(n_step=4, gamma=GAMMA, gamma_cost=GAMMA_COST, hidden=(4,), batch_size=64)
    arrays = method.prepare(data, Normaliser(jnp.zeros(2), jnp.ones(2)))
    columns = arrays.rows.split(arrays.rows.table)
    np.testing.assert_array_equal(columns[4], data.next_observations[[3, 4, 5, 5, 5, 5]])
    np.testing.assert_array_equal(columns[5][:, 0], [1, 1] + [1 - data.terminals[5]] * 4)
    np.testing.assert_array_equal(columns[6][:, 0], [4, 4, 4, 3, 2, 1])


def test_one_step_is_the_log_itself():
    data = log_of([5, 3], 1)
    found = stretches(data, 1, GAMMA, GAMMA_COST)
    assert found.rewards is data.rewards
    assert found.last(slice(2, 4)) == slice(2, 4)


def test_rows_that_do_not_follow_one_another_have_no_stretches():
    data = log_of([5], 1, consecutive=False)
    with pytest.raises(BCRLError, match="n_step is 3: use n_step 1"):
        stretches(data, 3, GAMMA, GAMMA_COST)


def test_a_stretch_may_end_in_another_block_of_a_log_on_disk(tmp_path, monkeypatch):
    monkeypatch.setenv("BCRL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 2**7)
    data = log_of([9, 8, 7], 1)
    save_data(data, tmp_path / "log.npz", compressed=False)
    on_disk = load_data(tmp_path / "log.npz", storage="disk")
    method = BCRL(n_step=5, hidden=(4,))
    normaliser = Normaliser(jnp.zeros(2), jnp.ones(2))
    one, other = (method.prepare(log, normaliser).rows.table for log in (data, on_disk))
    assert isinstance(other, np.ndarray)
    np.testing.assert_array_equal(np.asarray(one), other)


@pytest.mark.slow
def test_learned_cost_critics_are_the_fixed_point_over_stretches():
    """Q_C(s, a) is the mean of Σ γ_C^i c + γ_C^n V_C(s_{t+n}), V_C its τ-expectile over the log's actions."""
    data, _ = make_log(1, episodes=200)
    method = BCRL(
        tau_c=0.1,
        n_step=3,
        gamma_cost=GAMMA_COST,
        hidden=(32,),
        batch_size=256,
        learning_rate=3e-4,
        target_rate=0.02,
    )
    actor = learned_costs(data, method, steps=8_000)
    value, critic = tabular_fixed_point(data, 3, 0.1)
    features = actor.normaliser(jnp.eye(STATES))
    pairs = jnp.repeat(features, ACTIONS, axis=0), jnp.tile(jnp.asarray(CODES, jnp.float32), (STATES, 1))
    np.testing.assert_allclose(np.asarray(actor.least_cost(features))[:, 0], value, rtol=0.02)
    learned = np.asarray(actor.cost_to_go(*pairs)).reshape(STATES, ACTIONS)
    np.testing.assert_allclose(learned, critic, rtol=0.02)
    # Over one step the values are others: the test can tell the two apart.
    assert np.abs(tabular_fixed_point(data, 1, 0.1)[0] / value - 1).max() > 0.04


def tabular_fixed_point(data: Dataset, n: int, tau: float) -> tuple[np.ndarray, np.ndarray]:
    """V (S,) and Q (S, A) of the regressions on the log's own rows, by iteration in tables."""
    found = stretches(data, n, GAMMA, GAMMA_COST)
    last = np.arange(len(data))[found.last(slice(0, len(data)))]
    state = data.observations.argmax(1)
    action = np.array([np.abs(CODES - row).sum(1).argmin() for row in data.actions])
    after, goes_on = data.next_observations[last].argmax(1), 1.0 - data.terminals[last]
    count = np.zeros((STATES, ACTIONS))
    np.add.at(count, (state, action), 1)
    value = np.zeros(STATES)
    for _ in range(300):
        target = found.costs[:, 0] + GAMMA_COST**found.lengths * goes_on * value[after]
        critic = np.zeros((STATES, ACTIONS))
        np.add.at(critic, (state, action), target)
        critic /= count
        for _ in range(60):
            weight = count * np.where(critic < value[:, None], 1 - tau, tau)
            value = (weight * critic).sum(1) / weight.sum(1)
    return value, critic


def test_another_n_is_another_program():
    assert program_key(BCRL(n_step=7)) != program_key(BCRL())
    assert program_key(BCRL(gamma=0.9)) != program_key(BCRL()), "sums of rewards are made before training"


@pytest.mark.parametrize(("options", "words"), [({"n_step": 0}, "n_step"), ({"n_step": 500}, "less than 1%")])
def test_stretches_that_leave_nothing_to_bootstrap_are_refused(options, words):
    with pytest.raises(BCRLError, match=words):
        BCRL(**options)


def test_one_step_leaves_every_discount_of_cost():
    assert BCRL(gamma_cost=0.001).discount_cost == 0.001


def test_files_from_before_have_one_step():
    assert with_old_values({}, BCRL)["n_step"] == 1
    assert with_old_values({"n_step": 5}, BCRL)["n_step"] == 5
