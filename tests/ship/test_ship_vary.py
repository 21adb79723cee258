"""Varied tracks: where they begin and end, what they may not do, and the log that has them."""

import numpy as np
import pytest

from bcrl.errors import BCRLError
from bcrl.ship import expert_log
from bcrl.ship._rule import MAX_SPEED, SECONDS
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
