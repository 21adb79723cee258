"""Reports about ships: results in the form of the paper's table, and maps of chosen scenarios.

page = ship_report_page(results, more=[map_section(scenarios, [3700], {"mine": voyages})])
"""

from collections.abc import Mapping, Sequence

import numpy as np

from bcrl.assess.statistics import KEPT_MEANS
from bcrl.data import Dataset
from bcrl.errors import BCRLError
from bcrl.policy import Policy
from bcrl.report import words
from bcrl.report.document import Part, around
from bcrl.report.inline_svg import inline_svg
from bcrl.report.markup import HTML, Piece, element
from bcrl.report.sections import about, cell, check_same, kept_cell, page, section, table, usage
from bcrl.report.ship._budgets import PANELS, draw_panel_alone
from bcrl.report.ship._coastline import Coastline
from bcrl.report.ship._map import map_part, route_looks, scene, series, swatch
from bcrl.report.ship._tracks import make_map
from bcrl.report.theme import MARKERS, PAGE
from bcrl.ship import (
    EXPERT,
    PAIRED,
    Line,
    Measures,
    Scenarios,
    ShipResult,
    Voyages,
    differences,
    make_ship_world,
    measure,
    reference_run,
    replay,
    table_lines,
)

DIGITS = {
    "ade": 0, "gc_ade": 1, "close_quarters": 3, "acceleration": 4, "speed": 2, "success": 2, "cost": 1,
    "off_water": 3,
}  # fmt: skip
HEAD = (
    "ADE m",
    "GC\N{NON-BREAKING HYPHEN}ADE m",
    "close quarters",
    "accel. m/s²",
    "speed m/s",
    "success",
    "cost",
    "off water",
)
"""The measures as the table of `bcrl ship evaluate` names them."""
MEANING = (
    "Close quarters: share of steps that end within 555 m of another ship; each of them costs 1. "
    "ADE: mean distance to the expert at the same time; GC-ADE: the paper's, which falls with the length. "
    "Off water: share of steps that end where few or no ships sailed before."
)


def typical_scenario(scenarios: Scenarios) -> int:
    """Of the congested fifth of the test, the first whose expert's cost is nearest to their median."""
    which = scenarios.evaluation
    cost = scenarios.expert_cost[which]
    return int(which[np.argmin(np.abs(cost - np.median(cost)))])


def run_names(results: Sequence[ShipResult]) -> list[str]:
    """In the order of their colours."""
    return [name for name in dict.fromkeys(result.run for result in results) if name != EXPERT]


def ship_report_page(
    results: Sequence[ShipResult],
    *,
    dataset: Dataset | None = None,
    policies: Sequence[Policy] = (),
    policy_file: str = "policy.bcrl",
    command: str = "",
    more: Sequence[Part] = (),
    reference: str | None = None,
) -> str:
    """The page as text, like `bcrl.report.report_page`, with the measures of ships.

    `reference` is the run that others are compared with, by default a clone or else the experts.
    """
    if not results:
        raise BCRLError("the results hold no episode: run bcrl ship evaluate with --out first")
    names = run_names(results)
    check_same([result.method for result in results if result.run != EXPERT], dataset, policies)
    lines = table_lines(results)
    title = f"{words.listed(names or ['Experts'])} among ships"
    part = "validation" if results[0].world.endswith("validation") else "test"
    scenarios = words.count(len({result.scenario for result in results}), f"congested {part} scenario")
    lead = f"{words.count(len(names), 'run')} in {scenarios}, beside the experts of the log."
    if not names:
        lead = f"The experts of the log in {scenarios}."
    header = element("header", [
        element("h1", title),
        element("p", lead, class_="lead"),
        [element("p", [element("strong", name), ": ", _verdict(name, lines)]) for name in names],
    ])  # fmt: skip
    thresholds = sorted({line.threshold for line in lines if line.run != EXPERT})
    main = around("main", [
        _pictures(names, lines) if names else "",
        _numbers(lines, len({result.seed for result in results})),
        _paired(results, reference_run(results, reference)),
        *more,
        about(dataset, policies),
        usage(policies, policy_file, thresholds[len(thresholds) // 2]) if names else "",
    ])  # fmt: skip
    return page(title, "close quarters and cost at each budget", [header, main], command=command)


def map_section(
    scenarios: Scenarios,
    which: Sequence[int],
    sailed: Mapping[str, Voyages],
    *,
    policies: Sequence[str] = (),
    coastline: Coastline | None = None,
    note: str = "",
) -> Part:
    """A map of each of these scenarios and the measures of the routes on it.

    `policies` are names in the order of their colours in the rest of the page, such as `run_names`.
    """
    experts = replay(make_ship_world(scenarios), scenarios, np.array(which))
    content: list[Piece | Part] = [element("h2", "On the map")]
    if note:
        content.append(element("p", note))
    for number, scenario in enumerate(which):
        drawn = make_map(scenarios, scenario, sailed)
        looks = route_looks(drawn, policies)
        lead = element("p", scene(scenarios, drawn), class_="muted")
        name = f"map-{number + 1}"
        chart = map_part(scenarios, drawn, name=name, policies=policies, coastline=coastline)
        rows = _measured({EXPERT: experts, **sailed}, scenarios, scenario)
        labels = [EXPERT, *drawn.routes]
        lines = [_measure_row(*row) for row in zip(labels, looks, rows, strict=True)]
        caption = f"The measures of scenario {scenario}, one episode each."
        names = ("", "allowed", *HEAD, "fallback")
        numbers = table(names, lines, caption, f"Scenario {scenario}", class_="named")
        content += [element("h3", f"Scenario {scenario}"), lead, chart, numbers]
    content.append(element("p", MEANING, class_="muted"))
    return around("section", content)


def _measured(
    sailed: Mapping[str, Voyages], scenarios: Scenarios, scenario: int
) -> list[tuple[float, Measures, int]]:
    """Threshold, measures and the row in them of each episode in this scenario, in the order of a map."""
    return [
        (float(voyages.threshold[row]), measures, int(row))
        for voyages in sailed.values()
        for measures in [measure(voyages, scenarios)]
        for row in np.flatnonzero(voyages.scenario == scenario)
    ]


def _measure_row(label: str, look: str, found: tuple[float, Measures, int]) -> HTML:
    threshold, measures, row = found
    values = {name: float(getattr(measures, name)[row]) for name in DIGITS}
    shown = {name: f"{values[name]:.{digits}f}" for name, digits in DIGITS.items()}
    shown |= {"success": "yes" if values["success"] else "no", "cost": f"{values['cost']:.0f}"}
    allowed = f"{threshold:g}" if np.isfinite(threshold) else ""
    over = {"class_": "broken"} if values["cost"] > threshold else {}
    return element("tr", [
        element("th", [swatch(look), label], scope="row"),
        element("td", allowed),
        [element("td", text, **(over if name == "cost" else {})) for name, text in shown.items()],
        element("td", words.percent(float(measures.fallback[row]))),
    ])  # fmt: skip


def _pictures(names: Sequence[str], lines: Sequence[Line]) -> HTML:
    marks = [(MARKERS[series(i)][1], f"var(--series-{series(i)})", name) for i, name in enumerate(names)]
    marks.append(("\N{HORIZONTAL ELLIPSIS}", "var(--ink)", EXPERT))
    legend = [
        element("li", [element("span", mark, style=f"color: {colour}", aria_hidden="true"), " ", name])
        for mark, colour, name in marks
    ]
    panels = [
        inline_svg(draw_panel_alone(panel, names, lines, PAGE), panel, _describe(panel, lines))
        for panel in PANELS
    ]
    caption = (
        "Means with their 95 % intervals over seeds and episodes; dotted, the experts. A budget is a share "
        "of the median cost of the experts in these scenarios. Above the dashed line the mean cost is more "
        "than was allowed."
    )
    return section(
        "Close quarters and cost at each budget",
        element("ul", legend, class_="legend"),
        element("figure", [element("div", panels, class_="panels"), element("figcaption", caption)]),
    )


def _numbers(lines: Sequence[Line], seeds: int) -> HTML:
    rows = [
        element("tr", [
            element("th", line.run, scope="row"),
            element("td", _budget(line)),
            [cell(line.measures[name], digits) for name, digits in DIGITS.items()],
            kept_cell(line.kept, line.kept_water),
        ])
        for line in lines
    ]  # fmt: skip
    caption = f"Means with their 95 % intervals over {words.count(seeds, 'training seed')} and their episodes"
    return section(
        "The numbers",
        table(("", "budget", *HEAD, "kept?"), rows, caption, "Measures", class_="named"),
        element("p", f"{MEANING} {KEPT_MEANS.capitalize()}.", class_="muted"),
    )


def _paired(results: Sequence[ShipResult], reference: str) -> Piece:
    """Each run minus the reference in the same scenarios; empty if there is none."""
    found = differences(results, reference) if reference else []
    if not found:
        return ""
    rows = [
        element("tr", [
            element("th", one.line.run, scope="row"),
            element("td", _budget(one.line)),
            [cell(one.measures[name], DIGITS[name]) for name in PAIRED],
            element("td", str(one.pairs)),
        ])
        for one in found
    ]  # fmt: skip
    names = dict(zip(DIGITS, HEAD, strict=True))
    caption = "Differences with their 95 % intervals over training seeds and scenarios, paired by scenario"
    title = f"Minus {reference}, in the same scenarios"
    head = ("", "budget", *(names[name] for name in PAIRED), "pairs")
    return section(title, table(head, rows, caption, "Differences", class_="named"))


def _budget(line: Line) -> Piece:
    if line.run == EXPERT or np.isnan(line.budget):
        return line.allowed
    more = "" if line.kept_water is None else f", off water {line.off_water:g}"
    return [line.allowed, element("small", f"cost {line.threshold:g}{more}")]


def _verdict(name: str, lines: Sequence[Line]) -> str:
    """The middle budget in a sentence, and whether the budgets were kept."""
    mine = [line for line in lines if line.run == name]
    middle = mine[len(mine) // 2]
    experts = [line.measures["close_quarters"].mean for line in lines if line.run == EXPERT]
    beside = f" (the experts: {words.percent(experts[0])})" if experts else ""
    kept = words.kept_words([(line.allowed, line.kept) for line in mine if line.kept])
    allowed = middle.allowed if np.isnan(middle.budget) else f"{middle.allowed} of the median expert's cost"
    return (
        f"told to keep to {allowed}, it is in close quarters on "
        f"{words.percent(middle.measures['close_quarters'].mean)} of its steps{beside} and reaches the goal "
        f"in {words.percent(middle.measures['success'].mean)} of episodes. "
        f"Budgets {kept}."
    )


def _describe(panel: str, lines: Sequence[Line]) -> str:
    """The text alternative of a panel."""
    name, digits, what = PANELS[panel].measure, DIGITS[PANELS[panel].measure], PANELS[panel].words
    told = [
        f"{line.run}{f' at budget {line.allowed}' if line.run != EXPERT else ''}: "
        f"{what} {words.interval(line.measures[name], digits)}"
        for line in lines
    ]
    return f"{'; '.join(told)}."
