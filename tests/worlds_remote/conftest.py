"""A fake family: an environment of the user's, under the Python that runs the tests."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from bcrl.worlds.tasks import Task


@pytest.fixture
def fake_task(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Task]:
    """`fake_task(crash=..., slow=...)`; workers look for the module in the current folder."""
    monkeypatch.chdir(Path(__file__).parent)

    def make(**config) -> Task:
        return Task(
            name="fake",
            family="gym",
            env_id="fake_world:Fake-v0",
            observation_size=6,
            action_size=2,
            horizon=20,
            reference_returns=(0.0, 1.0),
            thresholds=(5.0,),
            config=config,
            python=sys.executable,
        )

    return make
