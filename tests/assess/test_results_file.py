"""results.csv and the numbers in it."""

import csv
import dataclasses
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bcrl.assess import Result, Results, evaluate, read_results
from bcrl.assess.results import normalised_cost
from bcrl.errors import BCRLError
from bcrl.learn.baselines.bc import BCSafe
from bcrl.policy import Policy
from bcrl.train.run import fit
from bcrl.worlds import make_world

COLUMNS = (
    "method,tracking,criterion,execution,world,data,seed,threshold,episode,return,cost,"
    "normalised_reward,normalised_cost,length,fallback_share"
)

words = st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\x00\r\n"), max_size=8)
numbers, costs = st.floats(-1e6, 1e6), st.floats(0, 1e6)
results = st.builds(
    Result,
    *[words] * 6,
    st.integers(0, 2**31),
    costs,
    st.integers(0, 10**6),
    *(numbers, costs, numbers, costs),
    st.integers(1, 1000),
    st.floats(0, 1),
)


@settings(max_examples=30)
@given(st.lists(results, max_size=4, unique_by=lambda row: row.episode))
def test_round_trip(tmp_path_factory, rows):
    path = tmp_path_factory.mktemp("results") / "results.csv"
    Results(rows).save(path)
    assert read_results(path) == Results.read(path) == rows
    assert path.read_text(encoding="utf-8").splitlines()[0] == COLUMNS


@pytest.mark.parametrize(
    ("cost", "threshold", "wanted"),
    [(30.0, 20.0, 1.5), (0.0, 20.0, 0.0), (0.0, 0.0, 1.0), (4.0, 0.0, 5.0), (0.5, 0.25, 2.0)],
)
def test_normalised_cost(cost, threshold, wanted):
    assert normalised_cost(np.array([cost]), threshold).tolist() == [wanted]


@pytest.fixture(scope="module")
def episodes(tiny_run):
    policies = [tiny_run.policy(seed) for seed in (0, 10)]
    return evaluate(policies, make_world("point-circle"), (0.0, 10.0, 40.0), episodes=3, execution="min")


def test_evaluation_fills_every_column(episodes):
    world = make_world("point-circle")
    assert len(episodes) == 2 * 3 * 3
    assert [(r.seed, r.threshold, r.episode) for r in episodes] == [
        (seed, threshold, episode)
        for seed in (0, 10)
        for threshold in (0.0, 10.0, 40.0)
        for episode in range(3)
    ]
    low, high = world.reference_returns
    for row in episodes:
        assert (row.method, row.tracking, row.criterion) == ("bcrl", "soft", "discounted")
        assert (row.execution, row.world, row.data) == ("min", "point-circle", "tiny.npz")
        assert row.normalised_reward == pytest.approx((row.return_ - low) / (high - low), abs=1e-6)
        shift = row.threshold == 0
        assert row.normalised_cost == pytest.approx((row.cost + shift) / (row.threshold + shift), abs=1e-6)
        assert 0 < row.length <= world.horizon
        assert 0 <= row.fallback_share <= 1
        assert row.cost >= 0
    assert len({row.return_ for row in episodes}) > 6


def test_evaluation_is_what_an_episode_of_the_policy_earns(tiny_run):
    """The scanned roll-out against the public `act` and `observe`, step by step, in the same world."""
    import jax

    policy, world = tiny_run.policy(0), make_world("point-circle")
    actor = dataclasses.replace(policy.learned, fallback_draws=0)
    policy = Policy(actor, policy.method, policy.spec, policy.provenance)
    reset, act, move = jax.random.split(jax.random.split(jax.random.key(0), 3)[1], 3)
    keys = jax.random.split(move, world.horizon)
    state, episode = world.reset(reset), policy.start(threshold=10.0, horizon=world.horizon, execution="min")
    del act  # without candidates and with a fallback that acts by its mean, nothing is drawn
    step = jax.jit(world.step)
    earned = spent = fallback = 0.0
    for key in keys:
        action = episode.act(world.observe(state))
        state, reward, cost, terminal = step(state, action, key)
        episode.observe(float(cost))
        earned, spent, fallback = earned + float(reward), spent + float(cost), fallback + episode.fallback
        assert not terminal
    row = evaluate([policy], world, (10.0,), episodes=3, execution="min")[1]
    assert row.return_ == pytest.approx(earned, rel=1e-3, abs=1e-2)
    assert row.cost == pytest.approx(spent, abs=1e-3)
    assert row.fallback_share == pytest.approx(fallback / world.horizon, abs=1e-6)


def test_evaluation_is_the_same_again_and_another_with_another_seed(tiny_run, episodes):
    world, policies = make_world("point-circle"), [tiny_run.policy(seed) for seed in (0, 10)]
    same = evaluate(policies, world, (0.0, 10.0, 40.0), episodes=3, execution="min")
    other = evaluate(policies, world, (0.0, 10.0, 40.0), episodes=3, execution="min", seed=1)
    assert same == episodes
    assert [row.return_ for row in other] != [row.return_ for row in episodes]


def test_one_policy_and_the_name_of_a_world_are_enough(tiny_run, episodes):
    found = evaluate(tiny_run.policy(0), "point-circle", episodes=1)
    assert [row.threshold for row in found] == list(make_world("point-circle").thresholds)
    assert repr(found) == "Results(3 episodes: bcrl in point-circle, seeds 0, thresholds 10, 20, 40)"
    assert isinstance(episodes[:2], Results)
    assert [line.threshold for line in episodes.summary()] == [0.0, 10.0, 40.0, None]


def test_a_policy_that_was_trained_for_a_threshold_is_evaluated_there(tiny_log):
    run = fit(tiny_log, BCSafe(threshold=1e3, hidden=(8,), batch_size=16), steps=2, log_every=2)
    assert [row.threshold for row in evaluate(run.policy(), "point-circle", episodes=1)] == [1e3]


def test_noise_is_named_in_the_world(tiny_run):
    rows = evaluate([tiny_run.policy(0)], make_world("point-circle", 0.25), (10.0,), episodes=1)
    assert rows[0].world == "point-circle noise 0.25"
    assert rows[0].execution == "finite-horizon"


@pytest.mark.parametrize(
    ("change", "wanted"),
    [
        ({"thresholds": ()}, "thresholds"),
        ({"thresholds": (-1.0,)}, "thresholds"),
        ({"thresholds": (float("nan"),)}, "thresholds"),
        ({"thresholds": 5}, "thresholds"),
        ({"thresholds": "10"}, "thresholds"),
        ({"thresholds": (None,)}, "thresholds"),
        ({"thresholds": (10**400,)}, "thresholds"),
        ({"episodes": 0}, "episodes"),
        ({"episodes": 1.5}, "episodes"),
        ({"seed": "2"}, "seed"),
        ({"seed": 2**70}, "seed"),
        ({"world": "point-run"}, "observations, actions"),
    ],
)
def test_bad_evaluations_are_refused(change, wanted, tiny_run):
    given = {"world": "point-circle", "thresholds": (10.0,), "episodes": 1, **change}
    world = make_world(given.pop("world"))
    with pytest.raises(BCRLError, match=wanted):
        evaluate([tiny_run.policy(0)], world, given.pop("thresholds"), **given)


ROW = "bcrl,soft,discounted,min,w,d,0,10.0,0,1.5,3.0,0.5,0.3,200,0.0"
DAMAGED = {
    "no file": (None, "no such file"),
    "empty": (b"", "not a results file"),
    "another table": (b"step,loss\n1,2\n", "method is missing"),
    "a column less": (COLUMNS.rpartition(",")[0].encode() + b"\n", "fallback_share is missing"),
    "columns in another order": (",".join(reversed(COLUMNS.split(","))).encode(), "order of columns"),
    "a word for a number": (
        f"{COLUMNS}\n{ROW}\n{ROW.replace('1.5', 'much')}\n".encode(),
        "line 3 is damaged",
    ),
    "a half for a whole number": (f"{COLUMNS}\n{ROW.replace('200', '2.5')}\n".encode(), "line 2 is damaged"),
    "a row cut short": (f"{COLUMNS}\n{ROW}\n{ROW[:-20]}\n".encode(), "line 3 is damaged"),
    **{
        f"{wanted} {value}": (
            f"{COLUMNS}\n{value.join(ROW.rsplit(good, 1))}\n".encode(),
            re.escape(f"{wanted} is {value}"),
        )
        for good, value, wanted in (
            ("3.0", "-1.0", "cost"),
            ("3.0", "nan", "cost"),
            ("0.3", "-0.3", "normalised_cost"),
            ("0.3", "1e+308", "normalised_cost"),
            ("10.0", "nan", "threshold"),
            ("1.5", "inf", "return"),
            ("200", "-200", "length"),
            ("0.0", "7.0", "fallback_share"),
        )
    },
    "not text": (bytes(range(128, 256)) * 4, "not a results file"),
    "zeros": (COLUMNS.encode() + b"\n" + b"\0" * 100, "damaged"),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_results_file_is_refused(name, tmp_path):
    content, wanted = DAMAGED[name]
    path = tmp_path / "results.csv"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(BCRLError, match=wanted) as refused:
        read_results(path)
    line = str(refused.value)
    assert line.startswith(f"{path}: ")
    assert "\n" not in line


def test_the_good_row_is_good(tmp_path):
    """Or the table above could refuse for another reason."""
    path = tmp_path / "results.csv"
    path.write_text(f"{COLUMNS}\n{ROW}\n")
    (row,) = read_results(path)
    assert list(dataclasses.astuple(row)) == [
        *("bcrl", "soft", "discounted", "min", "w", "d", 0, 10.0, 0, 1.5, 3.0, 0.5, 0.3, 200, 0.0)
    ]
    with open(path, newline="") as file:
        assert next(csv.DictReader(file))["return"] == "1.5"
