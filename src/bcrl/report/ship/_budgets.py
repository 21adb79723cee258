"""What ships do at each budget, as pictures with matplotlib (the extra `report`)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from bcrl.report.figure import blank_figure, marks, style
from bcrl.report.ship._map import series
from bcrl.report.theme import LIGHT, Theme
from bcrl.ship import EXPERT, Line, ShipResult, table_lines

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Panel:
    title: str
    measure: str
    """Its name in `bcrl.ship.MEASURES`."""
    words: str
    field: str
    """The field of a `Line` on the horizontal axis."""

    def across(self, lines: Sequence[Line]) -> tuple[str, str]:
        """The field on the horizontal axis and its words: the threshold where a line has no budget."""
        if self.field == "budget" and not any(np.isnan(line.budget) for line in lines if line.run != EXPERT):
            return "budget", "budget, of the median expert's cost"
        return "threshold", "threshold"


PANELS = {
    "close": Panel("Close quarters", "close_quarters", "share of steps in close quarters", "budget"),
    "cost": Panel("What it costs", "cost", "cost of an episode", "threshold"),
}


def draw_budgets(results: Sequence[ShipResult]) -> "Figure":
    """All panels side by side."""
    lines = table_lines(results)
    names = [name for name in dict.fromkeys(line.run for line in lines) if name != EXPERT]
    with style(LIGHT):
        figure = blank_figure(len(PANELS), LIGHT)
        for axes, panel in zip(np.ravel(figure.subplots(1, len(PANELS))), PANELS, strict=True):
            _draw(axes, PANELS[panel], names, lines, LIGHT)
        handles, labels = figure.axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper center", ncols=len(labels), frameon=False)
    return figure


def draw_panel_alone(panel: str, names: Sequence[str], lines: Sequence[Line], theme: Theme) -> "Figure":
    """One panel as a figure of its own, for a page; `names` are the runs in the order of their colours."""
    with style(theme):
        figure = blank_figure(1, theme)
        _draw(figure.subplots(), PANELS[panel], names, lines, theme)
    return figure


def _draw(axes: "Axes", panel: Panel, names: Sequence[str], lines: Sequence[Line], theme: Theme) -> None:
    for line in lines:
        if line.run == EXPERT:
            found = line.measures[panel.measure]
            axes.axhspan(found.low, found.high, color=theme.ink, alpha=0.08, linewidth=0)
            axes.axhline(found.mean, color=theme.ink, linewidth=2, linestyle=":", label=EXPERT)
    field, label = panel.across(lines)
    places = np.unique([getattr(line, field) for line in lines if line.run != EXPERT])
    # Side by side, so that intervals do not hide one another.
    aside = 0.012 * max(np.ptp(places), places[-1], 1e-9) * (np.arange(len(names)) - (len(names) - 1) / 2)
    for i, name in enumerate(names):
        mine = [line for line in lines if line.run == name]
        x = np.array([getattr(line, field) for line in mine]) + aside[i]
        found = [line.measures[panel.measure] for line in mine]
        ends = (np.array([value.low for value in found]), np.array([value.high for value in found]))
        marks(axes, series(i), theme, x, np.array([value.mean for value in found]), ends, name)
    if panel.measure == "cost":
        axes.plot(places, places, color=theme.over, linewidth=1.2, linestyle=(0, (5, 3)))
    axes.set_xticks(places, [f"{place:g}" for place in places])
    axes.margins(x=0.12)
    axes.set(title=panel.title, xlabel=label, ylabel=panel.words)
    axes.set_ylim(bottom=0)
