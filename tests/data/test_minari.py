"""Minari's data sets: read, written, and held against the real package."""

import json
import shutil
import sys
import warnings
from contextlib import suppress
from pathlib import Path
from typing import ClassVar

import gymnasium
import h5py
import numpy as np
import pytest

from bcrl.cli import main
from bcrl.data import FIELDS, Dataset, load_data, save_data
from bcrl.errors import BCRLError


@pytest.fixture(autouse=True)
def store(tmp_path, monkeypatch) -> Path:
    folder = tmp_path / "store"
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(folder))
    return folder


@pytest.fixture
def data(arrays) -> Dataset:
    return Dataset(**arrays)


def main_file(folder: Path) -> Path:
    return folder / "data" / "main_data.hdf5"


@pytest.mark.parametrize("kinds", [1, 2])
@pytest.mark.parametrize("name", ["log.minari", "LOG.MINARI", "minari:point/circle-v3"])
def test_round_trip(arrays, tmp_path, store, monkeypatch, name, kinds):
    monkeypatch.chdir(tmp_path)
    if kinds > 1:
        arrays["costs"] = np.stack([arrays["costs"] * (k + 0.1) for k in range(kinds)], axis=1)
    data = Dataset(**arrays)
    data.save(name)
    again = load_data(name)
    assert again.fingerprint() == data.fingerprint()
    assert again.cost_count == kinds
    assert (store / "point" / "circle-v3").exists() == name.startswith("minari:")
    assert not list(tmp_path.rglob(".*"))


def test_the_folder_and_its_data_are_found_whatever_their_name(data, tmp_path):
    save_data(data, tmp_path / "log.minari")
    (tmp_path / "log.minari").rename(tmp_path / "renamed")
    assert load_data(tmp_path / "renamed").fingerprint() == data.fingerprint()
    assert load_data(tmp_path / "renamed" / "data").fingerprint() == data.fingerprint()


def test_what_we_write_opens_in_minari(data):
    minari = pytest.importorskip("minari")
    save_data(data, "minari:point/circle-v3")
    assert list(minari.list_local_datasets()) == ["point/circle-v3"]
    theirs = minari.load_dataset("point/circle-v3")
    assert (theirs.total_episodes, theirs.total_steps) == (3, 12)
    assert theirs.observation_space == gymnasium.spaces.Box(-np.inf, np.inf, (3,), np.float32)
    assert theirs.action_space == gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    for number, episode in enumerate(theirs):
        rows = slice(data.starts[number], data.ends[number] + 1)
        np.testing.assert_array_equal(episode.observations[:-1], data.observations[rows])
        np.testing.assert_array_equal(episode.observations[1:], data.next_observations[rows])
        np.testing.assert_array_equal(episode.actions, data.actions[rows])
        np.testing.assert_array_equal(episode.rewards, data.rewards[rows])
        np.testing.assert_array_equal(episode.terminations, data.terminals[rows])
        np.testing.assert_array_equal(episode.truncations, data.timeouts[rows])
        np.testing.assert_array_equal(episode.infos["cost"], np.r_[0, data.costs[rows]])
    assert len(theirs.sample_episodes(2)) == 2


def test_minari_can_add_to_what_we_write(data):
    minari = pytest.importorskip("minari")
    save_data(data, "minari:circle-v0")
    save_data(data, "minari:circle-v1")
    both = [minari.load_dataset(f"circle-v{version}") for version in (0, 1)]
    minari.combine_datasets(both, "both-v0")
    assert load_data("minari:both-v0").episode_count == 6


class Corridor(gymnasium.Env):
    """Walks on a line; being beyond 0.5 costs. Ends at 1."""

    metadata: ClassVar[dict] = {}
    observation_space = gymnasium.spaces.Box(-10, 10, (1,), np.float64)
    action_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = np.zeros(1)
        return self.place.copy(), {"cost": 0.0, "more": {"risk": 0.0}}

    def step(self, action):
        self.place = self.place + 0.3 * action
        cost = float(self.place[0] > 0.5)
        over = bool(self.place[0] >= 1)
        return self.place.copy(), float(action[0]), over, False, {"cost": cost, "more": {"risk": 2 * cost}}


def recorded(steps: list[list[float]], **options) -> None:
    """Episodes of these actions in Minari's store, recorded by Minari."""
    minari = pytest.importorskip("minari")
    env = minari.DataCollector(gymnasium.wrappers.TimeLimit(Corridor(), 4), **options)
    for actions in steps:
        env.reset(seed=0)
        for action in actions:
            env.step(np.array([action], np.float32))
    with warnings.catch_warnings():
        # Minari leaves its temporary folders to the garbage collector, and misses the author's name.
        warnings.simplefilter("ignore")
        env.create_dataset("corridor/walk-v0")
        env.close()
        del env


def test_what_minari_records_opens_here():
    recorded([[1, 1, 1, 1], [0.5, -1, 0.25, 0]], record_infos=True)
    data = load_data("minari:corridor/walk-v0")
    assert data.episode_lengths.tolist() == [4, 4]
    places = np.cumsum([[0.3, 0.3, 0.3, 0.3], [0.15, -0.3, 0.075, 0]], axis=1)
    np.testing.assert_allclose(data.next_observations.reshape(2, 4), places, rtol=1e-6)
    np.testing.assert_allclose(data.observations.reshape(2, 4), np.c_[[0, 0], places[:, :3]], rtol=1e-6)
    assert data.actions.ravel().tolist() == [1, 1, 1, 1, 0.5, -1, 0.25, 0]
    assert data.rewards.tolist() == [1, 1, 1, 1, 0.5, -1, 0.25, 0]
    assert data.costs.tolist() == [0, 1, 1, 1, 0, 0, 0, 0]
    assert data.terminals.tolist() == [0, 0, 0, 1, 0, 0, 0, 0]
    assert data.timeouts[7]
    assert load_data("minari:corridor/walk-v0", cost_key="more/risk").costs.max() == 2


def test_costs_that_were_not_recorded_are_missed():
    recorded([[1, 1, 1, 1]])
    with pytest.raises(BCRLError, match=r"walk-v0 episode_0: infos/cost missing; found .*record_infos=True"):
        load_data("minari:corridor/walk-v0")
    with pytest.raises(BCRLError, match="--cost-key"):
        load_data("minari:corridor/walk-v0", cost_key="risk")


def test_no_minari_is_needed(data, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "minari", None)
    save_data(data, tmp_path / "log.minari")
    assert load_data(tmp_path / "log.minari").fingerprint() == data.fingerprint()


def test_episodes_are_read_in_the_order_of_their_numbers(tiny_log, tmp_path):
    """episode_10 comes after episode_9, not after episode_1."""
    arrays = {name: np.concatenate([getattr(tiny_log, name)] * 2) for name in FIELDS}
    arrays["next_observations"] = np.roll(arrays["observations"], -1, axis=0)
    arrays["next_observations"][arrays["timeouts"]] += 1
    data = Dataset(**arrays)
    assert data.episode_count == 16
    save_data(data, tmp_path / "log.minari")
    assert load_data(tmp_path / "log.minari").fingerprint() == data.fingerprint()


def test_a_log_that_minari_cannot_hold_is_refused(arrays, tmp_path):
    arrays["next_observations"] += 1
    with pytest.raises(BCRLError, match=r"next_observations row 0 is not observations row 1.*\.npz"):
        Dataset(**arrays, consecutive=False).save(tmp_path / "log.minari")
    assert list(tmp_path.iterdir()) == []


def test_an_episode_that_ends_in_neither_way_was_truncated(data, tmp_path):
    save_data(data, tmp_path / "log.minari")
    with h5py.File(main_file(tmp_path / "log.minari"), "a") as file:
        file["episode_0/truncations"][-1] = False
    with pytest.warns(UserWarning, match="1 of 3 episodes end with neither"):
        again = load_data(tmp_path / "log.minari")
    assert again.fingerprint() == data.fingerprint()


def test_saving_over_a_data_set_replaces_it_and_nothing_else(data, tmp_path):
    path = tmp_path / "log.minari"
    save_data(data, path)
    save_data(data.select_episodes([1]), path)
    assert load_data(path).episode_count == 1
    (path / "notes.txt").touch()
    with pytest.raises(BCRLError, match="holds other things"):
        save_data(data, path)
    (tmp_path / "file.minari").touch()
    with pytest.raises(BCRLError, match="in the way"):
        save_data(data, tmp_path / "file.minari")
    with pytest.raises(BCRLError, match="cannot be written"):
        save_data(data, tmp_path / "file.minari" / "log.minari")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["file.minari", "log.minari"]


def test_a_failed_write_leaves_the_old_data_set(data, tmp_path, monkeypatch):
    path = tmp_path / "log.minari"
    save_data(data, path)
    monkeypatch.setattr(h5py.Group, "create_dataset", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        save_data(data.select_episodes([1]), path)
    assert load_data(path).fingerprint() == data.fingerprint()
    assert [file.name for file in tmp_path.iterdir()] == ["log.minari"]


def put(name, change):
    """Replaces an array of episode 1, which has three steps."""

    def damage(folder):
        with h5py.File(main_file(folder), "a") as file:
            values = change(file[f"episode_1/{name}"][()])
            del file[f"episode_1/{name}"]
            if values is not None:
                file[f"episode_1/{name}"] = values

    return damage


def as_group(folder):
    put("observations", lambda x: None)(folder)
    with h5py.File(main_file(folder), "a") as file:
        file["episode_1/observations/goal"] = np.zeros((4, 3))
        file["episode_1/observations/state"] = np.zeros((4, 3))


def metadata(**changes):
    def damage(folder):
        path = folder / "data" / "metadata.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))

    return damage


def cut(folder):
    path = main_file(folder)
    path.write_bytes(path.read_bytes()[:-2000])


def at(place, value):
    def change(array):
        array = array.astype(np.float64)
        array[place] = value
        return array

    return change


DAMAGE = {
    "costs missing": (put("infos/cost", lambda x: None), ["episode_1: infos/cost missing; found nothing"]),
    "rewards missing": (put("rewards", lambda x: None), ["episode_1: rewards missing", "actions, infos"]),
    "negative cost": (put("infos/cost", at(2, -1)), ["episode_1: costs row 1 is -1"]),
    "cost of NaN": (put("infos/cost", at(3, np.nan)), ["episode_1: costs row 2 is nan"]),
    "costs too short": (put("infos/cost", lambda x: x[:2]), ["episode_1: costs has 2 rows"]),
    "action out of range": (put("actions", at((2, 1), 1.5)), ["episode_1: actions row 2 column 1 is 1.5"]),
    "discrete actions": (
        put("actions", lambda x: np.array([0, 1, 2])),
        ["episode_1: actions has shape (3,)"],
    ),
    "actions too long": (put("actions", lambda x: np.r_[x, x]), ["episode_1: actions has 6 rows"]),
    "no last observation": (
        put("observations", lambda x: x[:-1]),
        ["episode_1: observations has 3 rows and rewards has 3", "one observation more"],
    ),
    "another width": (
        put("observations", lambda x: x[:, :2]),
        ["episode_1: observations has shape (3, 2) but episode_0 has (5, 3)"],
    ),
    "a dictionary": (as_group, ["episode_1: observations is a group of goal, state", "flatten"]),
    "no steps": (put("rewards", lambda x: x[:0]), ["episode_1: rewards has no rows"]),
    "one reward": (put("rewards", lambda x: x[0]), ["episode_1: rewards is one value"]),
    "text": (put("rewards", lambda x: x.astype("S8")), ["episode_1: rewards holds |S8"]),
    "an end in the middle": (
        put("terminations", lambda x: np.array([0, 1, 1])),
        ["episode_1: terminations or truncations is 1 in row 1 of 3"],
    ),
    "flag of 2": (put("truncations", lambda x: np.array([0, 0, 2])), ["episode_1: timeouts row 2 is 2"]),
    "an episode missing": (metadata(total_episodes=4), ["has 3 episodes but metadata.json says 4"]),
    "arrow": (metadata(data_format="arrow"), ["data_format is 'arrow'", "'hdf5'"]),
    "no count": (metadata(total_episodes=None), ["metadata.json cannot be read"]),
    "no JSON": (
        lambda folder: (folder / "data/metadata.json").write_text("{"),
        ["metadata.json cannot be read"],
    ),
    "a list": (
        lambda folder: (folder / "data/metadata.json").write_text("[]"),
        ["metadata.json cannot be read"],
    ),
    "no arrays": (lambda folder: main_file(folder).unlink(), ["main_data.hdf5 is missing"]),
    "text for arrays": (lambda folder: main_file(folder).write_text("no"), ["main_data.hdf5 is damaged"]),
    "cut": (cut, ["damaged or cut short"]),
    "no metadata": (lambda folder: (folder / "data/metadata.json").unlink(), ["no Minari data set"]),
    "nothing": (shutil.rmtree, ["there is no such data set"]),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damaged_data_sets(name, data, tmp_path, capsys):
    damage, words = DAMAGE[name]
    path = tmp_path / "log.minari"
    save_data(data, path)
    damage(path)
    with pytest.raises(SystemExit) as stop:
        main(["data", "info", str(path)])
    said = capsys.readouterr()
    assert stop.value.code == 2
    lines = said.err.splitlines()
    assert len(lines) == 1, said.err
    assert lines[0].startswith(f"bcrl: {path}")
    for word in words:
        assert word in lines[0]


@pytest.mark.parametrize(
    "name", ["minari:", "minari:walk", "minari:../walk-v0", "minari:/walk-v0", "minari:a//b-v0"]
)
def test_names_that_minari_does_not_have(name):
    with pytest.raises(BCRLError, match=r"ends in -v and a number, such as minari:point/circle-v0"):
        load_data(name)


def test_random_damage_never_escapes_as_another_error(data, tmp_path):
    """Flipped bytes and cuts anywhere in the file: read or refused in one line, nothing else."""
    folder = tmp_path / "log.minari"
    save_data(data, folder)
    good = main_file(folder).read_bytes()
    rng = np.random.default_rng(0)
    messages = []
    for trial in range(150):
        bad = bytearray(good)
        if trial % 3:
            for place in rng.integers(0, len(bad), size=trial % 7 + 1):
                bad[place] ^= int(rng.integers(1, 256))
        else:
            del bad[rng.integers(1, len(bad)) :]
        main_file(folder).write_bytes(bad)
        # A flipped flag may leave an episode without an end, which is a warning.
        with suppress(UserWarning):
            try:
                load_data(folder)
            except BCRLError as error:
                messages.append(str(error))
    assert len(messages) > 50
    assert all(message.startswith(str(folder)) and "\n" not in message for message in messages)
