"""The report: one HTML file with everything in it, to be read anywhere and sent by mail.

No script of its own, no request to any network; light or dark as the reader's system is; narrow, wide and on
paper.
"""

import os
from collections.abc import Sequence
from typing import Any

from bcrl.assess.results import Result
from bcrl.assess.statistics import KEPT_MEANS, Summary
from bcrl.data import Dataset
from bcrl.errors import BCRLError
from bcrl.estimates import Estimates
from bcrl.files import write_text
from bcrl.policy import Policy
from bcrl.report import facts, words
from bcrl.report.curves import NAMES, Curve, curves, earned_by
from bcrl.report.document import Part, around
from bcrl.report.episode_units import EpisodeUnits, labelled, units_of
from bcrl.report.estimates import estimate_page
from bcrl.report.figure import MOST_DOTS, draw_one, shows_log
from bcrl.report.inline_svg import inline_svg
from bcrl.report.markup import HTML, Piece, element
from bcrl.report.sections import about, cell, check_same, kept_cell, page, section, table, usage
from bcrl.report.theme import MARKERS, PAGE


def write_report(
    results: Sequence[Result] | Estimates,
    path: str | os.PathLike,
    *,
    dataset: Dataset | None = None,
    policies: Sequence[Policy] = (),
    policy_file: str = "policy.bcrl",
    command: str = "",
    more: Sequence[Part] = (),
    truth: Sequence[Result] = (),
) -> None:
    """Writes the page about these results or estimates to `path`, all or nothing.

    The log and the policies add their facts; `command` is shown as what made the page. `more` are sections
    for after the numbers, such as `bcrl.report.ship.map_section` and `bcrl.report.learning_section`. `truth`,
    for estimates alone, are results of the same policies in a world, to stand beside what was estimated.
    """
    known: dict[str, Any] = {"dataset": dataset, "policies": policies, "policy_file": policy_file}
    known |= {"command": command, "more": more}
    if isinstance(results, Estimates):
        text = estimate_page(results, truth=truth, **known)
    elif truth:
        raise BCRLError("truth is for estimates: results are the truth already")
    else:
        text = report_page(results, **known)
    write_text(path, text)


def report_page(
    results: Sequence[Result],
    *,
    dataset: Dataset | None = None,
    policies: Sequence[Policy] = (),
    policy_file: str = "policy.bcrl",
    command: str = "",
    more: Sequence[Part] = (),
) -> str:
    """The page about results as text; the arguments are those of `write_report`."""
    lines = curves(results)
    check_same([result.method for result in results], dataset, policies)
    title = f"{words.listed(sorted({r.method for r in results}))} in {words.listed(facts.worlds(results))}"
    header = element("header", [
        element("h1", title),
        element("p", words.headline(lines), class_="lead"),
        [element("p", [_name(line, lines), words.verdict(line)]) for line in lines],
    ])  # fmt: skip
    units = units_of(dataset, policies)
    middle = lines[0].thresholds[len(lines[0].thresholds) // 2]
    main = around("main", [
        _pictures(lines, dataset, units),
        _tables(lines, units),
        *more,
        about(dataset, policies),
        usage(policies, policy_file, middle),
    ])  # fmt: skip
    return page(title, "reward and cost at each threshold", [header, main], command=command)


def _pictures(lines: Sequence[Curve], dataset: Dataset | None, units: EpisodeUnits) -> HTML:
    parts: list[Piece] = []
    if len(lines) > 1:
        parts.append(element("ul", [_legend(i, line) for i, line in enumerate(lines)], class_="legend"))
    panels = element(
        "div", [_panel(name, lines, None, units) for name in ("reward", "cost")], class_="panels"
    )
    caption = (
        f"What it earns is the {NAMES[earned_by(lines)]}. Large marks are means with their "
        "95 % intervals over seeds and episodes, faint dots single episodes. "
        "The dashed line is cost = threshold: below it an episode costs less than it was allowed to."
    )
    parts.append(element("figure", [panels, element("figcaption", caption)]))
    if dataset is not None and shows_log(lines, dataset):
        shown = dataset.episode_count
        which = f"{MOST_DOTS:,} of its {shown:,}" if shown > MOST_DOTS else f"its {shown:,}"
        caption = (
            f"The log it was given: each grey dot is one of {which} episodes. "
            "On top, the mean cost and return of the learnt behaviour at each threshold"
            f"{', which the numbers name' if len(lines) == 1 else ''}. "
            "Higher and further left is better."
        )
        inside = [_panel("log", lines, dataset, units), element("figcaption", caption)]
        parts.append(element("figure", inside, class_="panels beside"))
    return section("Reward and cost at each threshold", *parts)


def _panel(name: str, lines: Sequence[Curve], dataset: Dataset | None, units: EpisodeUnits) -> HTML:
    picture = draw_one(name, lines, dataset, PAGE, units)
    return inline_svg(picture, name, words.describe(name, lines))


def _legend(i: int, line: Curve) -> HTML:
    colour = f"color: var(--series-{i % len(PAGE.series)})"
    mark = element("span", MARKERS[i % len(MARKERS)][1], style=colour, aria_hidden="true")
    return element("li", [mark, " ", line.label])


def _tables(lines: Sequence[Curve], units: EpisodeUnits) -> HTML:
    normalised = "; reward is normalised" if any(line.earned == "reward" for line in lines) else ""
    legend = (
        f"Means with their 95 % intervals over seeds and episodes{normalised}. {KEPT_MEANS.capitalize()}. "
        "Over: episodes that cost more than the threshold. "
        "Fallback: steps that the least-cost fallback decided."
    )
    return section(
        "The numbers",
        *[[_heading(line, lines), _table(line, units)] for line in lines],
        element("p", legend, class_="muted"),
    )


def _table(line: Curve, units: EpisodeUnits) -> HTML:
    earned = "reward" if line.earned == "reward" else labelled("return", units.earned)
    threshold, cost = (labelled(name, units.cost) for name in ("threshold", "episode cost"))
    names = (threshold, earned, cost, "cost / threshold", "kept?", "over", "fallback")
    rows = [_row(f"{summary.threshold:g}", summary) for summary in line.summaries]
    if len(rows) > 1:
        rows.append(_row("all", line.overall))
    seeds = len({result.seed for result in line.results})
    caption = (
        f"{words.count(line.summaries[0].episodes // seeds, 'episode')} at each threshold, "
        f"{words.count(seeds, 'training seed')}"
    )
    return table(names, rows, caption, line.label)


def _row(name: str, summary: Summary) -> HTML:
    cells = [
        cell(summary.earned, 2),
        cell(summary.episode_cost, 1),
        cell(summary.cost, 2),
        kept_cell(summary.kept),
        element("td", words.percent(summary.violation_rate)),
        element("td", words.percent(summary.fallback_share)),
    ]
    attributes = {"class_": "all"} if summary.threshold is None else {}
    return element("tr", [element("th", name, scope="row"), cells], **attributes)


def _heading(line: Curve, lines: Sequence[Curve]) -> Piece:
    return element("h3", line.label) if len(lines) > 1 else ""


def _name(line: Curve, lines: Sequence[Curve]) -> Piece:
    return [element("strong", line.label), ": "] if len(lines) > 1 else ""
