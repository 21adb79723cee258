"""The picture: energy against emission, of the policy, cloning, rules, the planner and perfect foresight."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from bcrl.examples.ev_compare import Compared, Curves
from bcrl.examples.ev_rules import LOGGED
from bcrl.report.figure import blank_figure, marks, style
from bcrl.report.theme import LIGHT

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw_energy(rows: "Sequence[Compared]", drawn: Curves, clone: tuple[float, float]) -> "Figure":
    """kWh against kg per car; `clone` is the point (kg, kWh) of cloning."""
    theme, at = LIGHT, np.array([row.kg for row in rows])
    with style(theme):
        figure = blank_figure(1, theme, (7.5, 5.6))
        axes = figure.subplots()
        lines: list[tuple[str, np.ndarray, str, object]] = [
            ("perfect foresight", drawn.optimum, theme.ink, "-"),
            ("at once until the budget is spent", drawn.once, theme.series[1], (0, (5, 2))),
            ("only below a CO₂ rate, tuned on 2019", drawn.below, theme.series[2], (0, (2, 2))),
            ("one rate limit, no budget for any car", drawn.fleet, theme.muted, (0, (1, 2))),
        ]
        for label, line, colour, dashes in lines:
            axes.plot(*line.T, color=colour, linestyle=dashes, linewidth=1.6, label=label)
        axes.plot(*clone, "X", color=theme.series[4], markersize=10, label="cloning the log (BC)")
        planned = np.array([(row.planner_kg, row.planner_kwh) for row in rows])
        axes.plot(*planned.T, "D", color=theme.ink, markerfacecolor="none", label="planner with forecasts")
        energy = np.array([row.kwh for row in rows])
        marks(axes, 0, theme, at, energy, None, "BCRL, told the budget of each car (kg)")
        right = 1.25 * float(max(at.max(), clone[0]))
        axes.set_xlim(0, right)
        axes.set_ylim(0, 1.05 * float(np.interp(right, *drawn.optimum.T)))
        for row in rows:  # below the line, where no other curve is
            axes.annotate(f"{row.budget:g}", (row.kg, row.kwh), (6, -17), textcoords="offset points", size=12)
        axes.set(
            title=f"Charging in {rows[0].period}: energy for its emission",
            xlabel="kg CO₂ per car",
            ylabel="kWh per car",
        )
        axes.legend(loc="lower right", frameon=False, fontsize=10.5)
        axes.text(0, -0.17, LOGGED, transform=axes.transAxes, size=7.5, color=theme.muted)
    return figure
