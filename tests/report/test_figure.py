import builtins
import sys
import xml.etree.ElementTree as ET
from dataclasses import replace

import numpy as np
import pytest

from bcrl.errors import BCRLError
from bcrl.report import draw, report_page, save_figure
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
    results = make_results()
    _, _, log = draw(results, dataset).axes
    (line,) = curves(results)
    assert np.allclose(marks(log)[0].get_xydata().T, (line.mean("episode_cost"), line.mean("episode_return")))
    (dots,) = [line for line in log.get_lines() if line.get_linestyle() == "None"]
    assert np.array_equal(dots.get_xdata(), dataset.episode_costs.ravel())
    assert np.array_equal(dots.get_ydata(), dataset.episode_returns)


def test_several_curves_have_a_legend_that_names_the_difference(make_results):
    figure = draw(make_results() + make_results(execution="direct"))
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["bcrl, soft", "bcrl, direct"]


@pytest.mark.parametrize("thresholds", [(0.0,), (20.0,), (0.0, 1.0), (10.0, 10.1, 10.2, 500.0)])
def test_any_thresholds_can_be_drawn(make_results, thresholds, tmp_path):
    figure = draw(make_results(thresholds=thresholds))
    save_figure(figure, tmp_path / "picture.svg")
    groups = {element.get("id") for element in ET.parse(tmp_path / "picture.svg").iter()}
    assert {"axes_1", "axes_2"} <= groups
    for axes in figure.axes:
        x, y = marks(axes)[0].get_xydata().T
        assert np.array_equal(x, thresholds)
        assert np.isfinite(y).all()
        (left, right), (bottom, top) = axes.get_xlim(), axes.get_ylim()
        assert left < min(x) <= max(x) < right
        assert bottom < min(y) <= max(y) < top


def test_one_episode_of_one_seed_is_one_point(make_results):
    results = make_results(thresholds=(20.0,), seeds=(0,), episodes=1)
    figure = draw(results)
    for axes, value in zip(figure.axes, (results[0].normalised_reward, results[0].cost), strict=True):
        np.testing.assert_allclose(marks(axes)[0].get_xydata(), [(20.0, value)])


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


@pytest.mark.parametrize("name", [r"$\frac$", "$x$", "_x", "a\x1b[31m\x00", "100 % $", "<b>&"])
def test_names_are_no_formulas_and_no_control_characters(make_results, name, tmp_path):
    """Names come from files; $...$ would be mathtext, a leading underscore would leave the legend."""
    results = make_results() + make_results(method=name)
    figure = draw(results)
    texts = [text.get_text().strip() for text in figure.legends[0].get_texts()]
    assert texts == ["bcrl", name.replace("\x1b", r"\x1b").replace("\x00", r"\x00")]
    for suffix in (".svg", ".png"):
        save_figure(figure, tmp_path / f"picture{suffix}")
    ET.parse(tmp_path / "picture.svg")
    assert report_page(results)
