"""The map of a scenario as a still picture, with matplotlib (the extra `report`).

bcrl.report.save_figure(draw_map(scenarios, make_map(scenarios, 4011, sailed)), "map.png")
"""

from typing import TYPE_CHECKING

import numpy as np

from bcrl.report.figure import matplotlib, style
from bcrl.report.ship._coastline import Coastline
from bcrl.report.ship._map import (
    DASHES,
    WATER,
    describe_routes,
    headings,
    route_styles,
    when,
)
from bcrl.report.ship._tracks import Map, Route
from bcrl.report.theme import LIGHT
from bcrl.ship import CLOSE_METRES, GOAL_METRES, Scenarios, cell_size, sailed_water

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SIZE = 7.0  # inches of the longer side of the map


def draw_map(scenarios: Scenarios, drawn: Map, *, coastline: Coastline | None = None) -> "Figure":
    """The whole time at once: every ship where it was last, with its way; close quarters as a band."""
    matplotlib()
    from matplotlib.figure import Figure

    rows = describe_routes(drawn)
    west, south, east, north = _view(drawn)
    longer = max(east - west, north - south)
    with style(LIGHT):
        width, height = SIZE * (east - west) / longer, SIZE * (north - south) / longer
        figure = Figure((max(width, 4.5) + 0.3, height + 1.1 + 0.25 * len(rows)), layout="constrained")
        axes = figure.subplots()
        _sea(axes, scenarios, coastline or Coastline())
        for place, present in zip(drawn.neighbours, drawn.neighbours_present, strict=True):
            _neighbour(axes, place, present)
        routes, looks = [drawn.expert, *drawn.routes.values()], [None, *route_styles(drawn)]
        for row, route, look in zip(rows, routes, looks, strict=True):
            goal = "goal reached" if row.reached else "goal not reached"
            _route(axes, look, route, f"{row.name}: {row.close} of {row.steps} steps close, {goal}")
        _goal(axes, drawn.goal)
        axes.set(xlim=(west, east), ylim=(south, north), xticks=[], yticks=[], aspect="equal")
        axes.set_title(f"Scenario {drawn.scenario}, {when(scenarios, drawn.scenario)}")
        axes.grid(False)
        axes.spines[:].set_visible(True)
        _scale(axes, west if drawn.goal[0] > (west + east) / 2 else east - 0.42 * longer, south, longer)
        handles, labels = axes.get_legend_handles_labels()
        band = matplotlib().lines.Line2D([], [], color=LIGHT.over, alpha=0.3, linewidth=8)
        figure.legend(
            [*handles, band],
            [*labels, f"within {CLOSE_METRES:g} m of another ship"],
            loc="outside lower center",
            frameon=False,
            fontsize=11,
        )
    return figure


def _view(drawn: Map) -> tuple[float, float, float, float]:
    """West, south, east and north of all routes with room for a ring."""
    routes = [drawn.expert, *drawn.routes.values()]
    places = np.concatenate([drawn.goal[None], *(route.place[route.present] for route in routes)])
    # As in the page: room for a ring, but little outside the box.
    west, south = np.maximum(places.min(axis=0) - CLOSE_METRES, -200)
    east, north = np.minimum(places.max(axis=0) + CLOSE_METRES, np.array(drawn.box.size) + 200)
    return float(west), float(south), float(east), float(north)


def _sea(axes: "Axes", scenarios: Scenarios, coastline: Coastline) -> None:
    from matplotlib.colors import ListedColormap
    from matplotlib.patches import PathPatch, Rectangle
    from matplotlib.path import Path

    cells = sailed_water(scenarios)
    north, east = np.array(cells.shape) * cell_size(scenarios.box)
    extent = (0.0, float(east), 0.0, float(north))
    shown = np.ma.masked_equal(cells, False)
    axes.imshow(
        shown,
        ListedColormap([WATER[LIGHT]]),
        extent=extent,
        origin="lower",
        interpolation="nearest",
        zorder=0,
    )
    for rings in coastline.land:
        outline = Path.make_compound_path(*(Path(ring, closed=False) for ring in rings))
        axes.add_patch(PathPatch(outline, facecolor=LIGHT.grid, edgecolor=LIGHT.muted, linewidth=0.8))
    for line in coastline.lines:
        axes.plot(*line.T, color=LIGHT.muted, linewidth=1)
    axes.add_patch(Rectangle((0, 0), *scenarios.box.size, fill=False, edgecolor=LIGHT.muted))


def _neighbour(axes: "Axes", place: np.ndarray, present: np.ndarray) -> None:
    axes.plot(*np.where(present[:, None], place, np.nan).T, color=LIGHT.muted, linewidth=0.9, alpha=0.6)
    end = int(np.flatnonzero(present)[-1])
    _ship(axes, place[end], headings(place, present)[end], LIGHT.muted, LIGHT.paper, 11)


def _route(axes: "Axes", look: tuple[int, int] | None, route: Route, label: str) -> None:
    """A roll-out with the colour and dash of its look, or the expert, dotted."""
    place = route.place[route.present]
    close = route.close[route.present]
    steps = np.stack([place[:-1], place[1:], np.full_like(place[1:], np.nan)], axis=1)
    axes.plot(*steps[close[1:]].reshape(-1, 2).T, color=LIGHT.over, alpha=0.3, linewidth=8, zorder=2)
    if look is None:
        axes.plot(*place.T, color=LIGHT.ink, linestyle=(0, (0.1, 1.8)), linewidth=2.6, dash_capstyle="round",
                  label=label, zorder=3)  # fmt: skip
        inside, edge = LIGHT.paper, LIGHT.ink
    else:
        inside, edge = LIGHT.series[look[0]], LIGHT.paper
        axes.plot(*place.T, color=inside, linewidth=2, linestyle=_dashes(look[1]), label=label, zorder=3)
    _ship(axes, place[-1], headings(route.place, route.present)[len(place) - 1], inside, edge, 16)


def _dashes(number: int) -> str | tuple[int, tuple[float, ...]]:
    """A dash of the page, whose lengths are pixels, in widths of a line of 2."""
    dash = DASHES[number]
    return "solid" if dash == "none" else (0, tuple(float(length) / 2 for length in dash.split()))


def _ship(axes: "Axes", place: np.ndarray, heading: float, inside: str, edge: str, size: float) -> None:
    from matplotlib.markers import MarkerStyle
    from matplotlib.transforms import Affine2D

    bow_north = np.array([(0, 9), (6, -7), (0, -3.5), (-6, -7), (0, 9)]) / 9
    marker = MarkerStyle(
        matplotlib().path.Path(bow_north), transform=Affine2D().rotate_deg(-heading)  # clockwise
    )  # fmt: skip
    axes.plot(*place, marker=marker, color=inside, markeredgecolor=edge, markersize=size, zorder=4)


def _goal(axes: "Axes", goal: np.ndarray) -> None:
    from matplotlib.patches import Circle

    circle = Circle(
        (goal[0], goal[1]), GOAL_METRES, facecolor=LIGHT.ink + "10", edgecolor=LIGHT.ink, linestyle="--"
    )
    axes.add_patch(circle)
    axes.annotate(
        "goal", (goal[0], goal[1] - GOAL_METRES), (0, -4), textcoords="offset points", ha="center", va="top"
    )


def _scale(axes: "Axes", west: float, south: float, longer: float) -> None:
    length = max(
        metres for metres in (100, 200, 500, 1000, 2000, 5000, 10000) if metres < max(longer / 4, 101)
    )
    x, y = west + 0.03 * longer, south + 0.03 * longer
    axes.plot([x, x + length], [y, y], color=LIGHT.ink, linewidth=2.5, solid_capstyle="butt", zorder=5)
    axes.text(x + length + 0.015 * longer, y, f"{length / 1000:g} km", va="center", zorder=5)
    axes.annotate(
        "N", (0.04, 0.985), (0.04, 0.9), "axes fraction", ha="center",
        arrowprops={"arrowstyle": "-|>", "color": LIGHT.ink, "shrinkB": 0},
    )  # fmt: skip
