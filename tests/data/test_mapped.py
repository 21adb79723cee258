"""Logs that stay on disk: the same contents and the same refusals as in memory."""

import dataclasses

import numpy as np
import pytest

from bcrl.data import blocks, load_data, mapped, save_data
from bcrl.data.blocks import extremes, moments, take
from bcrl.errors import BCRLError

FILES = {"compressed.npz": True, "plain.npz": False, "log.hdf5": True}


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch, tmp_path):
    monkeypatch.setenv("BCRL_CACHE", str(tmp_path / "cache"))
    for module in (blocks, mapped):
        monkeypatch.setattr(module, "BLOCK_BYTES", 2**9)
    monkeypatch.setattr(blocks, "ROWS_AT_ONCE", 7)


@pytest.fixture(params=FILES)
def file(request, tiny_log, tmp_path):
    save_data(tiny_log, tmp_path / request.param, compressed=FILES[request.param])
    return tmp_path / request.param


def test_a_log_on_disk_is_the_same_log(file, tiny_log, tmp_path):
    log = load_data(file, storage="disk")
    assert log.on_disk
    assert not load_data(file).on_disk
    assert log.fingerprint() == tiny_log.fingerprint()
    assert log.transitions == tiny_log.transitions
    np.testing.assert_array_equal(log.initial_observations, tiny_log.initial_observations)
    for on_disk, in_memory in zip(moments(log.observations), moments(tiny_log.observations), strict=True):
        np.testing.assert_array_equal(on_disk, in_memory)
    np.testing.assert_array_equal(extremes(log.actions), extremes(tiny_log.actions))
    cheap = tiny_log.episode_costs <= np.median(tiny_log.episode_costs)
    chosen = log.select_episodes(cheap)
    assert chosen.on_disk
    assert chosen.fingerprint() == tiny_log.select_episodes(cheap).fingerprint()
    save_data(log, tmp_path / "again.hdf5")
    assert load_data(tmp_path / "again.hdf5").fingerprint() == tiny_log.fingerprint()
    assert not list((tmp_path / "cache").iterdir()), "files have no name"


def test_rows_are_taken_in_any_order(file, tiny_log):
    log = load_data(file, storage="disk")
    rows = np.random.default_rng(0).integers(0, len(log), 100)
    np.testing.assert_array_equal(take(log.next_observations, rows), tiny_log.next_observations[rows])
    assert take(log.actions, rows[:0]).shape == (0, log.action_size)


def test_rows_far_into_a_file(tmp_path):
    """Beyond 4 GB, by indices of 32 bits as JAX draws them; the file is a hole but for its last row."""
    with (tmp_path / "table").open("wb") as file:
        file.truncate(5_000_000 * 1_000)
        file.seek(-1_000, 2)
        file.write(np.arange(250, dtype=np.float32).data)
    with (tmp_path / "table").open("rb") as file:
        table = blocks.map_file(file, (5_000_000, 250))
    found = take(table, np.array([4_999_999, 17, 4_500_000], np.int32))
    np.testing.assert_array_equal(found[0], np.arange(250))
    assert not found[1:].any()


def test_a_large_log_stays_on_disk_by_itself(monkeypatch, file):
    monkeypatch.setattr(mapped, "machine_memory", lambda: 1_000)
    assert load_data(file).on_disk
    assert not load_data(file, storage="memory").on_disk


def test_moments_are_those_of_numpy(tiny_log):
    mean, std = moments(tiny_log.observations)
    np.testing.assert_allclose(mean, tiny_log.observations.mean(0, dtype=np.float64), rtol=1e-12)
    np.testing.assert_allclose(std, tiny_log.observations.std(0, dtype=np.float64), rtol=1e-12)


@pytest.mark.parametrize("storage", ["memory", "disk"])
@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("observations", np.nan, "observations row 57 column 1 is nan, not a finite float32"),
        ("next_observations", 1e300, r"next_observations row 57 column 1 is (1e\+300|inf), not"),
        ("actions", -1.5, "actions row 57 column 1 is -1.5, outside"),
    ],
)
def test_faults_are_found_in_any_block(field, value, words, storage, tiny_log, tmp_path):
    arrays = {name: np.array(x, np.float64) for name, x in tiny_log.arrays().items()}
    arrays[field][57, 1] = value
    for save in (np.savez, np.savez_compressed):
        save(tmp_path / "bad.npz", **arrays)  # type: ignore[arg-type]
        with pytest.raises(BCRLError, match=words):
            load_data(tmp_path / "bad.npz", storage=storage)


def test_what_cannot_be_left_on_disk_says_so(monkeypatch, tiny_log, tmp_path):
    arrays = tiny_log.arrays() | {"observations": np.asfortranarray(tiny_log.observations)}
    np.savez(tmp_path / "columns.npz", **arrays)
    with pytest.raises(BCRLError, match="observations is stored column by column"):
        load_data(tmp_path / "columns.npz", storage="disk")
    save_data(tiny_log, tmp_path / "log.npz")
    full = dataclasses.make_dataclass("Usage", ["free"])
    monkeypatch.setattr(mapped.shutil, "disk_usage", lambda _: full(10))
    with pytest.raises(BCRLError, match=r"log\.npz: needs .* GB in .*cache.*set BCRL_CACHE"):
        load_data(tmp_path / "log.npz", storage="disk")
    with pytest.raises(BCRLError, match="storage is 'tape', but must be"):
        load_data(tmp_path / "log.npz", storage="tape")  # type: ignore[arg-type]
    with pytest.raises(BCRLError, match=r"only \.npz can be written without compression"):
        save_data(tiny_log, tmp_path / "log.hdf5", compressed=False)


def test_a_damaged_file_on_disk_is_refused(file, tmp_path):
    content = bytearray(file.read_bytes())
    del content[len(content) // 2 :]
    file.write_bytes(content)
    with pytest.raises(BCRLError, match=file.name):
        load_data(file, storage="disk")
