"""The box: metres and degrees."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bcrl.errors import BCRLError
from bcrl.ship import NEW_YORK, RULES, SINGAPORE, Box
from bcrl.ship._rule import EARTH

shares = st.lists(st.tuples(st.floats(-1, 2), st.floats(-1, 2)), min_size=1, max_size=20)


@given(shares, st.sampled_from([NEW_YORK, SINGAPORE, Box(-179.9, -70, -179.5, -69.8)]))
def test_metres_and_back(places, box):
    share = np.array(places)
    lon = box.west + share[:, 0] * (box.east - box.west)
    lat = box.south + share[:, 1] * (box.north - box.south)
    x, y = box.to_metres(lon, lat)
    np.testing.assert_allclose(box.to_degrees(x, y), (lon, lat), rtol=0, atol=1e-12)
    # A place lies in the box in degrees when it does in metres.
    inside = (share >= 0).all(1) & (share <= 1).all(1)
    clear = (np.abs(share) > 1e-9).all(1) & (np.abs(share - 1) > 1e-9).all(1)
    size = box.size
    again = (x >= 0) & (y >= 0) & (x <= size[0]) & (y <= size[1])
    assert np.array_equal(again[clear], inside[clear])


def test_metres_are_great_circle_distances():
    """Along the southern edge and the western one, by the haversine formula, to a millimetre."""
    x, y = NEW_YORK.to_metres(np.array(NEW_YORK.east), np.array(NEW_YORK.north))

    def haversine(lon1, lat1, lon2, lat2):
        a, b, c, d = np.radians([lon1, lat1, lon2, lat2])
        h = np.sin((d - b) / 2) ** 2 + np.cos(b) * np.cos(d) * np.sin((c - a) / 2) ** 2
        return 2 * EARTH * np.arcsin(np.sqrt(h))

    assert x == pytest.approx(
        haversine(NEW_YORK.west, NEW_YORK.south, NEW_YORK.east, NEW_YORK.south), abs=1e-3
    )
    assert y == pytest.approx(
        haversine(NEW_YORK.west, NEW_YORK.south, NEW_YORK.west, NEW_YORK.north), abs=1e-3
    )


def test_the_original_box_has_the_original_size():
    assert SINGAPORE.size == pytest.approx((6670.35, 7783.64), abs=0.01)


def test_a_grown_box_holds_its_margin():
    grown = NEW_YORK.grown(6000)
    x, y = NEW_YORK.to_metres(np.array([grown.west, grown.east]), np.array([grown.south, grown.north]))
    size = NEW_YORK.size
    np.testing.assert_allclose(x, [-6000, size[0] + 6000], atol=1e-6)
    np.testing.assert_allclose(y, [-6000, size[1] + 6000], atol=1e-6)


@pytest.mark.parametrize(
    "edges",
    [(1, 0, 0, 1), (0, 1, 1, 0), (0, 0, 0, 1), (-200, 0, 1, 1), (0, float("nan"), 1, 1), (0, 0, 1, 95)],
)
def test_a_bad_box_is_refused(edges):
    with pytest.raises(BCRLError, match="west,south,east,north"):
        Box(*edges)


def test_no_ship_can_cross_the_margin_between_two_reports():
    assert RULES["moving"].margin == 20 * 300
    assert RULES["original"].margin == 0
