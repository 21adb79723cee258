"""Logs recorded in other processes: the same from the same seed, whatever happens on the way."""

import dataclasses
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import jax
import numpy as np
import pytest

from bcrl.cli import main
from bcrl.data import Dataset, load_data
from bcrl.errors import BCRLError
from bcrl.tensors import read_header
from bcrl.worlds._ppo import Agent, with_share
from bcrl.worlds.remote import collect as module
from bcrl.worlds.remote import pool as pools
from bcrl.worlds.remote._partial import FILE
from bcrl.worlds.remote._play import Scaling, Table
from bcrl.worlds.remote.collect import collect_remote, default_steps
from bcrl.worlds.tasks import Task, tasks

ASKED = {"transitions": 600, "seed": 3, "steps": 800, "cost_cap": 15.0}
EDGE = 0.5  # beyond which an episode of Short-v0 ends


def short(**config) -> Task:
    sizes = {"observation_size": 6, "action_size": 2, "horizon": 20}
    scores = {"reference_returns": (0.0, 1.0), "thresholds": (5.0,)}
    env_id = "fake_world:Short-v0"
    return Task("short", "gym", env_id, **sizes, **scores, config=config, python=sys.executable)


@pytest.fixture(autouse=True, scope="module")
def small() -> Iterator[None]:
    """Rounds of 8 columns of 20 steps; workers look for the environment in the current folder."""
    # A program that another test has compiled with optimisation rounds otherwise than that of a new process.
    jax.clear_caches()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(Path(__file__).parent)
        patch.setattr(module, "ROUND_STEPS", 160)
        patch.setattr(module, "RECIPE", dataclasses.replace(module.RECIPE, epochs=2, minibatches=4))
        yield


@pytest.fixture(scope="module")
def log(small: None) -> Dataset:
    return collect_remote(short(), **ASKED, workers=1)


def test_workers_queues_and_crashes_do_not_change_a_log(log: Dataset, monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(pools, "MOST_COPIES", 1)  # as MetaDrive: columns must queue
    other = collect_remote(short(crash=str(tmp_path / "crashed")), **ASKED, workers=3)
    assert (tmp_path / "crashed").exists()
    assert other.fingerprint() == log.fingerprint()


def test_another_seed_gives_another_log(log: Dataset) -> None:
    assert collect_remote(short(), **ASKED | {"seed": 4}, workers=1).fingerprint() != log.fingerprint()


def test_a_log_is_what_the_world_does(log: Dataset) -> None:
    after = log.next_observations
    np.testing.assert_allclose(log.rewards, log.actions[:, 0] + after[:, 1], atol=1e-5)
    np.testing.assert_array_equal(log.costs, after[:, 0] > 0)
    np.testing.assert_array_equal(log.terminals, after[:, 2] > EDGE)
    inner = ~(log.terminals | log.timeouts)[:-1]
    np.testing.assert_array_equal(after[:-1][inner], log.observations[1:][inner])
    assert (log.episode_lengths[log.timeouts[log.ends]] == 20).all()  # nothing that was cut off
    assert log.episode_count > 40  # columns went on with new episodes: there were 40
    assert log.timeouts.sum() > 0
    assert log.episode_costs.max() <= 15
    assert len(np.unique(log.initial_observations, axis=0)) == log.episode_count


STOPPED = """
import dataclasses, os, signal, sys
from bcrl.worlds.remote import _partial as partial, collect as module
from bcrl.cli import main
module.ROUND_STEPS, module.CHECKPOINT_SECONDS = 160, 0
module.RECIPE = dataclasses.replace(module.RECIPE, epochs=2, minibatches=4)
save = partial.Partial.save
def stop(self, rounds, *rest):
    if rounds == 4:
        os.kill(os.getpid(), signal.SIGKILL)
    save(self, rounds, *rest)
partial.Partial.save = stop
main(sys.argv[1:])
"""


def test_a_killed_recording_goes_on_to_the_same_log(log: Dataset, monkeypatch, tmp_path, capsys) -> None:
    out = tmp_path / "log.hdf5"
    words = ["collect", "gym:fake_world:Short-v0", "--python", sys.executable, "--out", str(out)]
    words += [word for name, value in ASKED.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    killed = subprocess.run([sys.executable, "-c", STOPPED, *words], capture_output=True, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    partial = tmp_path / ".log.hdf5.partial"
    assert read_header(partial / FILE, "recording")["rounds"] == 3
    assert not out.exists()

    with pytest.raises(SystemExit):  # another log under the same name
        main([*words[:-1], "16"])
    assert "cost_cap was 15.0 and is now 16.0" in capsys.readouterr().err

    rounds = []
    monkeypatch.setattr(
        module, "play", lambda *a, play=module.play, **k: rounds.append(k["seed"]) or play(*a, **k)
    )
    main(words)
    assert rounds == [(3, 3), (3, 4)]  # those before the stop are not played again
    assert load_data(out).fingerprint() == log.fingerprint()
    assert "of episodes with cost ≤ 10 / 20 / 40" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == [out]  # what was kept for going on is gone


def test_a_damaged_checkpoint_is_told(tmp_path) -> None:
    (tmp_path / FILE).write_bytes(b"half a file")
    with pytest.raises(BCRLError, match="may be cut short"):
        collect_remote(short(), **ASKED, folder=tmp_path)


@pytest.fixture(scope="module")
def checkpoint(small: None, tmp_path_factory) -> bytes:
    """A checkpoint after one round."""
    folder = tmp_path_factory.mktemp("partial")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "CHECKPOINT_SECONDS", 0)
        collect_remote(short(), **ASKED | {"steps": 160}, folder=folder, workers=1)
    return (folder / FILE).read_bytes()


def test_a_checkpoint_is_taken_up(checkpoint: bytes, tmp_path) -> None:
    (tmp_path / FILE).write_bytes(checkpoint)
    resumed = collect_remote(short(), **ASKED | {"steps": 160}, folder=tmp_path, workers=1)
    fresh = collect_remote(short(), **ASKED | {"steps": 160}, workers=1)
    assert resumed.fingerprint() == fresh.fingerprint()


@pytest.mark.parametrize("place", ["rounds", "random", "tensors", "half"])
def test_no_damage_to_a_checkpoint_changes_a_log(place: str, checkpoint: bytes, tmp_path) -> None:
    """A flipped bit anywhere, a wrong type in the header, a file cut short: one line each."""
    spoilt = {
        "rounds": checkpoint.replace(b'\\"rounds\\": 1', b'\\"rounds\\": 0'),
        "random": checkpoint.replace(b'\\"PCG64\\"', b'\\"PCG65\\"'),
        "tensors": checkpoint[:-9] + bytes([checkpoint[-9] ^ 1]) + checkpoint[-8:],
        "half": checkpoint[: len(checkpoint) // 2],
    }[place]
    assert spoilt != checkpoint
    (tmp_path / FILE).write_bytes(spoilt)
    with pytest.raises(BCRLError, match=r"damaged; remove .* to record anew|cut short") as error:
        collect_remote(short(), **ASKED | {"steps": 160}, folder=tmp_path, workers=1)
    assert "\n" not in str(error.value)


def test_an_environment_without_an_end_is_refused(capsys, tmp_path) -> None:
    words = ["gym:fake_world:Endless-v0", "--python", sys.executable, "--out", str(tmp_path / "log.npz")]
    with pytest.raises(SystemExit):
        main(["collect", *words])
    assert "max_episode_steps" in capsys.readouterr().err


def test_no_episode_under_the_cap_is_told() -> None:
    with pytest.raises(BCRLError, match="raise the cost cap"):
        collect_remote(short(), **ASKED | {"cost_cap": -1.0, "steps": 100})


def test_scaling_is_the_mean_and_spread_of_all_batches() -> None:
    random = np.random.default_rng(0)
    batches = [random.normal(3.0, 2.0, (rows, 4)).astype(np.float32) for rows in (5, 100, 31)]
    batches[2][:, 1] += 40.0
    scaling = Scaling(4)
    np.testing.assert_array_equal(scaling(batches[0][:, :1] * 0 + 7.0), 5.0)  # cut; no scale is known yet
    for batch in batches:
        scaling.update(batch)
    seen = np.concatenate(batches).astype(np.float64)
    expected = np.clip((seen - seen.mean(0)) / seen.std(0), -5, 5)
    np.testing.assert_allclose(scaling(np.concatenate(batches)), expected, atol=1e-5)


def test_the_actor_in_numpy_is_the_actor() -> None:
    agent = Agent(jax.random.key(0), 4, 2, -1.0)
    random = np.random.default_rng(0)
    shares = random.random((6, 3)).astype(np.float32)
    noise = random.normal(size=(6, 3, 2)).astype(np.float32)
    table = Table(agent, Scaling(4), shares, noise, (0, 0))
    table.current[:] = random.normal(size=(3, 4))
    table.times[:] = 0, 3, 6  # the last column is full
    at = np.array([0, 3, 5]), np.arange(3)
    means = jax.vmap(agent.actor)(with_share(table.current, shares[at]))
    np.testing.assert_allclose(table.draw(), means + noise[at] * np.exp(-1.0), atol=1e-6)


def test_every_task_has_a_number_of_steps() -> None:
    assert all(default_steps(task) >= 100 * task.horizon for task in tasks().values())
