"""What policies may cost: shares of the median expert's cost, or costs; and one name for each run."""

from dataclasses import replace

import numpy as np
import pytest
from map_reader import data_of
from page_reader import Reader

from bcrl.assess import read_results
from bcrl.cli import main
from bcrl.errors import BCRLError
from bcrl.learn.baselines.bc import BCAll
from bcrl.learn.protocol import Spec, blank_actor
from bcrl.policy import Policy
from bcrl.report.ship import draw_budgets, ship_report_page
from bcrl.ship import (
    ShipResult,
    allowed_costs,
    evaluate_ships,
    make_ship_world,
    save_scenarios,
    table_lines,
)


@pytest.fixture(scope="module")
def free_sea(small_sea):
    """As a small log: most experts of the congested test never are in close quarters."""
    return replace(small_sea, expert_cost=np.zeros(len(small_sea), np.int32))


@pytest.fixture(scope="module")
def policy(small_sea):
    world = make_ship_world(small_sea)
    method = BCAll(hidden=(8,))
    spec = Spec(world.observation_size, world.action_size, 1, horizon=60, max_cost=(1.0,), steps=1)
    return Policy(blank_actor(method, spec), method, spec, {})


def test_budgets_are_shares_of_the_median_experts_cost(small_sea):
    median = np.median(small_sea.expert_cost[small_sea.evaluation])
    allowed = allowed_costs(small_sea, (0.5, 1.0))
    np.testing.assert_array_equal(allowed.thresholds, [0.5 * median, median])
    assert str(allowed) == f"a cost of {0.5 * median:g} or {median:g} (0.5 or 1 of the median expert's)"
    np.testing.assert_array_equal(allowed_costs(small_sea, thresholds=(3.0,)).shares, [3.0 / median])


def test_shares_of_a_median_of_nothing_are_refused(free_sea, policy):
    for refused in (
        lambda: evaluate_ships({"mine": [policy]}, free_sea),
        lambda: allowed_costs(free_sea, (0.5,)),
    ):
        with pytest.raises(BCRLError, match=r"median cost .* is 0: .* such as --thresholds 5,10"):
            refused()
    assert len(evaluate_ships({}, free_sea)), "the experts alone need no budget"


@pytest.mark.parametrize("thresholds", [(), (-1.0,), (np.nan,), (2.0, 2.0)])
def test_thresholds_are_different_costs(free_sea, thresholds):
    with pytest.raises(BCRLError, match=r"^thresholds are .* different costs from 0 up$"):
        allowed_costs(free_sea, thresholds=thresholds)


def test_thresholds_in_cost_work_where_budgets_do_not(free_sea, policy, tmp_path):
    results = evaluate_ships({"mine": [policy]}, free_sea, thresholds=(5.0, 10.0), episodes=3)
    results.save(tmp_path / "ships.csv")
    results = read_results(tmp_path / "ships.csv", ShipResult)
    lines = table_lines(results)
    assert [(line.run, line.allowed, line.threshold) for line in lines] == [
        ("expert", "", np.inf),
        ("mine", "cost 5", 5.0),
        ("mine", "cost 10", 10.0),
    ]
    read = Reader(ship_report_page(results))
    words = " ".join(read.texts["p"].split())
    assert "told to keep to cost 10, it is in close quarters" in words
    assert not any("nan" in text for text in [words, *(cell for row in read.rows for cell in row)])
    for axes in draw_budgets(results).axes:
        assert axes.get_xlabel() == "threshold"
        assert [label.get_text() for label in axes.get_xticklabels()] == ["5", "10"]


def test_the_verbs_take_thresholds_and_name_a_policy_file_alike(free_sea, policy, tmp_path, capsys):
    """Two files of the same name in two folders: one name each in table, results and map."""
    save_scenarios(free_sea, tmp_path / "sea.npz")
    files = [tmp_path / folder / "policy-0.bcrl" for folder in ("a-run-with-a-long-name", "b")]
    for file in files:
        file.parent.mkdir()
        policy.save(file)
    names = [f"{file.parent.name}/policy-0" for file in files]
    out, page, drawn = (tmp_path / name for name in ("ships.csv", "page.html", "map.html"))
    sea = ["--scenarios", str(tmp_path / "sea.npz")]
    words = ["ship", "evaluate", *map(str, files), *sea, "--episodes", "3", "--out", str(out)]
    with pytest.raises(SystemExit):
        main(words)
    assert "--thresholds 5,10" in capsys.readouterr().err
    main([*words, "--thresholds", "5,10"])
    said = capsys.readouterr().out
    assert max(map(len, said.splitlines()[:-2])) <= 80
    assert "nan" not in said
    assert "cost 10" in said
    assert "expert" in said.split(), "a short name is not broken"
    assert f"minus {names[0]}, in the same scenarios" in said
    assert "+0.000 to +0.000" in said, "the same policy twice"
    assert list(dict.fromkeys(row.run for row in read_results(out, ShipResult))) == [*names, "expert"]

    sailed = ["--policies", *map(str, files), "--thresholds", "7", *sea]
    main(["ship", "show", "0", *sailed, "--out", str(drawn)])
    assert [route["name"] for route in data_of(drawn.read_text())["routes"]] == ["expert", *names]
    main(["report", str(out), *sailed, "--out", str(page)])
    looks = {route["name"]: route["look"] for route in data_of(page.read_text())["routes"]}
    assert [looks[name].split()[0] for name in names] == ["route-series-0", "route-series-2"]
    assert "a cost of 7: a step" in page.read_text()
    assert "--thresholds 7" in page.read_text()
