"""What the store says about each method on each task."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from bcrl.assess.results import Result
from bcrl.assess.statistics import Kept, Summary, summarise
from bcrl.bench.cells import Cell, Work
from bcrl.bench.store import Store
from bcrl.errors import BCRLError
from bcrl.learn.registry import METHODS
from bcrl.progress import progress
from bcrl.worlds import WORLDS, make_world
from bcrl.worlds.tasks import tasks

Setting = tuple[str, str, str]


@dataclass(frozen=True)
class Score:
    """One method on one task: all its seeds at all its thresholds, each with the same number of episodes."""

    label: str
    method: str
    best: bool
    """Of the best policy of the training, not of its last."""
    task: str
    family: str
    seeds: int
    lines: tuple[Summary, ...]
    """One per threshold."""
    rows: tuple[Result, ...]

    @property
    def name(self) -> str:
        """The head of its column."""
        return f"{self.label}, best policy" if self.best else self.label

    @property
    def reward(self) -> tuple[float, float]:
        """Mean and standard deviation over all episodes, as in the paper's tables."""
        return _spread(row.normalised_reward for row in self.rows)

    @property
    def cost(self) -> tuple[float, float]:
        return _spread(row.normalised_cost for row in self.rows)

    @property
    def safe(self) -> bool:
        """The paper's word: mean cost at most 1 over all thresholds together."""
        return self.cost[0] <= 1.0

    @property
    def hides(self) -> bool:
        """Safe in the paper's sense, yet one of the thresholds is broken."""
        return self.safe and any(line.kept is Kept.BROKEN for line in self.lines)

    def runs(self, column: str) -> np.ndarray:
        """A number for each seed: its mean over episodes and thresholds."""
        seeds = sorted({row.seed for row in self.rows})
        return np.array([np.mean([getattr(r, column) for r in self.rows if r.seed == s]) for s in seeds])


def scores(store: Store, works: Iterable[Work] = ()) -> list[Score]:
    """In the order of families, tasks and names: what `works` ask for, under the labels they give.

    Of labels and tasks that they do not name, the newest setting.
    """
    settings: dict[Setting, list[Cell]] = {}
    newest: dict[tuple[str, str, bool], Setting] = {}
    order = [*tasks(), *WORLDS]
    for cell in store.cells():
        for name, known in (("task", order), ("method", METHODS)):
            if getattr(cell, name) not in known:
                raise BCRLError(f"{store.path}: {name} is {getattr(cell, name)!r}, which this bcrl has not")
        if cell.reported:
            settings.setdefault(_setting(cell), []).append(cell)
            newest[cell.label, cell.task, cell.policy == "best"] = _setting(cell)
    asked = {}
    for work in works:
        cell = work.reported(work.job.seeds[0])[0]  # the setting is the same for all seeds
        asked[work.label, cell.task, cell.policy == "best"] = _setting(cell)
    # A label may be new for results that are there: the column is shown once, under the new one.
    others = {key: setting for key, setting in newest.items() if setting not in asked.values()}
    wanted = [(key, setting) for key, setting in {**others, **asked}.items() if setting in settings]
    found = []
    with progress("summing up", len(wanted), "methods on tasks") as tick:
        for (label, _, _), setting in wanted:
            found.append(_score(store, label, settings[setting]))
            tick()
    return sorted(found, key=lambda score: (order.index(score.task), score.label, score.best))


def results(found: Iterable[Score]) -> list[Result]:
    """The episodes behind scores, under the names of their columns."""
    return [replace(row, method=score.name) for score in found for row in score.rows]


def _setting(cell: Cell) -> Setting:
    """Cells that agree in it belong into one column and line."""
    return cell.setting, cell.task, cell.method


def _score(store: Store, label: str, cells: list[Cell]) -> Score:
    """The cells of one setting, put together."""
    one = cells[-1]
    cells = sorted(cells, key=lambda cell: (cell.seed, cell.threshold))
    at = {seed: {cell.threshold for cell in cells if cell.seed == seed} for seed in {c.seed for c in cells}}
    # While a bench is under way a seed may have fewer thresholds than another: it waits.
    ready = [cell for cell in cells if at[cell.seed] == max(at.values(), key=len)]
    rows = {cell.key: _rows(store, cell) for cell in ready}
    thresholds = sorted({cell.threshold for cell in ready})
    lines = [
        summarise([row for cell in ready if cell.threshold == threshold for row in rows[cell.key]])
        for threshold in thresholds
    ]
    return Score(
        label=label,
        method=one.method,
        best=one.policy == "best",
        task=one.task,
        family=make_world(one.task).family,
        seeds=len({cell.seed for cell in ready}),
        lines=tuple(line for (line,) in lines),
        rows=tuple(row for cell in ready for row in rows[cell.key]),
    )


def _rows(store: Store, cell: Cell) -> list[Result]:
    """The episodes of a cell, if they are those that it names."""
    rows = store.rows(cell.key)
    same = all((row.seed, row.threshold) == (cell.seed, cell.threshold) for row in rows)
    if len(rows) != cell.episodes or not same:
        raise BCRLError(
            f"{store.path}: the episodes of {cell.label} on {cell.task}, seed {cell.seed}, are not those "
            "that its cell names: the file is damaged; move it away and run the benchmark again"
        )
    return rows


def _spread(values: Iterable[float]) -> tuple[float, float]:
    numbers = np.array(list(values))
    return float(numbers.mean()), float(numbers.std())
