"""`bcrl data import TABLE --out LOG`."""

import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from bcrl.cli.out import check_log
from bcrl.cli.terminal import next_step, print_table
from bcrl.errors import BCRLError, printable

if TYPE_CHECKING:
    from bcrl.data import Account


@dataclass
class Command:
    """Make a log from a table: one row per step, with columns for state, action, reward and costs.

    Next states, ends of episodes and the horizon are derived; what is repaired or left out is counted. A list
    of columns is x1,x2, or x1..x5 for all from x1 to x5. A large table goes into .hdf5, which is streamed.
    """

    table: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="TABLE")]
    """A .csv, .csv.gz or .parquet file (needs the extra bcrl[tables])."""
    out: Path
    """The log to write; the suffix chooses the format: .npz, .hdf5, .h5, .minari. Or minari:ID."""

    # ---- what the columns are ----

    map: Path | None = None
    """A TOML file that says all this and more: units, categories, missing values (docs/data.md). What
    options say counts more."""
    observations: Annotated[tuple[str, ...], tyro.conf.arg(metavar="COLUMN,...")] = ()
    """The state before the action."""
    actions: Annotated[tuple[str, ...], tyro.conf.arg(metavar="COLUMN,...")] = ()
    """The action; in any bounds."""
    reward: Annotated[str | None, tyro.conf.arg(metavar="COLUMN")] = None
    """The reward of the step."""
    costs: Annotated[tuple[str, ...], tyro.conf.arg(metavar="COLUMN,...")] = ()
    """The cost of the step, or several kinds of cost; each ≥ 0."""
    episode: Annotated[str | None, tyro.conf.arg(metavar="COLUMN")] = None
    """The id of the episode. Without it episodes end where --terminal or --timeout is 1."""
    time: Annotated[str | None, tyro.conf.arg(metavar="COLUMN")] = None
    """Numbers, or ISO dates and times. Without it rows are in order."""
    next_observations: Annotated[tuple[str, ...], tyro.conf.arg(metavar="COLUMN,...")] = ()
    """The state after the action (default: the following row's)."""
    terminal: Annotated[str | None, tyro.conf.arg(metavar="COLUMN")] = None
    """1 where the world ended the episode."""
    timeout: Annotated[str | None, tyro.conf.arg(metavar="COLUMN")] = None
    """1 where a time limit ended it."""

    # ---- actions and costs ----

    action_bounds: Annotated[tuple[str, ...], tyro.conf.arg(metavar="LOW:HIGH,...")] = ()
    """Bounds of each action, such as 0:5,-1:1 (default: the smallest and largest of the table)."""
    discrete: tyro.conf.FlagCreatePairsOff[bool] = False
    """The action column holds labels: words, or a few whole numbers."""
    max_cost: tuple[float, ...] = ()
    """The largest cost that a step can have, for each cost (default: the largest of the table)."""

    # ---- what is odd ----

    ends: Literal["timeout", "terminal"] | None = None
    """What the last row of an episode is where no column says so [timeout]."""
    last_row: Literal["next", "keep"] | None = None
    """The last row before a time limit: only the next state of the row before, or kept with its own state
    as the next [next]."""
    missing: Literal["drop", "forward", "error"] | None = None
    """A missing value: its episode is left out, the last value is taken, or the table is refused [drop]."""
    duplicates: Literal["error", "first", "last"] | None = None
    """Rows of the same episode and time with other values: refused, or the first or last is kept [error]."""
    split_gap: float | None = None
    """Cut an episode where more time than this passes between two rows; seconds for dates and times."""
    separator: str | None = None
    """Between the columns of a CSV file (default: found by itself)."""
    decimal: Literal[".", ","] | None = None
    """Decimal sign of a CSV file (default: found by itself)."""
    overwrite: tyro.conf.FlagCreatePairsOff[bool] = False
    """Replace an existing log."""

    def run(self) -> None:
        from bcrl.data import import_table, read_map

        check_log(self.out, self.overwrite)
        parts = read_map(self.map) if self.map is not None else {}
        account = import_table(self.table, parts | self._parts(parts), self.out)
        show(account)
        print(f"{account.episodes:,} episodes, {account.transitions:,} transitions: {self.out}")
        next_step("bcrl", "data", "info", self.out)

    def _parts(self, told: dict[str, Any]) -> dict[str, Any]:
        """What the options say, as the keys of a map."""
        rest = {"table", "out", "map", "overwrite", "action_bounds", "max_cost"}
        given = {name: value for name, value in vars(self).items() if name not in rest}
        parts = {name: value for name, value in given.items() if value not in (None, (), False)}
        for name, values, columns in (
            ("action_bounds", list(map(_bounds, self.action_bounds)), "actions"),
            ("max_cost", list(self.max_cost), "costs"),
        ):
            if not values:
                continue
            names = parts.get(columns) or told.get(columns) or ()
            names = (names,) if isinstance(names, str) else tuple(names)
            if any(".." in name for name in names) or len(names) != len(values):
                flag = f"--{name.replace('_', '-')}"
                said = f"{flag} has {len(values)} entries and --{columns} is {','.join(names)!r}"
                raise BCRLError(f"{said}; name each column and give an entry for each")
            parts[name] = dict(zip(names, values, strict=True))
        return parts


def _bounds(word: str) -> tuple[float, float]:
    low, colon, high = word.partition(":")
    try:
        if not colon:
            raise ValueError
        return float(low), float(high)
    except ValueError:
        raise BCRLError(f"--action-bounds {word} is not LOW:HIGH, such as 0:5") from None


def show(account: "Account") -> None:
    """The counts, what was repaired or left out, and what was decided."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, width=78)
    table.add_column("", justify="right", no_wrap=True)
    table.add_column(Text(printable(account.source)), overflow="fold")
    made = f"transitions in {account.episodes:,} episodes of at most {account.horizon:,} steps"
    for count, what in [(account.rows, "rows read"), *account.repairs, (account.transitions, made)]:
        table.add_row(f"{count:,}", Text(what))
    print_table(table)
    for note in account.notes:
        for line in textwrap.wrap(printable(note), 78):
            print(line)
