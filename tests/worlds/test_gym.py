"""The Gymnasium adapter."""

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from bcrl.worlds import WORLDS, make_world
from bcrl.worlds.gym import WorldEnv, register

IDENTITIES = ["bcrl/PointCircle-v0", "bcrl/PointRun-v0", "bcrl/PointGoal-v0"]


@pytest.mark.parametrize("identity", IDENTITIES)
def test_gymnasium_is_content(identity: str) -> None:
    register()  # a second time does no harm
    check_env(gymnasium.make(identity).unwrapped)  # warnings are errors here


@pytest.mark.parametrize("name", WORLDS)
def test_steps_are_those_of_the_pure_functions(name: str) -> None:
    world = make_world(name, noise=0.1)
    env = WorldEnv(world)
    first, _ = env.reset(seed=7)
    # The adapter's order of keys: one for the start, then one a step.
    chain = jax.random.key(int(np.random.default_rng(np.random.SeedSequence(7)).integers(2**31)))
    chain, key = jax.random.split(chain)
    reset, step, observe = map(jax.jit, (world.reset, world.step, world.observe))
    state = reset(key)
    np.testing.assert_allclose(first, observe(state), atol=1e-6)
    actions = np.random.default_rng(0).uniform(-1, 1, (30, world.action_size)).astype(np.float32)
    for action in actions:
        chain, key = jax.random.split(chain)
        state, reward, cost, terminal = step(state, jnp.asarray(action), key)
        observation, env_reward, env_terminal, truncated, info = env.step(action)
        np.testing.assert_allclose(observation, observe(state), atol=1e-5)
        assert (env_reward, info["cost"]) == pytest.approx((float(reward), float(cost)), abs=1e-4)
        assert (env_terminal, truncated) == (bool(terminal), False)


def test_the_horizon_truncates_and_a_seed_repeats() -> None:
    env = gymnasium.make("bcrl/PointRun-v0", noise=0.2)
    returns = []
    for _ in range(2):
        env.reset(seed=1)
        total, steps, over = 0.0, 0, False
        while not over:
            _, reward, terminal, truncated, _ = env.step(np.array([1.0, 0.0], np.float32))
            total, steps, over = total + float(reward), steps + 1, terminal or truncated
        assert (steps, terminal, truncated) == (200, False, True)
        returns.append(total)
    assert returns[0] == returns[1]
