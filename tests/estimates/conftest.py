"""One log, one small model of it."""

import pytest
from optimised import optimised
from speeding import SMALL, make_log

import bcrl


@pytest.fixture(autouse=True, scope="module")
def _optimised():
    """Estimates play thousands of episodes."""
    with optimised():
        yield


@pytest.fixture(scope="session")
def speeding_log():
    return make_log()


@pytest.fixture(scope="session")
def speeding_model(speeding_log):
    return bcrl.fit_model(speeding_log, **SMALL)
