"""Logs made by the collector, small enough to be made here."""

from pathlib import Path
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from optimised import optimised

from bcrl.cli import main
from bcrl.data import Dataset, load_data
from bcrl.errors import BCRLError
from bcrl.worlds import JaxWorld, make_world
from bcrl.worlds.collect import STEPS, collect

SIZE = 40_000  # transitions


@pytest.fixture(scope="module")
def log() -> Dataset:
    """What a sixth of the usual training leaves behind."""
    with optimised():
        return collect(make_world("point-circle"), SIZE, seed=1, steps=1_000_000)


@pytest.mark.slow
def test_a_log_has_whole_episodes_that_chain(log: Dataset) -> None:
    assert len(log) == SIZE
    assert (log.episode_lengths == 200).all()
    assert log.timeouts.sum() == log.episode_count
    assert not log.terminals.any()
    inner = ~log.timeouts[:-1]
    np.testing.assert_array_equal(log.next_observations[:-1][inner], log.observations[1:][inner])


@pytest.mark.slow
def test_a_log_is_what_the_world_does(log: Dataset) -> None:
    """Without noise, the recorded actions lead from each recorded state to the next."""
    world = make_world("point-circle")
    from bcrl.worlds._point import Point

    rows = np.random.default_rng(0).integers(0, len(log), 500)
    seen = log.observations[rows]
    states = Point(jnp.asarray(seen[:, :2]), jnp.asarray(2.0 * seen[:, 2:4]))
    keys = jax.random.split(jax.random.key(0), len(rows))
    states, rewards, costs, _ = jax.vmap(world.step)(states, jnp.asarray(log.actions[rows]), keys)
    np.testing.assert_allclose(jax.vmap(world.observe)(states), log.next_observations[rows], atol=1e-4)
    np.testing.assert_allclose(rewards, log.rewards[rows], atol=1e-3)
    assert (np.asarray(costs) == log.costs[rows]).mean() > 0.99


@pytest.mark.slow
def test_a_log_covers_the_plane(log: Dataset) -> None:
    costs, returns = log.episode_costs, log.episode_returns
    assert costs.max() <= 120
    for low, high in ((0, 10), (10, 20), (20, 40), (40, 80), (80, 120)):
        band = returns[(costs >= low) & (costs <= high)]
        assert len(band) >= 8, (low, high)
        assert np.ptp(band) > 50, (low, high)
    assert returns[costs <= 10].max() < 0.7 * returns.max()
    assert costs[np.argmax(returns)] > 80


class Countdown(JaxWorld):
    """Ends in a terminal state after 3 to 7 steps; rewards are random."""

    name: ClassVar[str] = "countdown"
    observation_size: ClassVar[int] = 1
    action_size: ClassVar[int] = 1
    horizon: ClassVar[int] = 6
    reference_returns: ClassVar[tuple[float, float]] = (0.0, 1.0)

    def reset(self, key):
        return jax.random.randint(key, (), 3, 8)

    def observe(self, state):
        return state[None] / 5.0

    def move(self, state, action, key):
        return state - 1, action[0] + jax.random.uniform(key), jnp.zeros(()), state <= 1


@pytest.mark.slow
def test_the_same_seed_gives_the_same_log() -> None:
    logs = [collect(Countdown(), 300, seed, steps=2000, episodes=64) for seed in (0, 0, 1)]
    assert logs[0].fingerprint() == logs[1].fingerprint() != logs[2].fingerprint()


@pytest.mark.slow
def test_episodes_end_at_terminals() -> None:
    log = collect(Countdown(), 300, steps=2000, episodes=64)
    assert set(log.episode_lengths) == {3, 4, 5, 6}
    np.testing.assert_allclose(
        log.initial_observations[:, 0] * 5,
        np.where(log.terminals[log.ends], log.episode_lengths, 7),
        atol=1e-5,
    )
    assert (log.terminals ^ log.timeouts)[log.ends].all()


@pytest.mark.slow
@pytest.mark.parametrize("suffix", [".npz", ".hdf5"])
def test_a_log_survives_its_file(log: Dataset, tmp_path: Path, suffix: str) -> None:
    log.save(tmp_path / f"log{suffix}")
    assert load_data(tmp_path / f"log{suffix}").fingerprint() == log.fingerprint()


@pytest.mark.slow
def test_the_verb_writes_a_log_and_tells(log: Dataset, tmp_path: Path, capsys, monkeypatch) -> None:
    asked = []

    def recorded(world: JaxWorld, transitions: int, seed: int, **more: float) -> Dataset:
        asked.append((world, transitions, seed, more))
        return log.select_episodes(np.arange(5))

    monkeypatch.setattr("bcrl.worlds.collect.collect", recorded)
    out = tmp_path / "new folder" / "log.npz"
    words = [
        "collect",
        "point-run",
        "--out",
        str(out),
        "--transitions",
        "1000",
        "--noise",
        "0.1",
        "--seed",
        "3",
    ]
    main(words)
    assert asked == [(make_world("point-run", 0.1), 1000, 3, {"steps": STEPS, "cost_cap": 120.0})]
    assert "5 episodes, 1,000 transitions" in capsys.readouterr().out
    assert load_data(out).episode_count == 5
    main([*words, "--overwrite"])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["point-square", "--out", "a.npz"], "point-square"),
        (["point-run", "--out", "a.npz", "--transitions", "199"], "200"),
        (["point-run", "--out", "a.npz", "--noise", "-1"], "noise"),
        (["point-run", "--out", "a.npz", "--seed", "-1"], "seed"),
        (["point-run", "--out", "a.npz", "--steps", "0"], "steps"),
        (["BallRum", "--out", "a.npz"], "did you mean BallRun"),
        (["BallRun", "--out", "a.npz", "--noise", "0.1"], "built-in"),
        (["BallRun", "--out", "a.npz", "--transitions", "99"], "give 100 or more"),
        (["BallRun", "--out", "a.npz", "--workers", "0"], "workers"),
        (["gym:Fake-v0", "--out", "a.npz"], "give gym:module:Fake-v0"),
        (["point-run", "--out", "a.txt"], ".txt"),
        (["point-run", "--out", "folder.npz"], "folder"),
        (["point-run", "--out", "old.npz"], "--overwrite"),
        (["point-run", "--out", "old.npz/a.npz"], "cannot be written"),
    ],
)
def test_mistakes_are_told_before_any_work(
    words: list[str], said: str, tmp_path: Path, capsys, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("bcrl.worlds.collect.collect", lambda *_, **__: pytest.fail("work was begun"))
    monkeypatch.setattr(
        "bcrl.worlds.remote.pool.family_python", lambda _: pytest.fail("a family is installed")
    )
    (tmp_path / "folder.npz").mkdir()
    (tmp_path / "old.npz").touch()
    with pytest.raises(SystemExit) as stop:
        main(["collect", *words])
    assert stop.value.code == 2
    message = capsys.readouterr().err
    assert said in message
    assert message.count("\n") == 1


@pytest.mark.slow
def test_too_few_transitions_and_an_impossible_cap_are_told() -> None:
    with pytest.raises(BCRLError, match="200"):
        collect(make_world("point-run"), 100)
    with pytest.raises(BCRLError, match="cost cap"):
        collect(Countdown(), 300, steps=2000, episodes=64, cost_cap=-1.0)
