"""A scenario as an interactive map: one HTML file with everything in it, which asks no network for anything.

drawn = make_map(scenarios, 4011, {"mine": voyages})
write_map("map.html", scenarios, drawn)
"""

import base64
import hashlib
import json
import os
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.resources import files
from typing import Any

import numpy as np

from bcrl.files import write_text
from bcrl.report.markup import HTML, element, join
from bcrl.report.theme import DARK, LIGHT, Theme
from bcrl.ship.coastline import Coastline
from bcrl.ship.rule import SECONDS
from bcrl.ship.scenario import CLOSE_METRES, GOAL_METRES, Scenarios
from bcrl.ship.tracks import Map, Route

CELL = 50.0
"""Metres: the grain at which sailed water is shown, about a step of a ship."""
WATER = {LIGHT: "#dcebf5", DARK: "#1c3040"}
SERIES = (0, 2, 3, 5, 4, 1)
"""Colours of a report's series in this order: orange last, for close quarters are drawn in a like one."""
STILL = 1.0
"""Metres. A ship that goes less in a step keeps the course it is drawn with."""


@dataclass(frozen=True)
class Told:
    """What a map says about a route in words. Steps after the goal do not count, as in the measures."""

    name: str
    steps: int
    close: int
    """Steps that end within 555 m of another ship."""
    reached: bool


def told(drawn: Map) -> list[Told]:
    """The expert first."""
    routes = {"expert": drawn.expert} | drawn.routes
    return [_told(name, route, drawn.goal) for name, route in routes.items()]


def _told(name: str, route: Route, goal: np.ndarray) -> Told:
    place = route.place[route.present]
    steps = len(place) - 1
    if route.reached:
        steps = 1 + int(np.argmax(np.hypot(*(place[1:] - goal).T) < GOAL_METRES))
    return Told(name, steps, int(route.close[1 : steps + 1].sum()), route.reached)


def start_time(scenarios: Scenarios, scenario: int) -> datetime:
    seconds = SECONDS * int(scenarios.first[scenarios.track[scenario]])
    return datetime.fromtimestamp(seconds, UTC)


def when(scenarios: Scenarios, scenario: int) -> str:
    """Its start in words, such as 6 December 2020, 19:32 UTC."""
    start = start_time(scenarios, scenario)
    return f"{start.day} {start:%B %Y, %H:%M} UTC"


def sailed_water(scenarios: Scenarios) -> np.ndarray:
    """(rows, columns) bool from the south-west: cells in which any ship of the log ever was."""
    columns, rows = (int(np.ceil(metres / CELL)) for metres in scenarios.box.size)
    column, row = (scenarios.samples[:, :2] // CELL).astype(int).T
    cells = np.zeros((rows, columns), bool)
    cells[np.clip(row, 0, rows - 1), np.clip(column, 0, columns - 1)] = True
    return cells


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
    others = len(drawn.neighbours)
    source = f", {scenarios.about['source']}" if scenarios.about.get("source") else ""
    lead = (
        f"{when(scenarios, drawn.scenario)}{source}: "
        f"a ship among {others} {'other' if others == 1 else 'others'} on its way to the goal. {note}"
    )
    data, script = _json(_data(scenarios, drawn, coastline)), _package_text("map.js")
    # Only this very script may run, and nothing can be fetched or sent.
    policy = (
        f"default-src 'none'; style-src 'unsafe-inline'; script-src '{_digest(script)}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    head = join(
        HTML('<meta charset="utf-8">'),
        HTML(f'<meta http-equiv="Content-Security-Policy" content="{policy}">'),
        HTML('<meta name="viewport" content="width=device-width, initial-scale=1">'),
        HTML('<meta name="color-scheme" content="light dark">'),
        HTML('<link rel="icon" href="data:,">'),
        element("title", f"{title}: map"),
        element("style", HTML(_style())),
    )
    body = join(
        element("header", [element("h1", title), element("p", lead.strip())]),
        element("main", [
            element("section", [_map(title), _controls(len(drawn.seconds))], class_="chart"),
            element("section", [_table(told(drawn)), _layers(coastline), _help(drawn)], class_="facts"),
        ]),
        element("footer", (
            f"The box: {_longitude(box.west)} to {_longitude(box.east)}, "
            f"{_latitude(box.south)} to {_latitude(box.north)}."
        )),
        element("script", HTML(data), type="application/json", id="data"),
        element("script", HTML(script)),
    )  # fmt: skip
    return f'<!DOCTYPE html>\n<html lang="en">\n<head>{head}</head>\n<body>\n{body}\n</body>\n</html>\n'


def _map(title: str) -> HTML:
    buttons = [
        element("button", sign, type="button", id=name, aria_label=label, title=label)
        for name, sign, label in (
            ("closer", "+", "Zoom in"),
            ("farther", "\N{MINUS SIGN}", "Zoom out"),
            ("routes", "Routes", "Show the routes"),
            ("whole", "Box", "Show the whole box"),
        )
    ]
    picture = element("svg", id="map", tabindex="0", role="img", aria_label=f"Map of {title.lower()}")
    missing = element("noscript", element("p", "The map itself needs JavaScript; the table does not."))
    return element("div", [picture, element("div", buttons, class_="zoom"), missing], class_="map")


def _controls(moments: int) -> HTML:
    slider = HTML(f'<input type="range" id="time" min="0" max="{moments - 1}" step="1" value="0">')
    return element("div", [
        element("button", "Play", type="button", id="play"),
        element("div", [
            element("label", "Time", for_="time"),
            element("output", "", id="clock", for_="time"),
            slider,
            element("svg", id="strips", aria_hidden="true"),
        ], class_="time"),
    ], class_="controls")  # fmt: skip


def _table(rows: list[Told]) -> HTML:
    names = ("ship", "steps in close quarters", "goal after", "speed", "nearest")
    head = element("thead", element("tr", [element("th", name, scope="col") for name in names]))
    lines = []
    for number, row in enumerate(rows):
        box = HTML(f'<input type="checkbox" checked data-route="{number}">')
        sign = element("span", "", class_=f"swatch route-{_colour(number)}", aria_hidden="true")
        minutes, seconds = divmod(row.steps * SECONDS, 60)
        goal = f"{minutes}:{seconds:02d} min" if row.reached else "not reached"
        lines.append(
            element("tr", [
                element("th", element("label", [box, sign, row.name]), scope="row"),
                element("td", f"{row.close} of {row.steps}"),
                element("td", goal),
                element("td", "", data_speed=str(number)),
                element("td", "", data_nearest=str(number)),
            ])
        )  # fmt: skip
    return element("table", [head, element("tbody", lines)])


def _layers(coastline: Coastline | None) -> HTML:
    layers = [
        ("neighbours", "other ships and where they were in the last 3 minutes"),
        ("water", "where any ship of the log ever sailed"),
    ]
    if coastline is not None:
        layers.append(("coast", "coastline"))
    items = [
        element(
            "li",
            element(
                "label",
                [
                    HTML(f'<input type="checkbox" checked data-layer="{name}">'),
                    element("span", "", class_=f"swatch {name}", aria_hidden="true"),
                    words,
                ],
            ),
        )
        for name, words in layers
    ]
    return element("ul", items, class_="layers")


def _help(drawn: Map) -> HTML:
    close = [
        element("span", "", class_="swatch close", aria_hidden="true"),
        f"Close quarters: within {CLOSE_METRES:g} m of another ship. The band marks these steps, the ring is "
        "there while one is inside, and the ships inside are marked too.",
    ]
    keys = [
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


def _data(scenarios: Scenarios, drawn: Map, coastline: Coastline | None) -> dict[str, Any]:
    """What the script draws: metres from the south-west corner, to the decimetre."""
    routes = []
    for number, (name, route) in enumerate(({"expert": drawn.expert} | drawn.routes).items()):
        here = route.present
        routes.append(
            {
                "name": name,
                "colour": _colour(number),
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
        "cell": CELL,
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


def _colour(number: int) -> str:
    """The expert is drawn in ink, the others in the colours of a report's series."""
    return "expert" if number == 0 else f"series-{SERIES[(number - 1) % len(SERIES)]}"


def _json(data: dict[str, Any]) -> str:
    """JSON that cannot end the element it stands in."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _package_text(name: str) -> str:
    return files("bcrl.ship").joinpath(name).read_text(encoding="utf-8")


def _digest(script: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _style() -> str:
    font = "--font: system-ui, 'Segoe UI', Roboto, 'Noto Sans', 'Liberation Sans', sans-serif;"
    light = f":root {{ color-scheme: light dark; {font} {_variables(LIGHT)} }}"
    dark = f"@media screen and (prefers-color-scheme: dark) {{ :root {{ {_variables(DARK)} }} }}"
    colours = [f".route-series-{i} {{ --colour: var(--series-{i}); }}" for i in range(len(LIGHT.series))]
    return "\n".join(
        [light, dark, ".route-expert { --colour: var(--ink); }", *colours, _package_text("map.css")]
    )


def _variables(theme: Theme) -> str:
    colours = theme.named() | {"water": WATER[theme]}
    return " ".join(f"--{name}: {colour};" for name, colour in colours.items())
