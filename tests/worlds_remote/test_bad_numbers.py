"""Numbers that no world should give: refused with the world, the episode and the value."""

import gymnasium
import pytest

from bcrl.assess import evaluate
from bcrl.errors import BCRLError
from bcrl.worlds import make_world
from bcrl.worlds.remote.collect import collect_remote
from bcrl.worlds.remote.pool import Pool

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
