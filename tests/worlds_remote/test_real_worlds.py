"""The families for real, installed from their locks: a task of each, and with -m worlds every task."""

import numpy as np
import pytest

from bcrl.errors import BCRLError
from bcrl.worlds.remote.install import family_python
from bcrl.worlds.remote.pool import Pool
from bcrl.worlds.tasks import INSTALLS, Task, tasks

pytestmark = pytest.mark.worlds
ONE_OF_EACH = ("BallRun", "PointCircle1", "easysparse")


def ready(task: Task, chosen: str) -> None:
    """Installs the family if need be. Two test workers that want the same one wait for each other."""
    if "worlds" not in chosen and task.name not in ONE_OF_EACH:
        pytest.skip("one task of each family is stepped; all of them with -m worlds")
    try:
        family_python(INSTALLS[task.family])
    except BCRLError as error:
        pytest.skip(f"{task.family} cannot be installed here: {error}")


def episode(pool: Pool, slot: int, seed: int, steps: int) -> np.ndarray:
    """Observations, rewards and costs under actions that follow from the seed."""
    random = np.random.default_rng(seed)
    rows = [pool.round({slot: seed}, {}).seen[slot]]
    for _ in range(steps):
        action = random.uniform(-1, 1, pool.task.action_size).astype(np.float32)
        outcome = pool.round({}, {slot: action})
        reward, cost, terminal, timeout = outcome.stepped[slot]
        assert cost >= 0
        rows.append(np.append(outcome.seen[slot], [reward, cost]))
        if terminal or timeout:
            break
    return np.concatenate(rows)


@pytest.mark.parametrize("task", tasks().values(), ids=lambda task: task.name)
def test_a_task_steps_and_repeats_itself(task, pytestconfig):
    """An environment that has run another episode before shows the same as a new one, bit for bit."""
    ready(task, pytestconfig.getoption("-m"))
    with Pool(task, slots=1, workers=1) as pool:
        assert pool.facts["observation_size"] == task.observation_size
        assert pool.facts["action_size"] == task.action_size
        assert (pool.facts["action_low"], pool.facts["action_high"]) == (-1.0, 1.0)
        assert pool.facts["horizon"] in (task.horizon, None)
        first = episode(pool, 0, seed=1, steps=30)
        other = episode(pool, 0, seed=2, steps=12)
        np.testing.assert_array_equal(episode(pool, 0, seed=1, steps=30), first)
        assert not np.array_equal(first[: len(other)], other[: len(first)])
