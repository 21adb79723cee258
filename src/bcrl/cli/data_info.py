"""`bcrl data info FILE`."""

import json
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from bcrl.cli.terminal import next_step, print_table
from bcrl.data import Dataset, density_picture, load_data, summarise
from bcrl.errors import printable

MOST_NAMES = 12
"""Names of columns that are listed."""


@dataclass
class Command:
    """Show a log: sizes, ranges, returns, costs, and a plot of return against cost."""

    file: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="FILE")]
    """The log: .hdf5, .h5, .npz, the folder of a Minari data set, or minari:ID."""
    json: tyro.conf.FlagCreatePairsOff[bool] = False
    """Print JSON instead."""

    def run(self) -> None:
        dataset = load_data(self.file)
        facts = summarise(dataset)
        if self.json:
            print(json.dumps(facts, indent=2, allow_nan=False))
        else:
            _show(dataset, facts)
            import jax

            small = ["--preset", "cpu"] if jax.default_backend() == "cpu" else []
            next_step("bcrl", "train", "--data", self.file, "--out", f"runs/{self.file.stem}", *small)


def _show(dataset: Dataset, facts: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.text import Text

    width = max(80, min(Console().width, 100))
    console = Console(width=width, highlight=False)
    plain = not console.encoding.lower().startswith("utf")

    def say(text: str = "", style: str = "") -> None:
        # Text, because brackets in a file name are not markup.
        console.print(Text(text, style=style), soft_wrap=True)

    say(printable(facts["file"]), "bold")
    for label, value in _heading(facts):
        for part in textwrap.wrap(value, width - 15) or [""]:
            say(f"  {label:<13}{part}")
            label = ""
    for line in dataset.transitions.faults() or ["next_observations match the next rows"]:
        for part in textwrap.wrap(line, width - 4):
            say(f"  {part}")
    for doubt in facts["doubts"]:
        for part in textwrap.wrap(f"warning: {doubt}", width - 4, subsequent_indent="  "):
            say(f"  {printable(part)}", "yellow")
    if facts["named_observations"]:
        print_table(_observations(facts, plain))
        if (left := len(facts["named_observations"]) - MOST_NAMES) > 0:
            say(f"  and {left:,} more observations (--json lists all)")
        say()
    print_table(_table(facts, plain))
    for kind, shares in zip(_kinds(facts), facts["share_of_episodes_within"], strict=True):
        within = "   ".join(f"{limit}: {_percent(share)}" for limit, share in shares.items())
        say(f"  episodes with {kind} {'<=' if plain else '≤'}   {within}")
    for kind, costs in zip(
        _kinds(facts), dataset.episode_costs.reshape(facts["episodes"], -1).T, strict=True
    ):
        say()
        say(
            density_picture(
                costs, dataset.episode_returns, width=width, cost_label=f"episode {kind}", plain=plain
            )
        )


def _heading(facts: dict[str, Any]) -> list[tuple[str, str]]:
    shortest, horizon = facts["shortest_episode"], facts["horizon"]
    length = f"{horizon:,} steps each" if shortest == horizon else f"{shortest:,} to {horizon:,} steps"
    return [
        ("transitions", f"{facts['transitions']:,}"),
        ("episodes", f"{facts['episodes']:,} of {length}"),
        (
            "ended by",
            f"terminal {_percent(facts['episodes_ended_by_terminal'])}, "
            f"timeout {_percent(facts['episodes_ended_by_timeout'])}",
        ),
        (
            "sizes",
            f"observation {facts['observation_size']}, action {facts['action_size']}, "
            f"costs {facts['cost_count']}",
        ),
        *_meaning(facts["schema"]),
        ("sha256", facts["sha256"]),
    ]


def _meaning(schema: dict[str, Any]) -> list[tuple[str, str]]:
    """The names of the columns, with units and bounds, where the log keeps them."""
    units = schema.get("units", {})

    def names(kind: str, *more: list[str]) -> str:
        shown = schema.get(kind, [])[:MOST_NAMES]
        texts = [name + (f" [{units[name]}]" if name in units else "") for name in shown]
        for notes in more:
            texts = [f"{text} {note}" for text, note in zip(texts, notes, strict=False)] if notes else texts
        left = len(schema.get(kind, [])) - len(shown)
        return printable(", ".join(texts) + (f" and {left:,} more" if left > 0 else ""))

    bounds = [
        f"{low:g}…{high:g}"
        for low, high in zip(schema.get("action_low", []), schema.get("action_high", []), strict=True)
    ]
    most = [f"(at most {cost:g})" for cost in schema.get("max_cost", [])]
    labels = names("action_labels")
    lines = [
        ("observations", names("observation_names")),
        ("actions", names("action_names", bounds) + (f": {labels}" if labels else "")),
        ("costs", names("cost_names", most)),
        ("reward", printable(f"[{units['reward']}]") if "reward" in units else ""),
    ]
    return [(label, text) for label, text in lines if text]


def _empty_table(plain: bool) -> Any:
    from rich import box
    from rich.table import Table

    style = {"box": None, "padding": (0, 0, 0, 1)} if plain else {"box": box.SIMPLE_HEAD, "padding": 0}
    return Table(show_edge=False, pad_edge=False, **style)


def _observations(facts: dict[str, Any], plain: bool) -> Any:
    """Each named observation: one odd sensor is not seen in a range over all of them."""
    from rich.text import Text

    units = facts["schema"].get("units", {})
    table = _empty_table(plain)
    table.add_column("  observation", no_wrap=True)
    for name in ("min", "median", "max"):
        table.add_column(name, justify="right", no_wrap=True, min_width=7)
    table.add_column("unit", no_wrap=True)
    for row in facts["named_observations"][:MOST_NAMES]:
        numbers = [_number(row[key]) for key in ("min", "q50", "max")]
        unit = units.get(row["name"], "")
        table.add_row(Text(f"  {_cut(row['name'], 35)}"), *numbers, Text(_cut(unit, 12)))
    return table


def _cut(text: str, most: int) -> str:
    """Printable text of at most so many characters."""
    whole = printable(text)
    return whole if len(whole) <= most else f"{whole[: most - 2]}.."


def _table(facts: dict[str, Any], plain: bool) -> Any:
    columns = {
        "min": "min",
        "q10": "10 %",
        "q25": "25 %",
        "q50": "median",
        "q75": "75 %",
        "q90": "90 %",
        "max": "max",
        "mean": "mean",
    }
    table = _empty_table(plain)
    table.add_column("", no_wrap=True)
    for name in columns.values():
        table.add_column(name, justify="right", no_wrap=True, min_width=7)
    kinds = _kinds(facts)
    action = "scaled action" if "action_low" in facts["schema"] else "action"  # the heading has the bounds
    rows = [] if facts["named_observations"] else [("observation", facts["observation"])]
    rows += [(action, facts["action"]), ("reward", facts["reward"])]
    rows += zip(kinds, facts["cost"], strict=True)
    rows += [("episode return", facts["episode_return"])]
    rows += zip([f"episode {kind}" for kind in kinds], facts["episode_cost"], strict=True)
    for label, values in rows:
        table.add_row(f"  {label}", *(_number(values[key]) if key in values else "" for key in columns))
    return table


def _kinds(facts: dict[str, Any]) -> list[str]:
    count = facts["cost_count"]
    return ["cost"] if count == 1 else [f"cost {index + 1}" for index in range(count)]


def _number(value: float) -> str:
    """A number in at most seven characters, so that the table fits into 80 columns."""
    size = abs(value)
    if size and (size < 0.01 or size >= 99_999.5):
        mantissa, exponent = f"{value:.1e}".split("e")
        return f"{mantissa}e{int(exponent)}"
    return f"{value:,.0f}" if size >= 999.5 else f"{value:.3g}"


def _percent(share: float) -> str:
    """A percentage that is 0 % or 100 % only if it is exactly that."""
    if 0 < share < 0.01:
        return "<1 %"
    if 0.99 < share < 1:
        return ">99 %"
    return f"{share:.0%}".replace("%", " %")
