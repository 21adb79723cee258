"""What is dropped from a log, and that it is counted."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from ship_maker import BOX, START, random_reports

from bcrl.ship import RULES, Reports, Rule
from bcrl.ship._cleaning import clean


def reports(rows, **more):
    """Rows of (ship, seconds, x, y)."""
    ship, time, x, y = np.array(rows, float).T
    lon, lat = BOX.to_degrees(x, y)
    return Reports.of_positions(ship.astype(np.int64), (START + time).astype(np.int64), lon, lat, **more)


def test_repeated_reports_are_used_once():
    rows = [(1, 0, 0, 0), (1, 60, 100, 0), (1, 60, 900, 0), (2, 60, 5, 5), (2, 90, 6, 6)]
    chunks = clean(reports(rows), BOX, Rule())
    assert chunks.bad == {"repeated": 1}
    np.testing.assert_allclose(chunks.x[:2], [0, 100], atol=1e-6)


def test_a_jump_is_left_out_and_the_track_goes_on():
    rows = [(1, 0, 0, 0), (1, 60, 300, 0), (1, 120, 5000, 0), (1, 180, 5100, 0), (1, 240, 1200, 0)]
    chunks = clean(reports(rows), BOX, Rule())
    assert chunks.bad == {"jump above 20 m/s": 2}
    np.testing.assert_allclose(chunks.x, [0, 300, 1200], atol=1e-6)
    assert chunks.starts.tolist() == [0, 3]


def test_a_wrong_first_report_does_not_cost_the_track():
    """The true place is out of reach of the wrong one until the gap has passed."""
    rows = [(1, 0, 5500, 5500), *((1, 60 * k, 10 * k, 0) for k in range(1, 12))]
    chunks = clean(reports(rows), BOX, Rule())
    assert chunks.bad == {"jump above 20 m/s": 5, "alone between gaps": 1}
    assert len(chunks.x) == 6


def test_silence_splits_and_single_reports_are_left_out():
    rows = [(1, 0, 0, 0), (1, 300, 0, 0), (1, 601, 0, 0), (1, 1000, 0, 0), (1, 1100, 0, 0)]
    chunks = clean(reports(rows), BOX, Rule())
    assert chunks.bad == {"alone between gaps": 1}
    assert chunks.starts.tolist() == [0, 2, 4]
    assert (chunks.time - START).tolist() == [0, 300, 1000, 1100]


def test_what_is_said_of_speed_is_not_believed_above_twenty():
    said = np.array([5.0, 25.0, np.nan])
    rows = [(1, 0, 0, 0), (1, 60, 1, 0), (1, 120, 2, 0)]
    chunks = clean(reports(rows, speed=said), BOX, Rule())
    np.testing.assert_array_equal(chunks.speed, [5.0, np.nan, np.nan])


def test_compass_degrees_become_angles_from_east():
    rows = [(1, 60 * k, 0, 0) for k in range(4)]
    chunks = clean(reports(rows, heading=np.array([0.0, 90.0, 180.0, 270.0])), BOX, Rule())
    np.testing.assert_allclose(np.degrees(chunks.heading), [90, 0, 270, 180])


def test_the_original_rule_wants_status_and_heading():
    rows = [(1, 60 * k, 0, 0) for k in range(9)]
    said = {"status": np.array([0, 0, 1, 0, 0, 0, 5, 0, 0]), "heading": np.array([9.0] * 8 + [np.nan])}
    chunks = clean(reports(rows, **said), BOX, RULES["original"])
    assert chunks.bad == {"not under way": 2, "no heading": 1}
    # A log that tells neither, such as New York's, is used as it is.
    assert clean(reports(rows), BOX, RULES["original"]).bad == {}


def test_the_original_rule_joins_a_ship_that_left_and_came_back():
    rows = [
        (1, 0, 5000, 0),
        (1, 60, 5500, 0),
        (1, 120, 6200, 0),
        (1, 600, 5500, 9),
        (1, 660, 5400, 9),
        (1, 700, 5300, 9),
    ]
    chunks = clean(reports(rows), BOX, RULES["original"])
    assert chunks.bad == {"outside the box": 1}
    assert chunks.starts.tolist() == [0, 5]


@settings(max_examples=25)
@given(st.integers(0, 2**31), st.sampled_from([Rule(), RULES["original"]]))
def test_every_row_is_kept_or_counted_and_what_is_kept_obeys_the_rule(seed, rule):
    made = random_reports(seed % 1000, ships=4, hours=0.4)
    random = np.random.default_rng(seed)
    spoilt = random.random(len(made.lon)) < 0.1
    made = Reports.of_positions(
        made.ship,
        made.time,
        np.where(spoilt, made.lon + random.normal(0, 0.05, len(made.lon)), made.lon),
        made.lat,
    )
    chunks = clean(made, BOX, rule)
    assert len(chunks.ship) + sum(chunks.bad.values()) == made.rows
    for low, high in zip(chunks.starts[:-1], chunks.starts[1:], strict=True):
        assert high - low >= rule.min_reports
        assert len(set(chunks.ship[low:high])) == 1
        seconds = np.diff(chunks.time[low:high])
        assert ((seconds > 0) & (seconds <= rule.gap)).all()
        metres = np.hypot(np.diff(chunks.x[low:high]), np.diff(chunks.y[low:high]))
        assert (metres <= 20 * seconds + 1e-6).all()
