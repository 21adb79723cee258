"""The tables of a benchmark as Markdown and as LaTeX."""

import re
from collections.abc import Sequence
from pathlib import Path

from bcrl.assess import write_results
from bcrl.assess.statistics import KEPT_MEANS
from bcrl.bench.scores import Score, results
from bcrl.bench.tables import Table, Text, beside_paper, by_threshold, over_tasks, paper_form
from bcrl.errors import printable
from bcrl.files import write_text
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
_LATEX = str.maketrans(
    {character: f"\\{character}" for character in "&%$#_{}"}
    | {"\\": "\\textbackslash{}", "~": "\\textasciitilde{}", "^": "\\textasciicircum{}", "–": "--"}
    | {"τ": "$\\tau$", "β": "$\\beta$", "δ": "$\\delta$", "≤": "$\\le$", "²": "$^2$", "−": "$-$"}
    | {
        "↑": "$\\uparrow$",
        "↓": "$\\downarrow$",
        "×": "$\\times$",
        "±": "$\\pm$",
        "★": "$\\star$",
        "†": "$\\dagger$",
    }
)
PAPER = "Paper / here, means over thresholds. Compare them where the log is the paper's, too."


def write_tables(scores: Sequence[Score], folder: Path) -> None:
    """Writes results.csv, table.md and table.tex."""
    write_results(results(scores), folder / "results.csv")
    write_text(folder / "table.md", markdown(scores))
    write_text(folder / "table.tex", latex(scores))


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
    names = [escape_latex(cell.text.removesuffix(" reward ↑")) for cell in head[1::2]]
    lines = [
        f"\\begin{{tabular}}{{l{'ll' * len(names)}}}",
        "\\toprule",
        " & ".join(["", *(f"\\multicolumn{{2}}{{c}}{{{name}}}" for name in names)]) + " \\\\",
        " & ".join(["", *["reward $\\uparrow$ & cost $\\downarrow$"] * len(names)]) + " \\\\",
        "\\midrule",
    ]
    for row in rows:
        average = row[0].mark == "average"
        line = " & ".join([escape_latex(row[0].text), *map(_latex_cell, row[1:])]) + " \\\\"
        lines += ["\\midrule"] * average + [line] + ["\\midrule"] * (average and row is not rows[-1])
    notes = [LEGEND.format(safe="bold", best="blue", hides="A dagger"), *_caveats(scores)]
    return "\n".join([*lines, "\\bottomrule", "\\end{tabular}", *(f"% {note}" for note in notes)]) + "\n"


def latex_table(table: Table) -> str:
    """Any table, as it is. It needs the packages booktabs and xcolor."""
    head, *rows = ([_latex_cell(cell) for cell in row] for row in table)
    lines = [" & ".join(row) + " \\\\" for row in rows]
    start = [f"\\begin{{tabular}}{{{'l' * len(head)}}}", "\\toprule", " & ".join(head) + " \\\\", "\\midrule"]
    return "\n".join([*start, *lines, "\\bottomrule", "\\end{tabular}"]) + "\n"


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


def column_blocks(table: Table, width: int, keys: int) -> str:
    """The table for a screen: where it is too wide, several tables that repeat its first `keys` columns."""
    wide = [max(len(_markdown_cell(cell)) for cell in column) + 3 for column in zip(*table, strict=True)]
    blocks: list[list[int]] = [[]]
    for column in range(keys, len(wide)):
        used = sum(wide[i] for i in [*range(keys), *blocks[-1]]) + 1
        if blocks[-1] and used + wide[column] > width:
            blocks.append([])
        blocks[-1].append(column)
    return "\n\n".join(
        markdown_table([[row[i] for i in [*range(keys), *block]] for row in table]) for block in blocks
    )


def _markdown_cell(cell: Text) -> str:
    text = re.sub(r"[\\`*\[\]<>|~&#]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])", r"\\\g<0>", printable(cell.text))
    text = f"**{text}**" if cell.mark in ("safe", "best") else text
    return text + " ★" * (cell.mark == "best") + " †" * cell.hides


def _latex_cell(cell: Text) -> str:
    mean, _, rest = cell.text.partition(" ± ")
    mean, spread, note = map(escape_latex, (mean, *rest.partition(" ")[::2]))
    value = mean + (f"$_{{\\pm {spread}}}$" if spread else "") + (f" {note}" if note else "")
    value += "$^\\dagger$" * cell.hides
    if cell.mark == "unsafe":
        return f"\\textcolor{{gray}}{{{value}}}"
    value = f"\\textcolor{{blue}}{{{value}}}" if cell.mark == "best" else value
    return f"\\textbf{{{value}}}" if cell.mark in ("safe", "best") else value


def escape_latex(text: str) -> str:
    """Text that LaTeX prints as it is."""
    return printable(text).translate(_LATEX)
