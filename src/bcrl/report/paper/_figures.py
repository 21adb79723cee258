"""The pictures of the paper's experiments. Filled marks are ours, hollow ones the paper's."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bcrl.bench.experiment import Row
from bcrl.report.figure import blank_figure, colour_of, style
from bcrl.report.theme import LIGHT, MARKERS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from bcrl.paper.synthetic import Point


def draw_dots(rows: Sequence[Row]) -> "Figure":
    """Reward and cost: a line per task, a mark per column, ours and the paper's."""
    values = [
        {
            "line": row.task,
            "series": row.column,
            "reward": row.reward,
            "cost": row.cost,
            "paper reward": row.paper_reward,
            "paper cost": row.paper_cost,
        }
        for row in rows
    ]
    panels = (("normalised reward", "reward"), ("normalised cost", "cost"))
    with style(LIGHT):
        figure = _dot_panels(values, panels)
        figure.axes[1].axvline(1.0, color=LIGHT.over, linewidth=1.2, linestyle=(0, (5, 3)))
    return figure


def draw_ships(rows: Sequence[dict[str, Any]]) -> "Figure":
    """The measures of the maritime table: a line per budget, a mark per method."""
    measures = (("GC-ADE, m", "gc_ade"), ("close quarters", "close_quarters"), ("success", "success"))
    values = [
        {
            "line": f"budget {row['budget']}" if row["budget"] else "expert",
            "series": row["method"],
            **{name: row[name] for _, name in measures},
            **{f"paper {name}": row[f"paper_{name}"] for _, name in measures},
        }
        for row in rows
    ]
    with style(LIGHT):
        return _dot_panels(values, measures)


def _dot_panels(values: Sequence[dict[str, Any]], panels: Sequence[tuple[str, str]]) -> "Figure":
    """Panels side by side that share their lines."""
    lines = list(dict.fromkeys(value["line"] for value in values))
    series = list(dict.fromkeys(value["series"] for value in values))
    height = 2.2 + 0.16 * len(lines) * (len(series) + 1)
    figure = blank_figure(len(panels), LIGHT, (5.4, height))
    for axes, (title, name) in zip(figure.subplots(1, len(panels), sharey=True), panels, strict=True):
        for i, one in enumerate(series):
            mine = [value for value in values if value["series"] == one]
            y = [lines.index(value["line"]) + (i + 1) / (len(series) + 1) - 0.5 for value in mine]
            look = {"marker": MARKERS[i % len(MARKERS)][0], "color": colour_of(LIGHT, i), "linestyle": ""}
            axes.plot([v[name] for v in mine], y, **look, label=f"{one}, here")
            paper = [v[f"paper {name}"] for v in mine]
            if not np.isnan(paper).all():
                axes.plot(paper, y, **look, fillstyle="none", label=f"{one}, paper")
        axes.set(title=title)
        axes.set_yticks(range(len(lines)), lines)
        for between in range(len(lines) - 1):
            axes.axhline(between + 0.5, color=LIGHT.muted, linewidth=0.6)
    figure.axes[0].set_ylim(len(lines) - 0.5, -0.5)
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=min(4, len(labels)), frameon=False)
    return figure


def draw_times(rows: Sequence[dict[str, Any]]) -> "Figure":
    """Minutes of training and evaluation by family."""
    with style(LIGHT):
        figure = blank_figure(2, LIGHT, (4.6, 3.4))
        for axes, what in zip(figure.subplots(1, 2), ("training", "evaluation"), strict=True):
            families = [row["family"] for row in rows]
            for shift, (name, label) in enumerate((("", "here"), ("paper_", "paper"))):
                minutes = [row[f"{name}{what}_minutes"] for row in rows]
                at = np.arange(len(rows)) + 0.4 * shift - 0.2
                axes.bar(at, np.nan_to_num(minutes), 0.36, color=colour_of(LIGHT, shift), label=label)
            axes.set_xticks(range(len(rows)), families)
            axes.set(title=what, ylabel="minutes")
        figure.axes[0].legend(frameon=False)
    return figure


def draw_shares(rows: Sequence[dict[str, Any]]) -> "Figure":
    """The share of feasible actions against the budget, a curve per task; crosses are the paper's words."""
    with style(LIGHT):
        figure = blank_figure(1, LIGHT, (7.0, 4.6))
        axes: Axes = figure.subplots()
        for i, task in enumerate(dict.fromkeys(row["task"] for row in rows)):
            mine = [row for row in rows if row["task"] == task]
            x, colour = [row["budget"] for row in mine], colour_of(LIGHT, i)
            axes.fill_between(
                x, [r["least"] for r in mine], [r["largest"] for r in mine], color=colour, alpha=0.18
            )
            mark = MARKERS[i % len(MARKERS)][0]
            axes.plot(x, [row["share"] for row in mine], marker=mark, color=colour, label=task)
            axes.plot(x, [row["paper_share"] for row in mine], "x", color=colour, markersize=12)
        axes.set(xlabel="budget δ (discounted cost)", ylabel="share of the log's actions", ylim=(0.0, 1.02))
        axes.legend(frameon=False, fontsize=10)
    return figure


def draw_grid(found: "Sequence[Point]") -> "Figure":
    """Return above cost against p, a column per budget. Missing points break a line: no policy keeps it."""
    from bcrl.paper.synthetic import METHODS

    budgets = sorted({point.budget for point in found})
    chances = sorted({point.p for point in found})
    looks = dict(zip(METHODS, (("C7", "-"), ("k", "-"), ("C0", "--"), ("C1", ":")), strict=True))
    with style(LIGHT):
        figure = blank_figure(len(budgets), LIGHT, (4.6, 6.6))
        axes = figure.subplots(2, len(budgets), sharex=True, sharey="row", squeeze=False)
        for column, budget in enumerate(budgets):
            for method in METHODS:
                at = {one.p: one for one in found if one.budget == budget and one.method == method}
                colour, line = looks[method]
                for row, name in enumerate(("total_return", "cost")):
                    y = [getattr(at[p], name) if p in at else np.nan for p in chances]
                    axes[row, column].plot(chances, y, line, color=colour, label=method)
            axes[1, column].axhline(budget, color=LIGHT.over, linewidth=0.8)
            axes[1, column].annotate("budget", (chances[0], budget), color=LIGHT.over, va="bottom", size=10)
            axes[0, column].set_title(f"{found[0].layout}, budget {budget:g}")
            axes[1, column].set_xlabel("probability p of the intended move")
        axes[0, 0].set_ylabel("return")
        axes[1, 0].set_ylabel("cost")
        axes[1, 0].set_ylim(0, 3 * max(budgets))  # the unconstrained cost would flatten the other curves
        axes[0, -1].legend(fontsize=9)
    return figure
