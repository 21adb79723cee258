"""Pictures of estimates: cost and return against the told threshold, and the log they rest on."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from bcrl.data import Dataset
from bcrl.estimates import Light
from bcrl.policy import Policy
from bcrl.report.episode_units import EpisodeUnits, label_axes, units_of
from bcrl.report.estimate_curves import EstimateCurve
from bcrl.report.figure import (
    blank_figure,
    colour_of,
    diagonal,
    dots,
    marks,
    name_thresholds,
    some,
    style,
    threshold_axis,
)
from bcrl.report.theme import LIGHT, MARKERS, Theme

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TRUE, CALIBRATED = "X", "D"
"""Markers of what was simulated and of calibrated thresholds."""


def draw_estimates(
    lines: Sequence[EstimateCurve], dataset: Dataset | None = None, policies: Sequence[Policy] = ()
) -> "Figure":
    """All panels side by side, with a legend; units are the log's, or else the policies'."""
    units = units_of(dataset, policies)
    panels = list(PANELS)[: 2 if dataset is None else 3]
    with style(LIGHT):
        figure = blank_figure(len(panels), LIGHT)
        for axes, panel in zip(np.ravel(figure.subplots(1, len(panels))), panels, strict=True):
            _draw(axes, panel, lines, dataset, LIGHT, units)
        named: dict = {}
        for axes in figure.axes:
            named |= dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
        figure.legend(
            named.values(), named.keys(), loc="outside upper center", ncols=len(panels), frameon=False
        )
    return figure


def draw_estimate(
    panel: str, lines: Sequence[EstimateCurve], dataset: Dataset | None, theme: Theme, units: EpisodeUnits
) -> "Figure":
    """One panel, a key of `PANELS`, as a figure of its own."""
    with style(theme):
        figure = blank_figure(1, theme)
        _draw(figure.subplots(), panel, lines, dataset, theme, units)
    return figure


def _draw(
    axes: "Axes",
    panel: str,
    lines: Sequence[EstimateCurve],
    dataset: Dataset | None,
    theme: Theme,
    units: EpisodeUnits,
) -> None:
    PANELS[panel](axes, lines, dataset, theme)
    label_axes(axes, units.cost, units.cost if panel == "cost" else units.earned)


def best_logged(dataset: Dataset, thresholds: np.ndarray) -> np.ndarray:
    """The largest return of a logged episode that cost at most each threshold; NaN where there is none."""
    costs, returns = dataset.episode_costs.ravel(), dataset.episode_returns
    order = np.argsort(costs, kind="stable")
    best = np.concatenate([[np.nan], np.maximum.accumulate(returns[order])])
    return best[np.searchsorted(costs[order], thresholds, side="right")]


def _cost(axes: "Axes", lines: Sequence[EstimateCurve], dataset: Dataset | None, theme: Theme) -> None:
    told = [pair[1] for line in lines for pair in line.calibrated]
    _axis(axes, lines, told)
    wanted = [pair[0] for line in lines for pair in line.calibrated]
    true = [summary.episode_cost.high for line in lines for summary in line.truth]
    highest = max(row.cost_high for line in lines for row in line.rows)
    top = 1.06 * max(axes.get_xlim()[1], highest, *wanted, *true)
    axes.set_ylim(-0.02 * top, top)
    several = len(lines) > 1 or bool(told)
    diagonal(axes, _every(lines), 0.0, theme, named=not several)
    for i, line in enumerate(lines):
        _band(axes, i, line, "cost", theme)
        _truth(axes, i, lines, "episode_cost", theme)
        if line.calibrated:
            _calibrated(axes, i, lines, theme)
    axes.set(title="What it will cost", xlabel="threshold it is told", ylabel="cost of an episode")


def _return(axes: "Axes", lines: Sequence[EstimateCurve], dataset: Dataset | None, theme: Theme) -> None:
    _axis(axes, lines, [pair[1] for line in lines for pair in line.calibrated])
    for i, line in enumerate(lines):
        _band(axes, i, line, "return", theme)
        _truth(axes, i, lines, "episode_return", theme)
    if dataset is not None:
        x = np.linspace(*axes.get_xlim(), 400)
        axes.plot(
            x, best_logged(dataset, x), color=theme.muted, linewidth=1.4, linestyle=(0, (2, 2)),
            label="best logged episode that costs no more",
        )  # fmt: skip
    axes.set(title="What it will earn", xlabel="threshold it is told", ylabel="return of an episode")
    axes.margins(y=0.15)


def _log(axes: "Axes", lines: Sequence[EstimateCurve], dataset: Dataset | None, theme: Theme) -> None:
    assert dataset is not None
    rows = np.stack([dataset.episode_costs.ravel(), dataset.episode_returns], 1)
    x, y = some(rows, np.random.default_rng(0)).T
    dots(axes, x, y, theme.muted)
    for i, line in enumerate(lines):
        cost, earned = line.column("cost"), line.column("return_")
        marks(axes, i, theme, cost, earned, None, f"{line.label}, estimated")
        _hollow(axes, i, line, cost, earned, theme)
        if len(lines) == 1:
            name_thresholds(axes, cost, earned, line.thresholds, colour_of(theme, i))
    axes.set(title="Beside the log", xlabel="cost of an episode", ylabel="return of an episode")


PANELS: dict[str, Callable[["Axes", Sequence[EstimateCurve], Dataset | None, Theme], None]] = {
    "cost": _cost,
    "return": _return,
    "log": _log,
}


def _axis(axes: "Axes", lines: Sequence[EstimateCurve], more: list[float]) -> None:
    """All estimated thresholds, and as far as calibrated and true ones go."""
    true = [summary.threshold for line in lines for summary in line.truth]
    shown = _every(lines)
    threshold_axis(axes, shown)
    (left, right), reach = axes.get_xlim(), [*more, *true]
    margin = right - shown[-1]
    axes.set_xlim(min([left, *(x - margin for x in reach)]), max([right, *(x + margin for x in reach)]))


def _every(lines: Sequence[EstimateCurve]) -> np.ndarray:
    return np.unique(np.concatenate([line.thresholds for line in lines]))


def _band(axes: "Axes", i: int, line: EstimateCurve, name: str, theme: Theme) -> None:
    mean = line.column("return_" if name == "return" else name)
    ends = line.column(f"{name}_low"), line.column(f"{name}_high")
    axes.fill_between(line.thresholds, *ends, color=colour_of(theme, i), alpha=0.18, linewidth=0)
    marks(axes, i, theme, line.thresholds, mean, ends, f"{line.label}, estimated")
    _hollow(axes, i, line, line.thresholds, mean, theme)


def _hollow(axes: "Axes", i: int, line: EstimateCurve, x: np.ndarray, y: np.ndarray, theme: Theme) -> None:
    """Marks that are not green are hollow: colour alone would not be seen by all."""
    doubtful = line.column("light") != Light.GREEN
    axes.plot(
        x[doubtful], y[doubtful], linestyle="none", marker=MARKERS[i % len(MARKERS)][0], markersize=7.5,
        markerfacecolor=theme.paper, markeredgecolor=colour_of(theme, i), markeredgewidth=1.8,
    )  # fmt: skip


def _truth(axes: "Axes", i: int, lines: Sequence[EstimateCurve], name: str, theme: Theme) -> None:
    """What was simulated, a little to the right of what was estimated."""
    truth = lines[i].truth
    if not truth:
        return
    colour = _second(i, lines, theme)
    aside = 0.018 * float(np.ptp(axes.get_xlim()))
    x = np.array([summary.threshold for summary in truth], float) + aside
    values = [getattr(summary, name) for summary in truth]
    axes.vlines(x, [v.low for v in values], [v.high for v in values], color=colour, linewidth=1.6)
    axes.plot(
        x, [v.mean for v in values], linestyle="none", marker=TRUE, color=colour, markersize=8,
        markeredgecolor=theme.paper, markeredgewidth=1, label=f"{lines[i].label}, simulated",
    )  # fmt: skip


def _second(i: int, lines: Sequence[EstimateCurve], theme: Theme) -> str:
    """The colour of what stands beside a curve: its own, or ink where there is only one curve."""
    return theme.ink if len(lines) == 1 else colour_of(theme, i)


def _calibrated(axes: "Axes", i: int, lines: Sequence[EstimateCurve], theme: Theme) -> None:
    """A diamond above the told threshold, as high as the cost that is to be kept."""
    wanted, told = np.array(lines[i].calibrated).T
    axes.plot(
        told, wanted, linestyle="none", marker=CALIBRATED, color=_second(i, lines, theme), markersize=7,
        markeredgecolor=theme.paper, markeredgewidth=1, label=f"{lines[i].label}, calibrated",
    )  # fmt: skip
