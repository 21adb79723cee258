"""V_C and V_R of discrete actions, against what a loop over the labels of each state says."""

from typing import Any

import jax
import numpy as np
import pytest
from forward import forward, forward_each

from bcrl.learn import bcrl_labels
from bcrl.learn.batch import Batch
from bcrl.learn.bcrl import BCRL
from bcrl.learn.bcrl_parts import Budgets, Costs
from bcrl.learn.networks import CategoricalPolicy, GaussianPolicy, ensemble

ROWS, SIZE, LABELS, SUPPORT = 16, 3, 5, 0.4


@pytest.fixture(params=[1, 2], ids=["one cost", "two costs"])
def made(request) -> tuple[dict[str, Any], dict[str, Any], np.ndarray, np.ndarray]:
    """Networks and targets with random weights, features and slacks."""
    costs = request.param

    @jax.jit
    def make():
        keys = jax.random.split(jax.random.key(costs), 4)
        networks = {
            "fallback": CategoricalPolicy(SIZE, LABELS, (8,), 0.1, keys[0]),
            "actor": CategoricalPolicy(SIZE + costs, LABELS, (8,), 0.1, keys[1]),
        }
        targets = {
            "cost_critic": ensemble((SIZE + LABELS, 8, costs), keys[2]),
            "critic": ensemble((SIZE + LABELS + costs, 8, 1), keys[3]),
        }
        return networks, targets

    networks, targets = make()
    rng = np.random.default_rng(0)
    features = rng.normal(size=(ROWS, SIZE)).astype(np.float32)
    return networks, targets, features, rng.exponential(size=(ROWS, costs)).astype(np.float32)


def supported(network: Any, inputs: np.ndarray) -> np.ndarray:
    logs = np.asarray(forward(network, np.asarray(inputs, np.float32)))
    return logs >= logs.max(1, keepdims=True) + np.log(SUPPORT)


def cost_table(targets: dict[str, Any], features: np.ndarray) -> np.ndarray:
    """Q_C (labels, rows, costs)."""
    every = [np.tile(np.eye(LABELS, dtype=np.float32)[a], (ROWS, 1)) for a in range(LABELS)]
    pairs = [np.concatenate([features, a], axis=1) for a in every]
    return np.stack([np.asarray(forward_each(targets["cost_critic"], x)).max(0) for x in pairs])


def batch_of(features: np.ndarray) -> Batch:
    one = np.zeros(len(features), np.float32)
    return Batch(features, np.zeros((len(features), LABELS), np.float32), one, one[:, None], features, one)


def test_the_cheapest_is_the_least_of_the_supported_labels(made):
    networks, targets, features, _ = made
    cheapest = jax.jit(BCRL(support=SUPPORT).cheapest)
    action, least = map(np.asarray, cheapest(networks, targets, features))
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
    budget = Budgets(seen, np.zeros_like(seen), np.zeros_like(seen))
    costs = Costs(np.zeros_like(value), value, np.zeros_like(value))
    found = jax.jit(method.largest_worth)(networks, targets, batch_of(features), budget, costs)
    cost, delta = cost_table(targets, features), slack + value
    good = supported(networks["actor"], np.concatenate([features, np.log1p(seen)], axis=1))
    cheapest = np.asarray(jax.jit(method.cheapest)(networks, targets, features)[0])
    chosen = 0
    for row in range(ROWS):
        labels = [a for a in range(LABELS) if good[row, a] and np.all(cost[a, row] <= delta[row])]
        chosen += bool(labels)
        worth = []
        for a in labels or [int(np.argmax(cheapest[row]))]:
            shown = delta[row] - cost[a, row] if tracking == "soft" else delta[row]
            x = np.concatenate([features[row], np.eye(LABELS)[a], np.log1p(np.maximum(shown, 0.0))])
            worth.append(np.asarray(forward_each(targets["critic"], np.asarray(x, np.float32))).min())
        np.testing.assert_allclose(np.asarray(found)[row], max(worth), rtol=1e-4, atol=1e-5)
    assert 0 < chosen < ROWS  # both cases occur


def test_of_many_labels_the_most_likely_are_compared(made, monkeypatch):
    networks, targets, features, _ = made
    monkeypatch.setattr(bcrl_labels, "MOST_COMPARED", 2)
    action, _ = jax.jit(BCRL(support=0.0).cheapest)(networks, targets, features)
    cost = cost_table(targets, features).sum(-1)
    likely = np.argsort(-np.asarray(forward(networks["fallback"], features)), axis=1)[:, :2]
    wanted = [min(pair, key=lambda a, row=row: cost[a, row]) for row, pair in enumerate(likely)]
    np.testing.assert_array_equal(np.argmax(np.asarray(action), axis=1), wanted)


def test_only_labels_are_compared_and_only_for_the_expectile():
    labels, numbers = (
        {"fallback": jax.eval_shape(lambda kind=kind: kind(2, 3, (4,), 0.0, jax.random.key(0)))}
        for kind in (CategoricalPolicy, GaussianPolicy)
    )
    assert BCRL().compares(labels, "expectile")
    assert not BCRL().compares(labels, "gumbel")
    assert not BCRL().compares(numbers, "expectile")
    assert not BCRL(label_values="regressed").compares(labels, "expectile")
    # In turn, the policies that say what is supported learn last.
    assert not BCRL(phases="in-turn").compares(labels, "expectile")
