"""Logs from tables: what each column becomes, by hand."""

import io

import numpy as np
import pandas as pd
import polars as pl
import pytest

import bcrl
from bcrl.data import import_table
from bcrl.errors import BCRLError

CSV = """run,when,speed,mode,valve,gain,harm,over
a,0,1.0,auto,0,10,0,0
a,1,2.0,hand,5,20,1,0
a,2,3.0,auto,2.5,30,0,1
b,0,7.0,hand,1,40,2,0
b,1,8.0,auto,4,50,0,0
b,2,9.0,auto,3,60,1,0
"""
PARTS = {
    "observations": ["speed"],
    "actions": ["valve"],
    "reward": "gain",
    "costs": ["harm"],
    "episode": "run",
    "time": "when",
    "action_bounds": {"valve": [0, 5]},
}
MAP = """
observations = ["speed", "mode"]
actions = "valve"
reward = "gain"
costs = "harm"
episode = "run"
time = "when"
terminal = "over"

[categories]
mode = ["off", "auto", "hand"]

[action_bounds]
valve = [0, 5]

[max_cost]
harm = 4

[units]
speed = "m/s"
valve = "bar"
gain = "EUR"
"""


def frame() -> pl.DataFrame:
    return pl.read_csv(io.BytesIO(CSV.encode()))


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "my.csv"
    path.write_text(CSV)
    return path


@pytest.mark.filterwarnings("ignore:frame")
def test_the_last_row_before_a_time_limit_is_only_a_next_state():
    log = bcrl.from_frame(frame(), **PARTS)
    assert log.observations.ravel().tolist() == [1, 2, 7, 8]
    assert log.next_observations.ravel().tolist() == [2, 3, 8, 9]
    assert log.rewards.tolist() == [10, 20, 40, 50]
    assert log.costs.tolist() == [0, 1, 2, 0]
    assert log.timeouts.tolist() == [False, True, False, True]
    assert not log.terminals.any()
    assert log.horizon == 2
    np.testing.assert_allclose(log.actions.ravel(), [-1, 1, -0.6, 0.6], atol=1e-6)


@pytest.mark.filterwarnings("ignore:frame")
def test_a_terminal_row_is_kept_because_nothing_is_bootstrapped_after_it():
    log = bcrl.from_frame(frame(), **PARTS, terminal="over")
    assert log.observations.ravel().tolist() == [1, 2, 3, 7, 8]
    assert log.next_observations.ravel().tolist() == [2, 3, 3, 8, 9]
    assert log.terminals.tolist() == [False, False, True, False, False]
    assert log.timeouts.tolist() == [False, False, False, False, True]


def test_explicit_next_observations_make_every_row_a_transition():
    states = frame().with_columns(after=pl.Series([2.0, 3.0, 4.0, 8.0, 9.0, 10.0]))
    log = bcrl.from_frame(states, **PARTS, next_observations=["after"])
    assert log.next_observations.ravel().tolist() == [2, 3, 4, 8, 9, 10]
    assert log.timeouts.tolist() == [False, False, True, False, False, True]


@pytest.mark.filterwarnings("ignore:frame")
def test_a_last_row_without_an_action_passes_its_terminal_on():
    none = frame().with_columns(
        after=pl.Series([2.0, 3.0, None, 8.0, 9.0, 10.0]),
        **{
            name: pl.when(pl.col("over") == 1).then(None).otherwise(pl.col(name))
            for name in ("valve", "gain", "harm")
        },
    )
    for more in ({"next_observations": ["after"]}, {}):
        log = bcrl.from_frame(none, **PARTS, terminal="over", **more)
        assert log.observations.ravel().tolist()[:2] == [1, 2]
        assert log.next_observations.ravel().tolist()[:2] == [2, 3]
        assert log.terminals.tolist()[:2] == [False, True]
        assert log.observations.ravel().tolist()[2] == 7


@pytest.mark.filterwarnings("ignore:frame")
def test_ids_that_look_like_one_number_are_different_episodes():
    named = frame().with_columns(run=pl.Series(["1", "1", "01", "01", "1e0", "1e0"]))
    assert bcrl.from_frame(named, **PARTS | {"time": ""}).episode_count == 3


def test_wrong_next_observations_are_refused_in_every_format(table, tmp_path):
    parts = PARTS | {"next_observations": "gain"}
    for out in ("log.npz", "log.hdf5"):
        with pytest.raises(BCRLError, match="next_observations differ from the next row"):
            import_table(table, parts, tmp_path / out)
    assert sorted(tmp_path.iterdir()) == [table]


@pytest.mark.filterwarnings("ignore:frame")
def test_without_ids_episodes_end_where_a_flag_is_set():
    log = bcrl.from_frame(frame(), **PARTS | {"episode": "", "time": "", "terminal": "over"})
    assert log.episode_count == 2
    assert log.terminals.tolist() == [False, False, True, False, False]


def test_a_map_says_the_rest(table, tmp_path):
    (tmp_path / "map.toml").write_text(MAP)
    with pytest.warns(UserWarning, match="1 last rows used only as the next state"):
        log = bcrl.read_table(table, map=tmp_path / "map.toml")
    assert log.schema.observation_names == ("speed", "mode=off", "mode=auto", "mode=hand")
    assert log.observations.tolist()[:2] == [[1, 0, 1, 0], [2, 0, 0, 1]]
    assert log.next_observations.tolist()[0] == [2, 0, 0, 1]
    assert log.schema.units == {"speed": "m/s", "valve": "bar", "reward": "EUR"}
    assert (log.schema.action_low, log.schema.action_high) == ((0,), (5,))
    assert log.max_cost.tolist() == [4]


@pytest.mark.filterwarnings("ignore:frame")
def test_categories_of_the_table_are_sorted():
    log = bcrl.from_frame(frame(), **PARTS | {"observations": ["mode", "speed"], "categories": {"mode": []}})
    assert log.schema.observation_names == ("mode=auto", "mode=hand", "speed")
    assert log.observations.tolist()[1] == [0, 1, 2]


@pytest.mark.filterwarnings("ignore:frame")
@pytest.mark.parametrize(
    ("values", "labels", "first"),
    [
        (["up", "down", "hold"], ("down", "hold", "up"), [0, 0, 1]),
        ([10, 9, 2], ("2", "9", "10"), [0, 0, 1]),
        ([1.0, 0.0, 2.0], ("0", "1", "2"), [0, 1, 0]),
    ],
)
def test_discrete_actions_are_labels_in_sorted_order(values, labels, first):
    states = frame().with_columns(valve=pl.Series(values * 2))
    log = bcrl.from_frame(states, **PARTS | {"discrete": True, "action_bounds": {}})
    assert log.schema.action_labels == labels
    assert log.schema.action_names == ("valve",)
    assert log.actions[0].tolist() == first


@pytest.mark.filterwarnings("ignore:frame")
def test_frames_of_pandas_and_polars_and_files_give_the_same_log(table, tmp_path):
    parts = PARTS | {"observations": ["speed", "mode"], "categories": {"mode": []}}
    from_polars = bcrl.from_frame(frame(), **parts)
    assert bcrl.from_frame(frame().lazy(), **parts).fingerprint() == from_polars.fingerprint()
    pandas = pd.read_csv(table)
    assert bcrl.from_frame(pandas, **parts).fingerprint() == from_polars.fingerprint()
    zoned = pandas.assign(
        when=pd.to_datetime(pandas["when"], unit="h", utc=True).dt.tz_convert("Europe/Berlin")
    )
    assert bcrl.from_frame(zoned, **parts).fingerprint() == from_polars.fingerprint()
    for unit in ("s", "ns"):
        timed = pandas.assign(when=pd.to_datetime(pandas["when"], unit="h").astype(f"datetime64[{unit}]"))
        assert bcrl.from_frame(timed, **parts).fingerprint() == from_polars.fingerprint()
    for name in ("log.npz", "log.h5"):
        import_table(table, parts, tmp_path / name)
        assert bcrl.load_data(tmp_path / name).fingerprint() == from_polars.fingerprint()


@pytest.mark.filterwarnings("ignore:frame")
def test_a_split_at_a_gap_is_a_time_limit_even_where_ends_are_terminal():
    late = frame().with_columns(when=pl.Series([0, 1, 9, 0, 1, 2]))
    log = bcrl.from_frame(late, **PARTS, split_gap=5, ends="terminal")
    assert log.observations.ravel().tolist() == [1, 3, 7, 8, 9]
    assert log.timeouts.tolist() == [True, False, False, False, False]
    assert log.terminals.tolist() == [False, True, False, False, True]


def test_a_log_that_cannot_fit_into_memory_is_refused_at_once(monkeypatch):
    monkeypatch.setattr("os.sysconf", lambda name: 10)
    with pytest.raises(BCRLError, match=r"write it as \.hdf5 with bcrl data import"):
        bcrl.from_frame(frame(), **PARTS)


def test_repairs_are_one_warning_in_python():
    missing = frame().with_columns(speed=pl.Series([1.0, None, 3.0, 7.0, 8.0, 9.0]))
    with pytest.warns(UserWarning, match="1 episodes with missing values left out; 1 last rows"):
        log = bcrl.from_frame(missing, **PARTS)
    assert log.observations.ravel().tolist() == [7, 8]


@pytest.mark.filterwarnings("ignore:frame")
def test_several_costs_and_bounds_of_the_table():
    log = bcrl.from_frame(frame(), **PARTS | {"costs": ["harm", "gain"], "action_bounds": {}})
    assert log.costs.tolist()[1] == [1, 20]
    assert (log.schema.action_low, log.schema.action_high) == ((0,), (5,))


def test_blocks_of_any_size_give_the_same_log(table, tmp_path, monkeypatch):
    """Rows, episodes, and forward filling cross the edges of blocks."""
    random = np.random.default_rng(0)
    count = 300
    speed = random.normal(size=count).astype(object)
    speed[random.random(count) < 0.2] = None
    speed[::30] = 0.5
    states = pl.DataFrame(
        {
            "run": np.repeat(np.arange(10), 30),
            "when": np.tile(random.permutation(30), 10),
            "speed": pl.Series(speed.tolist(), dtype=pl.Float64),
            "valve": random.uniform(0, 5, count),
            "gain": random.normal(size=count),
            "harm": random.random(count),
        }
    )
    path = tmp_path / "large.csv"
    states.write_csv(path)
    parts = PARTS | {"missing": "forward"}
    import_table(path, parts, tmp_path / "one.h5")
    monkeypatch.setattr("bcrl.data._table.BLOCK_BYTES", 700)
    monkeypatch.setattr("bcrl.data._import.BLOCK_ROWS", 7)
    monkeypatch.setattr("bcrl.data._records.AT_ONCE", 3)
    import_table(path, parts, tmp_path / "many.h5")
    one, many = (bcrl.load_data(tmp_path / name) for name in ("one.h5", "many.h5"))
    assert len(one) > 100
    assert one.fingerprint() == many.fingerprint()


@pytest.mark.parametrize(
    ("text", "phrase"),
    [
        ("rewards = 'r'", "no key rewards; did you mean reward?"),
        ("reward = [", "is no TOML"),
        ("reward = 3", "reward is 3, but must be text"),
        ("actions = [1]", "must be names of columns"),
        ("[units]\nspeeed = 'm'", "units names speeed"),
        ("[fill]\nspeed = 'back'", "fill of speed is 'back'; give a number"),
        ("[max_cost]\nharm = -1", "must be a number above 0"),
        ("ends = 'crash'", "ends is 'crash'; known: timeout, terminal"),
    ],
)
def test_a_wrong_map_is_one_line(text, phrase, table, tmp_path):
    (tmp_path / "map.toml").write_text(text)
    parts = {name: value for name, value in PARTS.items() if name not in text}
    with pytest.raises(BCRLError) as caught:
        bcrl.read_table(table, map=tmp_path / "map.toml", **parts)
    assert phrase in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_column_of_objects_is_refused():
    odd = frame().with_columns(run=pl.Series([object()] * 6, dtype=pl.Object))
    with pytest.raises(bcrl.BCRLError, match="column run holds Object"):
        bcrl.from_frame(odd, **PARTS)
