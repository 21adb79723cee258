"""The scan: segments do not show in the results, and ended episodes count nothing."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bcrl.assess import rollout
from bcrl.assess.rollout import roll_out, scan, start
from bcrl.worlds._point_circle import PointCircle


class Ending(PointCircle):
    """Every step earns and costs 1; an episode ends after 5 steps if it starts right of the middle."""

    horizon = 23

    def reset(self, key):
        return super().reset(key), jnp.zeros(()), super().reset(key).position[0] > 0

    def observe(self, state):
        return super().observe(state[0])

    def move(self, state, action, key):
        point, *_ = super().move(state[0], action, key)
        after = (point, state[1] + 1, state[2])
        return after, jnp.ones(()), jnp.ones(()), state[2] & (after[1] >= 5)


@pytest.mark.parametrize("segment", [4, 10, 64])
def test_segments_do_not_show(tiny_policy, monkeypatch, segment):
    monkeypatch.setattr(rollout, "SEGMENT", segment)
    found = roll_out(tiny_policy, Ending(), (1.0, 9.0), episodes=4, seed=1)
    assert set(found.lengths.ravel()) == {5, 23}
    np.testing.assert_array_equal(found.lengths[0], found.lengths[1])  # the same starts at every threshold
    np.testing.assert_array_equal(found.costs, found.lengths)
    np.testing.assert_array_equal(found.returns, found.lengths)


class Short(Ending):
    def reset(self, key):
        return (*super().reset(key)[:2], jnp.array(True))


def test_a_batch_whose_episodes_have_all_ended_stops(tiny_policy, monkeypatch):
    monkeypatch.setattr(rollout, "SEGMENT", 4)
    world, keys = Short(), jax.random.split(jax.random.key(0), (23, 3))
    begun = start(tiny_policy.actor, keys[0], tiny_policy.goal(threshold=np.ones(3), horizon=23))
    counted = []
    rows, _ = scan(
        tiny_policy.actor,
        world,
        jax.vmap(world.reset)(keys[0]),
        begun,
        keys,
        tick=lambda n: counted.append(n),
    )
    assert rows.shape == (8, 3, 4)  # two segments of six
    assert rows[..., 2].sum(0).tolist() == [5, 5, 5]
    assert counted == [4, 19]  # the bar is full all the same
