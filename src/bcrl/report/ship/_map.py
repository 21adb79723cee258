"""A scenario as an interactive map: one HTML file that loads nothing.

    drawn = make_map(scenarios, 4011, {"mine": voyages})
    write_map("map.html", scenarios, drawn)

`map_part` is the map alone, for a page with other things in it.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.resources import files
from typing import Any

import numpy as np

from bcrl.files import write_text
from bcrl.report.document import Part, around, document
from bcrl.report.markup import HTML, data_script, element
from bcrl.report.ship._coastline import Coastline
from bcrl.report.ship._tracks import Map, Route
from bcrl.report.theme import DARK, LIGHT
from bcrl.ship import CLOSE_METRES, GOAL_METRES, SECONDS, Scenarios, cell_size, sailed_water

WATER = {LIGHT: "#dcebf5", DARK: "#1c3040"}
SERIES = (0, 2, 3, 5, 4, 1)
"""Colours of a report's series in this order: orange last, since close quarters have a similar colour."""
DASHES = ("none", "9 7", "16 7 2 7", "3 6")
"""How the routes of one policy are drawn, in the order of its budgets; then they begin again."""
STILL = 1.0
"""Metres. A ship that moves less in a step is drawn with its last course."""


@dataclass(frozen=True)
class RouteFacts:
    """The numbers of a route in the table of a map. Steps after the goal do not count, as in the measures."""

    name: str
    steps: int
    close: int
    """Steps that end within 555 m of another ship."""
    reached: bool


def describe_routes(drawn: Map) -> list[RouteFacts]:
    """The facts of every route, the expert's first."""
    routes = {"expert": drawn.expert} | drawn.routes
    return [_route_facts(name, route, drawn.goal) for name, route in routes.items()]


def _route_facts(name: str, route: Route, goal: np.ndarray) -> RouteFacts:
    place = route.place[route.present]
    steps = len(place) - 1
    if route.reached:
        steps = 1 + int(np.argmax(np.hypot(*(place[1:] - goal).T) < GOAL_METRES))
    return RouteFacts(name, steps, int(route.close[1 : steps + 1].sum()), route.reached)


def start_time(scenarios: Scenarios, scenario: int) -> datetime:
    seconds = SECONDS * int(scenarios.first[scenarios.track[scenario]])
    return datetime.fromtimestamp(seconds, UTC)


def when(scenarios: Scenarios, scenario: int) -> str:
    """Its start in words, such as 6 December 2020, 19:32 UTC."""
    start = start_time(scenarios, scenario)
    return f"{start.day} {start:%B %Y, %H:%M} UTC"


def headings(place: np.ndarray, present: np.ndarray) -> np.ndarray:
    """(moments,) degrees clockwise from north, of the way made to each place, or at first from it."""
    turned, last = np.zeros(len(place)), 0.0
    for moment in np.flatnonzero(present):
        end = moment if moment and present[moment - 1] else moment + 1
        if end < len(place) and present[end]:
            east, north = place[end] - place[end - 1]
            if np.hypot(east, north) > STILL:
                last = float(np.degrees(np.arctan2(east, north)) % 360)
        turned[moment] = last
    return turned


def write_map(
    path: str | os.PathLike,
    scenarios: Scenarios,
    drawn: Map,
    *,
    coastline: Coastline | None = None,
    note: str = "",
) -> None:
    """Writes the page, all or nothing."""
    write_text(path, map_page(scenarios, drawn, coastline=coastline, note=note))


def map_page(scenarios: Scenarios, drawn: Map, *, coastline: Coastline | None = None, note: str = "") -> str:
    """The page as text; `note` is a sentence about the roll-outs, such as what they were allowed to cost."""
    box = drawn.box
    title = f"Scenario {drawn.scenario}"
    content = [
        element("header", [element("h1", title), element("p", f"{scene(scenarios, drawn)} {note}".strip())]),
        around("main", [map_part(scenarios, drawn, coastline=coastline, alone=True)]),
        element("footer", (
            f"The box: {_longitude(box.west)} to {_longitude(box.east)}, "
            f"{_latitude(box.south)} to {_latitude(box.north)}."
        )),
    ]  # fmt: skip
    return document(f"{title}: map", content, style=_package_text("map_page.css"))


def map_part(
    scenarios: Scenarios,
    drawn: Map,
    *,
    name: str = "map",
    policies: Sequence[str] = (),
    coastline: Coastline | None = None,
    alone: bool = False,
) -> Part:
    """The map with its slider, table and legend.

    `name` must be unique in the page: ids begin with it. `policies` are names in the order of their colours,
    if other parts of the page have set that order. A map that is `alone` has the
    keys and the wheel of the whole page; others leave them to the page until the reader has chosen the map.
    """
    looks = route_looks(drawn, policies)
    chart = [_picture(drawn.scenario), _controls(name, len(drawn.seconds))]
    facts = [_table(describe_routes(drawn), looks), _layers(coastline), _help(drawn, alone)]
    inside = [
        element("div", chart, class_="chart"),
        element("div", facts, class_="facts"),
        data_script(_data(scenarios, drawn, coastline, looks)),
    ]
    more = {"data_alone": ""} if alone else {}
    root = element("div", inside, class_="ship-map", id=name, **more)
    return Part(root, (_style(),), (_package_text("map.js"),))


def scene(scenarios: Scenarios, drawn: Map) -> str:
    """When and where it is, in a sentence."""
    others = len(drawn.neighbours)
    source = f", {scenarios.about['source']}" if scenarios.about.get("source") else ""
    return (
        f"{when(scenarios, drawn.scenario)}{source}: "
        f"a ship among {others} {'other' if others == 1 else 'others'} on its way to the goal."
    )


def route_looks(drawn: Map, policies: Sequence[str] = ()) -> list[str]:
    """The classes of each route, the expert's first."""
    return ["route-expert"] + [
        f"route-series-{colour} dash-{dash}" for colour, dash in route_styles(drawn, policies)
    ]


def route_styles(drawn: Map, policies: Sequence[str] = ()) -> list[tuple[int, int]]:
    """A colour of a report's series for each policy, and a dash for each of its budgets."""
    owners = [route.policy for route in drawn.routes.values()]
    order = list(dict.fromkeys([*policies, *owners]))
    return [
        (series(order.index(owner)), owners[:number].count(owner) % len(DASHES))
        for number, owner in enumerate(owners)
    ]


def series(number: int) -> int:
    """Which of a report's colours the policy of this number has."""
    return SERIES[number % len(SERIES)]


def swatch(look: str) -> HTML:
    """A short piece of a route, for tables and legends."""
    line = HTML('<path d="M2 6H22"/>')
    return element("svg", line, class_=f"swatch {look}", viewBox="0 0 24 11", aria_hidden="true")


def _picture(scenario: int) -> HTML:
    buttons = [
        element("button", sign, type="button", class_=name, aria_label=label, title=label)
        for name, sign, label in (
            ("closer", "+", "Zoom in"),
            ("farther", "\N{MINUS SIGN}", "Zoom out"),
            ("routes", "Routes", "Show the routes"),
            ("whole", "Box", "Show the whole box"),
        )
    ]
    label = f"Map of scenario {scenario}"
    picture = element("svg", class_="picture", tabindex="0", role="img", aria_label=label)
    missing = element("noscript", element("p", "The map itself needs JavaScript; the table does not."))
    return element("div", [picture, element("div", buttons, class_="zoom"), missing], class_="frame")


def _controls(name: str, moments: int) -> HTML:
    slider = HTML(
        f'<input type="range" class="slider" id="{name}-time" min="0" max="{moments - 1}" step="1" value="0">'
    )
    return element("div", [
        element("button", "Play", type="button", class_="play"),
        element("div", [
            element("label", "Time", for_=f"{name}-time"),
            element("output", "", class_="clock", for_=f"{name}-time"),
            slider,
            element("svg", class_="strips", aria_hidden="true"),
        ], class_="time"),
    ], class_="controls")  # fmt: skip


def _table(rows: list[RouteFacts], looks: list[str]) -> HTML:
    names = ("ship", "steps in close quarters", "goal after", "speed", "nearest")
    head = element("thead", element("tr", [element("th", name, scope="col") for name in names]))
    lines = []
    for number, row in enumerate(rows):
        box = HTML(f'<input type="checkbox" checked data-route="{number}">')
        minutes, seconds = divmod(row.steps * SECONDS, 60)
        goal = f"{minutes}:{seconds:02d} min" if row.reached else "not reached"
        lines.append(
            element("tr", [
                element("th", element("label", [box, swatch(looks[number]), row.name]), scope="row"),
                element("td", f"{row.close} of {row.steps}"),
                element("td", goal),
                element("td", "", data_speed=str(number)),
                element("td", "", data_nearest=str(number)),
            ])
        )  # fmt: skip
    return element("table", [head, element("tbody", lines)])


def _layers(coastline: Coastline | None) -> HTML:
    layers = [
        ("neighbours", swatch("neighbours"), "other ships and where they were in the last 3 minutes"),
        ("water", _patch("water"), "where any ship of the log ever sailed"),
    ]
    if coastline is not None:
        layers.append(("coast", swatch("coast"), "coastline"))
    items = [
        element("li", element("label", [
            HTML(f'<input type="checkbox" checked data-layer="{name}">'), sign, words,
        ]))
        for name, sign, words in layers
    ]  # fmt: skip
    return element("ul", items, class_="layers")


def _patch(look: str) -> HTML:
    return element("span", "", class_=f"swatch {look}", aria_hidden="true")


def _help(drawn: Map, alone: bool) -> HTML:
    close = [
        _patch("close"),
        f"Close quarters: within {CLOSE_METRES:g} m of another ship. The band marks these steps, the ring is "
        "there while one is inside, and the ships inside are marked too.",
    ]
    keys = [
        "" if alone else "After a click on the map: ",
        element("kbd", "\N{LEFTWARDS ARROW}"),
        " ",
        element("kbd", "\N{RIGHTWARDS ARROW}"),
        f" a step of {SECONDS} s (with Shift ten), ",
        element("kbd", "Space"),
        " play, ",
        element("kbd", "Home"),
        " ",
        element("kbd", "End"),
        ", ",
        element("kbd", "+"),
        " ",
        element("kbd", "\N{MINUS SIGN}"),
        " zoom, ",
        element("kbd", "W A S D"),
        " move the map. Or drag it, and turn the wheel.",
    ]
    goal = f"The circle is the goal: {GOAL_METRES:g} m around where the expert's track ends."
    faded = "Expert and roll-outs: faint where they are still to go." if drawn.routes else ""
    return element("div", [element("p", close), element("p", f"{goal} {faded}"), element("p", keys)])


def _data(scenarios: Scenarios, drawn: Map, coastline: Coastline | None, looks: list[str]) -> dict[str, Any]:
    """What the script draws: metres from the south-west corner, to the decimetre."""
    routes = []
    every = {"expert": drawn.expert} | drawn.routes
    for look, (name, route) in zip(looks, every.items(), strict=True):
        here = route.present
        routes.append(
            {
                "name": name,
                "look": look,
                "place": _decimetres(route.place[here]),
                "heading": _degrees(headings(route.place, here)[here]),
                "close": route.close[here].astype(int).tolist(),
                "reached": route.reached,
            }
        )
    neighbours = []
    for place, present in zip(drawn.neighbours, drawn.neighbours_present, strict=True):
        turned = _degrees(headings(place, present))
        neighbours.append(
            {
                "place": [
                    at if there else None for at, there in zip(_decimetres(place), present, strict=True)
                ],
                "heading": turned,
            }
        )
    coastline = coastline or Coastline()
    return {
        "size": [round(metres, 1) for metres in drawn.box.size],
        "goal": _decimetres(drawn.goal),
        "goal_metres": GOAL_METRES,
        "close_metres": CLOSE_METRES,
        "step_seconds": SECONDS,
        "start": int(start_time(scenarios, drawn.scenario).timestamp()),
        "moments": len(drawn.seconds),
        "routes": routes,
        "neighbours": neighbours,
        "cell": cell_size(drawn.box),
        "water": _runs(sailed_water(scenarios)),
        "land": [[_decimetres(ring) for ring in rings] for rings in coastline.land],
        "coast": [_decimetres(line) for line in coastline.lines],
    }


def _runs(cells: np.ndarray) -> list[list[int]]:
    """[row, first column, columns] of every run of marked cells in a row: far fewer than there are cells."""
    edge = np.diff(np.pad(cells, ((0, 0), (1, 1))).astype(int), axis=1)
    (row, first), (_, end) = np.nonzero(edge == 1), np.nonzero(edge == -1)
    return np.stack([row, first, end - first], axis=1).tolist()


def _longitude(degrees: float) -> str:
    return f"{abs(degrees):g}° {'W' if degrees < 0 else 'E'}"


def _latitude(degrees: float) -> str:
    return f"{abs(degrees):g}° {'S' if degrees < 0 else 'N'}"


def _decimetres(place: np.ndarray) -> list[Any]:
    return np.round(np.asarray(place, float), 1).tolist()


def _degrees(turned: np.ndarray) -> list[int]:
    return (np.rint(turned).astype(int) % 360).tolist()


def _package_text(name: str) -> str:
    return files("bcrl.report.ship").joinpath(name).read_text(encoding="utf-8")


def _style() -> str:
    light, dark = (f".ship-map {{ --water: {WATER[theme]}; }}" for theme in (LIGHT, DARK))
    colours = [f".route-series-{i} {{ --colour: var(--series-{i}); }}" for i in range(len(LIGHT.series))]
    dashes = [f".dash-{i} {{ --dash: {dash}; }}" for i, dash in enumerate(DASHES)]
    return "\n".join([
        light,
        f"@media screen and (prefers-color-scheme: dark) {{ {dark} }}",
        ".route-expert { --colour: var(--ink); --dash: .1 6; }",
        *colours,
        *dashes,
        _package_text("map.css"),
    ])  # fmt: skip
