"""A planner that knows the scenario, where the best plan is known."""

import numpy as np
import pytest
from ship_maker import sea, straight

from bcrl.assess import read_results
from bcrl.cli import main
from bcrl.errors import BCRLError
from bcrl.ship import (
    EXPERT,
    PLANNER,
    ShipResult,
    evaluate_ships,
    plan_ships,
    possible_budgets,
    save_scenarios,
    table_lines,
)
from bcrl.worlds.planning import Search

QUICK = Search(population=32, elites=6, iterations=12, restarts=1)


@pytest.fixture(scope="module")
def seas():
    """An empty sea; a ship that lies in the way and can be passed; one that lies on the goal."""
    way = straight((500, 2800), (8, 0), 50)  # 4 km to the east
    lane = [(5, 0, way), (6, 200, way + np.float32([0, 20, 0, 0]))]  # long before: makes the water known
    return sea(
        *lane,
        (0, 1000, way),
        (0, 2000, way),
        (1, 2000, straight((2500, 2800), (0, 0), 120)),
        (0, 3000, way),
        (2, 3000, straight((4500, 2800), (0, 0), 120)),
        scenarios=(0, 2, 3, 5),
    )


@pytest.fixture(scope="module")
def plans(seas):
    return plan_ships(seas, np.array([1, 2, 3]), how=QUICK, max_speed=8.0)


def test_the_least_cost_is_found_where_it_is_known(seas, plans):
    empty, passed, on_goal = plans
    assert [plan.scenario for plan in plans] == [1, 2, 3]
    assert all(plan.success for plan in plans)
    assert all(plan.speed <= 8.001 for plan in plans)
    assert (empty.cost, passed.cost) == (0, 0)
    # The goal counts from 200 m on, so at 8 m/s the last 355 m lie within 555 m of the ship that is there.
    assert on_goal.cost == pytest.approx(355 / 80, abs=1)
    experts = {row.scenario: row for row in evaluate_ships({}, seas)}
    assert experts[3].cost == on_goal.cost, "nothing can be saved there"


def test_plans_keep_to_known_water_where_they_must(seas):
    """Past the ship leads no known water, and the lane is too narrow: time in close quarters is the price."""
    (free,) = plan_ships(seas, np.array([2]), how=QUICK)
    (held,) = plan_ships(seas, np.array([2]), how=QUICK, off_water=0)
    assert free.cost == 0
    assert free.off_water_cost > 0
    assert (held.off_water_cost, held.off_water_threshold) == (0, 0)
    assert held.success
    assert held.cost >= 2 * 540 / 137, "at 99 % of the logged speeds or more"


def test_a_plan_is_never_worse_than_the_expert(small_sea):
    which = small_sea.evaluation
    planned = plan_ships(small_sea, which, how=Search(population=8, elites=2, iterations=1, restarts=1))
    assert all(plan.success for plan in planned)
    assert all(plan.cost <= small_sea.expert_cost[plan.scenario] for plan in planned)
    again = plan_ships(small_sea, which[:2], how=Search(population=8, elites=2, iterations=1, restarts=1))
    assert [row.cost for row in again] == [row.cost for row in planned[:2]], "of its own seed alone"


def test_the_anchor_says_which_budgets_can_be_kept(seas, plans):
    experts = evaluate_ships({}, seas)
    asked = [
        ShipResult(**{**vars(row), "run": "mine", "threshold": threshold, "budget": np.nan})
        for row in experts
        for threshold in (0.0, 20.0)
    ]
    tight, loose = possible_budgets(plans, experts, table_lines(asked))
    (cost,) = (plan.cost for plan in plans if plan.scenario == experts[0].scenario)
    assert (tight.share, loose.share) == (float(cost == 0), 1.0)
    assert (tight.kept, loose.kept) == ("kept" if cost == 0 else "broken", "kept")
    with pytest.raises(BCRLError, match="plans for 0 of 1 scenarios"):
        possible_budgets(plans[:1], experts, table_lines(asked))


def test_the_verb_writes_plans_that_the_table_takes(small_sea, tmp_path, capsys):
    save_scenarios(small_sea, tmp_path / "sea.npz")
    out = tmp_path / "plans.csv"
    words = ["--population", "8", "--iterations", "1", "--restarts", "1"]
    main(["ship", "plan", str(tmp_path / "sea.npz"), "--out", str(out), *words])
    assert f"{len(small_sea.evaluation)} plans: 100% reach the goal" in capsys.readouterr().out
    assert {row.run for row in read_results(out, ShipResult)} == {PLANNER} != {EXPERT}
    main(["ship", "evaluate", "--scenarios", str(tmp_path / "sea.npz"), "--anchor", str(out)])
    said = capsys.readouterr().out
    assert "possible, by" in said
    for bad in ("--max-speed=30", "--off-water=-1", "--iterations=0"):
        with pytest.raises(SystemExit):
            main(["ship", "plan", str(tmp_path / "sea.npz"), "--out", str(out), bad, "--overwrite"])
        assert "must be" in capsys.readouterr().err
