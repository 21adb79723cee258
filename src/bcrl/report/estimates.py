"""The page about estimates: what policies will cost and earn, whether to believe it, and what comes next."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from bcrl.assess.results import Result
from bcrl.assess.statistics import Estimate
from bcrl.data import Dataset
from bcrl.estimates import Estimates, Light, ThresholdEstimate
from bcrl.estimates.light import grouped
from bcrl.policy import Policy
from bcrl.report import words
from bcrl.report.document import Part, around
from bcrl.report.episode_units import EpisodeUnits, labelled, units_of
from bcrl.report.estimate_curves import EstimateCurve, estimate_curves
from bcrl.report.estimate_figure import best_logged, draw_estimate
from bcrl.report.figure import MOST_DOTS
from bcrl.report.inline_svg import inline_svg
from bcrl.report.markup import HTML, Piece, element
from bcrl.report.sections import about, cell, check_same, page, section, table, usage
from bcrl.report.slider import light_mark, slider
from bcrl.report.theme import MARKERS, PAGE

MEANS = {
    Light.GREEN: "no check found anything",
    Light.AMBER: "look at the warnings; the intervals are wider",
    Light.RED: "do not use these numbers",
}


def estimate_page(
    estimates: Estimates,
    *,
    dataset: Dataset | None = None,
    policies: Sequence[Policy] = (),
    policy_file: str = "policy.bcrl",
    command: str = "",
    more: Sequence[Part] = (),
    truth: Sequence[Result] = (),
) -> str:
    """The page about estimates as text; the arguments are those of `write_report`."""
    check_same([row.method for row in estimates], dataset, policies)
    lines = estimate_curves(estimates, dataset, policies, truth)
    digits = _digits(estimates, "cost"), _digits(estimates, "return")
    units = units_of(dataset, policies)
    logs = words.listed(sorted({row.data or "a log" for row in estimates}))
    title = f"{words.listed(sorted({row.method for row in estimates}))}, estimated from {logs} alone"
    row = lines[0].rows[len(lines[0].rows) // 2]
    header = element("header", [
        element("h1", title),
        element("p", _headline(lines, row, digits, units), class_="lead"),
        element("p", (
            "The intervals are model-based: they say how far the members of a model learned from the log "
            "disagree, with a least width for what all of them get wrong. They are never a guarantee."
        )),
    ])  # fmt: skip
    main = around("main", [
        _pictures(lines, digits, dataset, units),
        _lights(lines),
        _numbers(lines, digits, dataset, units),
        _next(row.threshold, dataset, policies),
        *more,
        about(dataset, policies),
        usage(policies, policy_file, row.threshold),
    ])  # fmt: skip
    style = Path(__file__).with_name("estimates.css").read_text(encoding="utf-8")
    content = [header, main, Part(HTML(""), (style,))]
    return page(title, "cost and return at each threshold", content, command=command)


def _headline(
    lines: Sequence[EstimateCurve], row: ThresholdEstimate, digits: tuple[int, int], units: EpisodeUnits
) -> str:
    if len(lines) > 1:
        thresholds = {row.threshold for line in lines for row in line.rows}
        return f"{len(lines)} policies, estimated at {words.count(len(thresholds), 'threshold')}."
    cost, earned = _triples(row)
    paid, got = (f" {unit}" if unit else "" for unit in units)
    return (
        f"Told {row.threshold:g}{paid}, the policy is estimated to cost {words.interval(cost, digits[0])}"
        f"{paid} an episode and to earn {words.interval(earned, digits[1])}{got}. By the model, "
        f"{words.percent(row.over_share)} of single episodes cost more than {row.threshold:g}{paid}. "
        f"The light is {row.light}: {MEANS[Light(row.light)]}."
    )


def _pictures(
    lines: Sequence[EstimateCurve], digits: tuple[int, int], dataset: Dataset | None, units: EpisodeUnits
) -> Part:
    drawn = {name: draw_estimate(name, lines, dataset, PAGE, units) for name in ("cost", "return")}
    said = {"cost": 0, "return": 1}
    panels = [inline_svg(drawn[name], name, _describe(lines, said[name], digits)) for name in drawn]
    caption = (
        "Bands are the model-based intervals. The dashed line is cost = threshold: below it the policy costs "
        "less than it was told it may."
    )
    if any(line.calibrated for line in lines):
        caption += (
            " A diamond stands for a calibrated threshold: tell the policy the threshold below it to keep "
            "the cost at its height."
        )
    if dataset is not None:
        caption += (
            " Dotted: the best single logged episode that costs no more than the threshold, a yardstick. "
            "The policy's return is a mean, so it may lie below."
        )
    parts: list[Piece | Part] = [
        element("h2", "Cost and return at each threshold"),
        element("ul", _legend(lines), class_="legend"),
        element("figure", [
            element("div", panels, class_="panels guided"),
            element("figcaption", caption),
        ]),
        slider(lines, digits, list(drawn.values()), units),
    ]  # fmt: skip
    if dataset is not None:
        shown = dataset.episode_count
        which = f"{MOST_DOTS:,} of its {shown:,}" if shown > MOST_DOTS else f"its {shown:,}"
        caption = (
            f"Each grey dot is one of {which} episodes. On top, the estimated cost and return"
            f"{' at each threshold, which the numbers name' if len(lines) == 1 else ''}. "
            "Far from all dots, the model has little to go by."
        )
        figure = draw_estimate("log", lines, dataset, PAGE, units)
        described = "The log's episodes, with the estimates: " + _describe(lines, 0, digits)
        inside = [inline_svg(figure, "log", described), element("figcaption", caption)]
        parts.append(element("figure", inside, class_="panels beside"))
    return around("section", parts)


def _legend(lines: Sequence[EstimateCurve]) -> list[HTML]:
    def item(sign: str, text: str, colour: str = "ink") -> HTML:
        mark = element("span", sign, style=f"color: var(--{colour})", aria_hidden="true")
        return element("li", [mark, " ", text])

    items = [
        item(MARKERS[i % len(MARKERS)][1], f"{line.label}, estimated", f"series-{i % len(PAGE.series)}")
        for i, line in enumerate(lines)
    ]
    lights = {row.light for line in lines for row in line.rows}
    if lights != {Light.GREEN}:
        items.append(item("○", f"hollow: {' or '.join(str(x) for x in Light if x in lights - {'green'})}"))
    if any(line.calibrated for line in lines):
        items.append(item("◆", "calibrated"))
    if any(line.truth for line in lines):
        items.append(item("✖", "simulated, with 95 % intervals"))
    return items


def _describe(lines: Sequence[EstimateCurve], which: int, digits: tuple[int, int]) -> str:
    """A panel in words: costs (0) or returns (1)."""
    name = ("cost", "return")[which]
    return " ".join(
        f"{line.label}: "
        + "; ".join(
            f"at threshold {row.threshold:g} {name} {words.interval(_triples(row)[which], digits[which])}"
            for row in line.rows
        )
        + "."
        for line in lines
    )


def _lights(lines: Sequence[EstimateCurve]) -> HTML:
    """Each light and each warning once, with the thresholds it is for."""
    seen = [(line, row) for line in lines for row in line.rows]
    items = []
    for light in Light:
        at = [(line.label, row.threshold) for line, row in seen if row.light == light]
        if at:
            items.append(element("p", [light_mark(light), f" {_where(at, lines)}: {MEANS[light]}."]))
    found = grouped(
        ((line.label, row.threshold), reason)
        for line, row in seen
        for reason in (row.reasons.split("; ") if row.reasons else [])
    )
    warnings = [
        element(
            "li", [text[:1].upper() + text[1:], element("span", f" ({_where(at, lines)})", class_="muted")]
        )
        for at, text in found
    ]
    return section(
        "May I believe it?", *items, element("ul", warnings, class_="warnings") if warnings else ""
    )


def _where(at: Sequence[tuple[str, float]], lines: Sequence[EstimateCurve]) -> str:
    """at thresholds 5 and 10; of which policies, where they differ."""
    by_line: dict[str, list[str]] = {line.label: [] for line in lines}
    for name, threshold in at:
        by_line[name].append(f"{threshold:g}")
    by_numbers: dict[tuple[str, ...], list[str]] = {}
    for name, numbers in by_line.items():
        by_numbers.setdefault(tuple(numbers), []).append(name)
    return "; ".join(
        f"at threshold{'s' if len(numbers) > 1 else ''} {words.listed(numbers)}"
        + (f" of {'; '.join(names)}" if len(by_numbers) > 1 else "")
        for numbers, names in by_numbers.items()
        if numbers
    )


def _numbers(
    lines: Sequence[EstimateCurve], digits: tuple[int, int], dataset: Dataset | None, units: EpisodeUnits
) -> HTML:
    note = (
        "Over: simulated episodes that cost more than the threshold, the model's own count, without an "
        "interval. Fallback: steps that the least-cost fallback decides. Intervals are model-based."
    )
    if any(line.truth for line in lines):
        note += " Simulated: means over episodes in a world, with 95 % intervals."
    tables = [
        [element("h3", line.label) if len(lines) > 1 else "", _table(line, digits, dataset, units)]
        for line in lines
    ]
    return section("The numbers", *tables, element("p", note, class_="muted"))


def _table(
    line: EstimateCurve, digits: tuple[int, int], dataset: Dataset | None, units: EpisodeUnits
) -> list[Piece]:
    told, true = dict(line.calibrated), {summary.threshold: summary for summary in line.truth}
    heads = ["threshold", "light", "cost", "over", "return", "fallback"]
    heads += ["told (calibrated)"] if told else []
    heads += ["best logged return"] if dataset is not None else []
    heads += ["simulated cost", "simulated over", "simulated return"] if true else []
    kinds = {"threshold": units.cost, "cost": units.cost, "(calibrated)": units.cost, "return": units.earned}
    best = None if dataset is None else best_logged(dataset, line.thresholds)
    rows = []
    for i, row in enumerate(line.rows):
        cost, earned = _triples(row)
        cells: list[Piece] = [
            element("td", light_mark(row.light)),
            cell(cost, digits[0]),
            element("td", words.percent(row.over_share)),
            cell(earned, digits[1]),
            element("td", words.percent(row.fallback_share)),
        ]
        if told:
            cells.append(element("td", f"{told[row.threshold]:.4g}" if row.threshold in told else "–"))
        if best is not None:
            cells.append(element("td", "none" if np.isnan(best[i]) else f"{best[i]:.{digits[1]}f}"))
        if true:
            known = true.get(row.threshold)
            cells += [element("td", "–")] * 3 if known is None else [
                cell(known.episode_cost, digits[0]),
                element("td", words.percent(known.violation_rate)),
                cell(known.episode_return, digits[1]),
            ]  # fmt: skip
        rows.append(element("tr", [element("th", f"{row.threshold:g}", scope="row"), cells]))
    others = [pair for pair in line.calibrated if pair[0] not in line.thresholds]
    after = [f"Calibrated too: {'; '.join(f'to keep {k:g}, tell it {x:.4g}' for k, x in others)}."] * bool(
        others
    )
    both = [(_triples(row), true[row.threshold]) for row in line.rows if row.threshold in true]
    if both:
        cost = sum(said.low <= known.episode_cost.mean <= said.high for (said, _), known in both)
        earned = sum(said.low <= known.episode_return.mean <= said.high for (_, said), known in both)
        after.append(
            f"Of {words.count(len(both), 'threshold')}, the interval holds the simulated mean cost at {cost} "
            f"and the simulated mean return at {earned}."
        )
    caption = "Means of an episode, with their intervals"
    shown = table(
        [labelled(name, kinds.get(name.split()[-1], "")) for name in heads],
        rows,
        caption,
        line.label,
        class_="named",
    )
    return [shown, [element("p", sentence) for sentence in after]]


def _next(threshold: float, dataset: Dataset | None, policies: Sequence[Policy]) -> HTML:
    largest, note = "LARGEST", "LARGEST stands for a cost that no episode can exceed"
    known = dataset if dataset is not None else next(iter(policies), None)
    costs = [] if known is None else _largest_costs(known)
    if known is not None and len(costs) == 1 and costs[0] > threshold:  # else there is nothing to test
        largest = f"{costs[0]:.10g}"
        note = "--largest is the declared largest cost of a step times the horizon"
        if not known.schema.max_cost:
            note = (
                "--largest is the largest cost of a step in the log times the horizon; give more if an "
                "episode can cost more"
            )
    return section("Next", element("p", (
        "No estimate proves anything. Let the policy act under supervision, write down what each episode "
        f"costs, and give these costs to a test that holds for any number of episodes. {note}."
    )), element("pre", element("code", (
        f"bcrl certify costs.csv --threshold {threshold:g} --largest {largest}"
    ))))  # fmt: skip


def _largest_costs(known: Dataset | Policy) -> list[float]:
    """What an episode can cost at most, for each cost."""
    if isinstance(known, Dataset):
        return [float(cost) * known.horizon for cost in known.max_cost]
    return (known.largest_costs * known.spec.horizon).tolist()


def _triples(row: ThresholdEstimate) -> tuple[Estimate, Estimate]:
    """Cost and return with their intervals; there is no standard error."""
    return (
        Estimate(row.cost, float("nan"), row.cost_low, row.cost_high),
        Estimate(row.return_, float("nan"), row.return_low, row.return_high),
    )


def _digits(rows: Sequence[ThresholdEstimate], name: str) -> int:
    """As many decimals as show two digits of a typical interval's width."""
    widths = [getattr(row, f"{name}_high") - getattr(row, f"{name}_low") for row in rows]
    width = float(np.median(widths)) if widths else 0.0
    return int(np.clip(1 - np.floor(np.log10(width)), 0, 6)) if width > 0 else 2
