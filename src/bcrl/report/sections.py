"""What every report has, whatever its results are of: the log, the training, how to use the policy."""

import json
import math
from collections.abc import Iterable, Sequence
from pathlib import Path

from bcrl.assess.statistics import Estimate, Kept
from bcrl.data import Dataset
from bcrl.errors import BCRLError
from bcrl.policy import Policy
from bcrl.report import facts, words
from bcrl.report.document import Part, document
from bcrl.report.markup import HTML, Piece, element


def page(title: str, subtitle: str, content: Iterable[Piece | Part], *, command: str) -> str:
    """A report as text: `content` between its style and what it was made by."""
    footer = element("footer", [
        element("p", ["Made by ", element("code", command), "."], class_="muted") if command else "",
        element("p", facts.versions(), class_="muted"),
    ])  # fmt: skip
    sheet = Path(__file__).with_name("page.css").read_text(encoding="utf-8")
    return document(f"{title}: {subtitle}", [*content, footer], style=sheet)


def section(title: str, *content: Piece) -> HTML:
    return element("section", [element("h2", title), *content])


def about(dataset: Dataset | None, policies: Sequence[Policy]) -> list[Piece]:
    """The log and the trainings, as far as they were given."""
    log = section("The log", _list(facts.of_log(dataset))) if dataset is not None else ""
    return [log, *[section(heading, _list(pairs)) for heading, pairs in facts.of_training(policies)]]


def usage(policies: Sequence[Policy], policy_file: str, threshold: float) -> Piece:
    """Four lines of Python; only where there is a policy to use."""
    if not policies:
        return ""
    spend, known = f"threshold={threshold:g}, horizon={policies[0].spec.horizon}", policies[0].calibration
    if known is not None:  # only what is in its table can be asked for
        wanted = min((pair[0] for pair in known.table), key=lambda value: abs(value - threshold))
        spend = f"threshold={wanted:g}, horizon={known.horizon}, calibrated=True"
        spend += "" if known.execution == "finite-horizon" else f", execution={json.dumps(known.execution)}"
        spend += f", candidates={known.candidates}" if known.candidates else ""
    code = (
        "import bcrl\n"
        f"episode = bcrl.load({json.dumps(policy_file)}).start({spend})\n"
        "action = episode.act(observation)  # at every step\n"
        "episode.observe(cost)  # what that step cost\n"
    )
    return section("Use the policy", element("pre", element("code", code)))


def table(head: Sequence[str], rows: Iterable[Piece], caption: Piece, label: str, **attributes: str) -> HTML:
    """A table that scrolls by itself where it is too wide for the page."""
    names = element("thead", element("tr", [element("th", name, scope="col") for name in head]))
    inside = [element("caption", caption), names, element("tbody", rows)]
    return element(
        "div", element("table", inside, **attributes), class_="scroll", tabindex="0", role="region",
        aria_label=f"{label}: table",
    )  # fmt: skip


def cell(value: Estimate, digits: int) -> HTML:
    """A mean and its interval; empty for what was not measured."""
    if math.isnan(value.mean):
        return element("td", "")
    ends = f"{value.low:.{digits}f} to {value.high:.{digits}f}"
    return element("td", [f"{value.mean:.{digits}f}", element("small", ends)])


def kept_cell(kept: Kept | None, second: Kept | None = None) -> HTML:
    """kept, open or broken, also of a second cost; empty where there is no threshold."""
    said = ", ".join(filter(None, (kept, second)))
    return element("td", said, **({"class_": "broken"} if Kept.BROKEN in (kept, second) else {}))


def check_same(methods: Iterable[str], dataset: Dataset | None, policies: Sequence[Policy]) -> None:
    """Refuses a log or policy that the results are not of."""
    methods = sorted(set(methods))
    for policy in policies:
        if policy.method.name not in methods:
            raise BCRLError(
                f"the policy is of method {policy.method.name}, but the results are of "
                f"{words.listed(methods)}: give the policy that was evaluated"
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


def _list(pairs: Sequence[tuple[str, str]]) -> HTML:
    return element("dl", [[element("dt", name), element("dd", value)] for name, value in pairs])
