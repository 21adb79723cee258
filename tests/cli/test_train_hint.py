"""After a training on long episodes, `bcrl train` says what else to try."""

import numpy as np
import pytest

from bcrl.cli.train import LONG, hint_for_long_episodes
from bcrl.data import Dataset
from bcrl.learn.registry import make_method


def log_of(length: int, *, consecutive: bool = True) -> Dataset:
    states = np.arange(length + 1, dtype=np.float32)[:, None]
    return Dataset(
        observations=states[:-1],
        actions=np.zeros((length, 1)),
        rewards=np.ones(length),
        costs=np.ones(length),
        next_observations=states[1:],
        terminals=np.zeros(length, bool),
        timeouts=np.arange(length) == length - 1,
        consecutive=consecutive,
    )


def test_long_episodes_have_a_hint():
    hint = hint_for_long_episodes(log_of(LONG), make_method("bcrl"))
    assert hint == "episodes of 500 steps: compare with --n-step 10 --tau-c 0.03 (docs/faq.md)"
    assert len(hint) <= 80


@pytest.mark.parametrize(
    ("log", "method"),
    [
        (log_of(LONG - 1), make_method("bcrl")),
        (log_of(LONG, consecutive=False), make_method("bcrl")),
        (log_of(LONG), make_method("bcrl", n_step=5)),
        (log_of(LONG), make_method("bcrl", criterion="episodic")),
        (log_of(LONG), make_method("bcrl-xql")),
        (log_of(LONG), make_method("caps")),
    ],
)
def test_others_have_none(log, method):
    assert hint_for_long_episodes(log, method) == ""
