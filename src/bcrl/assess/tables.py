"""Summaries as a table on the screen."""

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from bcrl.assess.statistics import KEPT_MEANS, Kept, Summary
from bcrl.errors import printable

COLOURS = {Kept.KEPT: "green", Kept.OPEN: "yellow", Kept.BROKEN: "red"}


def summary_table(summaries: Sequence[Summary], title: str, *, narrow: bool = False) -> Table:
    """Per threshold: reward and normalised cost with 95 % intervals, and whether the threshold was kept.

    A narrow table has intervals and errors below their means.
    """
    table = Table(
        title=Text(printable(title)), title_justify="left", box=None, pad_edge=False, header_style="bold"
    )
    gap = "\n" if narrow else " "
    normalised = all(line.normalised for line in summaries)
    earned = "reward" if normalised else "return"
    for name in ("threshold", earned, "cost", "kept?", "episode cost", "over", "fallback"):
        table.add_column(name, justify="right", no_wrap=True)
    for line in summaries:
        table.add_row(
            "all" if line.threshold is None else f"{line.threshold:g}",
            f"{line.earned.mean:.2f}{gap}{line.earned.low:.2f}–{line.earned.high:.2f}",
            f"{line.cost.mean:.2f}{gap}{line.cost.low:.2f}–{line.cost.high:.2f}",
            f"[{COLOURS[line.kept]}]{line.kept}[/]",
            f"{line.episode_cost.mean:.1f}{gap}± {line.episode_cost.error:.1f}",
            f"{line.violation_rate:.0%}",
            f"{line.fallback_share:.0%}",
        )
    table.caption = (
        f"{'reward, cost: normalised' if normalised else 'cost: normalised'}, mean and 95 % interval;\n"
        f"{KEPT_MEANS};\n"
        "over: episodes above the threshold; fallback: steps that the fallback decided"
    )
    table.caption_justify = "left"
    return table
