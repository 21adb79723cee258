"""`bcrl data info`: the numbers it prints, on a screen, in a pipe and as JSON."""

import io
import json
import shlex
import sys

import numpy as np
import pytest

from bcrl.cli import main
from bcrl.data import Dataset, Schema, density_picture, summarise


@pytest.fixture
def two_costs(arrays) -> Dataset:
    arrays["costs"] = np.stack([np.full(12, 5.0), np.arange(12) * 0.25], axis=1)
    arrays["rewards"] = np.arange(12.0)
    return Dataset(**arrays)


def test_facts_by_hand(two_costs):
    facts = summarise(two_costs)
    assert facts["episode_return"]["min"] == 10  # 0+1+2+3+4
    assert facts["episode_return"]["q50"] == 18  # 5+6+7
    assert facts["episode_return"]["max"] == 38  # 8+9+10+11
    assert facts["reward"] == {"min": 0, "mean": 5.5, "max": 11}
    assert [cost["max"] for cost in facts["episode_cost"]] == [25, 9.5]
    assert facts["share_of_episodes_within"][0] == {"10": 0, "20": pytest.approx(2 / 3), "40": 1, "80": 1}
    assert facts["share_of_episodes_within"][1] == {"10": 1, "20": 1, "40": 1, "80": 1}
    assert (facts["horizon"], facts["shortest_episode"], facts["cost_count"]) == (5, 3, 2)
    assert facts["episodes_ended_by_terminal"] == pytest.approx(1 / 3)
    assert facts["episodes_ended_by_timeout"] == pytest.approx(2 / 3)


def test_json_is_the_same_facts(two_costs, tmp_path, capsys):
    path = tmp_path / "log.npz"
    two_costs.save(path)
    main(["data", "info", str(path), "--json"])
    said = capsys.readouterr()
    assert json.loads(said.out) == summarise(two_costs) | {"file": str(path)}
    assert said.err == ""


def test_the_screen_fits_80_columns_and_has_a_picture_per_cost(two_costs, tmp_path, capsys):
    path = tmp_path / "[red]log.hdf5"
    two_costs.save(path)
    main(["data", "info", str(path)])
    first, *lines, last = capsys.readouterr().out.splitlines()
    assert first == str(path)
    assert shlex.split(last)[:4] == ["next:", "bcrl", "train", "--data"]
    assert shlex.split(last)[4] == str(path)
    assert max(map(len, lines)) <= 80
    text = "\n".join(lines)
    for words in (
        "3 of 3 to 5 steps",
        "terminal 33 %, timeout 67 %",
        "episode cost 1",
        "episode cost 2",
        "20: 67 %",
    ):
        assert words in text
    assert text.count("└") == 2
    assert "\x1b" not in text


def test_a_terminal_without_unicode(two_costs, tmp_path, monkeypatch):
    path = tmp_path / "lög.npz"
    two_costs.save(path)
    screen = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", screen)
    main(["data", "info", str(path)])
    screen.flush()
    text = screen.buffer.getvalue().decode("ascii")
    assert "l\\xf6g.npz" in text
    assert "episode cost 2" in text


def test_dropped_rows_are_one_line_on_stderr(arrays, tmp_path, capsys):
    arrays["timeouts"][11] = False
    path = tmp_path / "log.npz"
    np.savez(path, **arrays)
    main(["data", "info", str(path)])
    expected = f"bcrl: {path}: dropped the last 4 of 12 rows, after the last episode end\n"
    assert capsys.readouterr().err == expected


def test_picture_puts_each_episode_where_its_axes_say():
    picture = density_picture(np.array([0.0, 9.0]), np.array([-50.0, 100.0]), height=4).splitlines()
    drawn = [line[8:] for line in picture[1:5]]  # after the gutter and the axis
    assert drawn[0].lstrip() == "·" * 6  # ten whole costs share 68 columns: six characters each
    assert len(drawn[0]) == 60
    assert drawn[3] == "·" * 6
    assert drawn[1] == drawn[2] == ""
    assert picture[1].startswith("    100┤")
    assert picture[4].startswith("    -50┤")
    assert "episode cost" in picture[-2]
    assert picture[-1].strip() == "episodes: · 1"


def test_picture_counts_in_shades():
    costs, returns = np.repeat([0.0, 3.0], [1, 40]), np.repeat([0.0, 1.0], [1, 40])
    picture = density_picture(costs, returns)
    assert "█" in picture
    assert "· 1" in picture
    assert "–40" in picture
    assert density_picture(costs, returns, plain=True).isascii()


@pytest.mark.parametrize(
    ("costs", "returns"),
    [
        ([0.0], [0.0]),
        ([0.0, 0.0], [1e9, 1e9]),
        ([3.0, 3.0], [-2.0, -2.0]),
        ([0.25, 1e-30], [1e-30, 0.0]),
        ([1e38, 0.0], [-3e38, 3e38]),
        ([123456.0, 7.0], [99999.5, -99999.5]),
    ],
)
def test_picture_of_odd_ranges_fits(costs, returns):
    picture = density_picture(np.array(costs), np.array(returns))
    assert max(map(len, picture.splitlines())) <= 80
    assert "episodes: · 1" in picture or "episodes: · 1   ░ 2" in picture


def test_what_looks_wrong_is_told(arrays, tmp_path, capsys):
    arrays["observations"][:, 0] = arrays["next_observations"][:, 0] = 3.0
    arrays["observations"][:, 2] *= 1e7
    arrays["next_observations"][:, 2] *= 1e7
    arrays["actions"][:, 1] = 0.5
    labels, tiny, mostly = np.arange(12) % 4, np.full(12, 1e-5), np.ones(12)
    tiny[0] = 0
    arrays["costs"] = np.stack([labels, tiny, mostly, 0 * mostly], axis=1)
    path = tmp_path / "log.npz"
    schema = Schema(observation_names=("tank", "x", "stamp"), units={"tank": "m"})
    Dataset(**arrays, schema=schema).save(path)
    main(["data", "info", str(path)])
    said = capsys.readouterr().out
    assert "tank [m], x, stamp" in said
    told = " ".join(said.split())
    for phrase in (
        "observation tank never changes",
        "observation stamp ranges over more than 1e+06",
        "action 2 never changes",
        "cost 1 has only the values 0, 1, 2, 3: looks like a class label",
        "cost 2 is at most 1e-05 in a step",
        "cost 3 is 1 in 100.0% of rows",
        "cost 4 is 0 in every row",
    ):
        assert phrase in told
    assert max(map(len, said.splitlines()[1:-1])) <= 80


def test_each_named_observation_has_a_row_and_far_values_are_told(arrays, tmp_path, capsys):
    wide = np.random.default_rng(0).normal(20, 1, (12, 14)).astype(np.float32)
    wide[[1, 4, 9], 0], wide[[2, 3, 5], 1], wide[[2, 3], 2] = -99, 850, -99  # the last comes only twice
    wide[:, 3] = np.arange(12) % 2
    arrays["observations"], arrays["next_observations"] = wide, np.roll(wide, -1, axis=0)
    names = ("a" * 60, "pump", *(f"x{i}" for i in range(12)))
    schema = Schema(observation_names=names, units={"pump": "l/min"})
    Dataset(**arrays, schema=schema).save(tmp_path / "log.npz")
    main(["data", "info", str(tmp_path / "log.npz")])
    said = capsys.readouterr().out
    lines = [line.split() for line in said.splitlines()]
    assert ["pump", *(f"{f(wide[:, 1]):.3g}" for f in (np.min, np.median, np.max)), "l/min"] in lines
    assert "and 2 more observations" in said
    assert max(map(len, said.splitlines()[1:-1])) <= 80
    far = [
        doubt for doubt in summarise(Dataset(**arrays, schema=schema))["doubts"] if "mean no value" in doubt
    ]
    assert [doubt.split(", the others")[0] for doubt in far] == [
        f"observation {'a' * 60} is -99 in 3 rows",
        "observation pump is 850 in 3 rows",
    ]


def test_a_log_in_order_has_no_doubts(arrays):
    assert summarise(Dataset(**arrays))["doubts"] == []
