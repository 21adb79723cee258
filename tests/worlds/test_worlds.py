"""What every world promises, whatever it is about."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from optimised import optimised

from bcrl.errors import BCRLError
from bcrl.worlds import WORLDS, JaxWorld, World, as_world, make_world
from bcrl.worlds.gym import WorldEnv


@pytest.fixture(params=WORLDS)
def world(request: pytest.FixtureRequest) -> JaxWorld:
    return make_world(request.param)


def play(world: JaxWorld, key: jax.Array, policy) -> tuple[jax.Array, ...]:
    """Observations, rewards, costs and terminals of one episode under `policy(observation, key)`."""
    start, moves = jax.random.split(key)

    def step(state, key):
        act, move = jax.random.split(key)
        state, *rest = world.step(state, policy(world.observe(state), act), move)
        return state, (world.observe(state), *rest)

    return jax.lax.scan(step, world.reset(start), jax.random.split(moves, world.horizon))[1]


def random_policy(world: JaxWorld):
    # Larger than the box, so that clipping matters and the walls are reached.
    return lambda observation, key: 3.0 * jax.random.normal(key, (world.action_size,)) + 0.5


@cache
def play_many(world: JaxWorld):
    return jax.jit(jax.vmap(lambda key: play(world, key, random_policy(world))))


def thousands(world: JaxWorld) -> tuple[jax.Array, ...]:
    with optimised():
        return play_many(world)(jax.random.split(jax.random.key(0), 2000))


played = cache(thousands)


def test_one_step_has_the_promised_shapes(world: JaxWorld) -> None:
    key = jax.random.key(0)
    state = jax.eval_shape(world.reset, key)
    assert jax.eval_shape(world.observe, state).shape == (world.observation_size,)
    following, reward, cost, terminal = jax.eval_shape(world.step, state, jnp.zeros(world.action_size), key)
    assert jax.tree.map(jnp.shape, following) == jax.tree.map(jnp.shape, state)
    assert reward.shape == cost.shape == terminal.shape == ()
    assert terminal.dtype == bool
    assert world.cost_count == 1


def test_thousands_of_episodes_at_once_stay_finite_and_bounded(world: JaxWorld) -> None:
    observations, rewards, costs, terminals = played(world)
    assert observations.shape == (2000, world.horizon, world.observation_size)
    assert np.isfinite(rewards).all()
    assert np.abs(observations).max() <= world.observation_bound
    assert set(np.unique(costs)) == {0.0, 1.0}
    assert not terminals.any()


def test_the_hardest_pushes_stay_within_the_observation_bound(world: JaxWorld) -> None:
    corners = jnp.array([[1.0, 1.0], [1.0, 0.0], [-1.0, 1.0], [-1.0, 0.0], [0.0, -1.0]])
    pushed = jax.jit(jax.vmap(lambda action: play(world, jax.random.key(0), lambda *_: action)[0]))
    assert np.abs(pushed(corners)).max() <= world.observation_bound


def test_an_episode_is_a_pure_function_of_its_key(world: JaxWorld) -> None:
    first, again = played(world), thousands(world)
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert not np.array_equal(first[0][0], first[0][1])


def test_noise_makes_moves_random_and_only_noise_does(world: JaxWorld) -> None:
    def positions(world: JaxWorld) -> np.ndarray:
        @jax.jit
        def step(keys):
            state = world.reset(jax.random.key(0))
            action = jnp.full(world.action_size, 0.2)
            return jax.vmap(lambda key: world.observe(world.step(state, action, key)[0]))(keys)

        return np.asarray(step(jax.random.split(jax.random.key(1), 50)))

    assert np.ptp(positions(world), axis=0).max() == 0.0
    assert np.ptp(positions(make_world(world.name, noise=0.1)), axis=0).max() > 1e-3


def test_actions_are_clipped(world: JaxWorld) -> None:
    @jax.jit
    def after(push):
        state = world.reset(jax.random.key(0))
        return world.observe(world.step(state, jnp.full(world.action_size, push), jax.random.key(1))[0])

    far, edge = after(50.0), after(1.0)
    assert np.array_equal(far, edge)


def test_worlds_are_values(world: JaxWorld) -> None:
    same, noisy = make_world(world.name), make_world(world.name, noise=0.1)
    assert same == world
    assert hash(same) == hash(world)
    assert noisy != world
    assert not jax.tree.leaves(world)


def test_reference_returns_are_zero_and_one(world: JaxWorld) -> None:
    assert np.allclose(world.normalise(np.array(world.reference_returns)), [0.0, 1.0])


def test_unknown_names_and_bad_noise_are_told() -> None:
    with pytest.raises(BCRLError, match="point-circle, point-run, point-goal"):
        make_world("point-square")
    for noise in (-0.1, float("nan"), float("inf")):
        with pytest.raises(BCRLError, match="noise"):
            make_world("point-run", noise)


def test_every_kind_of_world_satisfies_the_protocol():
    members = [name for name in vars(World) if not name.startswith("_")]
    assert {"engine", "label", "reference_returns", "normalise", "check", "caveat", "data_file"} <= set(
        members
    )
    kinds = [make_world("point-run"), make_world("BallCircle"), as_world(WorldEnv("point-goal"))]
    for kind in kinds:
        for name in members:
            assert getattr(kind, name) is not None or name == "reference_returns", (kind.name, name)
    assert [kind.engine for kind in kinds] == ["scan", "pool", "pool"]
    assert np.isnan(kinds[-1].normalise(3.0))
    assert make_world("point-run", 0.5).label == "point-run noise 0.5"
