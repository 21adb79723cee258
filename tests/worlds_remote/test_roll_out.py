"""Evaluation in worlds of other processes: one batch, the same as one episode after another."""

import dataclasses

import gymnasium
import jax
import numpy as np
import pytest

from bcrl.assess.remote import episode_seed, roll_out_remote, runner
from bcrl.errors import BCRLError
from bcrl.worlds import make_world
from bcrl.worlds.remote import pool as pools
from bcrl.worlds.tasks import find_task

from . import fake_world  # noqa: F401 (registers the environment)

THRESHOLDS = (2.0, 8.0)


def same(a, b) -> bool:
    return all(
        np.array_equal(getattr(a, field.name), getattr(b, field.name)) for field in dataclasses.fields(a)
    )


@pytest.fixture
def outcome(tiny_policy, fake_task):
    return roll_out_remote(tiny_policy, fake_task(), THRESHOLDS, episodes=3, seed=4, workers=2)


def test_it_does_not_depend_on_the_number_of_workers_or_slots(
    tiny_policy, fake_task, outcome, monkeypatch, tmp_path
):
    assert outcome.returns.shape == (2, 3)
    assert len(np.unique(outcome.returns)) > 3
    for workers in (1, 3):
        other = roll_out_remote(tiny_policy, fake_task(), THRESHOLDS, episodes=3, seed=4, workers=workers)
        assert same(outcome, other)
    monkeypatch.setattr(pools, "MOST_COPIES", 1)  # as MetaDrive: episodes must queue
    crash = fake_task(crash=str(tmp_path / "crashed"))
    assert same(outcome, roll_out_remote(tiny_policy, crash, THRESHOLDS, episodes=3, seed=4, workers=2))
    assert (tmp_path / "crashed").exists()


def test_a_crash_changes_nothing(tiny_policy, fake_task, outcome, tmp_path):
    crash = fake_task(crash=str(tmp_path / "crashed"))
    assert same(outcome, roll_out_remote(tiny_policy, crash, THRESHOLDS, episodes=3, seed=4, workers=2))
    assert (tmp_path / "crashed").exists()


def test_it_is_what_one_episode_after_another_gives(tiny_policy, outcome):
    actor = tiny_policy.actor
    for row, threshold in enumerate(THRESHOLDS):
        for number in range(3):
            seed = episode_seed(4, number)
            np.random.seed(seed)  # noqa: NPY002
            env = gymnasium.make("Fake-v0", disable_env_checker=True)
            observation, _ = env.reset(seed=seed)
            goal = tiny_policy.goal(threshold=threshold, horizon=20)
            memory = actor.start(jax.random.fold_in(jax.random.key(4), number), goal)
            totals, ended = np.zeros(4), False
            while not ended:
                action, memory, insight = actor.act(memory, observation)
                observation, reward, terminal, timeout, info = env.step(np.asarray(action))
                memory = actor.observe(memory, np.array([info["cost"]], np.float32), np.float32(reward))
                totals += reward, info["cost"], 1, insight.fallback
                ended = terminal or timeout
            assert totals[2] == outcome.lengths[row, number]
            assert totals[1] == outcome.costs[row, number]
            np.testing.assert_allclose(totals[0], outcome.returns[row, number], rtol=1e-4)
            np.testing.assert_allclose(totals[3] / totals[2], outcome.fallback_share[row, number])


def test_a_pool_is_kept_between_policies(tiny_policy, fake_task, outcome):
    task = fake_task()
    with runner([tiny_policy], task, 6, workers=1) as run:
        for _ in range(2):
            again = run(tiny_policy, thresholds=THRESHOLDS, episodes=3, seed=4)
            assert same(outcome, again)


def test_a_built_in_world_runs_inside(tiny_policy):
    with runner([tiny_policy], make_world("point-circle"), 2) as run:
        assert run(tiny_policy, thresholds=(10.0,), episodes=2).returns.shape == (1, 2)


def test_a_policy_for_another_world_is_refused_before_anything_is_installed(tiny_policy, monkeypatch):
    monkeypatch.setattr(pools, "family_python", lambda family: pytest.fail("installs"))
    with (
        pytest.raises(BCRLError, match="6 observations and 2 actions, but BallCircle has 8 and 2"),
        runner([tiny_policy], find_task("BallCircle"), 2),
    ):
        pass
    with pytest.raises(BCRLError, match="BallCircle has 8 and 2"):
        roll_out_remote(tiny_policy, find_task("BallCircle"), (10.0,))
