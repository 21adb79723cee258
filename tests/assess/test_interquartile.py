"""Interquartile means, against scipy's trimmed mean and numbers worked out by hand."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import trim_mean

from bcrl.assess.statistics import aggregate, interquartile_mean


@given(st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=40))
def test_it_is_the_mean_without_the_outer_quarters(values):
    assert interquartile_mean(np.array(values)) == pytest.approx(trim_mean(values, 0.25), rel=1e-12, abs=1e-9)


def test_by_hand_and_along_the_last_axis():
    values = np.array([[100.0, 1, 2, 3, 4, -100, 5, 6], [0, 0, 0, 0, 8, 8, 8, 8]])
    assert interquartile_mean(values).tolist() == [3.5, 4.0]


def test_runs_are_drawn_within_tasks():
    """Tasks far apart with equal runs: nothing could have come out otherwise."""
    found = aggregate([np.full(3, 0.0), np.full(3, 1.0), np.full(3, 7.0)])
    assert (found.mean, found.low, found.high, found.error) == (2.0, 2.0, 2.0, 0.0)  # of 0 1 1 1 7


def test_the_interval_of_many_runs():
    """One task of 400 normal runs: the IQM of n has a standard error of about 1.09/√n."""
    runs = np.random.default_rng(1).normal(size=400)
    found = aggregate([runs])
    assert found.low < found.mean < found.high
    assert found.high - found.low == pytest.approx(2 * 1.96 * 1.09 / math.sqrt(400), rel=0.2)
    assert found.mean == pytest.approx(trim_mean(runs, 0.25))
    assert aggregate([runs]) == found, "the same runs give the same interval"


def test_tasks_may_have_different_numbers_of_runs():
    assert aggregate([np.array([1.0]), np.array([1.0, 1.0, 1.0])]).mean == 1.0
