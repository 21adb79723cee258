"""Odd clocks, boxes and files: memory by rows, and only the named file is read."""

import dataclasses
import json
import tracemalloc

import numpy as np
import pytest
from ship_maker import BOX, RULE, START, random_reports
from test_ship_cli import cadastre
from test_ship_reports import BOX as COAST
from test_ship_reports import CADASTRE

from bcrl.errors import BCRLError
from bcrl.report.ship import draw_map, make_map, map_page
from bcrl.ship import (
    Box,
    Reports,
    evaluate_ships,
    load_scenarios,
    make_scenarios,
    make_scene,
    make_ship_world,
    read_reports,
    save_scenarios,
)
from bcrl.ship._water import MOST_CELLS, cell_size, sailed_water

YEARS = 3 * 365 * 24 * 3600


def joined(*parts: Reports) -> Reports:
    columns = ("ship", "time", "lon", "lat", "speed", "heading", "status", "kind")
    return Reports(
        **{name: np.concatenate([getattr(part, name) for part in parts]) for name in columns},
        rows=sum(part.rows for part in parts),
    )


def later(reports: Reports, seconds: int) -> Reports:
    return dataclasses.replace(reports, time=reports.time + seconds)


def test_two_days_years_apart_take_the_memory_of_two_days():
    day = random_reports(1, ships=6)
    one = make_scenarios(day, BOX, RULE)
    tracemalloc.start()
    two = make_scenarios(joined(day, later(day, YEARS)), BOX, RULE)
    world = make_ship_world(two)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 100e6
    assert len(two) == 2 * len(one)
    # What is counted in each day is what is counted in one of them alone.
    for name in ("congestion", "close_quarters", "expert_cost"):
        np.testing.assert_array_equal(getattr(two, name), np.tile(getattr(one, name), 2))
    assert len(world.scene) <= 2 * len(make_ship_world(one, among=one.training).scene)


def test_silence_is_left_out_only_where_no_episode_looks(small_sea):
    """The table of a log with and without a long silence holds the same, moment by moment."""
    counts = np.diff(small_sea.offsets)
    after = np.full(len(counts), 7)
    gap = np.where(np.arange(len(counts)) >= len(counts) // 2, 10**7, 0)
    apart = dataclasses.replace(small_sea, first=small_sea.first + gap)
    scene, first = make_scene(apart, after=after)
    assert len(scene) < len(small_sea.samples)
    for track in range(len(counts)):
        start, wanted = first[track] - 4, apart.first[track] - 4
        for moment in range(counts[track] + 4 + 7):
            there = {int(ship): tuple(row) for *row, ship in scene[start + moment] if ship >= 0}
            now = wanted + moment
            on = np.flatnonzero((apart.first <= now) & (now < apart.first + counts))
            rows = {
                int(apart.ship[k]): tuple(apart.samples[apart.offsets[k] + now - apart.first[k]]) for k in on
            }
            assert there == rows


def test_a_ship_with_a_wrong_clock_is_a_ship_of_another_time(tmp_path):
    """Its scenarios are alone, and everything after `ship data` takes the file."""
    day = random_reports(1, ships=6)
    future = later(random_reports(2, ships=1), 50 * YEARS)
    past = later(random_reports(3, ships=1), -START - 10**6)
    made = make_scenarios(joined(day, future, past), BOX, RULE)
    assert made.about["left_out"]["impossible time"] == past.rows
    save_scenarios(made, tmp_path / "sea.npz")
    assert evaluate_ships({}, load_scenarios(tmp_path / "sea.npz"))[0].success == 1


def test_a_limit_that_no_table_holds_is_refused(small_sea):
    with pytest.raises(BCRLError, match="limit is 3000000000 steps, but must be 1 to 100,000"):
        make_ship_world(small_sea, limit=3_000_000_000)


def test_a_box_of_the_whole_world_has_larger_cells(small_sea):
    assert cell_size(BOX) == 50
    world = dataclasses.replace(small_sea, box=Box(-180, -60, 180, 89))
    cells = sailed_water(world)
    assert cells.size < 1.1 * MOST_CELLS
    assert cells.any()
    drawn = make_map(world, 0)
    assert f'"cell":{cell_size(world.box)}' in map_page(world, drawn)
    draw_map(world, drawn)


def test_a_bad_byte_in_an_unused_column_is_no_reason_against_a_file(tmp_path):
    plain, bad = tmp_path / "plain.csv", tmp_path / "bad.csv"
    plain.write_text(CADASTRE)
    bad.write_bytes(CADASTRE.encode().replace(b",A,", b",\xff\xfe,"))
    one, two = (read_reports([path], COAST, 0.0)[0] for path in (plain, bad))
    for name in ("ship", "time", "lon", "lat", "speed", "heading", "status", "kind"):
        np.testing.assert_array_equal(getattr(one, name), getattr(two, name))
    bad.write_bytes(CADASTRE.encode().replace(b"\n111,", b"\n1\xff1,"))  # in one that is used
    assert read_reports([bad], COAST, 0.0)[0].bad == {"no ship": 1}


def test_a_long_field_is_read(tmp_path):
    path = tmp_path / "long.csv"
    path.write_text(CADASTRE.replace(",A,", f",{'A' * 200_000},"))
    assert len(read_reports([path], COAST, 0.0)[0].ship) == 5


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_a_name_with_wildcards_is_that_file_alone(tmp_path, suffix):
    import polars as pl

    rows = len(cadastre(tmp_path / "source.csv").read_text().splitlines()) - 1
    table = pl.read_csv(tmp_path / "source.csv", infer_schema=False)
    for name in ("a*", "abc", "[2020]", "a?c", "2"):
        path = tmp_path / f"{name}{suffix}"
        table.write_csv(path) if suffix == ".csv" else table.write_parquet(path)
    for name in ("a*", "[2020]", "a?c"):
        assert read_reports([tmp_path / f"{name}{suffix}"], BOX, 0.0)[0].rows == rows


EDGES = ("west", "south", "east", "north")


@pytest.mark.parametrize(
    "header",
    [
        b"[" * 100_000,
        b'{"format": "bcrl-scenarios", "version": 1, "box": ' + b"[" * 100_000,
        b'{"format": "bcrl-scenarios", "version": 1, "box": %s}'
        % json.dumps(dict.fromkeys(EDGES, 10**400)).encode(),
        b'{"format": "bcrl-scenarios", "version": 1, "box": [1, 2]}',
        b'{"format": "bcrl-scenarios", "version": [], "box": null}',
        b"\xff\xfe",
    ],
)  # fmt: skip
def test_a_header_of_any_kind_ends_in_one_line(small_sea, tmp_path, header):
    path = tmp_path / "sea.npz"
    save_scenarios(small_sea, path)
    with np.load(path) as archive:
        arrays = dict(archive) | {"header": np.frombuffer(header, np.uint8)}
    np.savez(path, **arrays)
    with pytest.raises(BCRLError) as error:
        load_scenarios(path)
    assert "\n" not in str(error.value)
    np.savez(path, **(arrays | {"header": np.array(["text"])}))
    with pytest.raises(BCRLError, match="not a scenario file"):
        load_scenarios(path)


@pytest.mark.parametrize("offsets", [[0, 2**62, -(2**62)], [0, -(2**63), 2**63 - 1]])
def test_offsets_whose_differences_overflow_are_refused(small_sea, tmp_path, offsets):
    path = tmp_path / "sea.npz"
    spoilt = small_sea.offsets.copy()
    spoilt[: len(offsets)] = offsets
    save_scenarios(dataclasses.replace(small_sea, offsets=spoilt), path)
    with pytest.raises(BCRLError, match="offsets do not cut samples"):
        load_scenarios(path)
