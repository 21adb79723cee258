"""Sessions, the rules that write the log, and the closed forms beside a linear program and the world."""

import tomllib

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import linprog
from street import SESSIONS, rate

import bcrl
from bcrl.examples.ev_compare import compare, curves
from bcrl.examples.ev_log import MAP, log_table
from bcrl.examples.ev_optimum import LEVELS, at_once, below, best_level, foresight
from bcrl.examples.ev_replay import _rows
from bcrl.examples.ev_rules import RULES, charge, mixed
from bcrl.examples.ev_sessions import HOURS, OBSERVATIONS, POWER, Sessions
from bcrl.examples.ev_world import charging_world

BUDGETS = (0.1, 0.4, 1.0, 3.0, 100.0)


def test_sessions_are_whole_steps_with_their_rates(sessions: Sessions) -> None:
    assert 0.8 * 2 * SESSIONS < len(sessions) <= 2 * SESSIONS
    assert np.all(np.diff(sessions.first) >= 0)
    assert np.all(sessions.wanted <= sessions.steps * POWER * HOURS + 1e-9)
    found, there = sessions.rates()
    number, step = np.nonzero(there)
    np.testing.assert_allclose(found[number, step], rate(sessions.first[number] + step))
    now, half, day = (OBSERVATIONS.index(name) - 2 for name in ("co2_now", "co2_30min", "co2_day"))
    at = int(sessions.first[0])
    np.testing.assert_allclose(sessions.signals[at, now], rate(np.array(at)))
    np.testing.assert_allclose(sessions.signals[at, half], rate(at + np.arange(1, 7)).mean())
    np.testing.assert_allclose(sessions.signals[at, day], rate(at - np.arange(288)).mean())


@pytest.mark.parametrize("budget", BUDGETS)
def test_foresight_is_the_linear_programs_optimum(sessions: Sessions, budget: float) -> None:
    few = sessions.take(np.arange(6))
    kwh, kg = foresight(few, budget)
    for i in range(len(few)):
        clean = few.rate[few.first[i] : few.first[i] + few.steps[i]]
        bounds = [(0.0, POWER * HOURS)] * len(clean)
        limits = np.stack([np.ones_like(clean), clean])
        best = linprog(-np.ones_like(clean), limits, [few.wanted[i], budget], bounds=bounds)
        assert kwh[i] == pytest.approx(-best.fun, abs=1e-6)
        assert kg[i] <= budget + 1e-9


@pytest.mark.parametrize("budget", BUDGETS)
def test_rules_keep_the_budget_and_are_no_better_than_foresight(sessions: Sessions, budget: float) -> None:
    best, _ = foresight(sessions, budget)
    level = best_level(sessions, budget)
    for kwh, kg in (at_once(sessions, budget), below(sessions, level, budget)):
        assert np.all(kg <= budget + 1e-9)
        assert np.all(kwh <= best + 1e-9)
    assert below(sessions, level, budget)[0].mean() >= at_once(sessions, budget)[0].mean() - 1e-9
    assert level in LEVELS


def test_at_once_is_what_charging_step_by_step_does(sessions: Sessions) -> None:
    caps = np.full(len(sessions), 0.7)
    done = charge(sessions, lambda step, left, spent: np.full(len(sessions), POWER), caps)
    kwh, kg = at_once(sessions, 0.7)
    np.testing.assert_allclose(done.energy.sum(1), kwh, atol=1e-5)
    np.testing.assert_allclose(done.cost.sum(1), kg, atol=1e-5)


def test_the_log_is_what_the_world_does(sessions: Sessions) -> None:
    """The powers of the log, replayed in the world, give its observations, energies, emissions and ends."""
    table = log_table(sessions, seed=3)
    data = bcrl.from_frame(table, **tomllib.loads(MAP))
    assert data.terminals[data.ends].all()
    assert not data.timeouts.any()
    assert set(table["rule"]) == set(RULES)
    world = charging_world(sessions, 288)
    step, see = eqx.filter_jit(world.step), eqx.filter_jit(world.observe)
    for episode in range(3):
        low, high = data.starts[episode], data.ends[episode] + 1
        state = world.begin(jnp.int32(episode))
        for row in range(low, high):
            np.testing.assert_allclose(see(state), data.observations[row], rtol=1e-4, atol=1e-4)
            power = (data.actions[row] + 1) / 2 * POWER
            state, energy, cost, end = step(state, jnp.asarray(power), jax.random.key(0))
            assert float(energy) == pytest.approx(float(data.rewards[row]), abs=1e-4)
            assert float(cost) == pytest.approx(float(data.costs_2d[row, 0]), abs=1e-4)
            assert bool(end) == (row == high - 1)


def test_the_rules_of_the_log_stop_at_their_caps(sessions: Sessions) -> None:
    rule, kind, caps = mixed(sessions, np.random.default_rng(0))
    done = charge(sessions, rule, caps)
    assert np.all(done.cost.sum(1) <= caps + 1e-9)
    assert 0.2 < np.isfinite(caps).mean() < 0.8
    assert set(kind) == set(range(len(RULES)))
    some = done.power[done.charging]
    assert (some == 0).any()
    assert (some == POWER).any()
    assert ((some > 0) & (some < POWER)).any()


def test_a_comparison_reads_the_rules_at_equal_emission(sessions: Sessions) -> None:
    """At once, taken as the policy, is compared with itself."""
    who = dict.fromkeys(("method", "tracking", "criterion", "execution", "world", "data"), "")
    kwh, kg = at_once(sessions, 1.0)
    totals = np.stack([kwh, kg, sessions.steps, np.zeros(len(kwh))], axis=1)
    (row,) = compare(
        list(_rows(who | {"seed": 0}, 1.0, totals)), sessions, sessions, curves(sessions, sessions)
    )
    assert row.kwh == row.once_kwh
    assert row.once_equal == pytest.approx(row.kwh, rel=0.03)  # between the points of a curve
    assert row.over == 0
    assert row.kept == "kept"
    assert 0 < row.share < 1
