"""Pytest puts the folder of a conftest on the path: so the tests in baselines/ find its modules too."""

import jax
import pytest


@pytest.fixture
def double():
    """Finite differences need it."""
    with jax.enable_x64(True):
        yield
