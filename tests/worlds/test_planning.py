"""The cross-entropy search over plans, where the best is known."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bcrl.errors import BCRLError
from bcrl.worlds import built_in_world
from bcrl.worlds.planning import Outcome, Search, _order, interpolate, plan_episodes, search_plan

NOTHING = jnp.zeros(())


def test_plans_are_compared_by_goal_then_cost_then_value():
    found = Outcome(
        missed=jnp.array([1.0, 0.0, 0.0, 0.0, 0.0]),
        excess=jnp.array([[0.0, 0.0], [1.0, 0.0], [0.0, 2.0], [0.0, 1.0], [0.0, 1.0]]),
        value=jnp.array([9.0, 8.0, 7.0, 5.0, 6.0]),
    )
    assert _order(found).tolist() == [4, 3, 2, 1, 0]


def test_knots_are_joined_by_straight_lines():
    knots = jnp.array([[0.0, 4.0], [2.0, 2.0], [2.0, 0.0]])
    found = interpolate(knots, jnp.array([0.0, 0.25, 0.5, 0.75, 1.0]))
    np.testing.assert_allclose(found, [[0, 4], [1, 3], [2, 2], [2, 1], [2, 0]])
    np.testing.assert_allclose(interpolate(knots, jnp.array(0.25)), [1, 3])
    assert interpolate(knots[:, 0], jnp.array(0.25)) == 1


@pytest.mark.parametrize(("allowed", "wanted"), [(0.5, 0.5), (3.0, 1.0)])
def test_a_constrained_optimum_is_found(allowed, wanted):
    """The largest -|x - 1|² with x₀ of at most `allowed`."""

    def outcome(plan):
        return Outcome(NOTHING, jnp.maximum(plan[:1] - allowed, 0.0), -jnp.sum((plan - 1.0) ** 2))

    best, found = search_plan(outcome, jnp.zeros((1, 3)), jnp.ones(3), jax.random.key(0), Search())
    assert found.excess[0] == 0
    np.testing.assert_allclose(best, [wanted, 1, 1], atol=0.05)


def test_no_start_is_better_than_what_is_found():
    def outcome(plan):
        return Outcome(NOTHING, jnp.zeros(1), -jnp.abs(plan - 50.0).sum())

    starts = jnp.array([[0.0], [50.0]])
    quick = Search(population=4, elites=2, iterations=1, restarts=1)
    best, found = search_plan(outcome, starts, jnp.ones(1), jax.random.key(0), quick)
    assert (best[0], found.value) == (50.0, 0.0)


def test_a_point_that_runs_spends_its_budget_on_a_burst():
    """Legal speed throughout earns 1.2 a step; 40 last steps at full throttle earn up to 3.5 each."""
    world = built_in_world("point-run")

    def follow(state, speed):
        throttle = ((speed[0] - state.speed) / 0.1 + state.speed) / 3.5
        return jnp.stack([throttle, 5.0 * (-jnp.clip(state.offset, -0.5, 0.5) - state.heading)])

    def start(threshold):
        return np.where(np.linspace(0, 200, 41) > 200 - threshold, 3.5, 1.18)[:, None]

    how = Search(population=16, elites=4, iterations=8, restarts=1)
    bought = plan_episodes(world, follow, start, 0.1, (40.0, 0.0), episodes=2, how=how)
    assert (bought.costs[1] == 0).all()
    assert (bought.costs[0] <= 40).all()
    speed, burst = 1.2, 0.0
    for _ in range(40):
        speed += 0.1 * (3.5 - speed)
        burst += speed
    assert (bought.returns[1] > 0.95 * 1.2 * 200).all()
    assert (bought.returns[1] < 1.2 * 200).all()
    most = 1.2 * 160 + burst
    assert ((0.95 * most < bought.returns[0]) & (bought.returns[0] < most)).all()
    with pytest.raises(BCRLError, match="without noise"):
        plan_episodes(built_in_world("point-run", 0.1), follow, start, 0.1, (40.0,))
