"""Evaluation in worlds of other processes: one batch, the same as one episode after another."""

import dataclasses
import io
import random

import gymnasium
import jax
import numpy as np
import pytest
from rich.console import Console

from bcrl.assess import evaluate
from bcrl.assess.recording import Recording
from bcrl.assess.rollout import episode_seed, roll_out
from bcrl.assess.tables import summary_table
from bcrl.errors import BCRLError
from bcrl.report import draw, report_page
from bcrl.worlds.remote import pool as pools
from bcrl.worlds.tasks import find_task

from . import fake_world  # noqa: F401 (registers the environment)

THRESHOLDS = (2.0, 8.0)
TASK = find_task("BallCircle")


def same(a, b) -> bool:
    return all(
        np.array_equal(getattr(a, field.name), getattr(b, field.name)) for field in dataclasses.fields(a)
    )


def run(policy, task, workers, record=None):
    with task.open(6, workers) as envs:
        return roll_out(policy, task, THRESHOLDS, episodes=3, seed=4, envs=envs, record=record)


@pytest.fixture
def outcome(tiny_policy, fake_task):
    return run(tiny_policy, fake_task(), 2)


def test_it_does_not_depend_on_the_number_of_workers_or_slots(
    tiny_policy, fake_task, outcome, monkeypatch, tmp_path
):
    assert outcome.returns.shape == (2, 3)
    assert len(np.unique(outcome.returns)) > 3
    for workers in (1, 3):
        other = run(tiny_policy, fake_task(), workers)
        assert same(outcome, other)
    monkeypatch.setattr(pools, "MOST_COPIES", 1)  # as MetaDrive: episodes must queue
    crash = fake_task(crash=str(tmp_path / "crashed"))
    assert same(outcome, run(tiny_policy, crash, 2))
    assert (tmp_path / "crashed").exists()


def test_a_crash_changes_nothing_not_even_what_is_recorded(tiny_policy, fake_task, outcome, tmp_path):
    crash = fake_task(crash=str(tmp_path / "crashed"))
    recording = Recording()
    assert same(outcome, run(tiny_policy, crash, 2, recording))
    assert (tmp_path / "crashed").exists()
    log = recording.dataset()
    np.testing.assert_array_equal(log.episode_lengths, outcome.lengths.ravel())
    np.testing.assert_allclose(log.episode_costs, outcome.costs.ravel(), rtol=1e-6)
    np.testing.assert_allclose(log.episode_returns, outcome.returns.ravel(), rtol=1e-5)
    assert log.transitions.broken == 0


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
    with task.open(6, workers=1) as envs:
        for _ in range(2):
            assert same(outcome, roll_out(tiny_policy, task, THRESHOLDS, episodes=3, seed=4, envs=envs))
    assert same(outcome, roll_out(tiny_policy, task, THRESHOLDS, episodes=3, seed=4))  # a pool of its own


def test_a_policy_for_another_world_is_refused_before_anything_is_installed(tiny_policy, monkeypatch):
    monkeypatch.setattr(pools, "family_python", lambda family: pytest.fail("installs"))
    for refused in (
        lambda: evaluate(tiny_policy, "BallCircle"),
        lambda: roll_out(tiny_policy, TASK, (10.0,)),
    ):
        with pytest.raises(BCRLError, match=r"\(6, 2, 1\), but BallCircle \(8, 2, 1\)"):
            refused()


def test_an_environment_in_this_process_gives_the_same_episodes(tiny_policy, fake_task, capfd):
    """As `gym:ID` in workers of this very Python, which is what a name without `--python` means."""
    fake_task()  # for the current folder
    random.seed(1)
    np.random.seed(1)  # noqa: NPY002
    before = random.getstate(), np.random.get_state()[1].tolist()  # noqa: NPY002
    env = gymnasium.make("Fake-v0", disable_env_checker=True)
    asked = {"thresholds": THRESHOLDS, "episodes": 3, "seed": 2}
    here = evaluate(tiny_policy, env, **asked)
    assert (random.getstate(), np.random.get_state()[1].tolist()) == before  # noqa: NPY002
    there = evaluate(tiny_policy, "gym:fake_world:Fake-v0", **asked)
    assert {row.world for row in here} == {"Fake-v0"}
    assert {row.world for row in there} == {"gym:fake_world:Fake-v0"}
    assert all(np.isnan(row.normalised_reward) for row in [*here, *there])
    facts = [
        [(r.threshold, r.return_, r.cost, r.length, r.fallback_share) for r in rows] for rows in (here, there)
    ]
    assert facts[0] == facts[1]


@pytest.mark.parametrize(
    ("env", "wanted"),
    [
        ({"id": "Wide-v0"}, "RescaleAction"),
        ({"id": "Fake-v0", "cost": False}, "its info has no 'cost'"),
    ],
)
def test_a_live_environment_that_does_not_fit_is_refused(env, wanted, tiny_policy):
    with pytest.raises(BCRLError, match=wanted):
        evaluate(tiny_policy, gymnasium.make(**env, disable_env_checker=True), (1.0,), episodes=1)


def test_a_world_without_reference_returns_shows_the_return(tiny_policy, fake_task):
    results = evaluate(
        tiny_policy, gymnasium.make("Fake-v0", disable_env_checker=True), (5.0, 8.0), episodes=3
    )
    shown = io.StringIO()
    Console(file=shown, width=150).print(summary_table(results.summary(), "t"))
    page = report_page(results)
    axes = draw(results).axes[0]
    for text in (shown.getvalue(), page):
        assert "normalised reward" not in text
        assert "reward is normalised" not in text
        assert f"{results.summary()[0].episode_return.mean:.2f}" in text
    assert shown.getvalue().splitlines()[1].split()[:3] == ["threshold", "return", "cost"]
    assert axes.get_ylabel() == "return"
    assert "a return of" in page
