"""On a process small enough for tables, the learned cost critics are the exact τ-expectile fixed point."""

import jax.numpy as jnp
import numpy as np
import pytest
from known_mdp import (
    ACTIONS,
    CODES,
    STATES,
    Table,
    evaluate,
    fixed_point,
    learned_costs,
    least_cost,
    make_log,
)

from bcrl.learn.bcrl import BCRL

GAMMA_COST = 0.8
OMEGA = (1.0, 3.0)


@pytest.mark.slow
@pytest.mark.parametrize(("k", "batch_size"), [(1, 128), (2, 512)])
def test_learned_critics_are_the_fixed_point(k, batch_size):
    data, table = make_log(k)
    omega = np.array(OMEGA[:k])
    method = BCRL(
        tau_c=0.2,
        gamma_cost=GAMMA_COST,
        cost_weights=OMEGA[:k],
        hidden=(32,),
        batch_size=batch_size,
        learning_rate=3e-4,
        target_rate=0.02,
    )
    actor = learned_costs(data, method, steps=8_000)
    value, critic, base = fixed_point(table, GAMMA_COST, 0.2, omega)

    features = actor.normaliser(jnp.eye(STATES))
    learned_value = np.asarray(actor.least_cost(features)).T
    pairs = jnp.repeat(features, ACTIONS, axis=0), jnp.tile(jnp.asarray(CODES, jnp.float32), (STATES, 1))
    learned_critic = np.asarray(actor.cost_to_go(*pairs)).T.reshape(k, STATES, ACTIONS)
    np.testing.assert_allclose(learned_value, value, rtol=0.02)
    np.testing.assert_allclose(learned_critic, critic, rtol=0.02)
    np.testing.assert_allclose(actor.mean_start_value, value @ table.starts, rtol=0.02)

    # It is neither the log's own cost nor the least cost: both are further away than the tolerance.
    assert np.min(fixed_point(table, GAMMA_COST, 0.5, omega)[0] @ table.starts / (value @ table.starts)) > 1.1
    if k == 1:
        assert np.max(least_cost(table, GAMMA_COST) / value[0]) < 0.95
    # With several costs, every V_i is the value of one and the same policy.
    np.testing.assert_allclose(learned_value, evaluate(table, base, GAMMA_COST), rtol=0.02)


def test_the_joint_fixed_point_is_the_value_of_one_policy_and_apart_they_are_not():
    _, table = make_log(2)
    value, _, base = fixed_point(table, GAMMA_COST, 0.2, np.array(OMEGA))
    np.testing.assert_allclose(value, evaluate(table, base, GAMMA_COST), rtol=1e-9)
    apart = [
        fixed_point(
            Table(table.behaviour, table.moves, table.costs[i : i + 1], table.starts), GAMMA_COST, 0.2
        )
        for i in range(2)
    ]
    assert np.abs(apart[0][2] - apart[1][2]).max() > 0.1, "two costs want two policies here"
    # So the joint regression matters: for the first cost by more than the tolerance of the test above.
    assert np.all(value[0] > 1.03 * apart[0][0][0])
    assert np.all(value[1] > 1.005 * apart[1][0][0])


@pytest.mark.parametrize("seed", [7, 0, 1, 2])
def test_the_fixed_point_nears_the_least_cost_as_tau_falls(seed):
    _, table = make_log(1, seed)
    least = least_cost(table, GAMMA_COST)
    values = [fixed_point(table, GAMMA_COST, tau)[0][0] for tau in (0.5, 0.2, 0.05, 0.01, 1e-4)]
    for above, below in zip(values, [*values[1:], least], strict=True):
        assert np.all(above > below)
    np.testing.assert_allclose(values[-1], least, rtol=1e-3)
