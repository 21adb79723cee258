"""The simulator against a plain one, its masks, its quirks, and its manners as a world."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ship_maker import BOX, sea, straight

from bcrl.errors import BCRLError
from bcrl.ship import ORIGINAL, Quirks, ShipWorld, make_ship_world
from bcrl.ship._simulator import ShipState
from bcrl.worlds.gym import WorldEnv

KEY = jax.random.key(0)


class Plain:
    """One episode in plain numpy, straight from the tracks: no scene, no slots, no jit."""

    def __init__(self, scenarios, scenario, frame):
        self.sea, self.frame = scenarios, frame
        self.track = scenarios.track[scenario]
        self.expert = scenarios.expert(scenario).astype(float)
        self.goal = self.expert[-1, :2]
        speed, heading = self.expert[0, 2:]
        self.own = [(*self.expert[0, :2], speed * np.cos(heading), speed * np.sin(heading), heading)]

    def sample(self, track, moment):
        """The sample of a track at a moment, or None."""
        index = moment - self.sea.first[track]
        low, high = self.sea.offsets[track : track + 2]
        return self.sea.samples[low + index].astype(float) if 0 <= index < high - low else None

    def others(self, moment):
        """(metres, ship, sample) of the other ships at a moment, nearest first."""
        found = []
        for track in range(len(self.sea.first)):
            sample = self.sample(track, moment)
            if sample is not None and self.sea.ship[track] != self.sea.ship[self.track]:
                found.append((np.hypot(*(sample[:2] - self.own[-1][:2])), self.sea.ship[track], sample))
        return sorted(found, key=lambda row: row[0])

    @property
    def moment(self):
        return self.sea.first[self.track] + len(self.own) - 1

    @property
    def axes(self):
        if self.frame == "world":
            return np.eye(2)
        x, y = (self.goal - self.own[-1][:2]) / np.hypot(*(self.goal - self.own[-1][:2]))
        return np.array([[x, y], [-y, x]])

    def step(self, action):
        way = self.axes.T @ (200.0 * action[:2])
        here = np.array(self.own[-1])
        heading = (here[4] + np.pi * action[2]) % (2 * np.pi)
        self.own.append((*(here[:2] + way), *(way / 10), heading))
        place = np.array(self.own[-1][:2])
        others = self.others(self.moment)
        reached = np.hypot(*(place - self.goal)) < 200
        outside = (place < 0).any() or (place > np.array(BOX.size)).any()
        late = len(self.own) - 1 >= 2 * (len(self.expert) - 1)
        close = bool(others) and others[0][0] < 555
        return 100.0 * reached, float(close), reached or outside or late

    def observe(self):
        here = np.array(self.own[-1][:2])
        rows = np.zeros((11, 5, 5))
        for back in range(5):
            if len(self.own) > back:
                x, y, east, north, heading = self.own[-1 - back]
                rows[0, 4 - back] = self.show(np.array([x, y]), np.array([east, north]), heading, here)
        for number, (_, ship, _) in enumerate(self.others(self.moment)[:10]):
            for back in range(5):
                past = [
                    self.sample(track, self.moment - back)
                    for track in np.flatnonzero(self.sea.ship == ship)
                    if self.sample(track, self.moment - back) is not None
                ]
                if past:
                    x, y, speed, heading = past[0]
                    motion = speed * np.array([np.cos(heading), np.sin(heading)])
                    rows[1 + number, 4 - back] = self.show(np.array([x, y]), motion, heading, here)
        if self.frame == "world":
            return np.concatenate([rows.ravel(), self.goal / 1000])
        metres = np.hypot(*(self.goal - here))
        return np.concatenate(
            [rows.ravel(), [metres / 1000, np.exp(-metres / 1000)], here / 1000, self.axes[0]]
        )

    def show(self, place, motion, heading, here):
        if self.frame == "world":
            return [*(place / 1000), np.hypot(*motion) / 10, heading, 1]
        return [*(self.axes @ (place - here) / 1000), *(self.axes @ motion / 10), 1]


step = eqx.filter_jit(lambda world, state, action: world.step(state, jnp.asarray(action, jnp.float32), KEY))
observe = eqx.filter_jit(lambda world, state: world.observe(state))
traffic_of = eqx.filter_jit(lambda world, state: world.traffic(state))
begin = eqx.filter_jit(lambda world, scenario: world.begin(jnp.asarray(scenario)))


@eqx.filter_jit
def both(world, state, action):
    after, reward, cost, terminal = step(world, state, action)
    return observe(world, state), after, reward, cost, terminal


@pytest.mark.parametrize("frame", ["ego", "world"])
def test_the_same_as_a_plain_simulator(small_sea, frame):
    world = make_ship_world(small_sea, frame=frame)
    random = np.random.default_rng(3)
    steps = 0
    for scenario in random.permutation(len(small_sea))[:12]:
        plain = Plain(small_sea, scenario, frame)
        state = begin(world, scenario)
        ended = False
        while not ended and len(plain.own) < 40:
            action = np.clip(random.normal([0.25, 0.0, 0.0], 0.3), -1, 1)
            wanted = plain.observe()
            reward, cost, ended = plain.step(action)
            seen, state, *judged = both(world, state, jnp.asarray(action, jnp.float32))
            np.testing.assert_allclose(seen, wanted, atol=2e-5)
            assert [float(x) for x in judged] == [reward, cost, ended]
            np.testing.assert_allclose(state.past[-1, :4], plain.own[-1][:4], atol=2e-2)
            steps += 1
    assert steps > 100


def test_many_episodes_are_each_alone_and_jit_is_eager(small_sea):
    world = make_ship_world(small_sea)
    scenarios = jnp.arange(6)
    actions = jax.random.uniform(KEY, (6, 3), minval=-1.0, maxval=1.0)

    def run(scenario, action):
        state, *judged = world.step(world.begin(scenario), action, KEY)
        return world.observe(state), *judged

    together = jax.jit(jax.vmap(run))(scenarios, actions)
    jitted = jax.jit(run)
    for k in range(6):
        for one, many in zip(jitted(scenarios[k], actions[k]), together, strict=True):
            np.testing.assert_allclose(one, many[k], atol=1e-5)
    for eager, many in zip(run(scenarios[0], actions[0]), together, strict=True):
        np.testing.assert_allclose(eager, many[0], atol=1e-5)


def lane(neighbour, first=100, steps=40):
    """Ship 0 sails east along y = 3000 from x = 1000; a neighbour track; and the same again an hour later."""
    own = straight((1000, 3000), (5, 0), steps)
    return sea((0, first, own), (1, *neighbour), (0, first + 3600, own), scenarios=(0, 2))


def test_absent_ships_are_marked_absent_and_zeros_are_not_enough():
    """A ship at rest in the very corner looks like nothing at all when absence is told by zeros."""
    corner = np.zeros((41, 4), np.float32)
    here = lane((100, corner))
    masked = make_ship_world(here, frame="world")
    zeros = make_ship_world(here, frame="world", quirks=Quirks(padding="zeros"))
    with_ship, without = (observe(masked, begin(masked, k)) for k in (0, 1))
    rows = with_ship[:-2].reshape(11, 5, 5)
    assert rows[1, -1].tolist() == [0, 0, 0, 0, 1]
    assert (rows[1, :-1] == 0).all(), "the ship was not there before"
    assert (rows[2:] == 0).all()
    assert (without[:-2].reshape(11, 5, 5)[1:] == 0).all()
    assert masked.observation_size == 277
    assert zeros.observation_size == 222
    np.testing.assert_array_equal(*(observe(zeros, begin(zeros, k)) for k in (0, 1)))


def test_a_neighbour_that_comes_and_goes_is_seen_for_as_long_as_it_is_there():
    here = lane((102, straight((1000, 3400), (5, 0), 3)))
    world = make_ship_world(here)
    state, present = begin(world, 0), []
    for _ in range(8):
        traffic = traffic_of(world, state)
        present.append(traffic.seen[0].astype(int).tolist())
        assert not traffic.seen[1:].any()
        assert np.isinf(traffic.metres[1:]).all()
        state, *_ = step(world, state, jnp.array([0.25, 0.0, 0.0]))
    gone = [0] * 5
    assert present == [
        gone,
        gone,
        [0, 0, 0, 0, 1],
        [0, 0, 0, 1, 1],
        [0, 0, 1, 1, 1],
        [0, 1, 1, 1, 1],
        gone,
        gone,
    ]


def test_a_ship_is_no_neighbour_of_itself_even_after_its_log_has_ended():
    """The ship's next track begins near its goal while the policy is still on the way."""
    own, later = straight((1000, 3000), (5, 0), 20), straight((2000, 3000), (5, 0), 40)
    world = make_ship_world(sea((0, 100, own), (0, 125, later)))
    state = begin(world, 0)
    for _ in range(30):
        state, _, cost, _ = step(world, state, jnp.array([0.1, 0.0, 0.0]))
        assert not cost
        assert np.isinf(world.nearest(state))


def test_a_slot_that_is_used_again_does_not_mix_two_ships():
    first, second = straight((1000, 3400), (5, 0), 3), straight((1500, 2600), (5, 0), 30)
    own = straight((1000, 3000), (5, 0), 40)
    here = sea((0, 100, own), (1, 100, first), (2, 104, second), (0, 4000, own), scenarios=(0, 3))
    world = make_ship_world(here)
    assert int((world.scene[..., 4] >= 0).any(0).sum()) == 2
    state = begin(world, 0)
    for _ in range(5):
        state, *_ = step(world, state, jnp.array([0.25, 0.0, 0.0]))
    assert traffic_of(world, state).seen[0].astype(int).tolist() == [0, 0, 0, 1, 1]


# The ends of an episode.


def test_the_goal_pays_a_hundred_and_ends_the_episode():
    world = make_ship_world(lane((100, straight((1000, 100), (1, 0), 40))))
    state = begin(world, 0)  # the goal is 2000 m ahead
    for count in range(1, 10):
        state, reward, cost, ended = step(world, state, jnp.array([1.0, 0.0, 0.0]))
        assert (float(reward), bool(ended)) == ((100.0, True) if count == 10 else (0.0, False))
        assert not cost
    # At 200 m sharp the goal is not reached; the next metre reaches it.
    assert float(world.to_goal(state)) == pytest.approx(200, abs=1e-3)
    _, reward, _, ended = step(world, state, jnp.array([0.01, 0.0, 0.0]))
    assert reward == 100
    assert ended


def test_outside_the_box_and_after_the_limit_it_ends_without_a_reward():
    here = lane((100, straight((1000, 100), (1, 0), 40)))
    world = make_ship_world(here)
    state = begin(world, 0)
    for count in range(1, 17):  # 3000 m to the southern edge, the axes turn with the goal
        way = jnp.array([0.0, -200.0]) @ world.axes(state).T / 200.0
        state, reward, _, ended = step(world, state, jnp.append(way, 0.0))
        assert not reward
        assert bool(ended) == (count == 16)
    assert world.limit.tolist() == [80, 80]
    short = make_ship_world(here, limit=3)
    state = begin(short, 0)
    ends = []
    for _ in range(3):
        state, reward, _, ended = step(short, state, jnp.zeros(3))
        ends.append(bool(ended))
        assert not reward
    assert ends == [False, False, True]


# The quirks of the original, each by hand.


def test_quirk_alone_counts_as_close():
    here = sea((0, 100, straight((1000, 3000), (5, 0), 40)), (0, 5000, straight((1000, 3000), (5, 0), 40)))
    for alone, wanted in (("far", 0.0), ("close", 1.0)):
        world = make_ship_world(here, quirks=Quirks(alone=alone))
        _, _, cost, _ = step(world, begin(world, 0), jnp.array([0.25, 0.0, 0.0]))
        assert cost == wanted


def test_quirk_cost_looks_before_or_after_the_step():
    """Abreast at 540 m; the neighbour sails away at 5 m/s, so that after the step it is 590 m off."""
    here = lane((100, straight((1000, 3540), (5, 5), 40)))
    for timing, wanted in (("after", 0.0), ("before", 1.0)):
        world = make_ship_world(here, frame="world", quirks=Quirks(cost_timing=timing))
        _, _, cost, _ = step(world, begin(world, 0), jnp.array([0.25, 0.0, 0.0]))
        assert cost == wanted


def test_quirk_first_state_twice():
    here = lane((100, straight((1000, 3400), (5, 0), 40)))
    for twice, wanted in ((False, [0, 0, 0, 0, 1]), (True, [0, 0, 0, 1, 1])):
        world = make_ship_world(here, frame="world", quirks=Quirks(first_twice=twice))
        state = begin(world, 0)
        rows = observe(world, state)[:-2].reshape(11, 5, 5)
        assert rows[0, :, 4].tolist() == wanted
        np.testing.assert_allclose(rows[0, -1, :4], [1.0, 3.0, 0.5, 0.0], atol=1e-6)
        np.testing.assert_array_equal(rows[0, -2, :4], rows[0, -1, :4] * twice)
        # After four steps both have the same five rows, after three the doubled one has one more.
        for _ in range(4):
            state, *_ = step(world, state, jnp.array([0.25, 0.0, 0.0]))
        assert world.own_past(state).all()


def test_quirk_reward_of_the_repository():
    here = lane((100, straight((1000, 100), (1, 0), 40)))
    world = make_ship_world(here, frame="world", limit=3, quirks=Quirks(reward="repository"))
    state = begin(world, 0)
    rewards = []
    for _ in range(3):
        state, reward, *_ = step(world, state, jnp.zeros(3))
        rewards.append(float(reward))
    assert rewards == [0, 0, -100]
    near = state._replace(step=jnp.asarray(0), past=state.past.at[-1, :2].set(jnp.array([2700.0, 3000.0])))
    assert step(world, near, jnp.array([1.0, 0.0, 0.0]))[1] == 1


def test_quirk_limits_of_an_action():
    here = lane((100, straight((1000, 3400), (5, 0), 40)))
    for limits, wanted in (
        ("speed", (200.0, 200.0, np.pi)),
        ("box", (BOX.size[0] / 20, BOX.size[1] / 20, np.pi / 2)),
    ):
        world = make_ship_world(here, frame="world", quirks=Quirks(limits=limits))
        state = begin(world, 0)
        after, *_ = step(world, state, jnp.array([1.0, -0.5, 1.0]))
        moved = after.past[-1, jnp.array([0, 1, 4])] - state.past[-1, jnp.array([0, 1, 4])]
        np.testing.assert_allclose(moved, np.array(wanted) * [1, -0.5, 1], rtol=1e-5)


def test_the_original_is_all_quirks_at_once():
    defaults = Quirks()
    assert all(getattr(ORIGINAL, name) != getattr(defaults, name) for name in vars(defaults))


# As a world among worlds.


def test_actions_there_and_back(small_sea):
    for frame in ("ego", "world"):
        world = make_ship_world(small_sea, frame=frame)
        state = begin(world, 1)
        for action in ([0.3, -0.2, 0.4], [-1.0, 0.5, -0.9], [0.0, 0.0, 0.0]):
            after, *_ = step(world, state, jnp.array(action))
            back = world.action_between(state, after.past[-1, :2], after.past[-1, 4])
            np.testing.assert_allclose(back, action, atol=1e-5)
            state = after


def test_reset_draws_from_the_chosen_scenarios(small_sea):
    world = make_ship_world(small_sea, among=np.array([2, 5]))
    drawn = jax.vmap(world.reset)(jax.random.split(KEY, 64))
    assert set(drawn.scenario.tolist()) == {2, 5}
    assert isinstance(drawn, ShipState)
    default = make_ship_world(small_sea)
    assert default.among.tolist() == small_sea.evaluation.tolist()
    assert default.horizon == 2 * small_sea.steps[small_sea.evaluation].max()


@pytest.mark.parametrize("among", [np.array([], int), np.array([-1]), np.array([10_000])])
def test_scenarios_that_are_not_there_are_refused(small_sea, among):
    with pytest.raises(BCRLError, match="numbered 0 to"):
        make_ship_world(small_sea, among=among)
    with pytest.raises(BCRLError, match="limit is 0"):
        make_ship_world(small_sea, limit=0)


def test_the_gymnasium_adapter_takes_it(small_sea):
    env = WorldEnv(make_ship_world(small_sea))
    observation, _ = env.reset(seed=3)
    assert env.observation_space.contains(observation)
    total = 0.0
    for _ in range(env.world.horizon):
        observation, reward, terminated, truncated, info = env.step(np.array([0.9, 0.0, 0.0], np.float32))
        assert env.observation_space.contains(observation)
        assert info["cost"] in (0.0, 1.0)
        total += reward
        if terminated or truncated:
            break
    assert total == 100.0, "full speed straight at the goal gets there"


def test_noise_moves_the_ship(small_sea):
    still, shaken = (make_ship_world(small_sea, noise=noise) for noise in (0.0, 0.1))
    state = begin(still, 0)
    assert isinstance(still, ShipWorld)
    assert (step(still, state, jnp.zeros(3))[0].past[-1, :2] == state.past[-1, :2]).all()
    assert not (step(shaken, state, jnp.zeros(3))[0].past[-1, :2] == state.past[-1, :2]).any()
