"""Known water: where ships sailed before, and leaving it as a cost of its own."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ship_maker import sea, straight

from bcrl.assess import evaluate, read_results
from bcrl.cli import main
from bcrl.data import load_data
from bcrl.errors import BCRLError
from bcrl.learn.bcrl import BCRL
from bcrl.report.ship import ship_report_page
from bcrl.ship import (
    ShipResult,
    evaluate_ships,
    expert_log,
    known_water,
    make_ship_world,
    measure,
    off_water,
    replay,
    save_scenarios,
    table_lines,
)
from bcrl.train.run import fit


@pytest.fixture(scope="module")
def lane():
    """Two ships in one lane, one beside it; the test ship begins in the lane and leaves it to the north."""
    return sea(
        (0, 0, straight((100, 1020), (10, 0), 50)),
        (1, 100, straight((120, 1020), (10, 0), 50)),
        (2, 200, straight((100, 3020), (10, 0), 50)),
        (3, 400, straight((120, 1020), (8, 6), 50)),
        scenarios=(0, 3),
    )


@pytest.fixture(scope="module")
def two_costs(small_sea):
    """A log of two costs and a policy that learned a little from it."""
    log = expert_log(small_sea, water=known_water(small_sea), source="sea")
    method = BCRL(hidden=(8, 8), batch_size=16)
    return log, fit(log, method, seeds=(0,), steps=2).policy(0)


def test_known_is_where_two_tracks_were_before_the_test_or_beside_it(lane):
    water = known_water(lane)
    places = {(1000, 1020): True, (1000, 1070): True, (1000, 970): True, (1000, 1120): False}
    places |= {(1000, 3020): False, (1000, 1700): False, (70, 1020): True, (30, 1020): False}
    found = ~off_water(water, lane.box, np.array(list(places), float))
    np.testing.assert_array_equal(found, list(places.values()))
    late = dataclasses.replace(lane, first=lane.first + np.array([0, 900, 0, 0]))
    assert not known_water(late).any(), "the second ship of the lane sails after the test began"


def test_a_step_off_known_water_costs_in_the_simulator_as_in_the_measures(lane):
    world = make_ship_world(lane, water=known_water(lane))
    assert world.cost_count == 2
    voyages = replay(world, lane, np.array([0, 1]))
    found = measure(voyages, lane)
    north = voyages.path[1, 1:, 1][voyages.sailing[1]]
    off = (north >= 1100).sum()  # the lane is the row from 1000 m to 1050 m, and a cell on each side
    assert found.off_water_cost.tolist() == [0, off]
    assert found.off_water[1] == off / len(north)
    np.testing.assert_array_equal(voyages.cost, replay(make_ship_world(lane), lane, np.array([0, 1])).cost)
    state, costs = world.begin(jnp.asarray(1)), []
    for place in lane.expert(1)[1:, :2][: len(north)]:
        action = world.action_between(state, jnp.asarray(place), state.past[-1, 4])
        state, _, cost, _ = world.step(state, action, jax.random.key(0))
        costs.append(np.asarray(cost))
    assert np.array(costs).sum(axis=0).tolist() == [found.cost[1], off]


def test_a_log_of_two_costs_and_a_policy_with_two_budgets(small_sea, two_costs, tmp_path):
    log, policy = two_costs
    plain = expert_log(small_sea, source="sea")
    np.testing.assert_array_equal(log.costs[:, 0], plain.costs)
    np.testing.assert_array_equal(log.observations, plain.observations)
    off = measure(replay(make_ship_world(small_sea), small_sea, small_sea.training), small_sea)
    np.testing.assert_array_equal(log.episode_costs[:, 1], off.off_water_cost)
    assert 0 < log.costs[:, 1].mean() < 0.5, "else nothing could be learned from it"
    assert log.schema.cost_names == ("close quarters", "off known water")

    clone = fit(plain, BCRL(hidden=(8, 8), batch_size=16), seeds=(0,), steps=2).policy(0)
    runs = {"two": [policy], "one": [clone]}
    results = evaluate_ships(runs, small_sea, thresholds=(4.0,), off_water=3.0, episodes=4)
    results.save(tmp_path / "ships.csv")
    again = read_results(tmp_path / "ships.csv", ShipResult)
    expert, two, one = table_lines(again)
    assert (two.off_water, two.kept_water is None, one.kept_water, expert.kept_water) == (
        3.0,
        False,
        None,
        None,
    )
    for line in (expert, two, one):
        assert 0 <= line.measures["off_water"].mean <= 1, "measured for all"
    with pytest.raises(BCRLError, match="2 costs, but results are of one"):
        evaluate(policy, make_ship_world(small_sea, water=known_water(small_sea)), (4.0,))


def test_results_of_before_are_read_without_it(small_sea, tmp_path):
    rows = evaluate_ships({}, small_sea)
    rows.save(tmp_path / "new.csv")
    lines = (tmp_path / "new.csv").read_text().splitlines()
    (tmp_path / "old.csv").write_text("\n".join(line.rsplit(",", 3)[0] for line in lines))
    old = read_results(tmp_path / "old.csv", ShipResult)
    assert [row.ade for row in old] == [row.ade for row in rows]
    assert np.isnan(old[0].off_water)
    assert "nan" not in ship_report_page(old).partition("<main")[2].replace("nance", "")


def test_the_verbs_write_and_keep_two_costs(small_sea, two_costs, tmp_path, capsys):
    save_scenarios(small_sea, tmp_path / "sea.npz")
    (tmp_path / "run").mkdir()
    two_costs[1].save(tmp_path / "run" / "policy-0.bcrl")
    log = tmp_path / "log.npz"
    main(["ship", "log", str(tmp_path / "sea.npz"), "--known-water", "--out", str(log)])
    assert load_data(log).fingerprint() == two_costs[0].fingerprint()
    assert " and " in capsys.readouterr().out, "the mean of each cost"
    words = ["--scenarios", str(tmp_path / "sea.npz"), "--thresholds", "4", "--off-water", "3"]
    main(["ship", "evaluate", str(tmp_path / "run"), *words, "--episodes", "3"])
    said = capsys.readouterr().out
    assert max(map(len, said.splitlines()[:-1])) <= 80
    assert "off 3" in said
    assert "nan" not in said
