"""One small sea for all tests of ships."""

import pytest
from ship_maker import BOX, RULE, random_reports

from bcrl.ship import make_scenarios


@pytest.fixture(scope="session")
def small_sea():
    return make_scenarios(random_reports(1, ships=24, hours=4.0), BOX, RULE, source="made for tests")
