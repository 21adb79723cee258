"""Numbers that no world should give: refused with the world, the episode and the value."""

import gymnasium
import numpy as np
import pytest

from bcrl.assess import evaluate
from bcrl.errors import BCRLError
from bcrl.worlds import make_world
from bcrl.worlds.remote._worker import vector
from bcrl.worlds.remote.collect import collect_remote
from bcrl.worlds.remote.pool import Pool, sizes

from . import fake_world  # noqa: F401 (registers the environment)
from .test_pool import play

BAD = [
    ("cost", "-1", r"in episode \d \(seed \d+\) a cost is -1; costs must be finite and 0 or more"),
    ("cost", "nan", r"in episode \d \(seed \d+\) a cost is nan"),
    ("cost", "inf", r"in episode \d \(seed \d+\) a cost is inf"),
    ("reward", "nan", r"in episode \d \(seed \d+\) a reward is nan; rewards must be finite"),
    ("observation", "nan", r"in episode \d \(seed \d+\) an observation holds NaN"),
]


@pytest.mark.parametrize(("spoil", "value", "wanted"), BAD)
def test_bad_numbers_of_an_environment_are_refused(spoil, value, wanted, tiny_policy, fake_task):
    here = gymnasium.make("Fake-v0", disable_env_checker=True, spoil=spoil, value=value)
    for world in (here, fake_task(spoil=spoil, value=value)):
        name = "Fake-v0" if world is here else "fake"
        with pytest.raises(BCRLError, match=f"^{name}: {wanted}"):
            evaluate(tiny_policy, world, (5.0,), episodes=2, workers=1)


def test_a_recording_refuses_negative_costs_too(fake_task):
    with pytest.raises(BCRLError, match="a cost is -2"):
        collect_remote(fake_task(spoil="cost", value=-2.0), 200, steps=400, workers=1)


def test_a_horizon_beyond_int32_is_refused(fake_task, tiny_policy):
    fake_task()  # for the current folder
    env = gymnasium.make("Eternal-v0", disable_env_checker=True)
    for refused in (
        lambda: make_world("gym:fake_world:Eternal-v0"),
        lambda: evaluate(tiny_policy, env, (5.0,)),
    ):
        with pytest.raises(BCRLError, match="max_episode_steps is 2147483648, but must be below"):
            refused()


def test_an_error_without_text_is_named_by_its_kind(fake_task):
    with (
        Pool(fake_task(silent=True), slots=1, workers=1) as pool,
        pytest.raises(BCRLError, match=r"^fake failed in its worker: AssertionError$"),
    ):
        play(pool)


@pytest.mark.parametrize("here", [True, False])
def test_an_observation_of_another_shape_is_refused(here, tiny_policy, fake_task):
    """One number would be stretched to all of them."""
    live = gymnasium.make("Fake-v0", disable_env_checker=True, spoil="shape")
    world = live if here else fake_task(spoil="shape")
    with pytest.raises(BCRLError, match=r"an observation has shape \(1,\), but its space has \(6,\)"):
        evaluate(tiny_policy, world, (5.0,), episodes=1, workers=1)


def test_a_complex_observation_is_refused():
    with pytest.raises(RuntimeError, match="an observation is complex"):
        vector(np.ones(6) * 1j, 6)


def test_an_error_of_an_environment_in_this_process_is_told(tiny_policy):
    env = gymnasium.make("Fake-v0", disable_env_checker=True, silent=True)
    with pytest.raises(BCRLError, match=r"^Fake-v0: AssertionError$") as refused:
        evaluate(tiny_policy, env, (5.0,), episodes=1)
    assert isinstance(refused.value.__cause__, AssertionError), "its traceback is kept"


@pytest.mark.parametrize("spoil", ["empty", "error"])
def test_an_environment_that_writes_into_the_pipe_is_a_lost_worker(spoil, fake_task, monkeypatch):
    monkeypatch.setattr("bcrl.worlds.remote.pool.RESTARTS", 0)
    wanted = "lost 1 times" if spoil == "empty" else "failed in its worker: 5$"
    with (
        Pool(fake_task(spoil=spoil), slots=1, workers=1) as pool,
        pytest.raises(BCRLError, match=wanted),
    ):
        play(pool, 5)


def test_a_long_error_of_an_environment_is_cut(fake_task):
    with pytest.raises(BCRLError, match=r"failed in its worker: .*xxx") as refused:
        Pool(fake_task(**{"x" * 5_000: "\x1b"}), slots=1)
    assert len(str(refused.value)) < 1_200
    assert str(refused.value).isprintable()


@pytest.mark.parametrize("change", [{"observation_size": "6"}, {"action_size": 0}, {"horizon": -1}])
def test_sizes_that_no_environment_has_are_refused(change):
    facts = {
        "observation_size": 6,
        "action_size": 2,
        "action_low": -1.0,
        "action_high": 1.0,
        "horizon": 20,
    }
    assert sizes("fake", facts)["horizon"] == 20
    with pytest.raises(BCRLError, match=r"^fake: .* but must be"):
        sizes("fake", facts | change)
    with pytest.raises(BCRLError, match=r"^fake: its actions lie in None"):
        sizes("fake", facts | {"action_low": None})
