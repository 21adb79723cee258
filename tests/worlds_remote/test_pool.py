"""Workers: the same episodes whatever happens to them, and none of them left behind."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from bcrl.errors import BCRLError
from bcrl.worlds import make_world
from bcrl.worlds.remote.pool import Pool

ACTION = np.array([0.3, -0.2], np.float32)


def observations(pool: Pool, seeds: dict[int, int], steps: int = 8) -> dict[int, np.ndarray]:
    """What the episodes with these seeds show under a constant action, by seed."""
    seen = [pool.round(seeds, {}).seen]
    seen += [pool.round({}, dict.fromkeys(seeds, ACTION)).seen for _ in range(steps)]
    return {seed: np.array([row[slot] for row in seen]) for slot, seed in seeds.items()}


def test_an_episode_depends_on_its_seed_alone(fake_task):
    with Pool(fake_task(), slots=4, workers=2) as pool:
        assert len(pool.processes) == 2
        many = observations(pool, {0: 5, 1: 6, 2: 7, 3: 8})
        again = observations(pool, {3: 5, 0: 8})
    with Pool(fake_task(), slots=1, workers=3) as pool:
        assert len(pool.processes) == 1  # no more workers than episodes
        alone = observations(pool, {0: 5})
    np.testing.assert_array_equal(many[5], alone[5])
    np.testing.assert_array_equal(many[5], again[5])
    np.testing.assert_array_equal(many[8], again[8])
    assert not np.array_equal(many[5], many[6])


def test_a_crashed_worker_is_restarted_and_its_slots_are_told(fake_task, tmp_path):
    with Pool(fake_task(crash=str(tmp_path / "crashed")), slots=4, workers=2) as pool:
        pool.round({slot: slot for slot in range(4)}, {})
        lost = []
        for _ in range(8):
            lost += pool.round({}, {slot: ACTION for slot in range(4) if slot not in lost}).lost
        assert sorted(lost) in ([0, 2], [1, 3])  # one worker's
        again = observations(pool, {lost[0]: lost[0]})
    with Pool(fake_task(), slots=1, workers=1) as pool:
        np.testing.assert_array_equal(again[lost[0]], observations(pool, {0: lost[0]})[lost[0]])


def play(pool: Pool, rounds: int = 1) -> None:
    for _ in range(rounds):
        pool.round({0: 1}, {})
        pool.round({}, {0: ACTION})


def test_a_worker_that_always_crashes_ends_the_evaluation(fake_task):
    with (
        Pool(fake_task(always=True), slots=1, workers=1) as pool,
        pytest.raises(BCRLError, match=r"lost 4 times \(signal 6\)"),
    ):
        play(pool, 10)


def test_a_step_has_a_time_limit(fake_task, monkeypatch):
    monkeypatch.setattr("bcrl.worlds.remote.pool.RESTARTS", 0)
    started = time.monotonic()
    with (
        Pool(fake_task(slow=60.0), slots=1, workers=1, step_seconds=0.5) as pool,
        pytest.raises(BCRLError, match=r"a step took longer than 0\.5 s"),
    ):
        play(pool)
    assert time.monotonic() - started < 20


def test_a_stopped_worker_is_noticed(fake_task):
    with Pool(fake_task(), slots=1, workers=1, step_seconds=0.5) as pool:
        os.kill(pool.processes[0], signal.SIGSTOP)
        assert pool.round({0: 1}, {}).lost == [0]
        assert 0 in pool.round({0: 1}, {}).seen


def test_errors_of_the_environment_are_told(fake_task):
    with (
        Pool(fake_task(cost=False), slots=1, workers=1) as pool,
        pytest.raises(BCRLError, match="fake failed in its worker: its info has no 'cost': wrap it"),
    ):
        play(pool)


def test_an_environment_that_cannot_be_made_is_told(fake_task):
    with pytest.raises(BCRLError, match=r"failed in its worker: .*no_such_option"):
        Pool(fake_task(no_such_option=1), slots=1)


def test_any_environment_of_the_user(fake_task):
    fake_task()  # for the current folder
    task = make_world("gym:fake_world:Fake-v0", python=sys.executable)
    assert (task.observation_size, task.action_size, task.horizon) == (6, 2, 20)
    with pytest.raises(BCRLError, match="RescaleAction"):
        make_world("gym:fake_world:Wide-v0", python=sys.executable)


PARENT = """
import signal, sys, numpy as np
signal.signal(signal.SIGINT, signal.default_int_handler)  # background jobs of a shell ignore it
from bcrl.worlds.remote.pool import Pool
from bcrl.worlds.tasks import Task
task = Task("fake", "gym", "fake_world:Fake-v0", 6, 2, 20, (0.0, 1.0), (5.0,),
            config={"slow": 60.0}, python=sys.executable)
with Pool(task, slots=2, workers=2) as pool:
    pool.round({0: 0, 1: 1}, {})
    print(*pool.processes, flush=True)
    pool.round({}, {0: np.zeros(2), 1: np.zeros(2)})
"""


def running(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False
    return state != "Z"  # a dead one that nobody has asked about


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks at processes in /proc")
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_no_worker_outlives_its_parent(how, fake_task):
    """In the middle of a step that takes a minute, so that a closed pipe alone would not end it."""
    with subprocess.Popen(
        [sys.executable, "-c", PARENT], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as parent:
        assert parent.stdout is not None
        workers = [int(word) for word in parent.stdout.readline().split()]
        assert len(workers) == 2
        assert all(map(running, workers))
        time.sleep(0.3)
        parent.send_signal(how)
        parent.wait(10)
    deadline = time.monotonic() + 5
    while any(map(running, workers)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(map(running, workers))
