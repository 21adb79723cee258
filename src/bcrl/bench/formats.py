"""The tables of a benchmark as Markdown and as LaTeX."""

from collections.abc import Sequence

from bcrl.assess.statistics import KEPT_MEANS
from bcrl.bench.scores import Score
from bcrl.bench.tables import Table, Text, beside_paper, by_threshold, over_tasks, paper_form
from bcrl.worlds import make_world

LEGEND = (
    "Normalised reward and cost, mean ± standard deviation over seeds, thresholds and episodes. "
    "Safe (mean cost at most 1 over all thresholds together) is {safe}, the highest reward among the safe "
    "{best}. {hides}: safe in this sense, yet one of the thresholds is broken. "
    "(n of m): over n thresholds or tasks only."
)
THRESHOLDS = (
    f"Means with 95 % bootstrap intervals over seeds and episodes. {KEPT_MEANS.capitalize()}. "
    "Over: episodes that cost more than the threshold; fallback: steps that the fallback decided."
)
TASKS = (
    "Means over tasks, and interquartile means (IQM) over seeds and tasks with 95 % intervals, seeds drawn "
    "within each task; then how many thresholds of these tasks are kept, open and broken."
)
PAPER = "Paper / here, means over thresholds. Compare them where the log is the paper's, too."


def markdown(scores: Sequence[Score]) -> str:
    """Every table, for table.md."""
    parts = [
        markdown_table(paper_form(scores)),
        LEGEND.format(safe="**bold**", best="marked ★", hides="†"),
        *_caveats(scores),
        "## At each threshold",
        markdown_table(by_threshold(scores)),
        THRESHOLDS,
        "## Over tasks",
        markdown_table(over_tasks(scores)),
        TASKS,
    ]
    beside = beside_paper(scores)
    if len(beside) > 1:
        parts += ["## Beside the paper", markdown_table(beside), PAPER]
    return "\n\n".join(parts) + "\n"


def latex(scores: Sequence[Score]) -> str:
    """The table in the paper's form, for table.tex. It needs the packages booktabs and xcolor."""
    head, *rows = paper_form(scores)
    names = [_escape(cell.text.removesuffix(" reward ↑")) for cell in head[1::2]]
    lines = [
        f"\\begin{{tabular}}{{l{'ll' * len(names)}}}",
        "\\toprule",
        " & ".join(["", *(f"\\multicolumn{{2}}{{c}}{{{name}}}" for name in names)]) + " \\\\",
        " & ".join(["", *["reward $\\uparrow$ & cost $\\downarrow$"] * len(names)]) + " \\\\",
        "\\midrule",
    ]
    for row in rows:
        average = row[0].mark == "average"
        line = " & ".join([_escape(row[0].text), *map(_latex_cell, row[1:])]) + " \\\\"
        lines += ["\\midrule"] * average + [line] + ["\\midrule"] * (average and row is not rows[-1])
    notes = [LEGEND.format(safe="bold", best="blue", hides="A dagger"), *_caveats(scores)]
    return "\n".join([*lines, "\\bottomrule", "\\end{tabular}", *(f"% {note}" for note in notes)]) + "\n"


def _caveats(scores: Sequence[Score]) -> list[str]:
    """What must be said wherever numbers of these tasks are shown."""
    known = {score.task: make_world(score.task).caveat for score in scores}
    said = dict.fromkeys(caveat for caveat in known.values() if caveat)
    return [f"{', '.join(t for t, c in known.items() if c == caveat)}: {caveat}." for caveat in said]


def markdown_table(table: Table) -> str:
    """Columns of equal width, so that it reads well as plain text too."""
    rows = [[_markdown_cell(cell) for cell in row] for row in table]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    rows.insert(1, ["-" * width for width in widths])
    return "\n".join("| " + " | ".join(map(str.ljust, row, widths)) + " |" for row in rows)


def _markdown_cell(cell: Text) -> str:
    text = cell.text.replace("|", "\\|")
    text = f"**{text}**" if cell.mark in ("safe", "best") else text
    return text + " ★" * (cell.mark == "best") + " †" * cell.hides


def _latex_cell(cell: Text) -> str:
    mean, _, rest = _escape(cell.text).partition(" ± ")
    spread, _, note = rest.partition(" ")
    value = mean + (f"$_{{\\pm {spread}}}$" if spread else "") + (f" {note}" if note else "")
    value += "$^\\dagger$" * cell.hides
    if cell.mark == "unsafe":
        return f"\\textcolor{{gray}}{{{value}}}"
    value = f"\\textcolor{{blue}}{{{value}}}" if cell.mark == "best" else value
    return f"\\textbf{{{value}}}" if cell.mark in ("safe", "best") else value


def _escape(text: str) -> str:
    for character in "&%$#_{}":
        text = text.replace(character, f"\\{character}")
    return text.replace("–", "--")
