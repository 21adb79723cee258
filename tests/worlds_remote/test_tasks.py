"""The registry of tasks."""

import re

import numpy as np
import pytest

from bcrl.errors import BCRLError
from bcrl.learn.protocol import Spec
from bcrl.learn.registry import FAMILIES
from bcrl.worlds import make_world
from bcrl.worlds.remote.install import INSTALLABLE, read_lock
from bcrl.worlds.tasks import INSTALLS, find_task, tasks


def test_there_are_38_tasks_in_three_families():
    counts = {family: sum(t.family == family for t in tasks().values()) for family in INSTALLS}
    assert counts == {"bullet": 8, "safety-gym": 21, "metadrive": 9}
    assert set(INSTALLS) <= set(FAMILIES)
    assert set(INSTALLS.values()) == set(INSTALLABLE)


@pytest.mark.parametrize("task", tasks().values(), ids=lambda t: t.name)
def test_a_task_is_complete(task):
    assert min(task.observation_size, task.action_size, task.horizon) > 0
    np.testing.assert_allclose(task.normalise(np.array(task.reference_returns)), [0, 1], atol=1e-12)
    assert task.thresholds == ((20, 40, 80) if task.family == "safety-gym" else (10, 20, 40))
    assert re.fullmatch(rf"Safe(ty)?.*{task.name}.*-v\d-\d+-\d+\.hdf5", task.data_file)
    assert bool(task.caveat) == (task.family == "metadrive")


def test_names_are_found_whatever_their_capitals():
    assert find_task("ballcircle") is find_task("BallCircle") is make_world("BALLCIRCLE")
    assert find_task("EasySparse").name == "easysparse"


def test_a_near_miss_is_told():
    with pytest.raises(BCRLError, match=r"no task 'BalCircle'; did you mean BallCircle"):
        find_task("BalCircle")
    with pytest.raises(BCRLError, match="bcrl worlds lists them"):
        find_task("qqqq")


def spec(observations: int, actions: int, costs: int = 1) -> Spec:
    return Spec(observations, actions, costs, 10, (1.0,) * costs, 1)


def test_dsrl_metadrive_policy_is_refused_in_one_sentence():
    with pytest.raises(BCRLError, match=r"^the policy has 261 .* gives 259: train on a log recorded in"):
        find_task("easysparse").check(spec(261, 2))


def test_other_sizes_are_refused():
    with pytest.raises(BCRLError, match=r"\(7, 2, 1\), but BallCircle \(8, 2, 1\)"):
        find_task("BallCircle").check(spec(7, 2))
    with pytest.raises(BCRLError, match=r"\(8, 2, 2\), but BallCircle \(8, 2, 1\)"):
        find_task("BallCircle").check(spec(8, 2, 2))
    find_task("BallCircle").check(spec(8, 2))


@pytest.mark.parametrize("family", INSTALLABLE)
def test_locks_pin_everything_exactly(family):
    """A version and the hashes of its files, so that pip refuses any other file."""
    lines = read_lock(family).pins
    assert "--require-hashes" in lines
    pins = [number for number, line in enumerate(lines) if not line.startswith("-")]
    assert any(lines[number].startswith("numpy==") for number in pins)
    for number in pins:
        assert re.fullmatch(r"[A-Za-z0-9_.-]+==[A-Za-z0-9_.]+ \\", lines[number]), lines[number]
        assert re.fullmatch(r"--hash=sha256:[0-9a-f]{64}( \\)?", lines[number + 1]), lines[number]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("BallRun", 0.1, None), "--noise is for the built-in worlds"),
        (("gym:X-v0", 0.0, None), "give gym:module:X-v0"),
        (("BallRun", 0.0, "python"), "a Python of its own"),
        (("point-run", 0.0, "python"), "runs inside bcrl"),
        (("gym:X-v0", 0.0, "/no/such/python"), "there is no such Python"),
    ],
)
def test_options_that_do_not_go_with_a_world(arguments, message):
    with pytest.raises(BCRLError, match=message):
        make_world(*arguments)
