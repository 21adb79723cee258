"""Cost critics on a log: cost-to-go, bins and alarms as counted by hand."""

import jax.numpy as jnp
import numpy as np
import pytest

import bcrl
from bcrl.assess import read_results
from bcrl.assess.critics import CostCritics, cost_critics
from bcrl.cli import main
from bcrl.data import Dataset, load_data
from bcrl.errors import BCRLError
from bcrl.learn.bcrl import BCRL


def log_of(costs: list[list[float]], terminal: bool = False) -> Dataset:
    flat = np.concatenate(costs)
    ends = np.zeros(len(flat), bool)
    ends[np.cumsum([len(episode) for episode in costs]) - 1] = True
    steps = np.concatenate([np.arange(len(episode) + 1.0) for episode in costs])
    after = np.delete(steps, np.cumsum([0] + [len(episode) + 1 for episode in costs[:-1]]))
    before = np.delete(steps, np.cumsum([len(episode) + 1 for episode in costs]) - 1)
    none = np.zeros(len(flat), bool)
    return Dataset(
        before[:, None], np.zeros((len(flat), 1)), np.zeros(len(flat)), flat, after[:, None],
        ends if terminal else none, none if terminal else ends,
    )  # fmt: skip


def test_cost_to_go_adds_the_value_after_a_time_limit():
    data = log_of([[1, 0, 2], [0, 4, 0]])
    critics = CostCritics(data, np.zeros(6), np.zeros(6), np.array([8.0, 0.0]), 0.5, 3, 0.1)
    np.testing.assert_allclose(critics.to_go, [1 + 0.5 + 1, 3, 6, 2, 4, 0])


def test_bins_hold_equally_many_and_their_means():
    data = log_of([[1, 1, 1, 1]])
    critics = CostCritics(data, np.zeros(4), np.array([4.0, 3.0, 2.0, 1.0]), np.zeros(1), 1.0, 4, 0.1)
    low, high = critics.bins(critics.critic, 2)
    assert (low.predicted, low.observed, low.count) == (1.5, 1.5, 2)
    assert (high.predicted, high.observed, high.count) == (3.5, 3.5, 2)


def test_alarms_are_false_in_episodes_that_keep_the_threshold():
    # Undiscounted, so that slack is threshold − spent − V_C. The values say that 2 more will be spent.
    data = log_of([[0, 1, 0, 0], [1, 1, 3, 0]])
    critics = CostCritics(data, np.full(8, 2.0), np.zeros(8), np.zeros(2), 1.0, 4, 0.1)
    np.testing.assert_allclose(critics.slack(3.0), [1, 1, 0, 0, 1, 0, -1, -2])  # never less than 0 is left
    found = critics.alarm(3.0)
    assert (found.within, found.false, found.in_time) == (0.5, 0.5, 1.0)
    assert (found.left, found.spent) == (2.0, 4.0)  # at step 1 of the second episode
    late = CostCritics(data, np.zeros(8), np.zeros(8), np.zeros(2), 1.0, 4, 0.1).alarm(3.0)
    assert late.in_time == 0.0
    assert np.isnan(late.left)
    assert late.false == 0.0


def test_slack_is_that_of_execution(tiny_policy, tiny_log):
    """With the safety factor, at the first step of an episode."""
    episode = tiny_policy.start(threshold=5.0)
    episode.act(tiny_log.observations[0])
    assert tiny_policy.method.safety_factor > 1.0
    assert cost_critics(tiny_policy, tiny_log).slack(5.0)[0] == pytest.approx(episode.slack[0], rel=1e-5)


def test_what_the_critics_say_is_in_the_unit_of_the_log(tiny_policy, tiny_log):
    found = cost_critics(tiny_policy, tiny_log)
    actor = tiny_policy.learned
    features = actor.features(jnp.asarray(tiny_log.observations[7]), jnp.asarray(7))
    unit = tiny_policy.units.cost[0]
    assert found.value[7] == pytest.approx(float(actor.least_cost(features)[0]) * unit, rel=1e-5)
    asked = actor.cost_to_go(features, jnp.asarray(tiny_log.actions[7]))
    assert found.critic[7] == pytest.approx(float(asked[0]) * unit, rel=1e-5)
    assert (found.last_value[tiny_log.terminals[tiny_log.ends]] == 0).all()  # nothing follows a terminal
    assert (found.last_value != 0).any()


def test_q_f_is_asked_where_it_was_learned(tiny_policy, tiny_log):
    assert list(cost_critics(tiny_policy, tiny_log).predictions) == ["V_C(s)", "Q_C(s, a)"]
    method = BCRL(hidden=(8,), batch_size=16, fallback_critic=True)
    policy = bcrl.fit(tiny_log, method, steps=2).policy()
    found = cost_critics(policy, tiny_log)
    assert list(found.predictions) == ["V_C(s)", "Q_C(s, a)", "Q_F(s, a)"]
    actor = policy.learned
    features = actor.features(jnp.asarray(tiny_log.observations[7]), jnp.asarray(7))
    asked = actor.cost_ahead(features[None], jnp.asarray(tiny_log.actions[7:8]))[0]
    assert found.predictions["Q_F(s, a)"][7] == pytest.approx(
        float(asked[0]) * policy.units.cost[0], rel=1e-5
    )
    assert not np.allclose(found.predictions["Q_F(s, a)"], found.critic)


def test_a_log_of_other_sizes_and_a_cost_that_is_not_there_are_refused(tiny_policy, tiny_log):
    with pytest.raises(BCRLError, match="log of the same task"):
        cost_critics(tiny_policy, log_of([[1, 0]]))
    with pytest.raises(BCRLError, match="cost is 1"):
        cost_critics(tiny_policy, tiny_log, cost=1)


def test_recorded_episodes_are_a_log_that_the_verb_reads(tiny_run, tmp_path, capsys):
    policy, log, results = tiny_run.folder / "policy-0.bcrl", tmp_path / "log.npz", tmp_path / "results.csv"
    words = ["--thresholds", "0,5", "--episodes", "2", "--record", str(log), "--out", str(results)]
    main(["evaluate", str(policy), "--world", "point-circle", *words])
    data, rows = load_data(log), read_results(results)
    assert data.episode_lengths.tolist() == [row.length for row in rows]
    np.testing.assert_allclose(data.episode_costs, [row.cost for row in rows])
    np.testing.assert_allclose(data.episode_returns, [row.return_ for row in rows], rtol=1e-4)
    assert data.transitions.broken == 0
    picture = tmp_path / "critics.png"
    main(["critics", str(policy), "--data", str(log), "--thresholds", "5", "--out", str(picture)])
    said = capsys.readouterr().out
    assert "false alarm" in said
    assert "V_C" in said
    assert max(map(len, said[said.index("says") :].split("the picture")[0].splitlines())) <= 80
    assert picture.stat().st_size > 1000
