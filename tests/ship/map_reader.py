"""For the tests of maps: a known sea with a roll-out in it, and what is read out of a page."""

import json

import numpy as np
from ship_maker import straight

from bcrl.ship import Voyages

EVIL = "</script x><!--<script><img src=x onerror=alert(1)>&\"'"
SHIPS = (  # one to the east, one that meets it, one that is far away and leaves early
    (0, 100, straight((1000, 1000), (10, 0), 30)),
    (1, 100, straight((3000, 1400), (-5, 0), 40)),
    (2, 100, straight((1000, 5000), (0, -8), 12)),
)
SOUTH = np.stack([np.linspace(1000, 4000, 21), 1000 - 400 * np.sin(np.linspace(0, np.pi, 21))], axis=1)
"""A way for the first ship that keeps south of the other."""


def voyages(path, *thresholds, scenario=0):
    """A voyage for each threshold, all along the path to its end."""
    count, steps = len(thresholds), len(path) - 1
    full = np.zeros((count, steps + 1, 5))
    full[:, :, :2] = path
    there, zero = np.ones((count, steps), bool), np.zeros((count, steps))
    return Voyages(
        np.full(count, scenario), np.array(thresholds), full, there, zero, zero, there & False,
        np.ones(count, bool),
    )  # fmt: skip


def data_of(page, number=0):
    """What the script of the first map, or of another, is given."""
    pieces = page.split('<script type="application/json" class="data">')
    return json.loads(pieces[1 + number].partition("</script>")[0])
