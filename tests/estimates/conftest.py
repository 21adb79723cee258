"""One log, one small model of it."""

import pytest
from speeding import SMALL, make_log

import bcrl


@pytest.fixture(scope="session")
def speeding_log():
    return make_log()


@pytest.fixture(scope="session")
def speeding_model(speeding_log):
    return bcrl.fit_model(speeding_log, **SMALL)
