"""Varied tracks: where they begin and end, what they may not do, and the log that has them."""

import numpy as np
import pytest

from bcrl.errors import BCRLError
from bcrl.ship import expert_log, make_ship_world
from bcrl.ship._log import at_other_times
from bcrl.ship._rule import MAX_SPEED, SECONDS
from bcrl.ship._scene import ABSENT, HISTORY
from bcrl.ship._vary import varied_tracks


@pytest.fixture(scope="module")
def tracks(small_sea):
    return [small_sea.expert(scenario) for scenario in small_sea.training]


def test_a_variation_has_the_experts_start_and_goal_and_another_way(small_sea, tracks):
    for track, varied in zip(2 * tracks, varied_tracks(tracks, 2, small_sea.box.size), strict=True):
        np.testing.assert_array_equal(varied[0], track[0])
        np.testing.assert_allclose(varied[-1, :2], track[-1, :2], atol=1e-2)
        assert len(varied) - 1 < 2 * (len(track) - 1), "it arrives within the limit of the episode"
        place, step = varied[:, :2].astype(float), np.diff(varied[:, :2].astype(float), axis=0)
        assert (place >= 0).all()
        assert (place <= small_sea.box.size).all()
        metres = np.hypot(*step.T)
        assert metres.max() <= MAX_SPEED * SECONDS + 1e-2
        np.testing.assert_allclose(varied[1:, 2], metres / SECONDS, atol=1e-2)
        moved = metres > 1
        ahead = np.stack([np.cos(varied[1:, 3]), np.sin(varied[1:, 3])], axis=1)
        np.testing.assert_allclose(ahead[moved] * metres[moved, None], step[moved], atol=0.5)


def test_variations_differ_from_the_expert_and_from_each_other(small_sea, tracks):
    first, second = np.array_split(np.arange(2 * len(tracks)), 2)
    found = varied_tracks(tracks, 2, small_sea.box.size)
    for track, one, other in zip(tracks, first, second, strict=True):
        assert not np.array_equal(found[one], track)
        assert not np.array_equal(found[one], found[other])
    for again, track in zip(varied_tracks(tracks, 2, small_sea.box.size), found, strict=True):
        np.testing.assert_array_equal(again, track)


def test_a_variation_keeps_near_the_experts_time(small_sea, tracks):
    """Its pace has no wave longer than half the track, so it does not run ahead for good."""
    long = [track for track in tracks if len(track) > 60]
    found = varied_tracks(long, 8, small_sea.box.size)
    ratio = np.array([len(varied) / len(track) for track, varied in zip(8 * long, found, strict=True)])
    assert 0.95 < np.exp(np.log(ratio).mean()) < 1.15
    assert np.log(ratio).std() < 0.15
    speeds = [varied[1:, 2].std() / varied[1:, 2].mean() for varied in found]
    assert np.mean(speeds) > 0.2, "though its speed changes along the way"


def test_variations_sail_among_the_traffic_of_other_times_of_the_same_experts(small_sea):
    which = small_sea.training[::10]
    world = make_ship_world(small_sea, among=which)
    steps = np.tile(small_sea.steps[which], 20)
    longer, numbers = at_other_times(world, small_sea, which, steps)
    np.testing.assert_array_equal(longer.moment[: len(small_sea)], world.moment)
    begin = np.asarray(longer.moment)[numbers]
    first, own = np.asarray(world.moment)[which], np.asarray(world.moment)[np.tile(which, 20)]
    assert len(np.unique(begin)) > 60
    assert (begin != own).mean() > 0.9
    assert (begin + steps).max() <= (first + small_sea.steps[which]).max(), "nothing later than the experts"
    sailing = (begin[:, None] >= first) & (begin[:, None] < first + small_sea.steps[which])
    earlier = begin == (first + small_sea.steps[which]).max() - steps  # those that would have lasted longer
    assert (sailing.any(axis=1) | earlier).all()
    np.testing.assert_array_equal(longer.goal[numbers], np.tile(world.goal[which], (20, 1)))


def test_a_variation_does_not_meet_its_own_expert(small_sea):
    scenario = int(small_sea.training[5])
    world = make_ship_world(small_sea, among=np.array([scenario]))
    longer, [number] = at_other_times(world, small_sea, np.array([scenario]), small_sea.steps[[scenario]])
    assert longer.moment[number] == world.moment[scenario], "one expert, so no other time than its own"
    assert longer.nearest(longer.begin(number)) == world.nearest(world.begin(scenario)) > 1.0


def test_on_another_voyage_its_ship_is_one_of_the_others(small_sea):
    which = small_sea.training
    world = make_ship_world(small_sea, among=which)
    steps = small_sea.steps[which]
    longer, numbers = at_other_times(world, small_sea, which, steps)
    begin, own = np.asarray(longer.moment)[numbers], np.asarray(world.moment)[which]
    overlap = (begin < own + steps) & (own < begin + steps)
    ship = np.asarray(longer.ship)[numbers]
    assert 0 < overlap.sum() < len(which) / 2
    np.testing.assert_array_equal(ship[overlap], np.asarray(world.ship)[which][overlap])
    assert (ship[~overlap] == ABSENT).all()


def test_a_variation_longer_than_all_of_the_time_begins_with_the_scene(small_sea):
    first = small_sea.training[:1]
    world = make_ship_world(small_sea, among=first)
    longer, [number] = at_other_times(world, small_sea, first, np.array([10_000]))
    assert longer.moment[number] == HISTORY - 1, "where the past of an observation is known"


def test_a_track_along_the_edge_of_the_box_varies_less(small_sea):
    size = width, _ = small_sea.box.size
    along = np.column_stack(
        [np.linspace(100, width - 100, 60), np.full(60, 5.0), np.full(60, 8), np.zeros(60)]
    )
    inside = along + np.array([0, 2000, 0, 0])
    edge, middle = (
        np.array([np.abs(one[:, 1] - track[0, 1]).max() for one in varied_tracks([track], 20, size)])
        for track in (along, inside)
    )
    assert (edge > 0).mean() > 0.8
    assert np.median(edge) < 0.5 * np.median(middle)


def test_the_log_has_the_experts_first_and_as_many_variations_of_each(small_sea):
    plain, more = expert_log(small_sea, source="sea"), expert_log(small_sea, variations=2, source="sea")
    np.testing.assert_array_equal(more.observations[: len(plain)], plain.observations)
    np.testing.assert_array_equal(more.actions[: len(plain)], plain.actions)
    assert more.episode_count == 3 * plain.episode_count
    assert (more.episode_returns == 100).all()
    assert np.abs(more.actions).max() <= 1
    assert not np.array_equal(np.tile(plain.episode_costs, 3), more.episode_costs)
    with pytest.raises(BCRLError, match="variations is -1"):
        expert_log(small_sea, variations=-1)
