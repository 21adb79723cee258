import builtins
import sys
from dataclasses import replace

import numpy as np
import pytest

from bcrl.errors import BCRLError
from bcrl.report import draw, save_figure
from bcrl.report.curves import curves


def marks(axes):
    """What the legend names: the means, not the dots of single episodes."""
    return [line for line in axes.get_lines() if not line.get_label().startswith("_")]


def test_two_panels_show_the_means(make_results):
    results = make_results()
    figure = draw(results)
    (line,) = curves(results)
    reward, cost = figure.axes
    assert np.allclose(marks(reward)[0].get_ydata(), line.mean("reward"))
    assert np.allclose(marks(cost)[0].get_ydata(), line.mean("episode_cost"))
    assert np.array_equal(marks(cost)[0].get_xdata(), [5, 10, 20])
    assert not figure.legends


def test_the_axis_says_return_where_nothing_is_normalised(make_results):
    results = make_results()
    assert draw(results).axes[0].get_ylabel() == "normalised reward"
    plain = [replace(row, normalised_reward=np.nan) for row in results]
    reward = draw(plain).axes[0]
    assert reward.get_ylabel() == "return"
    assert np.allclose(marks(reward)[0].get_ydata(), curves(plain)[0].mean("episode_return"))


def test_every_episode_is_a_dot(make_results):
    results = make_results()
    dots = [line for line in draw(results).axes[1].get_lines() if line.get_linestyle() == "None"]
    assert sorted(dots[0].get_ydata()) == sorted(result.cost for result in results)


def test_a_log_adds_a_third_panel(make_results, dataset):
    assert len(draw(make_results(), dataset).axes) == 3


def test_several_curves_have_a_legend_that_names_the_difference(make_results):
    figure = draw(make_results() + make_results(execution="direct"))
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["bcrl, soft", "bcrl, direct"]


@pytest.mark.parametrize("thresholds", [(0.0,), (20.0,), (0.0, 1.0), (10.0, 10.1, 10.2, 500.0)])
def test_any_thresholds_can_be_drawn(make_results, thresholds, tmp_path):
    save_figure(draw(make_results(thresholds=thresholds)), tmp_path / "picture.svg")
    assert (tmp_path / "picture.svg").stat().st_size > 1000


def test_one_episode_of_one_seed_can_be_drawn(make_results):
    draw(make_results(thresholds=(20.0,), seeds=(0,), episodes=1))


def test_pyplot_is_left_alone(make_results):
    sys.modules.pop("matplotlib.pyplot", None)
    draw(make_results())
    assert "matplotlib.pyplot" not in sys.modules


def test_an_unknown_suffix_is_refused(make_results, tmp_path):
    with pytest.raises(BCRLError, match=r"unknown suffix '\.gif'"):
        save_figure(draw(make_results()), tmp_path / "picture.gif")


def test_without_matplotlib_one_line_says_what_to_install(make_results, monkeypatch):
    real = builtins.__import__

    def missing(name, *rest, **more):
        if name.partition(".")[0] == "matplotlib":
            raise ImportError(name)
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(BCRLError, match=r"pip install 'bcrl\[report\]'"):
        draw(make_results())


def test_seeds_with_different_numbers_of_episodes_are_refused(make_results):
    with pytest.raises(BCRLError, match="same --episodes"):
        draw(make_results(seeds=(0,), episodes=3) + make_results(seeds=(1,), episodes=4))


def test_no_results_are_refused():
    with pytest.raises(BCRLError, match="no episode"):
        draw([])
