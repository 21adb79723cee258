"""From reports to scenarios, and the file that holds them."""

import dataclasses
import io
import json
import zipfile

import numpy as np
import pytest
from ship_maker import BOX, RULE, random_reports, sea, straight

from bcrl.errors import BCRLError
from bcrl.ship import Rule, load_scenarios, make_scenarios, make_scene, save_scenarios, summarise
from bcrl.ship._ais import CARGO, OTHER, TANKER
from bcrl.ship._file import ARRAYS
from bcrl.ship._scene import slots


def test_scenarios_are_long_moving_tracks_in_order_of_time(small_sea):
    assert len(small_sea) >= 10
    for scenario in range(len(small_sea)):
        samples = small_sea.expert(scenario)
        step = np.hypot(*np.diff(samples[:, :2], axis=0).T)
        assert len(step) == small_sea.steps[scenario] >= RULE.min_steps
        assert np.hypot(*(samples[-1, :2] - samples[0, :2])) >= RULE.min_metres
        assert (step > 5).all()
        assert (step < 200.01).all()
        assert ((samples[:, :2] >= 0) & (samples[:, :2] <= BOX.size)).all()
        reached = np.hypot(*(samples[1:, :2] - samples[-1, :2]).T) < 200
        assert small_sea.steps_to_goal[scenario] == 1 + np.flatnonzero(reached)[0]
    assert (np.diff(small_sea.first[small_sea.track]) >= 0).all()


def test_the_split_is_by_time_and_the_congested_fifth_is_the_most_congested(small_sea):
    count = len(small_sea)
    assert small_sea.test.sum() == count - round(0.8 * count)
    assert small_sea.first[small_sea.track[small_sea.training]].max() <= (
        small_sea.first[small_sea.track[small_sea.test]].min()
    )
    chosen = small_sea.most_congested(np.arange(count))
    assert len(chosen) == round(0.2 * count)
    rest = np.setdiff1d(np.arange(count), chosen)
    assert small_sea.congestion[chosen].min() >= small_sea.congestion[rest].max()
    assert small_sea.test[small_sea.evaluation].all()


def test_validation_is_held_out_from_training_by_time(small_sea):
    def times(which):
        first = small_sea.first[small_sea.track[which]]
        return first, first + small_sea.steps[which]

    fitting, validation, test = (small_sea.part(name) for name in ("fitting", "validation", "test"))
    assert not small_sea.test[[*fitting, *validation]].any()
    assert times(fitting)[1].max() < times(validation)[0].min(), "no expert sails in both"
    assert times(validation)[1].max() < times(test)[0].min()
    left = np.setdiff1d(small_sea.training, [*fitting, *validation])
    border = times(validation)[0].min(), times(test)[0].min()
    begin, end = times(left)
    crosses = (begin < border[0]) & (end >= border[0]) | (end >= border[1])
    assert crosses.all(), "no more is left out"
    assert abs(len(validation) + (end >= border[1]).sum() - 0.2 * len(small_sea.training)) < 1


def test_a_log_too_short_for_a_validation_says_so(small_sea):
    two = sea((0, 0, straight((0, 0), (5, 0), 40)), (1, 10, straight((0, 900), (5, 0), 40)))
    with pytest.raises(BCRLError, match="none of 1 training scenarios is left for validation"):
        two.part("validation")


def test_scores_by_a_plain_count(small_sea):
    """Other ships and close quarters from the tracks themselves, without the scene."""
    for scenario in range(0, len(small_sea), 5):
        track = small_sea.track[scenario]
        samples, start = small_sea.expert(scenario), small_sea.first[track]
        seen, close = [], []
        for step in range(len(samples)):
            away = [
                np.hypot(
                    *(small_sea.samples[small_sea.offsets[k] + start + step - first][:2] - samples[step, :2])
                )
                for k, first in enumerate(small_sea.first)
                if 0 <= start + step - first < small_sea.offsets[k + 1] - small_sea.offsets[k]
                and small_sea.ship[k] != small_sea.ship[track]
            ]
            seen.append(len(away))
            close.append(min(away, default=np.inf) < 555)
        assert small_sea.congestion[scenario] == pytest.approx(np.mean(seen))
        assert small_sea.close_quarters[scenario] == pytest.approx(np.mean(close[1:]))
        assert small_sea.expert_cost[scenario] == sum(close[1 : 1 + small_sea.steps_to_goal[scenario]])


def test_slots_never_hold_two_ships_and_are_as_few_as_ships_at_once(small_sea):
    column = slots(small_sea)
    counts = np.diff(small_sea.offsets)
    ends = small_sea.first + counts
    busy: dict[tuple[int, int], int] = {}
    ships: dict[int, set[int]] = {}
    breaks = 0
    for track, ship in enumerate(small_sea.ship):
        later = np.flatnonzero((small_sea.ship == ship) & (small_sea.first >= ends[track]))
        short = [k for k in later if small_sea.first[k] - (ends[track] - 1) < 5]
        held = small_sea.first[short[0]] if short else ends[track]
        breaks += len(short)
        if short:
            assert column[short[0]] == column[track], "after a short break a ship is where it was"
        for moment in range(small_sea.first[track], held):
            assert busy.setdefault((column[track], moment), track) == track
            ships.setdefault(moment, set()).add(int(ship))
    assert breaks
    assert column.max() + 1 == max(map(len, ships.values()))
    scene, first = make_scene(small_sea, after=7, at_least=3)
    assert (scene[..., 4] >= 0).sum() == counts.sum()
    assert (scene[:4, :, 4] == -1).all()
    assert (scene[-7:, :, 4] == -1).all()
    for track in range(len(counts)):
        rows = scene[first[track] : first[track] + counts[track], column[track]]
        np.testing.assert_array_equal(
            rows[:, :4], small_sea.samples[small_sea.offsets[track] : small_sea.offsets[track + 1]]
        )
        assert (rows[:, 4] == small_sea.ship[track]).all()


def test_the_same_reports_in_any_order_make_the_same_scenarios():
    reports = random_reports(1, ships=4)
    order = np.random.default_rng(5).permutation(len(reports.ship))
    shuffled = dataclasses.replace(
        reports, **{name: getattr(reports, name)[order] for name in ("ship", "time", "lon", "lat")}
    )
    one, two = (make_scenarios(rows, BOX, RULE) for rows in (reports, shuffled))
    for name in ARRAYS:
        if name != "ships":  # the key of the hash knows the order of the rows
            np.testing.assert_array_equal(getattr(one, name), getattr(two, name))


def test_vessel_identities_cannot_be_read_from_the_file(small_sea, tmp_path):
    path = tmp_path / "sea.npz"
    save_scenarios(small_sea, path)
    identities = 200_000_000 + np.arange(24)
    with zipfile.ZipFile(path) as archive:
        content = b"".join(archive.read(name) for name in archive.namelist())
    for identity in identities:
        for kind in ("<i4", "<i8", "<f4", "<f8"):
            assert np.array(identity).astype(kind).tobytes() not in content
        assert str(identity).encode() not in content
    assert len(set(small_sea.ships.tolist())) == len(small_sea.ships)


def test_the_same_ship_has_another_hash_in_another_log_and_the_same_in_the_same():
    first, again = (make_scenarios(random_reports(1, ships=4), BOX, RULE) for _ in range(2))
    np.testing.assert_array_equal(first.ships, again.ships)
    other = make_scenarios(random_reports(2, ships=4), BOX, RULE)
    assert not set(first.ships.tolist()) & set(other.ships.tolist())


def test_only_some_kinds_of_vessel_are_scenarios_but_all_are_traffic():
    reports = random_reports(1, ships=9)
    kind = np.array([CARGO, TANKER, OTHER])[reports.ship % 3]
    told = dataclasses.replace(reports, kind=kind)
    every = make_scenarios(told, BOX, RULE)
    some = make_scenarios(told, BOX, RULE, kinds=("cargo", "tanker"))
    np.testing.assert_array_equal(every.samples, some.samples)
    of = some.kinds[some.ship[some.track]]
    assert set(of.tolist()) == {CARGO, TANKER}
    assert len(some) == np.isin(every.kinds[every.ship[every.track]], [CARGO, TANKER]).sum()
    with pytest.raises(BCRLError, match="'yacht'; known: cargo, tanker, other"):
        make_scenarios(told, BOX, RULE, kinds=("yacht",))
    with pytest.raises(BCRLError, match=r"0 scenarios.*tanker"):
        make_scenarios(reports, BOX, RULE, kinds=("tanker",))


def test_a_log_without_tracks_says_where_its_rows_went():
    with pytest.raises(BCRLError, match=r"none is left as a track.*outside the box"):
        make_scenarios(random_reports(1, ships=2), type(BOX)(50, 50, 50.1, 50.1), RULE, source="log.csv")
    with pytest.raises(BCRLError, match=r"log\.csv: 0 scenarios, but a split needs two"):
        make_scenarios(random_reports(1, ships=2), BOX, Rule(min_steps=5000), source="log.csv")


def test_the_summary_counts_what_is_there(small_sea):
    everything, congested, training, test, evaluation = summarise(small_sea)
    assert everything["scenarios"] == training["scenarios"] + test["scenarios"] == len(small_sea)
    assert everything["transitions"] == small_sea.steps.sum()
    assert congested["other ships"] > everything["other ships"]
    assert evaluation["median expert cost"] == np.median(small_sea.expert_cost[small_sea.evaluation])
    speeds = [small_sea.expert(k)[1:, 2] for k in range(len(small_sea))]  # said by no one: of the way made
    assert everything["mean speed, m/s"] == pytest.approx(np.concatenate(speeds).mean(), rel=1e-5)


# The file.


def arrays_of(scenarios):
    return {name: getattr(scenarios, name) for name in ARRAYS}


def rewrite(path, change):
    """The file at `path` with its arrays changed by `change`."""
    with np.load(path) as archive:
        arrays = dict(archive)
    change(arrays)
    with open(path, "wb") as file:
        np.savez(file, **arrays)


def test_what_is_written_is_read(small_sea, tmp_path):
    save_scenarios(small_sea, tmp_path / "sea.npz")
    read = load_scenarios(tmp_path / "sea.npz")
    assert read.box == small_sea.box
    assert read.about == json.loads(json.dumps(small_sea.about))
    for name in ARRAYS:
        np.testing.assert_array_equal(getattr(read, name), getattr(small_sea, name))
        assert getattr(read, name).dtype == getattr(small_sea, name).dtype
    assert [path.name for path in tmp_path.iterdir()] == ["sea.npz"]


def set_to(name, value):
    def change(arrays):
        arrays[name] = value(arrays[name])

    return change


def spoil(name, index, value):
    def change(arrays):
        arrays[name] = arrays[name].copy()
        arrays[name][index] = value

    return change


def header(**fields):
    def change(arrays):
        known = json.loads(arrays["header"].tobytes())
        arrays["header"] = np.frombuffer(json.dumps({**known, **fields}).encode(), np.uint8)

    return change


DAMAGE = {
    "samples is missing": lambda arrays: arrays.pop("samples"),
    "'extra' is unknown": lambda arrays: arrays.update(extra=np.zeros(1)),
    "samples is float64": set_to("samples", lambda x: x.astype(np.float64)),
    "offsets is int64 of rank 2": set_to("offsets", lambda x: x[None]),
    "congestion holds NaN": spoil("congestion", 0, np.nan),
    "samples has shape": set_to("samples", lambda x: x[:, :3]),
    "samples leave the box": spoil("samples", (0, 0), 1e6),
    "offsets do not cut": spoil("offsets", 1, 0),
    "offsets, first and ship": set_to("first", lambda x: x[:-1]),
    "ship names a vessel": spoil("ship", 0, 10_000),
    "first has a time outside": spoil("first", -1, 2**40),
    "track names a track": spoil("track", 0, 10_000),
    "do not have the same number": set_to("expert_cost", lambda x: x[:-1]),
    "test leaves nothing": set_to("test", np.zeros_like),
    "not a scenario file": lambda arrays: arrays.pop("header"),
    "format version is 2": header(version=2),
    "box is damaged": header(box={"west": 1}),
    "box is damaged .*must be west,south": header(box={"west": 1, "south": 2, "east": 0, "north": 3}),
    "about is damaged": header(about=3),
}


@pytest.mark.parametrize("wanted", DAMAGE)
def test_a_damaged_file_is_refused_in_one_line(small_sea, tmp_path, wanted):
    path = tmp_path / "sea.npz"
    save_scenarios(small_sea, path)
    rewrite(path, DAMAGE[wanted])
    with pytest.raises(BCRLError, match=wanted) as error:
        load_scenarios(path)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("content", [b"", b"PK", b"hello", b"\x80\x04pickle"])
def test_something_else_is_refused(tmp_path, content):
    path = tmp_path / "sea.npz"
    path.write_bytes(content)
    with pytest.raises(BCRLError, match=r"sea\.npz"):
        load_scenarios(path)


def test_a_file_cut_short_or_with_objects_is_refused(small_sea, tmp_path):
    path = tmp_path / "sea.npz"
    save_scenarios(small_sea, path)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(BCRLError, match="damaged or cut short"):
        load_scenarios(path)
    buffer = io.BytesIO()
    np.savez(buffer, header=np.array([{"a": 1}], object))
    path.write_bytes(buffer.getvalue())
    with pytest.raises(BCRLError, match="Python objects, which are never read"):
        load_scenarios(path)


def test_a_missing_file_names_the_command(tmp_path):
    with pytest.raises(BCRLError, match="bcrl ship data"):
        load_scenarios(tmp_path / "none.npz")


def test_they_have_a_short_repr(small_sea):
    said = repr(small_sea)
    assert said.startswith("Scenarios('made for tests': ")
    assert len(said) < 100
