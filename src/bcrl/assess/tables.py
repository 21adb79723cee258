"""Summaries as a table on the screen."""

from collections.abc import Sequence

from rich.table import Table

from bcrl.assess.statistics import Estimate, Summary


def summary_table(summaries: Sequence[Summary], title: str) -> Table:
    """Per threshold: normalised reward and cost with 95 % intervals, and whether the promise was kept."""
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for name in ("threshold", "reward", "cost", "kept", "episode cost", "over", "fallback"):
        table.add_column(name, justify="right", no_wrap=True)
    for line in summaries:
        table.add_row(
            "all" if line.threshold is None else f"{line.threshold:g}",
            _interval(line.reward),
            _interval(line.cost),
            "[green]yes[/]" if line.safe else "[red]no[/]",
            f"{line.episode_cost.mean:.1f} ± {line.episode_cost.error:.1f}",
            f"{line.violation_rate:.0%}",
            f"{line.fallback_share:.0%}",
        )
    table.caption = (
        "reward, cost: normalised, mean and 95 % interval; kept: mean cost at most 1;\n"
        "over: episodes above the threshold; fallback: steps that the fallback decided"
    )
    table.caption_justify = "left"
    return table


def _interval(value: Estimate) -> str:
    return f"{value.mean:.2f} {value.low:.2f}–{value.high:.2f}"
