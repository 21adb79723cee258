"""A small log that every test may damage in its own way."""

import numpy as np
import pytest


@pytest.fixture
def arrays() -> dict[str, np.ndarray]:
    """Twelve transitions in three episodes of 5, 3 and 4 steps; the second ends in a terminal state."""
    rng = np.random.default_rng(0)
    terminals, timeouts = np.zeros(12, dtype=bool), np.zeros(12, dtype=bool)
    timeouts[[4, 11]] = terminals[7] = True
    observations = rng.normal(size=(12, 3)).astype(np.float32)
    arrays = {
        "observations": observations,
        "actions": rng.uniform(-1, 1, size=(12, 2)).astype(np.float32),
        "rewards": rng.normal(size=12).astype(np.float32),
        "costs": rng.integers(0, 2, size=12).astype(np.float32),
        "next_observations": rng.normal(size=(12, 3)).astype(np.float32),
        "terminals": terminals,
        "timeouts": timeouts,
    }
    inside = np.flatnonzero(~(terminals | timeouts))
    arrays["next_observations"][inside] = observations[inside + 1]
    return arrays
