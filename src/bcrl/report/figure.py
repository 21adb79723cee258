"""Pictures of what policies earn and cost at each threshold, with matplotlib (the extra `report`).

    figure = bcrl.report.draw(results)
    bcrl.report.save_figure(figure, "picture.svg")

Only matplotlib's objects are used, never pyplot, whose state would be shared with the caller's own plots.
"""

import os
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bcrl.assess.results import Result
from bcrl.data import Dataset
from bcrl.errors import BCRLError
from bcrl.files import atomic_path
from bcrl.report.curves import NAMES, Curve, curves, earned_by
from bcrl.report.episode_units import EpisodeUnits, label_axes, units_of
from bcrl.report.theme import LIGHT, MARKERS, Theme

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PANEL = (6.0, 4.5)  # inches; 72 units of an SVG to the inch
MOST_DOTS = 1_500  # of one kind in a panel; more make a file heavy and a picture no clearer


def draw(results: Sequence[Result], dataset: Dataset | None = None) -> "Figure":
    """Reward and cost against the threshold, side by side; with a data set, the log beside them."""
    lines = curves(results)
    panels = ["reward", "cost"]
    if dataset is not None and shows_log(lines, dataset):
        panels.append("log")
    with style(LIGHT):
        figure = blank_figure(len(panels), LIGHT)
        for axes, panel in zip(np.ravel(figure.subplots(1, len(panels))), panels, strict=True):
            draw_panel(axes, panel, lines, dataset, LIGHT, units_of(dataset))
        if len(lines) > 1:
            handles, labels = figure.axes[0].get_legend_handles_labels()
            columns = min(len(lines), 2 * len(panels))
            figure.legend(handles, labels, loc="outside upper center", ncols=columns, frameon=False)
    return figure


def draw_one(
    panel: str, lines: Sequence[Curve], dataset: Dataset | None, theme: Theme, units: EpisodeUnits
) -> "Figure":
    """One panel as a figure of its own, so that a page can set panels side by side or one below another."""
    with style(theme):
        figure = blank_figure(1, theme)
        draw_panel(figure.subplots(), panel, lines, dataset, theme, units)
    return figure


def save_figure(figure: "Figure", path: str | os.PathLike) -> None:
    """Writes the picture, all or nothing; the suffix chooses the format: .svg, .pdf or .png."""
    path = Path(path)
    formats = (".svg", ".pdf", ".png")
    if path.suffix.lower() not in formats:
        raise BCRLError(f"{path}: unknown suffix {path.suffix!r} for a picture; known: {', '.join(formats)}")
    with atomic_path(path) as temporary:
        figure.savefig(temporary, dpi=200)


def shows_log(lines: Sequence[Curve], dataset: Dataset) -> bool:
    """Whether a cloud of returns and costs can be compared with the curves: one world, one kind of cost."""
    return dataset.cost_count == 1 and len({result.world for line in lines for result in line.results}) == 1


def style(theme: Theme) -> AbstractContextManager[None]:
    """matplotlib's settings for our pictures, in force only inside the `with`."""
    return matplotlib().rc_context(
        {
            "font.family": "sans-serif",
            "font.size": 13,
            "axes.edgecolor": theme.muted,
            "axes.labelcolor": theme.ink,
            "axes.titlecolor": theme.ink,
            "axes.titlelocation": "left",
            "axes.titlesize": 14,
            "axes.titlepad": 12,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.grid": True,
            "axes.axisbelow": True,
            "grid.color": theme.grid,
            "grid.linewidth": 0.8,
            "text.color": theme.ink,
            "legend.labelcolor": theme.ink,
            "xtick.color": theme.muted,
            "ytick.color": theme.muted,
            "xtick.labelcolor": theme.ink,
            "ytick.labelcolor": theme.ink,
            "text.parse_math": False,  # a name with $ is no formula
            "svg.hashsalt": "bcrl",  # the same picture is the same file
            "svg.fonttype": "none",  # letters stay letters: they can be read aloud, searched and copied
        }
    )


def matplotlib() -> Any:
    """The module, or one line that says how to get it."""
    try:
        import matplotlib
    except ImportError:
        raise BCRLError("pictures need one more package: pip install 'bcrl[report]'") from None
    return matplotlib


def draw_panel(
    axes: "Axes",
    panel: str,
    lines: Sequence[Curve],
    dataset: Dataset | None,
    theme: Theme,
    units: EpisodeUnits,
) -> None:
    if panel == "reward":
        _reward(axes, lines, theme)
    elif panel == "cost":
        _cost(axes, lines, theme)
    else:
        assert dataset is not None
        _log(axes, lines, dataset, theme)
    normalised = panel == "reward" and earned_by(lines) == "reward"
    label_axes(axes, units.cost, units.cost if panel == "cost" else "" if normalised else units.earned)


def _reward(axes: "Axes", lines: Sequence[Curve], theme: Theme) -> None:
    earned = earned_by(lines)
    for i, line in enumerate(lines):
        x, (low, high) = line.thresholds, line.interval(earned)
        axes.fill_between(x, low, high, color=colour_of(theme, i), alpha=0.18, linewidth=0)
        marks(axes, i, theme, x, line.mean(earned), (low, high), line.label)
    axes.set(title="What it earns", xlabel="threshold", ylabel=NAMES[earned])
    axes.margins(y=0.15)
    threshold_axis(axes, _thresholds(lines))


def _cost(axes: "Axes", lines: Sequence[Curve], theme: Theme) -> None:
    threshold_axis(axes, _thresholds(lines))
    left, right = axes.get_xlim()
    top = 1.06 * max(right, max(result.cost for line in lines for result in line.results))
    axes.set(title="What it costs", xlabel="threshold", ylabel="cost of an episode")
    axes.set_ylim(-0.02 * top, top)
    lane = 0.028 * (right - left)  # single episodes stand beside the mean, this far to either side
    diagonal(axes, _thresholds(lines), lane, theme, named=len(lines) == 1)
    random = np.random.default_rng(0)
    for i, line in enumerate(lines):
        rows = some(np.array([(r.threshold, r.cost) for r in line.results]), random)
        # Several curves share the width, so that their dots do not hide one another.
        low, high = np.linspace(-lane, lane, len(lines) + 1)[i : i + 2]
        dots(axes, rows[:, 0] + random.uniform(low, high, len(rows)), rows[:, 1], colour_of(theme, i))
        x, mean = line.thresholds, line.mean("episode_cost")
        marks(axes, i, theme, x, mean, line.interval("episode_cost"), line.label)


def diagonal(axes: "Axes", thresholds: np.ndarray, lane: float, theme: Theme, *, named: bool) -> None:
    """The line cost = threshold, level at each threshold, where dots beside the mean are compared with it."""
    (left, right), (_, top) = axes.get_xlim(), axes.get_ylim()
    across = np.array([max(left, 0.0), right])
    axes.fill_between(across, across, top, color=theme.over, alpha=0.08, linewidth=0)
    axes.plot(across, across, color=theme.over, linewidth=1.2, linestyle=(0, (5, 3)))
    axes.hlines(thresholds, thresholds - lane, thresholds + lane, color=theme.over, linewidth=1.6)
    axes.text(0.04, 0.94, "over the threshold", transform=axes.transAxes, color=theme.over, va="top")
    if not named:  # there is no room for more words
        return
    # Along the line, where it is longest without a threshold.
    corners = np.concatenate([across[:1], thresholds, across[1:]])
    widest = int(np.argmax(np.diff(corners)))
    middle = (corners[widest] + corners[widest + 1]) / 2
    axes.text(
        middle, middle, "cost = threshold\n", color=theme.over, size=12, rotation=45,
        rotation_mode="anchor", transform_rotates_text=True, ha="center", va="center", linespacing=1.5,
    )  # fmt: skip


def _log(axes: "Axes", lines: Sequence[Curve], dataset: Dataset, theme: Theme) -> None:
    random = np.random.default_rng(0)
    rows = some(np.stack([dataset.episode_costs.ravel(), dataset.episode_returns], 1), random)
    dots(axes, rows[:, 0], rows[:, 1], theme.muted)
    for i, line in enumerate(lines):
        cost, earned = line.mean("episode_cost"), line.mean("episode_return")
        marks(axes, i, theme, cost, earned, None, line.label)
        if len(lines) == 1:
            name_thresholds(axes, cost, earned, line.thresholds, colour_of(theme, i))
    axes.set(title="What it made of the log", xlabel="cost of an episode", ylabel="return of an episode")


def name_thresholds(
    axes: "Axes", cost: np.ndarray, earned: np.ndarray, thresholds: np.ndarray, colour: str
) -> None:
    """A number at each mean: above it, or below it where the one before is too near."""
    near = 0.06 * float(np.ptp(axes.get_xlim()))
    last = -np.inf
    for x, y, threshold in zip(cost, earned, thresholds, strict=True):
        away, last = (-19, -np.inf) if abs(x - last) < near else (9, x)
        axes.annotate(
            f"{threshold:g}", (x, y), (0, away), textcoords="offset points", ha="center", size=12,
            color=colour, fontweight="bold",
        )  # fmt: skip


def dots(axes: "Axes", x: np.ndarray, y: np.ndarray, colour: str) -> None:
    """Single episodes."""
    axes.plot(x, y, "o", color=colour, alpha=0.35, markersize=3.2, markeredgewidth=0)


def marks(
    axes: "Axes",
    i: int,
    theme: Theme,
    x: np.ndarray,
    mean: np.ndarray,
    interval: tuple[np.ndarray, np.ndarray] | None,
    label: str,
) -> None:
    """Means joined by a line, with bars for their intervals."""
    colour = colour_of(theme, i)
    if interval is not None:
        axes.vlines(x, *interval, color=colour, linewidth=1.6)
    axes.plot(
        x, mean, marker=MARKERS[i % len(MARKERS)][0], color=colour, linewidth=2, markersize=7.5,
        markeredgecolor=theme.paper, markeredgewidth=1.2, label=label,
    )  # fmt: skip


def threshold_axis(axes: "Axes", thresholds: np.ndarray) -> None:
    """Ticks at the thresholds themselves, unless they would run into one another."""
    wide = max(float(np.ptp(thresholds)), 0.5 * float(thresholds[-1])) or 1.0
    axes.set_xlim(float(thresholds[0]) - 0.09 * wide, float(thresholds[-1]) + 0.09 * wide)
    names = [f"{threshold:g}" for threshold in thresholds]
    room = (0.015 + 0.02 * max(map(len, names))) * wide
    if len(thresholds) == 1 or np.diff(thresholds).min() >= room:
        axes.set_xticks(thresholds, names)


def _thresholds(lines: Sequence[Curve]) -> np.ndarray:
    return np.unique(np.concatenate([line.thresholds for line in lines]))


def blank_figure(panels: int, theme: Theme, size: tuple[float, float] = PANEL) -> "Figure":
    """A figure for panels of this size, in inches."""
    matplotlib()
    from matplotlib.figure import Figure

    return Figure(figsize=(panels * size[0], size[1]), layout="constrained", facecolor=theme.paper)


def colour_of(theme: Theme, i: int) -> str:
    """Of the series with this number."""
    return theme.series[i % len(theme.series)]


def some(rows: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """As many rows as are drawn at most."""
    return rows if len(rows) <= MOST_DOTS else random.choice(rows, MOST_DOTS, replace=False)
