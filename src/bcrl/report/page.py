"""The report: one HTML file with everything in it, to be read anywhere and sent by mail.

No script, no request to any network; light or dark as the reader's system is; narrow, wide and on paper.
"""

import json
import os
from collections.abc import Sequence
from pathlib import Path

from bcrl.assess.results import Result
from bcrl.assess.statistics import Estimate, Summary
from bcrl.data import Dataset
from bcrl.errors import BCRLError
from bcrl.files import write_text
from bcrl.policy import Policy
from bcrl.report import facts, words
from bcrl.report.curves import Curve, curves
from bcrl.report.figure import MOST_DOTS, draw_one, shows_log
from bcrl.report.inline_svg import inline_svg
from bcrl.report.markup import HTML, Piece, element, join
from bcrl.report.theme import DARK, LIGHT, MARKERS, PAGE, Theme


def write_report(
    path: str | os.PathLike,
    results: Sequence[Result],
    *,
    dataset: Dataset | None = None,
    policies: Sequence[Policy] = (),
    policy_file: str = "policy.bcrl",
    command: str = "",
) -> None:
    """Writes the page, all or nothing."""
    page = report_page(results, dataset=dataset, policies=policies, policy_file=policy_file, command=command)
    write_text(path, page)


def report_page(
    results: Sequence[Result],
    *,
    dataset: Dataset | None = None,
    policies: Sequence[Policy] = (),
    policy_file: str = "policy.bcrl",
    command: str = "",
) -> str:
    """The page as text. The log and the policies add what they know; `command` says how to make it again."""
    lines = curves(results)
    _check_same(lines, dataset, policies)
    title = f"{words.listed(sorted({r.method for r in results}))} in {words.listed(facts.worlds(results))}"
    body = join(
        element("header", [
            element("h1", title),
            element("p", words.headline(lines), class_="lead"),
            [element("p", [_name(line, lines), words.verdict(line)]) for line in lines],
        ]),
        element("main", [
            _pictures(lines, dataset),
            _tables(lines),
            _section("The log", _list(facts.of_log(dataset))) if dataset is not None else "",
            [_section(heading, _list(pairs)) for heading, pairs in facts.of_training(policies)],
            _usage(policies, policy_file, lines),
        ]),
        element("footer", [
            element("p", ["Made by ", element("code", command), "."], class_="muted") if command else "",
            element("p", facts.versions(), class_="muted"),
        ]),
    )  # fmt: skip
    head = join(
        HTML('<meta charset="utf-8">'),
        HTML('<meta name="viewport" content="width=device-width, initial-scale=1">'),
        HTML('<meta name="color-scheme" content="light dark">'),
        element("title", f"{title}: reward and cost at each threshold"),
        element("style", HTML(_style())),
    )
    return f'<!DOCTYPE html>\n<html lang="en">\n<head>{head}</head>\n<body>\n{body}\n</body>\n</html>\n'


def _pictures(lines: Sequence[Curve], dataset: Dataset | None) -> HTML:
    parts: list[Piece] = []
    if len(lines) > 1:
        parts.append(element("ul", [_legend(i, line) for i, line in enumerate(lines)], class_="legend"))
    panels = element("div", [_panel(name, lines, None) for name in ("reward", "cost")], class_="panels")
    caption = (
        "What it earns is normalised. Large marks are means with their 95 % intervals over seeds and "
        "episodes, faint dots single episodes. "
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
        inside = [_panel("log", lines, dataset), element("figcaption", caption)]
        parts.append(element("figure", inside, class_="panels beside"))
    return _section("Reward and cost at each threshold", *parts)


def _panel(name: str, lines: Sequence[Curve], dataset: Dataset | None) -> HTML:
    picture = draw_one(name, lines, dataset, PAGE)
    return inline_svg(picture, name, words.describe(name, lines))


def _legend(i: int, line: Curve) -> HTML:
    colour = f"color: var(--series-{i % len(PAGE.series)})"
    mark = element("span", MARKERS[i % len(MARKERS)][1], style=colour, aria_hidden="true")
    return element("li", [mark, " ", line.label])


def _tables(lines: Sequence[Curve]) -> HTML:
    legend = (
        "Means with their 95 % intervals over seeds and episodes; reward is normalised. "
        "Kept: the mean of cost / threshold is at most 1. Over: episodes that cost more than the threshold. "
        "Fallback: steps that the least-cost fallback decided."
    )
    return _section(
        "The numbers",
        *[[_heading(line, lines), _table(line)] for line in lines],
        element("p", legend, class_="muted"),
    )


def _table(line: Curve) -> HTML:
    names = ("threshold", "reward", "episode cost", "cost / threshold", "kept?", "over", "fallback")
    head = element("thead", element("tr", [element("th", name, scope="col") for name in names]))
    rows = [_row(f"{summary.threshold:g}", summary) for summary in line.summaries]
    if len(rows) > 1:
        rows.append(_row("all", line.overall))
    seeds = len({result.seed for result in line.results})
    caption = (
        f"{words.count(line.summaries[0].episodes // seeds, 'episode')} at each threshold, "
        f"{words.count(seeds, 'training seed')}"
    )
    table = element("table", [element("caption", caption), head, element("tbody", rows)])
    return element(
        "div", table, class_="scroll", tabindex="0", role="region", aria_label=f"{line.label}: table"
    )


def _row(name: str, summary: Summary) -> HTML:
    cells = [
        _cell(summary.reward, 2),
        _cell(summary.episode_cost, 1),
        _cell(summary.cost, 2),
        element("td", "yes") if summary.safe else element("td", "no", class_="broken"),
        element("td", words.percent(summary.violation_rate)),
        element("td", words.percent(summary.fallback_share)),
    ]
    attributes = {"class_": "all"} if summary.threshold is None else {}
    return element("tr", [element("th", name, scope="row"), cells], **attributes)


def _cell(value: Estimate, digits: int) -> HTML:
    ends = f"{value.low:.{digits}f} to {value.high:.{digits}f}"
    return element("td", [f"{value.mean:.{digits}f}", element("small", ends)])


def _usage(policies: Sequence[Policy], policy_file: str, lines: Sequence[Curve]) -> Piece:
    """Four lines of Python; only where there is a policy to use."""
    if not policies:
        return ""
    middle = lines[0].summaries[len(lines[0].summaries) // 2]
    spend = f"threshold={middle.threshold:g}, horizon={policies[0].spec.horizon}"
    code = (
        "import bcrl\n"
        f"episode = bcrl.load({json.dumps(policy_file)}).start({spend})\n"
        "action = episode.act(observation)  # at every step\n"
        "episode.observe(cost)  # what that step cost\n"
    )
    return _section("Use the policy", element("pre", element("code", code)))


def _section(title: str, *content: Piece) -> HTML:
    return element("section", [element("h2", title), *content])


def _list(pairs: Sequence[tuple[str, str]]) -> HTML:
    return element("dl", [[element("dt", name), element("dd", value)] for name, value in pairs])


def _heading(line: Curve, lines: Sequence[Curve]) -> Piece:
    return element("h3", line.label) if len(lines) > 1 else ""


def _name(line: Curve, lines: Sequence[Curve]) -> Piece:
    return [element("strong", line.label), ": "] if len(lines) > 1 else ""


def _style() -> str:
    sheet = Path(__file__).with_name("page.css").read_text(encoding="utf-8")
    font = "--font: system-ui, 'Segoe UI', Roboto, 'Noto Sans', 'Liberation Sans', sans-serif;"
    light = f":root {{ color-scheme: light dark; {font} {_variables(LIGHT)} }}"
    dark = f"@media screen and (prefers-color-scheme: dark) {{ :root {{ {_variables(DARK)} }} }}"
    return f"{light}\n{dark}\n{sheet}"


def _variables(theme: Theme) -> str:
    return " ".join(f"--{name}: {colour};" for name, colour in theme.named().items())


def _check_same(lines: Sequence[Curve], dataset: Dataset | None, policies: Sequence[Policy]) -> None:
    """A page that mixes one run's policy with another's results would be wrong in every line."""
    methods = {result.method for line in lines for result in line.results}
    for policy in policies:
        if policy.method.name not in methods:
            raise BCRLError(
                f"the policy is of method {policy.method.name}, but the results are of "
                f"{words.listed(sorted(methods))}: give the policy that was evaluated"
            )
    if dataset is None:
        return
    found = dataset.fingerprint()
    for policy in policies:
        wanted = policy.provenance.get("data_sha256", found)
        if wanted != found:
            raise BCRLError(
                f"{dataset.source}: its sha256 begins with {found[:12]}, but that of the policy's log with "
                f"{wanted[:12]}: give the log the policy was trained on"
            )
