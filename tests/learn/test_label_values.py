"""V_C and V_R of discrete actions, against what a loop over the labels of each state says."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bcrl.learn import bcrl_labels
from bcrl.learn.batch import Batch
from bcrl.learn.bcrl import BCRL
from bcrl.learn.bcrl_parts import Budgets, Costs
from bcrl.learn.networks import CategoricalPolicy, GaussianPolicy, apply_each, ensemble

ROWS, SIZE, LABELS, SUPPORT = 16, 3, 5, 0.4


@pytest.fixture(params=[1, 2], ids=["one cost", "two costs"])
def made(request) -> tuple[dict[str, Any], dict[str, Any], np.ndarray, np.ndarray]:
    """Networks and targets with random weights, features and slacks."""
    costs, keys = request.param, jax.random.split(jax.random.key(request.param), 4)
    networks = {
        "fallback": CategoricalPolicy(SIZE, LABELS, (8,), 0.1, keys[0]),
        "actor": CategoricalPolicy(SIZE + costs, LABELS, (8,), 0.1, keys[1]),
    }
    targets = {
        "cost_critic": ensemble((SIZE + LABELS, 8, costs), keys[2]),
        "critic": ensemble((SIZE + LABELS + costs, 8, 1), keys[3]),
    }
    rng = np.random.default_rng(0)
    features = rng.normal(size=(ROWS, SIZE)).astype(np.float32)
    return networks, targets, features, rng.exponential(size=(ROWS, costs)).astype(np.float32)


def supported(network: Any, inputs: np.ndarray) -> np.ndarray:
    logs = np.asarray(network(jnp.asarray(inputs)))
    return logs >= logs.max(1, keepdims=True) + np.log(SUPPORT)


def cost_table(targets: dict[str, Any], features: np.ndarray) -> np.ndarray:
    """Q_C (labels, rows, costs)."""
    every = [np.tile(np.eye(LABELS, dtype=np.float32)[a], (ROWS, 1)) for a in range(LABELS)]
    pairs = [jnp.concatenate([features, a], axis=1) for a in every]
    return np.stack([np.asarray(apply_each(targets["cost_critic"], x)).max(0) for x in pairs])


def batch_of(features: np.ndarray) -> Batch:
    seen, one = jnp.asarray(features), jnp.zeros(len(features))
    return Batch(seen, jnp.zeros((len(features), LABELS)), one, one[:, None], seen, one)


def test_the_cheapest_is_the_least_of_the_supported_labels(made):
    networks, targets, features, _ = made
    action, least = BCRL(support=SUPPORT).cheapest(networks, targets, jnp.asarray(features))
    cost, allowed = cost_table(targets, features), supported(networks["fallback"], features)
    assert 0 < allowed.mean() < 1
    for row in range(ROWS):
        wanted = min(np.flatnonzero(allowed[row]), key=lambda a: cost[a, row].sum())
        assert int(np.argmax(action[row])) == wanted
        np.testing.assert_allclose(least[row], cost[wanted, row], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("tracking", ["soft", "direct"])
def test_the_largest_worth_is_that_of_the_label_which_execution_takes(made, tracking):
    networks, targets, features, slack = made
    value = np.full_like(slack, 0.1)
    seen = slack if tracking == "soft" else slack + value
    method = BCRL(support=SUPPORT, tracking=tracking)
    budget = Budgets(jnp.asarray(seen), jnp.zeros_like(seen), jnp.zeros_like(seen))
    costs = Costs(jnp.zeros_like(value), jnp.asarray(value), jnp.zeros_like(value))
    found = method.largest_worth(networks, targets, batch_of(features), budget, costs)
    cost, delta = cost_table(targets, features), slack + value
    good = supported(networks["actor"], np.concatenate([features, np.log1p(seen)], axis=1))
    cheapest, _ = method.cheapest(networks, targets, jnp.asarray(features))
    chosen = 0
    for row in range(ROWS):
        labels = [a for a in range(LABELS) if good[row, a] and np.all(cost[a, row] <= delta[row])]
        chosen += bool(labels)
        worth = []
        for a in labels or [int(np.argmax(cheapest[row]))]:
            shown = delta[row] - cost[a, row] if tracking == "soft" else delta[row]
            x = np.concatenate([features[row], np.eye(LABELS)[a], np.log1p(np.maximum(shown, 0.0))])
            worth.append(np.asarray(apply_each(targets["critic"], jnp.asarray(x, jnp.float32))).min())
        np.testing.assert_allclose(found[row], max(worth), rtol=1e-4, atol=1e-5)
    assert 0 < chosen < ROWS  # both cases occur


def test_of_many_labels_the_most_likely_are_compared(made, monkeypatch):
    networks, targets, features, _ = made
    monkeypatch.setattr(bcrl_labels, "MOST_COMPARED", 2)
    action, _ = BCRL(support=0.0).cheapest(networks, targets, jnp.asarray(features))
    cost = cost_table(targets, features).sum(-1)
    likely = np.argsort(-np.asarray(networks["fallback"](jnp.asarray(features))), axis=1)[:, :2]
    wanted = [min(pair, key=lambda a, row=row: cost[a, row]) for row, pair in enumerate(likely)]
    np.testing.assert_array_equal(np.argmax(action, axis=1), wanted)


def test_only_labels_are_compared_and_only_for_the_expectile():
    labels = {"fallback": CategoricalPolicy(2, 3, (4,), 0.0, jax.random.key(0))}
    numbers = {"fallback": GaussianPolicy(2, 3, (4,), 0.0, jax.random.key(0))}
    assert BCRL().compares(labels, "expectile")
    assert not BCRL().compares(labels, "gumbel")
    assert not BCRL().compares(numbers, "expectile")
    assert not BCRL(label_values="regressed").compares(labels, "expectile")
    # In turn, the policies that say what is supported learn last.
    assert not BCRL(phases="in-turn").compares(labels, "expectile")
