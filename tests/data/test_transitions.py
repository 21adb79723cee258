"""Next observations against the next row: right, shifted, reversed, sampled."""

import re

import numpy as np
import pytest

from bcrl.cli import main
from bcrl.data import Dataset, load_data, save_data
from bcrl.errors import BCRLError


def walk(episodes: int = 20, steps: int = 10, seed: int = 0) -> dict[str, np.ndarray]:
    """Random walks; each ends by a timeout and its last next observation is its own."""
    rng = np.random.default_rng(seed)
    states = np.cumsum(rng.normal(size=(episodes, steps + 1, 3)), axis=1).astype(np.float32)
    rows = episodes * steps
    return {
        "observations": states[:, :-1].reshape(rows, 3),
        "actions": rng.uniform(-1, 1, (rows, 2)),
        "rewards": rng.normal(size=rows),
        "costs": rng.integers(0, 2, rows),
        "next_observations": states[:, 1:].reshape(rows, 3).copy(),
        "terminals": np.zeros(rows, bool),
        "timeouts": np.arange(rows) % steps == steps - 1,
    }


def shift(arrays):
    """The usual mistake: next = the following row, whatever episode it is of."""
    arrays["next_observations"] = np.roll(arrays["observations"], -1, axis=0)


def reverse(arrays):
    """Rows of each episode in reverse order."""
    order = np.arange(200).reshape(20, 10)[:, ::-1].ravel()
    for name in ("observations", "actions", "rewards", "costs", "next_observations"):
        arrays[name] = arrays[name][order]


def same(arrays):
    arrays["next_observations"] = arrays["observations"]


WRONG = {
    "shifted": (shift, r"first observation of the following episode at 19 of 19 timeouts \(100\.00%\)"),
    "reversed": (reverse, r"differ from the next row's observations in 180 of 180 rows"),
    "unmoved": (same, r"differ from the next row's observations in 180 of 180 rows"),
}


def test_a_right_log_is_accepted_in_silence():
    found = Dataset(**walk()).transitions
    assert (found.inside, found.broken, found.timeouts, found.shifted) == (180, 0, 19, 0)
    assert found.faults() == []


@pytest.mark.parametrize("kind", WRONG)
def test_wrong_next_observations_are_refused(kind, tmp_path, capsys):
    damage, words = WRONG[kind]
    arrays = walk()
    damage(arrays)
    with pytest.raises(BCRLError, match=words + ".*consecutive=False"):
        Dataset(**arrays, source="log")
    for name in ("log.npz", "log.hdf5"):
        save_data(Dataset(**arrays, consecutive=False), tmp_path / "marked.npz")
        assert not load_data(tmp_path / "marked.npz").consecutive
        path = tmp_path / name
        unmarked(arrays, path)
        with pytest.raises(BCRLError, match=rf"^{re.escape(str(path))}: next_observations .*{words}"):
            load_data(path)
        with pytest.raises(SystemExit) as stop:
            main(["data", "info", str(path)])
        assert stop.value.code == 2
        said = capsys.readouterr().err
        assert len(said.splitlines()) == 1
        assert re.search(words, said)


def unmarked(arrays, path):
    """The file that another program would write."""
    if path.suffix == ".npz":
        np.savez(path, **arrays)
    else:
        import h5py

        with h5py.File(path, "w") as file:
            for name, array in arrays.items():
                file[name] = array


@pytest.mark.parametrize("suffix", [".npz", ".hdf5"])
def test_the_way_out_is_one_command_and_files_keep_it(suffix, tmp_path, capsys):
    arrays = walk()
    shift(arrays)
    np.savez(tmp_path / "log.npz", **arrays)
    out = tmp_path / f"new{suffix}"
    main(["data", "convert", str(tmp_path / "log.npz"), "--out", str(out), "--not-consecutive"])
    data = load_data(out)
    assert not data.consecutive
    assert data.fingerprint() == Dataset(**arrays, consecutive=False).fingerprint()
    assert not data.select_episodes([0, 1]).consecutive
    capsys.readouterr()
    main(["data", "info", str(out)])
    said = capsys.readouterr()
    assert said.err == ""
    assert "19 of 19 timeouts" in " ".join(said.out.split())
    with pytest.raises(BCRLError, match="following episode"):
        load_data(out, consecutive=True)


def test_a_few_wrong_rows_are_a_warning_and_info_counts_them(tmp_path, capsys):
    arrays = walk()
    arrays["next_observations"][[3, 57]] += 1
    with pytest.warns(UserWarning, match=r"log: next_observations differ .* 2 of 180 rows .*\(1\.11%\)"):
        Dataset(**arrays, source="log")
    np.savez(tmp_path / "log.npz", **arrays)
    main(["data", "info", str(tmp_path / "log.npz")])
    said = capsys.readouterr()
    assert "2 of 180 rows" in said.err
    assert "2 of 180 rows" in " ".join(said.out.split())


def test_rounding_is_no_fault():
    arrays = walk()
    arrays["next_observations"] = arrays["next_observations"].astype(np.float16)
    arrays["observations"][:, 2] += 1e6  # a large offset with a small spread
    arrays["next_observations"] = arrays["next_observations"].astype(np.float64) + np.array([0, 0, 1e6])
    assert Dataset(**arrays).transitions.broken == 0


def test_worlds_with_few_states_match_by_chance():
    """One-hot states, or one start where some agents stay: equal rows across an end are no mistake."""
    for seed in range(30):
        rng = np.random.default_rng(seed)
        arrays = walk(episodes=40, steps=5, seed=seed)
        states = np.eye(4)[rng.integers(4, size=(40, 6))]
        arrays["observations"] = states[:, :-1].reshape(200, 4)
        arrays["next_observations"] = states[:, 1:].reshape(200, 4)
        assert Dataset(**arrays).transitions.shifted == 0
    arrays["observations"] = np.zeros((200, 4))
    arrays["next_observations"] = np.zeros((200, 4))
    assert Dataset(**arrays).transitions.shifted == 0
