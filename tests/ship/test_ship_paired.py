"""Runs minus a reference in the same scenarios."""

from dataclasses import replace

import numpy as np
import pytest
from page_reader import Reader
from test_ship_report import episodes

from bcrl.assess.statistics import estimate
from bcrl.cli import main
from bcrl.errors import BCRLError
from bcrl.report.ship import ship_report_page
from bcrl.ship import EXPERT, differences, reference_run, table_lines


@pytest.fixture(scope="module")
def clone():
    return episodes("clone", budgets=(0.5, 1.0))


@pytest.fixture(scope="module")
def rows(clone):
    """A run that is better than the clone by .01 or .03 in every scenario, which differ far more."""
    steps = {row: 0.01 + 0.02 * (row.scenario % 2) for row in clone}
    mine = [
        replace(row, run="mine", method="bcrl", close_quarters=row.close_quarters - step, ade=row.ade + 7)
        for row, step in steps.items()
    ]
    experts = [replace(row, run=EXPERT, method=EXPERT, threshold=np.inf, budget=np.nan) for row in clone[:10]]
    more = [replace(row, seed=1) for row in experts]
    return mine + clone + experts + more


def test_scenarios_are_paired_so_that_their_spread_drops_out(rows, clone):
    found = differences(rows[::-1], "clone")  # whatever the order of the rows
    assert [(one.line.run, one.line.threshold, one.pairs) for one in found] == [
        ("mine", 8.0, 20),
        ("mine", 16.0, 20),
    ]
    for one in found:
        close, ade = one.measures["close_quarters"], one.measures["ade"]
        assert close.mean == pytest.approx(-0.02)
        assert -0.03 <= close.low < -0.02 < close.high <= -0.01
        assert (ade.mean, ade.low, ade.high) == pytest.approx((7.0, 7.0, 7.0))
    (alone,) = (line for line in table_lines(rows) if (line.run, line.threshold) == ("mine", 8.0))
    apart = alone.measures["close_quarters"]
    assert apart.high - apart.low > 3 * (close.high - close.low)
    values = np.array([-0.01 - 0.02 * (row.scenario % 2) for row in clone[:10]] * 2)
    assert found[0].measures["close_quarters"].error == pytest.approx(
        estimate(values, np.repeat([1, 0], 10)).error, rel=0.3
    )


def test_experts_are_paired_with_every_threshold(rows):
    found = differences(rows, EXPERT)
    assert [(one.line.run, one.line.threshold) for one in found] == [
        ("mine", 8.0), ("mine", 16.0), ("clone", 8.0), ("clone", 16.0)
    ]  # fmt: skip


def test_scenarios_that_only_one_has_are_left_out(rows):
    less = [row for row in rows if row.run != "clone" or (row.scenario < 4 and row.threshold == 8.0)]
    (one,) = differences(less, "clone")
    assert (one.line.threshold, one.pairs) == (8.0, 8)


def test_the_reference_is_a_clone_else_the_experts(rows):
    assert reference_run(rows) == "clone"
    assert reference_run(rows, "mine") == "mine"
    assert reference_run([row for row in rows if row.run != "clone"]) == EXPERT
    assert reference_run([row for row in rows if row.run == "mine"]) == "", "nothing beside it"
    assert reference_run([row for row in rows if row.run == EXPERT]) == ""
    with pytest.raises(BCRLError, match="'other', but the runs are mine, clone, expert"):
        reference_run(rows, "other")


def test_a_report_has_the_differences(rows):
    read = Reader(ship_report_page(rows))
    assert "Minus clone, in the same scenarios" in read.texts["h2"]
    head, *lines = read.rows[1 + len(table_lines(rows)) :]
    assert head == ["", "budget", "close quarters", "ADE m", "cost", "pairs"]
    assert lines[0][:2] + lines[0][3:] == ["mine", "0.5 cost 8", "7 7 to 7", "0.0 0.0 to 0.0", "20"]


def test_a_reference_that_does_not_sail_is_refused_before_the_others_do(tmp_path, capsys):
    with pytest.raises(SystemExit):
        main(["ship", "evaluate", "--scenarios", str(tmp_path / "none.npz"), "--reference", "bc"])
    assert "--reference is 'bc'" in capsys.readouterr().err
