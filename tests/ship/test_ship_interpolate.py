"""Tracks on the 10 s grid."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ship_maker import BOX, START

from bcrl.ship import Rule
from bcrl.ship._cleaning import Chunks
from bcrl.ship._interpolate import interpolate, make_tracks

UNSAID = np.nan


def on_grid(time, x, y, speed=None, heading=None, **more):
    unsaid = np.full(len(time), UNSAID)
    speed = unsaid if speed is None else np.array(speed, float)
    heading = unsaid if heading is None else np.array(heading, float)
    return interpolate(np.array(time), np.array(x, float), np.array(y, float), speed, heading, **more)


def test_positions_are_linear_between_reports():
    times, samples = on_grid([3, 23, 43], [0, 200, 200], [0, 0, 100])
    assert times.tolist() == [10, 20, 30, 40]
    np.testing.assert_allclose(samples[:, 0], [70, 170, 200, 200])
    np.testing.assert_allclose(samples[:, 1], [0, 0, 35, 85])


def test_a_report_on_the_grid_is_a_sample_unless_the_original_is_replayed():
    times, samples = on_grid([10, 40], [0, 300], [0, 0])
    assert times.tolist() == [10, 20, 30, 40]
    assert samples[0, 0] == 0
    assert on_grid([10, 40], [0, 300], [0, 0], skip_first_instant=True)[0].tolist() == [20, 30, 40]


def test_speed_and_course_come_from_the_way_made_where_no_one_says():
    _, samples = on_grid([0, 20, 40], [0, 100, 100], [0, 0, 60])
    np.testing.assert_allclose(samples[:, 2], [5, 5, 5, 3, 3])
    np.testing.assert_allclose(samples[:, 3], [0, 0, 0, np.pi / 2, np.pi / 2])


def test_only_the_missing_speeds_are_replaced():
    """Between a report that says and one that does not, the way made decides."""
    _, samples = on_grid([0, 20, 40], [0, 100, 200], [0, 0, 0], speed=[4, 8, UNSAID])
    np.testing.assert_allclose(samples[:, 2], [4, 6, 8, 5, 5])


def test_headings_turn_the_shorter_way():
    degrees = np.radians([350, 10, 350])
    _, samples = on_grid([0, 20, 40], [0, 1, 2], [0, 0, 0], heading=degrees)
    np.testing.assert_allclose(np.degrees(samples[:, 3]), [350, 0, 10, 0, 350], atol=1e-9)


def test_a_ship_that_lies_still_keeps_its_course():
    _, samples = on_grid([0, 20, 40, 60], [0, 0, 0, -90], [0, 100, 100.001, 100.001])
    course = np.degrees(samples[:, 3])
    np.testing.assert_allclose(course, [90, 90, 90, 90, 90, 180, 180], atol=1e-6)


@given(st.integers(0, 2**31), st.integers(2, 12), st.booleans())
def test_samples_lie_on_the_polyline_of_the_reports(seed, count, said):
    random = np.random.default_rng(seed)
    time = START + np.cumsum(random.integers(1, 60, count))
    x, y = random.uniform(-1000, 1000, (2, count))
    speed = random.uniform(0, 20, count) if said else np.full(count, UNSAID)
    heading = random.uniform(0, 2 * np.pi, count) if said else np.full(count, UNSAID)
    times, samples = interpolate(time, x, y, speed, heading)
    assert (times % 10 == 0).all()
    assert ((times >= time[0]) & (times <= time[-1])).all()
    assert len(times) == time[-1] // 10 - -(-time[0] // 10) + 1
    assert np.isfinite(samples).all()
    assert ((samples[:, 3] >= 0) & (samples[:, 3] < 2 * np.pi)).all()
    for when, sample in zip(times, samples, strict=True):
        after = np.searchsorted(time, when)
        before = max(after - 1, 0) if time[after] != when else after
        span = max(time[after] - time[before], 1)
        share = (when - time[before]) / span
        np.testing.assert_allclose(sample[0], x[before] + share * (x[after] - x[before]), atol=1e-6)
        np.testing.assert_allclose(sample[1], y[before] + share * (y[after] - y[before]), atol=1e-6)
        if said:
            assert min(speed[before], speed[after]) - 1e-9 <= sample[2]
            assert sample[2] <= max(speed[before], speed[after]) + 1e-9


def chunk(time, x, y):
    count = len(time)
    unsaid = np.full(count, UNSAID)
    ship = np.full(count, 7)
    starts = np.array([0, count])
    place = np.array(x, float), np.array(y, float)
    return Chunks(ship, np.array(time), *place, unsaid, unsaid, starts, bad=None)  # type: ignore[arg-type]


def test_tracks_end_at_the_edge_of_the_box_and_where_a_ship_stops():
    # In from the west at 5 m/s, a stop of 40 s at x = 101, then on.
    time = [0, 40, 80, 120]
    x = [-99, 101, 101, 301]
    tracks = make_tracks(chunk(time, x, [50] * 4), BOX, Rule())
    assert [(track.first, track.samples[:, 0].tolist()) for track in tracks] == [
        (2, [1, 51, 101]),
        (8, [101, 151, 201, 251, 301]),
    ]
    (whole,) = make_tracks(chunk(time, x, [50] * 4), BOX, Rule(moving=0))
    assert whole.samples[:, 0].tolist() == [1, 51, 101, 101, 101, 101, 101, 151, 201, 251, 301]


@pytest.mark.parametrize("time", [[1, 9], [1, 12]])
def test_a_chunk_without_a_step_gives_no_track(time):
    assert make_tracks(chunk(time, [0, 100], [0, 0]), BOX, Rule()) == []
