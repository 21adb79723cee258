"""Tables against numbers worked out by hand."""

import dataclasses
import io
import math

import numpy as np
import pytest
from rich.console import Console

from bcrl.assess.results import Result
from bcrl.assess.statistics import Estimate, Kept, estimate, kept, summarise
from bcrl.assess.tables import summary_table
from bcrl.errors import BCRLError


def row(
    seed: int, threshold: float, episode: int, cost: float, reward: float, fallback: float = 0.0
) -> Result:
    return Result(
        *("bcrl", "soft", "discounted", "soft", "w", "d"),
        *(seed, threshold, episode, 100 * reward, cost, reward, cost / threshold, 200, fallback),
    )


ROWS = [
    row(0, 10.0, 0, 5.0, 0.2, 0.0),
    row(0, 10.0, 1, 15.0, 0.4, 0.5),
    row(1, 10.0, 0, 10.0, 0.3, 0.0),
    row(1, 10.0, 1, 10.0, 0.5, 0.1),
    row(0, 20.0, 0, 25.0, 0.6),
    row(0, 20.0, 1, 27.0, 0.6),
    row(1, 20.0, 0, 20.0, 0.8),
    row(1, 20.0, 1, 12.0, 0.8),
]


def test_summary_by_hand():
    ten, twenty, everything = summarise(ROWS)
    assert [line.threshold for line in (ten, twenty, everything)] == [10.0, 20.0, None]
    assert [line.episodes for line in (ten, twenty, everything)] == [4, 4, 8]
    assert ten.cost.mean == pytest.approx(1.0)
    assert ten.episode_cost.mean == pytest.approx(10.0)
    assert ten.reward.mean == pytest.approx(0.35)
    assert ten.episode_return.mean == pytest.approx(35.0)
    assert ten.fallback_share == pytest.approx(0.15)
    assert ten.violation_rate == pytest.approx(0.25)  # 15 > 10; 10 is not above 10
    assert twenty.violation_rate == pytest.approx(0.5)
    assert twenty.cost.mean == pytest.approx(1.05)
    assert everything.cost.mean == pytest.approx(1.025)
    assert (ten.kept, twenty.kept, everything.kept) == (Kept.OPEN, Kept.OPEN, Kept.OPEN)
    # A drawn seed is the one with costs 5 and 15 (variance of its mean 50/4) or 10 and 10 (0), so the mean
    # of two has variance (50/4 + 0)/2/2. Five standard errors of a deviation from 2,000 draws are 8 %.
    assert ten.episode_cost.error == pytest.approx(math.sqrt(50 / 16), rel=0.08)


def test_a_line_prints_short():
    ten, *_, everything = summarise(ROWS)
    said = repr(ten)
    assert said.startswith("Summary(threshold 10: reward 0.35 (")
    assert said.endswith(", open, 4 episodes)")
    assert len(said) < 110
    assert repr(everything).startswith("Summary(all thresholds: reward ")


def test_one_threshold_has_one_line():
    assert [line.threshold for line in summarise(ROWS[:4])] == [10.0]
    assert summarise([]) == []


def test_the_interval_holds_the_mean_and_counts_seeds_first():
    random = np.random.default_rng(0)
    seeds = np.repeat([0, 1, 2, 3], 50)
    same = random.normal(size=200)
    apart = same + seeds  # seeds differ by 1: the spread between them rules the uncertainty
    near, far = estimate(same, seeds), estimate(apart, seeds)
    assert near.low < near.mean < near.high
    # 200 normal numbers: ±1.96/√200 = ±0.139 about the mean, whichever way the draws fall.
    assert near.high - near.low == pytest.approx(2 * 1.96 / math.sqrt(200), rel=0.35)
    # Four seeds at 0, 1, 2, 3 drawn with replacement: standard deviation √1.25/√4 = 0.56, ±1.1.
    assert far.high - far.low == pytest.approx(2 * 1.1, rel=0.25)
    assert estimate(same, seeds) == near, "the same rows give the same interval"


def test_one_episode_has_a_point_for_an_interval():
    found = estimate(np.array([2.0]), np.array([0]))
    assert (found.mean, found.low, found.high) == (2.0, 2.0, 2.0)


def test_thresholds_are_not_drawn():
    """Every seed has 0 at one threshold and 1 at the other: nothing about their mean is uncertain."""
    seeds, thresholds = np.repeat([0, 1, 2], 8), np.tile([10.0, 20.0], 12)
    found = estimate((thresholds > 15).astype(float), seeds, thresholds)
    assert (found.mean, found.low, found.high) == (0.5, 0.5, 0.5)


def test_seeds_with_unequal_episodes_are_refused():
    with pytest.raises(BCRLError, match="equally many"):
        estimate(np.arange(3.0), np.array([0, 0, 1]))


def test_the_table_shows_every_line():
    console = Console(width=140, file=io.StringIO())
    console.print(summary_table(summarise(ROWS), "a title"))
    lines = [line.split() for line in console.file.getvalue().splitlines()]
    ten = next(line for line in lines if line[:1] == ["10"])
    low, high = (f"{x:.2f}" for x in (summarise(ROWS)[0].reward.low, summarise(ROWS)[0].reward.high))
    assert ten[1] == "0.35"
    assert low in ten[2]
    assert high in ten[2]
    assert "open" in ten
    assert "25%" in ten
    assert lines[1][:4] == ["threshold", "reward", "cost", "kept?"]
    assert any(line[:1] == ["all"] for line in lines)


@pytest.mark.parametrize(
    ("low", "high", "wanted"),
    [
        (4.0, 9.0, "kept"),
        (4.0, 10.0, "kept"),
        (4.0, 10.1, "open"),
        (10.0, 12.0, "open"),
        (10.1, 12.0, "broken"),
    ],
)
def test_kept_is_decided_by_the_whole_interval(low, high, wanted):
    assert kept(Estimate((low + high) / 2, 1.0, low, high), 10.0) == wanted


@pytest.mark.parametrize(("costs", "wanted"), [((5, 6), "kept"), ((9, 12), "open"), ((13, 14), "broken")])
def test_a_summary_says_whether_its_threshold_is_kept(costs, wanted):
    (line,) = summarise([row(seed, 10.0, i, cost, 0.5) for seed in (0, 1) for i, cost in enumerate(costs)])
    assert line.kept is Kept(wanted)


def test_without_a_normalised_reward_the_return_is_shown():
    rows = [dataclasses.replace(row, normalised_reward=math.nan) for row in ROWS]
    line = summarise(rows)[0]
    assert not line.normalised
    assert line.earned == line.episode_return
    console = Console(width=140, file=io.StringIO())
    console.print(summary_table(summarise(rows), "a title"))
    assert console.file.getvalue().splitlines()[1].split()[:2] == ["threshold", "return"]
    assert "reward" not in console.file.getvalue()
