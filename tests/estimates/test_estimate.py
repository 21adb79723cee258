"""Estimates beside known truth, and the cases in which they must not be trusted."""

import jax
import numpy as np
import pytest
from speeding import SMALL, Speeding, make_log, policy_of

import bcrl
from bcrl.assess.rollout import roll_out
from bcrl.data import Dataset
from bcrl.errors import BCRLError
from bcrl.estimates import Light
from bcrl.estimates.ensemble import Scales
from bcrl.estimates.interval import interval, spread
from bcrl.estimates.log import cost_scale
from bcrl.estimates.model_world import simulate
from bcrl.worlds import built_in_world

THRESHOLDS = (2.0, 5.0, 10.0)


def estimate(policy, data, model, thresholds=THRESHOLDS, **options):
    return bcrl.estimate(policy, data, thresholds, model=model, starts=16, **options)


def test_the_true_world_as_a_model_gives_the_true_episodes(tiny_policy):
    world = built_in_world("point-circle", 0.1)
    truth = roll_out(tiny_policy, world, THRESHOLDS, episodes=6, seed=4)
    resets = jax.vmap(lambda key: jax.random.split(key, 3)[0])(jax.random.split(jax.random.key(4), 6))
    states = jax.vmap(world.reset)(resets)
    said = simulate(tiny_policy, [world, world], states, THRESHOLDS, horizon=world.horizon, seed=4)
    for members, true in ((said.costs, truth.costs), (said.returns, truth.returns)):
        np.testing.assert_allclose(members, np.stack([true, true]), rtol=1e-5)


def test_estimates_agree_with_the_truth(speeding_log, speeding_model):
    policy = policy_of(speeding_log)
    rows = estimate(policy, speeding_log, speeding_model)
    truth = roll_out(policy, Speeding(), THRESHOLDS, episodes=200)
    for row, costs, returns in zip(rows, truth.costs, truth.returns, strict=True):
        assert abs(row.cost - costs.mean()) <= max(1.0, 0.05 * row.threshold)
        assert row.cost_low <= costs.mean() <= row.cost_high
        assert row.return_low <= returns.mean() <= row.return_high


def test_the_share_of_episodes_over_the_threshold_agrees_with_the_truth(speeding_log, speeding_model):
    # It never brakes, so what an episode costs is decided by its first speed. An error of 0.5 in the cost
    # moves the share by 0.2 where it is steepest.
    policy = policy_of(speeding_log, throttle=0.4, stubborn=True)
    rows = estimate(policy, speeding_log, speeding_model, (10.0, 15.0, 17.0, 20.0, 25.0))
    truth = roll_out(policy, Speeding(), [row.threshold for row in rows], episodes=200)
    for row, costs in zip(rows, truth.costs, strict=True):
        assert row.over_share == pytest.approx(np.mean(costs > row.threshold), abs=0.2)


def test_the_same_seed_gives_the_same_estimates(speeding_log, speeding_model):
    policy = policy_of(speeding_log)
    first, again = (list(estimate(policy, speeding_log, speeding_model)) for _ in range(2))
    assert first == again


@pytest.mark.parametrize("unit", [60.0, 0.01])
def test_another_unit_of_cost_changes_nothing(unit, speeding_log, speeding_model):
    data = make_log(fine=unit)
    rows = estimate(policy_of(speeding_log), speeding_log, speeding_model)
    model = bcrl.fit_model(data, **SMALL)
    scaled = estimate(policy_of(data), data, model, [unit * threshold for threshold in THRESHOLDS])
    for row, other in zip(rows, scaled, strict=True):
        assert (other.light, other.over_share) == (row.light, row.over_share)
        for name in ("cost", "cost_low", "cost_high"):
            assert getattr(other, name) == pytest.approx(unit * getattr(row, name), rel=1e-3)
        assert other.return_ == pytest.approx(row.return_, rel=1e-3)


def reasons(rows) -> str:
    return " ".join(row.reasons for row in rows)


def test_a_broken_policy_is_red(speeding_log, speeding_model):
    rows = estimate(policy_of(speeding_log, stubborn=True, helpless=True), speeding_log, speeding_model)
    assert {row.light for row in rows} == {Light.RED}
    assert "the fallback decides 100% of the steps" in reasons(rows)
    assert "is above the threshold" in reasons(rows)


def part(low: float, high: float) -> Dataset:
    """A log of 80 episodes that cost from `low` to `high`; all of one size, for one program."""
    whole = make_log(episodes=600)
    inside = np.flatnonzero((whole.episode_costs >= low) & (whole.episode_costs <= high))
    return whole.select_episodes(inside[:80])


def test_a_log_of_cheap_episodes_alone_is_no_support():
    cheap = part(0, 1)
    rows = estimate(policy_of(cheap), cheap, bcrl.fit_model(cheap, **SMALL))
    assert all(row.light != Light.GREEN for row in rows)
    assert "far from all in the log" in reasons(rows)
    assert "no logged episode costs more than 1" in reasons(rows)


def test_shuffled_actions_fail_the_replay(speeding_log):
    arrays = speeding_log.arrays() | {"actions": np.random.default_rng(0).permutation(speeding_log.actions)}
    shuffled = Dataset.from_arrays(arrays, "shuffled")
    rows = estimate(policy_of(shuffled), shuffled, bcrl.fit_model(shuffled, **SMALL))
    assert {row.light for row in rows} == {Light.RED}
    assert "replays of held-out episodes miss" in reasons(rows)


def test_thresholds_below_every_logged_cost_are_extrapolation():
    dear = part(8, 30)
    rows = estimate(policy_of(dear), dear, bcrl.fit_model(dear, **SMALL))
    assert "no logged episode costs less than 8: thresholds under 8 are extrapolation" in reasons(rows)


def test_one_long_episode_hardly_changes_what_errors_are_measured_by():
    lengths = np.array([10] * 99 + [1_000])
    zeros, ends = np.zeros((lengths.sum(), 1)), np.zeros(lengths.sum(), bool)
    ends[np.cumsum(lengths) - 1] = True
    costs = np.full(lengths.sum(), 2.0)
    log = Dataset(zeros, zeros, zeros[:, 0], costs, zeros, terminals=np.zeros_like(ends), timeouts=ends)
    assert cost_scale(log) == pytest.approx(2.0 * 19.9)
    assert float(log.max_cost[0]) * log.horizon == 2_000


def test_the_interval_is_the_formula_with_a_floor():
    values = np.array([[1.0, 3.0], [2.0, 6.0], [3.0, 9.0]])  # members, starts
    between, within = np.var([2, 4, 6], ddof=1), np.var([2, 6], ddof=1)
    assert spread(values) == pytest.approx(4.302653 * np.sqrt(between * (1 + 1 / 3) + within / 2), rel=1e-6)
    flat = np.full((3, 2), 4.0)
    assert (interval(flat, flat, 0.5).low, interval(flat, flat, 0.5).high) == (3.5, 4.5)
    assert interval(flat, flat + 2, 0.5).high == 6.0
    assert interval(flat, flat, 9.0, least=0.0).low == 0.0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"horizon": 31}, "horizon is 31, but must be from 1 to 30: nothing is logged past that"),
        ({"thresholds": (5.0, 5.0)}, "one is there twice"),
        ({"thresholds": (-1.0,)}, "must be numbers from 0 up"),
        ({"starts": 1}, "starts is 1"),
    ],
)
def test_what_cannot_be_estimated_is_refused(options, message, speeding_log, speeding_model):
    given = {"thresholds": (5.0,), "model": speeding_model} | options
    with pytest.raises(BCRLError, match=message):
        bcrl.estimate(policy_of(speeding_log), speeding_log, given.pop("thresholds"), **given)


def test_other_logs_are_refused(speeding_log, speeding_model, tiny_log):
    with pytest.raises(BCRLError, match="learned from another log"):
        estimate(policy_of(speeding_log), make_log(seed=1), speeding_model)
    with pytest.raises(BCRLError, match="rows do not follow one another"):
        bcrl.fit_model(tiny_log)
    with pytest.raises(BCRLError, match="has 3 episodes"):
        bcrl.fit_model(make_log(episodes=3))
    two = speeding_log.arrays()
    two = Dataset.from_arrays(two | {"costs": np.stack([two["costs"]] * 2, 1)}, "two costs")
    with pytest.raises(BCRLError, match="has 2 kinds of cost"):
        bcrl.fit_model(two)


def test_the_range_of_the_log_holds_the_states_that_end_its_episodes():
    """A line that is walked to its end: 10 is no row's observation."""
    place = np.tile(np.arange(10.0, dtype=np.float32), 6)[:, None]
    log = Dataset.from_arrays(
        {
            "observations": place,
            "actions": np.ones_like(place),
            "rewards": place[:, 0],
            "costs": (place[:, 0] == 5).astype(np.float32),
            "next_observations": place + 1,
            "terminals": place[:, 0] == 9,
            "timeouts": np.zeros(60, bool),
        },
        "a line",
    )
    np.testing.assert_array_equal(Scales.of(log).observation[2:, 0], [0.0, 10.0])


def test_files_of_estimates_and_models_are_read_as_written(speeding_log, speeding_model, tmp_path):
    rows = estimate(policy_of(speeding_log, helpless=True), speeding_log, speeding_model)
    rows.save(tmp_path / "estimates.csv")
    assert list(bcrl.Estimates.load(tmp_path / "estimates.csv")) == list(rows)
    head = (tmp_path / "estimates.csv").read_text().splitlines()[0]
    assert head.endswith(
        "threshold,cost,cost_low,cost_high,return,return_low,return_high,fallback_share,light,reasons,over_share"
    )
    (tmp_path / "estimates.csv").write_text(head + "\nbcrl,soft,x,0,ten\n")
    with pytest.raises(BCRLError, match="line 2 is damaged"):
        bcrl.Estimates.load(tmp_path / "estimates.csv")
    speeding_model.save(tmp_path / "log.model")
    loaded = bcrl.Model.load(tmp_path / "log.model")
    assert list(estimate(policy_of(speeding_log, helpless=True), speeding_log, loaded)) == list(rows)
