"""A log on disk gives the same batches as in memory, and the same policies up to rounding."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bcrl.data import Dataset, load_data, mapped, save_data
from bcrl.data import blocks as in_blocks
from bcrl.errors import BCRLError
from bcrl.learn import batch, streamed
from bcrl.learn.loop import initial_state, seed_keys, train
from bcrl.learn.protocol import Normaliser, Spec
from bcrl.learn.registry import make_method
from bcrl.train.run import fit

SMALL: dict[str, Any] = {"hidden": (8,), "batch_size": 8}


@pytest.fixture
def small_blocks(monkeypatch, tmp_path):
    """Blocks of a few rows, so that even a tiny log has many."""
    monkeypatch.setenv("BCRL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(in_blocks, "BLOCK_BYTES", 2**9)
    monkeypatch.setattr(in_blocks, "ROWS_AT_ONCE", 5)


@pytest.fixture
def disk_log(tiny_log_file, small_blocks):
    log = load_data(tiny_log_file, storage="disk")
    assert log.on_disk
    return log


def leaves(tree) -> list[np.ndarray]:
    return [np.array(x) for x in jax.tree.leaves(tree)]


def points(method, log, seeds, log_every=10) -> list:
    """States and metrics at each point of a training."""
    spec = Spec.of(log, 40)
    arrays = method.prepare(log, Normaliser.of(log.observations))
    state = initial_state(method, spec, seeds)
    found = train(method, arrays, spec, seeds, state, step=0, log_every=log_every)
    return [(point.step, leaves(point.state), point.metrics) for point in found]  # copies: states are reused


def assert_close(one, other, words: str = "") -> None:
    """The programs differ in where a batch comes from, and with it in the last bit of a sum."""
    for x, y in zip(leaves(one), leaves(other), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-5, err_msg=words)


def assert_same(one: list, other: list) -> None:
    assert [step for step, *_ in one] == [step for step, *_ in other]
    for (step, states, metrics), (_, others, other_metrics) in zip(one, other, strict=True):
        assert_close(states, others, f"step {step}")
        assert_close(metrics, other_metrics, f"step {step}")


def test_a_log_on_disk_trains_to_the_same_states(tiny_log, disk_log):
    """Point by point, on the episodes that BC-Safe chooses; BCRL is trained below."""
    method = make_method("bc-safe", **SMALL, threshold=float(np.median(tiny_log.episode_costs)))
    assert_same(points(method, tiny_log, (3,)), points(method, disk_log, (3,)))


@pytest.mark.parametrize("name", ["bcq-lag", "ccac", "cpq"])
def test_methods_with_arrays_of_their_own_sample_the_same(name, tiny_log, disk_log):
    """Initial states, ranges of the log and a penalty come beside the rows."""
    threshold: dict[str, Any] = {} if name == "ccac" else {"threshold": 5.0}
    method = make_method(name, **SMALL, **threshold)
    here, there = (method.prepare(log, Normaliser.of(log.observations)) for log in (tiny_log, disk_log))
    keys = seed_keys((3, 4))
    (rows,) = streamed.read_ahead(method, there, keys, iter([streamed.Span(5, 3)]))
    assert rows is not None
    placed = streamed.on_device(there)
    for seed, step in ((0, 0), (1, 2)):
        key = streamed.step_keys(keys[seed], jnp.asarray(5 + step))[0]
        one = method.sample(here, key)
        other = method.sample(streamed.with_rows(placed, rows[seed, step]), key)
        for x, y in zip(leaves(one), leaves(other), strict=True):
            np.testing.assert_array_equal(x, y)


@pytest.mark.slow
def test_fit_gives_the_same_policy(disk_log, tiny_method, tiny_run):
    """Fingerprint, metrics, networks and observed range."""
    again = fit(disk_log, tiny_method, seeds=(0, 10), steps=40, log_every=10)
    assert_close(again.metrics, tiny_run.metrics)
    assert again.provenance["data_sha256"] == tiny_run.provenance["data_sha256"]
    assert_close(again.policy(10).learned, tiny_run.policy(10).learned)
    assert again.observed is not None
    for x, y in zip(again.observed, tiny_run.observed, strict=True):
        np.testing.assert_array_equal(x, y)


def test_rows_are_read_in_pieces_that_fit(monkeypatch, disk_log, tiny_method):
    """Few steps at a time where their rows take much memory."""
    arrays = tiny_method.prepare(disk_log, Normaliser.of(disk_log.observations))
    width = sum(arrays.rows.widths)
    monkeypatch.setattr(streamed, "MOST_BYTES", 7 * 4 * tiny_method.batch_size * width)
    assert streamed.longest_span(tiny_method, arrays, seeds=1) == 7
    assert streamed.longest_span(tiny_method, arrays, seeds=100) == 1


def test_a_table_too_large_for_the_device_is_on_disk(monkeypatch, tiny_log, tiny_method, small_blocks):
    normaliser = Normaliser.of(tiny_log.observations)
    usual = tiny_method.prepare(tiny_log, normaliser)
    assert isinstance(usual.rows.table, jax.Array)
    monkeypatch.setattr(batch, "device_memory", lambda: 1.0)
    arrays = tiny_method.prepare(tiny_log, normaliser)
    assert isinstance(arrays.rows.table, np.ndarray)
    np.testing.assert_array_equal(arrays.rows.table, usual.rows.table)


@pytest.mark.parametrize("name", ["cdt", "coptidice"])
def test_methods_that_need_the_log_in_memory_refuse(name, disk_log):
    threshold: dict[str, Any] = {"threshold": 5.0} if name == "coptidice" else {}
    method = make_method(name, **threshold)
    with pytest.raises(BCRLError, match=rf"tiny\.npz: stays on disk, but {name} needs it in memory"):
        fit(disk_log, method, steps=1)


def test_damage_found_while_reading_ahead_reaches_the_caller(monkeypatch, disk_log, tiny_method):
    def broken(table, rows):
        raise OSError("the disk is gone")

    monkeypatch.setattr(streamed, "take", broken)
    with pytest.raises(OSError, match="the disk is gone"):
        fit(disk_log, tiny_method, steps=10, log_every=10)


def resident(path) -> int:
    """Bytes of a mapped file that are resident in this process."""
    found, ours = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if "-" in line.split(" ")[0]:
            ours = line.endswith(path.name)
        elif ours and line.startswith("Rss:"):
            found += 1024 * int(line.split()[1])
    return found


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="resident pages are counted on Linux")
def test_little_of_a_log_is_resident(tmp_path, monkeypatch, tiny_method):
    """Checks, statistics and packing go through all of it and keep next to nothing."""
    monkeypatch.setenv("BCRL_CACHE", str(tmp_path / "cache"))
    for module in (in_blocks, mapped):
        monkeypatch.setattr(module, "BLOCK_BYTES", 2**17)
    random = np.random.default_rng(0)
    rows, width = 10_000, 100
    arrays = {name: random.normal(size=(rows, width)) for name in ("observations", "next_observations")}
    arrays |= {"actions": random.uniform(-1, 1, (rows, 4)), "rewards": random.normal(size=rows)}
    ends = np.arange(rows) % 10 == 9
    arrays |= {"costs": random.random(rows), "terminals": np.zeros(rows), "timeouts": ends}
    save_data(Dataset.from_arrays(arrays, consecutive=False), tmp_path / "large.npz", compressed=False)
    log = load_data(tmp_path / "large.npz", storage="disk")
    assert len(log.transitions.faults()) == 1  # every row of the log is compared with the next
    log.fingerprint()
    assert len(log.initial_observations) == 1_000
    arrays = tiny_method.prepare(log, Normaliser.of(log.observations))
    in_blocks.take(arrays.rows.table, random.integers(0, rows, 1_000))
    assert resident(tmp_path / "large.npz") < 1_000_000 < log.observations.nbytes / 3
    np.asarray(log.observations).sum()
    assert resident(tmp_path / "large.npz") > 3_000_000  # so it does count
