"""Roll-outs, the experts' replay and log, the measures, the table and the map."""

import os
from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest
from ship_maker import BOX, sea, straight

from bcrl.assess import evaluate, read_results, write_results
from bcrl.assess.statistics import kept
from bcrl.errors import BCRLError
from bcrl.learn.baselines.bc import BCAll
from bcrl.report.ship import make_map
from bcrl.ship import (
    EXPERT,
    NEW_YORK,
    ORIGINAL,
    RULES,
    Quirks,
    ShipResult,
    Voyages,
    allowed_costs,
    evaluate_ships,
    expert_log,
    make_scenarios,
    make_ship_world,
    measure,
    replay,
    sail,
    summarise,
    table_lines,
)
from bcrl.ship._log import own_rows
from bcrl.train.run import fit


@pytest.fixture(scope="module")
def small_log(small_sea):
    return expert_log(small_sea, source="small sea")


@pytest.fixture(scope="module")
def small_policies(small_log):
    run = fit(small_log, BCAll(hidden=(8,), batch_size=32), seeds=(0, 10), steps=30, log_every=15)
    return [run.policy(seed) for seed in run.seeds]


# Experts.


@pytest.mark.parametrize("frame", ["ego", "world"])
def test_an_expert_replays_itself_on_every_scenario(small_sea, frame):
    every = np.arange(len(small_sea))
    measures = measure(replay(make_ship_world(small_sea, frame=frame), small_sea, every), small_sea)
    assert measures.ade.max() < 1e-3
    assert (measures.success == 1).all()
    np.testing.assert_array_equal(measures.length, small_sea.steps_to_goal)
    np.testing.assert_array_equal(measures.cost, small_sea.expert_cost)


def test_the_log_is_what_the_simulator_says_of_the_expert(small_sea, small_log):
    which = small_sea.training
    voyages = replay(make_ship_world(small_sea), small_sea, which)
    assert small_log.episode_count == len(which)
    np.testing.assert_array_equal(small_log.episode_lengths, small_sea.steps_to_goal[which])
    np.testing.assert_array_equal(small_log.episode_costs, small_sea.expert_cost[which])
    assert (small_log.episode_returns == 100).all()
    assert small_log.terminals.sum() == len(which)
    assert not small_log.timeouts.any()
    np.testing.assert_array_equal(small_log.costs, voyages.cost[voyages.sailing])
    # The observation after a step is that before the next one.
    inner = np.flatnonzero(~small_log.terminals)
    np.testing.assert_allclose(
        small_log.next_observations[inner], small_log.observations[inner + 1], atol=1e-5
    )


def test_logged_actions_lead_along_the_track(small_sea, small_log):
    """In the frame of the box the logged actions add up to the way; the turns to the change of heading."""
    world_log = expert_log(small_sea, frame="world")
    for episode in range(3):
        rows = slice(small_log.starts[episode], small_log.ends[episode] + 1)
        samples = small_sea.expert(small_sea.training[episode])[: small_log.episode_lengths[episode] + 1]
        way = np.cumsum(200 * world_log.actions[rows, :2], axis=0)
        np.testing.assert_allclose(samples[0, :2] + way, samples[1:, :2], atol=0.05)
        turned = samples[0, 3] + np.pi * world_log.actions[rows, 2].sum()
        assert np.cos(turned - samples[-1, 3]) == pytest.approx(1, abs=1e-4)
        # The ego frame only turns the axes: lengths are the same.
        lengths = [np.hypot(*log.actions[rows, :2].T) for log in (small_log, world_log)]
        np.testing.assert_allclose(*lengths, atol=1e-5)


def test_speeds_of_the_own_past_are_those_of_the_way_made():
    samples = straight((0, 0), (3, 4), 4)
    samples[:, 2] = 9.0  # what the log said
    rows = own_rows(samples)
    np.testing.assert_allclose(np.hypot(rows[:, 2], rows[:, 3]), [9, 5, 5, 5, 5], rtol=1e-5)


# Measures.


def voyage(path, cost=None):
    steps = len(path) - 1
    zeros = np.zeros((1, steps))
    return Voyages(
        scenario=np.zeros(1, int),
        threshold=np.zeros(1),
        path=np.asarray(path, float)[None],
        sailing=np.ones((1, steps), bool),
        reward=zeros,
        cost=zeros if cost is None else np.asarray(cost, float)[None],
        fallback=zeros,
        success=np.ones(1, bool),
    )


def test_fifty_metres_beside_the_expert_for_193_steps():
    """ADE says 50 m; the original's GC-ADE says 50 / sqrt(193) = 3.60."""
    expert = straight((100, 1000), (2, 0), 193)
    scenarios = sea((0, 100, expert), (0, 9000, expert))
    path = own_rows(expert)
    path[:, 1] += 50
    measures = measure(voyage(path), scenarios)
    assert measures.ade[0] == pytest.approx(50, abs=1e-3)
    assert measures.gc_ade[0] == pytest.approx(3.60, abs=0.005)
    assert measures.gc_ade[0] == pytest.approx(50 / np.sqrt(193), abs=1e-4)


def test_displacement_counts_only_while_both_sail():
    expert = straight((100, 1000), (5, 0), 10)
    scenarios = sea((0, 100, expert), (0, 9000, expert))
    longer = own_rows(straight((100, 1030), (5, 0), 25))
    shorter = own_rows(straight((100, 1030), (5, 0), 4))
    for path in (longer, shorter):
        assert measure(voyage(path), scenarios).ade[0] == pytest.approx(30, abs=1e-3)


def test_speed_acceleration_and_close_quarters_by_hand():
    expert = straight((100, 1000), (5, 0), 4)
    scenarios = sea((0, 100, expert), (0, 9000, expert))
    path = np.zeros((5, 5))
    path[:, 2] = [4, 5, 7, 6, 8]  # m/s to the east
    path[1:, 0] = np.cumsum(10 * path[1:, 2])
    measures = measure(voyage(path, cost=[1, 0, 0, 1]), scenarios)
    assert measures.speed[0] == 6.5
    assert measures.acceleration[0] == pytest.approx((8 - 4) / 40)
    assert measures.close_quarters[0] == 0.5
    assert measures.cost[0] == 2
    assert measures.length[0] == 4


# Policies.


def test_policies_sail_within_their_limits(small_sea, small_policies):
    world = make_ship_world(small_sea)
    which = np.tile(small_sea.evaluation[:2], 2)
    thresholds = np.repeat([1.0, 5.0], 2)
    voyages = sail(small_policies[0], world, which, thresholds, seed=1)
    assert (voyages.lengths <= 2 * small_sea.steps[which]).all()
    assert (voyages.lengths >= 1).all()
    np.testing.assert_array_equal(voyages.path[:, 0, :2], [small_sea.expert(k)[0, :2] for k in which])
    for row, length in enumerate(voyages.lengths):
        assert voyages.sailing[row, :length].all()
        assert not voyages.sailing[row, length:].any()
        assert not voyages.cost[row, length:].any()
        # After the end the ship stays where it is, and no speed is made.
        assert (voyages.path[row, length:] == voyages.path[row, length]).all()
    again = sail(small_policies[0], world, which, thresholds, seed=1)
    np.testing.assert_array_equal(voyages.path, again.path)


def test_a_policy_of_another_frame_is_refused(small_sea, small_policies):
    with pytest.raises(BCRLError, match=r"frame 'world'.*bcrl ship log"):
        sail(small_policies[0], make_ship_world(small_sea, frame="world"), np.array([0]), np.ones(1))


def test_the_general_evaluation_takes_the_ship_world(small_sea, small_policies):
    world = make_ship_world(small_sea)
    rows = evaluate(small_policies, world, (2.0,), episodes=3)
    assert [row.world for row in rows] == ["ship"] * 6
    assert all(row.return_ in (0.0, 100.0) for row in rows)
    assert all(row.length <= world.horizon for row in rows)


def test_a_table_of_runs_and_experts(small_sea, small_policies, tmp_path):
    results = evaluate_ships({"mine": small_policies}, small_sea, budgets=(0.5, 1.0), episodes=2)
    experts = [row for row in results if row.run == EXPERT]
    mine = [row for row in results if row.run == "mine"]
    assert len(mine) == 2 * 2 * 2
    assert len(experts) == 2 * 2
    for seed in (0, 10):  # experts and policies of a seed meet the same scenarios
        assert len({frozenset(r.scenario for r in rows if r.seed == seed) for rows in (mine, experts)}) == 1
    median = np.median(small_sea.expert_cost[small_sea.evaluation])
    assert {row.threshold for row in mine} == {0.5 * median, median}
    assert all(row.success == 1 and row.ade < 1e-3 for row in experts)
    lines = table_lines(results)
    assert [(line.run, line.threshold) for line in lines] == [
        (EXPERT, np.inf),
        ("mine", 0.5 * median),
        ("mine", median),
    ]
    assert lines[0].measures["success"].mean == 1
    tight = [row.close_quarters for row in mine if row.threshold == 0.5 * median]
    assert lines[1].measures["close_quarters"].mean == pytest.approx(np.mean(tight))
    assert [line.kept for line in lines] == [
        None,
        *(kept(line.measures["cost"], line.threshold) for line in lines[1:]),
    ]
    results.save(tmp_path / "ships.csv")
    read = read_results(tmp_path / "ships.csv", ShipResult)
    assert [str(row) for row in read] == [str(row) for row in results]  # as text, since NaN is not NaN


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("a,b\n", "not a results file"),
        (
            "run,method,seed,budget,threshold,scenario,ade\n",
            "tracking is missing.*: evaluate again",
        ),  # of old
        (None, "line 2 is damaged"),
    ],
)
def test_a_damaged_results_file_is_refused(tmp_path, text, wanted):
    path = tmp_path / "ships.csv"
    write_results([], path, ShipResult)
    path.write_text(path.read_text() + "mine,bc\n" if text is None else text)
    with pytest.raises(BCRLError, match=wanted):
        read_results(path, ShipResult)


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({"budgets": ()}, "budgets"),
        ({"budgets": (-1.0,)}, "budgets"),
        ({"budgets": (0.5, 0.5)}, "different"),
        ({"episodes": 0}, "episodes"),
    ],
)
def test_bad_numbers_for_the_table_are_refused(small_sea, options, wanted):
    with pytest.raises(BCRLError, match=wanted):
        evaluate_ships({}, small_sea, **options)


def test_no_run_may_be_called_as_the_experts_are(small_sea, small_policies):
    with pytest.raises(BCRLError, match="rename"):
        evaluate_ships({EXPERT: small_policies}, small_sea, episodes=1)


# The map.


def test_a_map_shows_what_happened(small_sea, small_policies):
    scenario = int(small_sea.evaluation[0])
    other = int(small_sea.evaluation[1])
    world = make_ship_world(small_sea)
    voyages = sail(small_policies[0], world, np.array([scenario, scenario]), np.array([1.0, 4.0]))
    alone = sail(small_policies[1], world, np.array([other, scenario]), np.ones(2))
    drawn = make_map(small_sea, scenario, {"one": voyages, "two": alone})
    assert list(drawn.routes) == ["one, threshold 1", "one, threshold 4", "two"]
    moments = len(drawn.seconds)
    assert moments == max(small_sea.steps[scenario], voyages.lengths.max(), alone.lengths[1]) + 1
    expert = small_sea.expert(scenario)
    np.testing.assert_array_equal(drawn.expert.place[drawn.expert.present], expert[:, :2])
    assert drawn.expert.reached
    assert drawn.expert.close[1 : 1 + small_sea.steps[scenario]].mean() == pytest.approx(
        small_sea.close_quarters[scenario]
    )
    route = drawn.routes["two"]
    length = alone.lengths[1]
    assert route.present.sum() == length + 1
    np.testing.assert_array_equal(route.close[1 : length + 1], alone.cost[1, :length] == 1)
    assert route.reached == alone.success[1]
    # Neighbours: the mean number while the expert sails is the scenario's congestion.
    present = drawn.neighbours_present[:, : len(expert)]
    assert present.sum(axis=0).mean() == pytest.approx(small_sea.congestion[scenario])
    assert present.any(axis=1).sum() <= len(drawn.neighbours)
    assert (drawn.neighbours[drawn.neighbours_present] <= np.array(BOX.size) + 1e-3).all()
    assert make_map(small_sea, scenario).routes == {}


# Real logs, where they are.


def test_new_york_harbor():
    """The package's own counts of the real log; expert replay on a part of it."""
    pytest.importorskip("tracktable_data")
    from bcrl.ship import read_new_york
    from bcrl.ship._new_york import SOURCE

    scenarios = make_scenarios(read_new_york(), NEW_YORK, RULES["moving"], source=SOURCE)
    facts = summarise(scenarios)
    assert scenarios.about["rows"] == 172_679
    assert sum(scenarios.about["left_out"].values()) == 43_647
    assert (facts[0]["scenarios"], facts[0]["transitions"]) == (4_165, 240_140)
    assert facts[0]["mean speed, m/s"] == pytest.approx(5.0, abs=0.05)
    assert facts[0]["close quarters"] == pytest.approx(0.31, abs=0.01)
    assert facts[1]["close quarters"] == pytest.approx(0.45, abs=0.01)
    part = np.arange(0, len(scenarios), 40)
    measures = measure(replay(make_ship_world(scenarios), scenarios, part), scenarios)
    assert measures.ade.max() < 1e-3
    assert (measures.success == 1).all()
    np.testing.assert_array_equal(measures.cost, scenarios.expert_cost[part])


@pytest.mark.skipif(
    "BCRL_SHIP_DEMO" not in os.environ, reason="BCRL_SHIP_DEMO names no file of the original's"
)
def test_the_original_demo_file_gives_the_original_figures():
    """The synthetic log of the original's repository, with every quirk switched on."""
    from bcrl.ship import read_reports

    rule = RULES["original"]
    reports, box = read_reports([os.environ["BCRL_SHIP_DEMO"]], None, rule.margin)
    scenarios = make_scenarios(reports, box, rule)
    every = np.arange(len(scenarios))
    assert len(scenarios) == 29

    def replayed(quirks):
        world = make_ship_world(scenarios, frame="world", quirks=quirks, limit=1000)
        return measure(replay(world, scenarios, every), scenarios)

    original, careful = replayed(ORIGINAL), replayed(Quirks(cost_timing="before"))
    assert original.length.sum() == 2387
    assert original.gc_ade.max() < 1e-6
    assert (original.success == 1).all()
    assert original.speed.mean() == pytest.approx(4.944, abs=5e-4)
    # Being alone counted as close quarters: 22.2 % of steps reported, 15.7 % true.
    assert original.cost.sum() / 2387 == pytest.approx(0.222, abs=5e-4)
    assert careful.cost.sum() / 2387 == pytest.approx(0.157, abs=5e-4)


def test_options_are_chosen_on_the_congested_fifth_of_validation(small_sea):
    results = evaluate_ships({}, small_sea, part="validation")
    among = small_sea.most_congested(small_sea.validation)
    assert {result.scenario for result in results} == set(among.tolist())
    assert {result.world for result in results} == {"ship validation"}
    costly = replace(small_sea, expert_cost=np.arange(len(small_sea), dtype=np.int32))
    assert allowed_costs(costly, (0.5,), part="validation").thresholds == 0.5 * np.median(among)


def test_the_end_of_an_expert_is_the_goal(small_sea):
    world = make_ship_world(small_sea)
    for scenario in range(3):
        np.testing.assert_array_equal(world.goal[scenario], small_sea.expert(scenario)[-1, :2])
        np.testing.assert_array_equal(
            world.begin(jnp.asarray(scenario)).past[-1, :2], small_sea.expert(scenario)[0, :2]
        )
