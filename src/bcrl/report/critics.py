"""A picture of cost critics on a log: their calibration, and slack along episodes."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from bcrl.assess.critics import CostCritics
from bcrl.report.figure import blank_figure, colour_of, style
from bcrl.report.theme import LIGHT

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def draw_critics(critics: CostCritics, thresholds: Sequence[float]) -> "Figure":
    """Each critic against the cost that followed, then slack along episodes for each threshold."""
    count = len(critics.predictions)
    with style(LIGHT):
        figure = blank_figure(count + len(thresholds), LIGHT, (4.6, 4.2))
        panels = figure.subplots(1, count + len(thresholds))
        for axes, (name, predicted) in zip(panels[:count], critics.predictions.items(), strict=True):
            _calibration(axes, critics, name, predicted)
        for axes, threshold in zip(panels[count:], thresholds, strict=True):
            _slack(axes, critics, threshold)
    return figure


def _calibration(axes: "Axes", critics: CostCritics, name: str, predicted: np.ndarray) -> None:
    parts = critics.bins(predicted)
    x = [part.predicted for part in parts]
    axes.fill_between(
        x, [p.low for p in parts], [p.high for p in parts], color=colour_of(LIGHT, 0), alpha=0.18, linewidth=0
    )
    axes.plot(x, [p.observed for p in parts], marker="o", color=colour_of(LIGHT, 0), linewidth=2)
    ends = [min(0.0, *x), max(x)]
    axes.plot(ends, ends, color=LIGHT.over, linewidth=1.2, linestyle=(0, (5, 3)))
    axes.set(title=f"{name} and what followed", xlabel=name, ylabel="discounted cost-to-go, 10–90 %")


def _slack(axes: "Axes", critics: CostCritics, threshold: float) -> None:
    data, slack = critics.data, critics.slack(threshold)
    kept = np.add.reduceat(critics.costs, data.starts) <= threshold
    for i, (chosen, label) in enumerate(((kept, "within"), (~kept, "over"))):
        if not chosen.any():
            continue
        rows = chosen[data.episode]
        times = np.linspace(0, data.horizon, 41)
        place = np.digitize(data.steps[rows], times)
        mine = [slack[rows][place == k] for k in range(1, len(times))]
        middle = (times[1:] + times[:-1]) / 2
        full = [k for k, part in enumerate(mine) if len(part)]
        low, mid, high = (np.array([np.quantile(mine[k], q) for k in full]) for q in (0.1, 0.5, 0.9))
        colour = colour_of(LIGHT, 2 if i == 0 else 1)
        axes.fill_between(middle[full], low, high, color=colour, alpha=0.18, linewidth=0)
        axes.plot(middle[full], mid, color=colour, linewidth=2, label=f"{label}: {chosen.mean():.0%}")
    axes.axhline(critics.fallback_below, color=LIGHT.over, linewidth=1.2, linestyle=(0, (5, 3)))
    axes.set(title=f"Slack at threshold {threshold:g}", xlabel="step", ylabel="slack, 10–90 % of episodes")
    axes.legend(frameon=False)
