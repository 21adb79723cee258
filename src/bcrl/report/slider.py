"""A slider over thresholds that shows cost, return and light between those that were estimated."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bcrl.estimates import Light
from bcrl.report.document import Part
from bcrl.report.episode_units import EpisodeUnits, labelled
from bcrl.report.estimate_curves import EstimateCurve
from bcrl.report.markup import HTML, Piece, data_script, element

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MARKS = {Light.GREEN: "●", Light.AMBER: "▲", Light.RED: "■"}
"""Each light has its own shape, beside its colour and its word."""
PLACES = 400
"""How many places the slider has."""


def slider(
    lines: Sequence[EstimateCurve], digits: tuple[int, int], panels: Sequence["Figure"], units: EpisodeUnits
) -> Part | Piece:
    """The slider, for two thresholds or more; `panels` are the pictures with the class `guided`, in order.

    It is hidden until its script runs: without one, the table of the page has all numbers.
    """
    thresholds = np.unique(np.concatenate([line.thresholds for line in lines])).tolist()
    if len(thresholds) < 2:
        return ""
    middle = thresholds[len(thresholds) // 2]
    value = round(PLACES * (middle - thresholds[0]) / (thresholds[-1] - thresholds[0]))
    data = {
        "thresholds": thresholds,
        "digits": digits,
        "lights": {str(light): mark for light, mark in MARKS.items()},
        "lines": [_line(line) for line in lines],
        "panels": [_place(panel) for panel in panels],
    }
    name = element(
        "label",
        [labelled("Threshold it is told", units.cost), element("output", "", data_told="")],
        for_="told",
    )
    control = HTML(f'<input type="range" id="told" min="0" max="{PLACES}" step="1" value="{value}">')
    answers = [_answer(i, line, units, several=len(lines) > 1) for i, line in enumerate(lines)]
    inside = [name, control, element("div", answers, aria_live="polite"), data_script(data)]
    script = Path(__file__).with_name("slider.js").read_text(encoding="utf-8")
    return Part(element("div", inside, class_="estimate-slider", hidden=""), scripts=(script,))


def light_mark(light: str) -> list[Piece]:
    """A coloured mark and the word."""
    mark = element("span", MARKS[Light(light)], class_=f"light {Light(light)}", aria_hidden="true")
    return [mark, " ", str(Light(light))]


def _answer(i: int, line: EstimateCurve, units: EpisodeUnits, several: bool) -> HTML:
    """Where the script writes about one policy."""
    light = [element("span", "", data_mark="", aria_hidden="true"), " ", element("b", "", data_word="")]
    return element("p", [
        element("span", line.label) if several else "",
        element("span", ["cost ", element("b", "", data_cost=""), units.cost and f" {units.cost}"]),
        element("span", ["return ", element("b", "", data_earned=""), units.earned and f" {units.earned}"]),
        element("span", light),
        element("span", "", data_between="", class_="muted"),
    ], class_="answer", data_line=str(i))  # fmt: skip


def _line(line: EstimateCurve) -> dict[str, Any]:
    return {
        "thresholds": line.thresholds.tolist(),
        "cost": [(row.cost, row.cost_low, row.cost_high) for row in line.rows],
        "earned": [(row.return_, row.return_low, row.return_high) for row in line.rows],
        "light": [row.light for row in line.rows],
    }


def _place(figure: "Figure") -> dict[str, Any]:
    """Where the axes of a picture that was saved lie in it, as shares, and which thresholds they span."""
    axes = figure.axes[0]
    (left, bottom), (right, top) = axes.get_position().get_points().tolist()
    return {"box": [left, right, bottom, top], "span": [float(x) for x in axes.get_xlim()]}
