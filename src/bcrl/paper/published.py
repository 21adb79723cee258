"""The numbers that the paper prints, as data, and their contradictions.

`published.csv` holds the tables with normalised reward and cost: `main` (the complete one of the appendix;
that of the main text is the same with ten tasks left out), `variants` (both kinds of budget tracking),
`non-adaptive`, `best-policy`, `tau_r`, `tau_c` and `partial-critic`. `published_ship.csv` is the maritime
table, `published_time.csv` the run times, `published_feasible.csv` what the text says of the figure of
feasible actions. Methods have the names of this package. `python -m bcrl.paper.published` prints `faults()`.
"""

import csv
import math
from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import cache
from importlib.resources import files

from bcrl.errors import BCRLError
from bcrl.worlds.tasks import tasks

NAMES = {
    "bcrl": "BCRL",
    "bc-all": "BC-All",
    "bc-safe": "BC-Safe",
    "bcq-lag": "BCQ-Lag",
    "caps": "CAPS",
    "ccac": "CCAC",
    "cdt": "CDT",
    "coptidice": "COptiDICE",
    "cpq": "CPQ",
    "fisor": "FISOR",
    "lspc": "LSPC",
}
"""Methods as the paper spells them."""

FAMILY_NAMES = {"safety-gym": "SafetyGym", "bullet": "BulletGym", "metadrive": "MetaDrive"}


@dataclass(frozen=True)
class Published:
    """One pair of reward and cost; NaN where the paper has no number."""

    table: str
    task: str
    """A task, or `average FAMILY`."""
    method: str
    setting: str
    """Distinguishes columns of one method: a variant, the value of an option, a share of the steps."""
    reward: float
    reward_std: float
    cost: float
    cost_std: float
    mark: str
    """As printed: `unsafe` (grey or red), `safe` (bold), `best` (blue); empty where a table has no marks."""


@cache
def published() -> tuple[Published, ...]:
    """Every row of published.csv, checked."""
    text = files("bcrl.paper").joinpath("published.csv").read_text(encoding="utf-8")
    rows = []
    names = [field.name for field in fields(Published)]
    known = {*tasks(), *(f"average {family}" for family in FAMILY_NAMES)}
    for number, row in enumerate(csv.DictReader(text.splitlines()), start=2):
        where = f"published.csv, line {number}"
        if list(row) != names or None in row.values():
            raise BCRLError(f"{where}: must have the columns {', '.join(names)}")
        if row["task"] not in known or row["method"] not in NAMES:
            raise BCRLError(f"{where}: {row['task']!r} or {row['method']!r} is not known")
        if row["mark"] not in ("", "unsafe", "safe", "best"):
            raise BCRLError(f"{where}: mark is {row['mark']!r}")
        figures = {name: float(row[name] or math.nan) for name in names[4:8]}
        rows.append(Published(**{**row, **figures}))
    keys = [(row.table, row.task, row.method, row.setting) for row in rows]
    if len(set(keys)) != len(keys):
        raise BCRLError("published.csv: a row occurs twice")
    return tuple(rows)


def ship_table() -> dict[str, dict[str, float]]:
    """The maritime table: method -> column -> number. NaN where the paper prints no spread."""
    return _numbers("published_ship.csv")


def time_table() -> dict[str, dict[str, float]]:
    """The run times of BCRL on one task: family -> training_minutes, evaluation_minutes, steps."""
    return _numbers("published_time.csv")


def feasible_marks() -> dict[str, dict[str, float]]:
    """What the text says of the share of feasible actions: task -> budget, share."""
    return _numbers("published_feasible.csv")


def _numbers(file: str) -> dict[str, dict[str, float]]:
    """Name in the first column -> column -> number; NaN where it is empty."""
    head, *rows = csv.reader(files("bcrl.paper").joinpath(file).read_text(encoding="utf-8").splitlines())
    return {
        name: {column: float(x or math.nan) for column, x in zip(head[1:], numbers, strict=True)}
        for name, *numbers in rows
    }


def find(task: str, method: str, *, best: bool = False) -> Published | None:
    """The paper's number for a method on a task: of its final policy, or of the best one in training."""
    for row in published():
        if (row.task, row.method) == (task, method) and row.table in (
            ("best-policy",) if best else ("main", "non-adaptive")
        ):
            return None if math.isnan(row.reward) else row
    return None


def find_in(table: str, task: str, method: str, setting: str) -> Published | None:
    """The row of one table, if it has a number."""
    for row in published():
        if (row.table, row.task, row.method, row.setting) == (table, task, method, setting):
            return None if math.isnan(row.reward) else row
    return None


def faults() -> list[str]:
    """The contradictions between the paper's numbers and marks, beyond rounding, one line each."""
    return [*_averages(), *_spreads(), *_marks(), *_best_policies(), *_repeated()]


def _rows(table: str) -> list[Published]:
    return [row for row in published() if row.table == table]


def _columns(table: str) -> list[tuple[str, str]]:
    return list(dict.fromkeys((row.method, row.setting) for row in _rows(table)))


def _name(row: Published) -> str:
    return " ".join(filter(None, (row.table, row.task, NAMES[row.method], row.setting)))


def _family(table: str, family: str, column: tuple[str, str]) -> tuple[list[Published], Published]:
    """The rows of a family in one column that have numbers, and the printed average."""
    rows = [row for row in _rows(table) if (row.method, row.setting) == column]
    members = [row for row in rows if row.task in tasks() and tasks()[row.task].family == family]
    average = next(row for row in rows if row.task == f"average {family}")
    return [row for row in members if not math.isnan(row.reward)], average


def _averages() -> Iterator[str]:
    """Rounding moves a printed row by 0.005 and the printed average by 0.005."""
    for table in ("main", "non-adaptive", "variants"):
        for family in FAMILY_NAMES:
            for column in _columns(table):
                members, average = _family(table, family, column)
                for what in ("reward", "cost"):
                    mean = sum(getattr(row, what) for row in members) / len(members)
                    if abs(mean - getattr(average, what)) > 0.0101:
                        yield (
                            f"{_name(average)}: {what} {getattr(average, what):.2f} is printed, "
                            f"its {len(members)} tasks give {mean:.2f}"
                        )


def _spreads() -> Iterator[str]:
    """The ± of an average is the mean of the tasks' ± for some methods, and pools all episodes for others."""
    kinds: dict[str, list[str]] = {"the mean of the tasks' ±": [], "pooled over tasks": []}
    for method, setting in _columns("main"):
        gaps = dict.fromkeys(kinds, 0.0)
        for family in FAMILY_NAMES:
            members, average = _family("main", family, (method, setting))
            for what in ("reward", "cost"):
                means = [getattr(row, what) for row in members]
                spreads = [getattr(row, f"{what}_std") for row in members]
                centre, count = sum(means) / len(members), len(members)
                pooled = sum(s**2 + (m - centre) ** 2 for s, m in zip(spreads, means, strict=True)) / count
                for kind, value in zip(kinds, (sum(spreads) / count, math.sqrt(pooled)), strict=True):
                    gaps[kind] += abs(value - getattr(average, f"{what}_std"))
        kinds[min(gaps, key=lambda kind: gaps[kind])].append(NAMES[method])
    if all(kinds.values()):
        told = "; ".join(f"{kind} for {', '.join(methods)}" for kind, methods in kinds.items())
        yield f"main, averages: the ± has two meanings: {told}"


def _marks() -> Iterator[str]:
    """Bold means a cost of at most 1, blue the highest reward among those; of equal ones, one is blue."""
    for table in ("main", "non-adaptive", "variants", "best-policy"):
        rows = _rows(table)
        for task in dict.fromkeys(row.task for row in rows):
            line = [row for row in rows if row.task == task]
            top = max((row.reward for row in line if row.cost <= 1.0), default=math.nan)
            shown = any(row.mark == "best" and row.reward == top for row in line)
            for row in line:
                due = "unsafe" if not row.cost <= 1.0 else "best" if row.reward == top else "safe"
                if row.mark != due and not (due == "best" and row.mark == "safe" and shown):
                    yield f"{_name(row)}: {row.reward:.2f} at cost {row.cost:.2f} is {due}, marked {row.mark}"


def _best_policies() -> Iterator[str]:
    """The best policy of a longer training should earn no less than the last of the shorter one."""
    same = []
    for row in _rows("best-policy"):
        last = find(row.task, row.method)
        if last is None or row.method != "bcrl":
            continue
        if row.reward < last.reward and last.cost <= 1.0:
            yield f"{_name(row)}: {row.reward:.2f} is less than the final policy's {last.reward:.2f}"
        if (row.reward, row.reward_std, row.cost) == (last.reward, last.reward_std, last.cost):
            same.append(row.task)
    if same:
        yield f"best-policy BCRL: the same as the final policy to every digit on {', '.join(same)}"


def _repeated() -> Iterator[str]:
    """The ablations repeat the default setting."""
    default = {
        "tau_r": {"bullet": "0.5", "safety-gym": "0.6"},
        "tau_c": {"bullet": "0.2", "safety-gym": "0.3"},
    }
    for row in published():
        if row.table in default:
            repeats = row.setting == f"{row.table}={default[row.table][tasks()[row.task].family]}"
        else:
            repeats = row.table == "partial-critic" and row.setting == "100 %"
        main = find(row.task, row.method)
        if repeats and main and (row.reward, row.cost) != (main.reward, main.cost):
            pairs = f"{row.reward:.2f} / {row.cost:.2f}, in main {main.reward:.2f} / {main.cost:.2f}"
            yield f"{_name(row)}: {pairs}"


if __name__ == "__main__":
    print("\n".join(faults()))
