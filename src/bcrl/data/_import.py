"""A table becomes a log: read in blocks, laid down as records, written in the order of the episodes."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bcrl.data._checks import check_memory, fault
from bcrl.data._columns import Cells, Codes, Times
from bcrl.data._episodes import (
    BLANK,
    NO_STATE,
    NO_STEP,
    STATE_ONLY,
    TERMINAL,
    TIMEOUT,
    UNFILLED,
    Account,
    Plan,
    plan_episodes,
)
from bcrl.data._mapping import TableMap
from bcrl.data._records import Records
from bcrl.data._schema import Schema
from bcrl.data._table import Table
from bcrl.errors import brief
from bcrl.progress import progress

BLOCK_ROWS = 2**16
"""Rows that are written at once."""
FEW_VALUES = 10
"""Whole numbers that an action column may have before it no longer looks like labels."""
ROUNDING = 1e-6
"""How far beyond its bounds an action may be, as a share of their distance."""
LARGE = "write it as .hdf5 with bcrl data import, which needs little memory"


class TableImport:
    """The rows of a table as records, ready to be written as a log."""

    def __init__(self, table: Table, mapping: TableMap, folder: Path | None = None):
        """Reads the table. Records are kept in memory, or in a file without a name in `folder`."""
        self.table, self.mapping = table, mapping.resolve(table.columns, table.source)
        self.account = Account(table.source)
        self._cells = Cells(table.source, mapping.missing_words, table.decimal_comma)
        self._categories = {name: Codes(mapping.categories[name]) for name in mapping.categories}
        self._labels = Codes(mapping.action_labels)
        self._bounds = np.array([[np.inf, -np.inf]] * len(self.mapping.actions))
        self._values: list[set[float] | None] = [set() for _ in self.mapping.actions]
        self._filled = 0
        kind = self._record_type()
        if folder is None:  # they and the log must fit; for a text its size is the least they take
            check_memory(table.size * (3 * kind.itemsize if table.unit == "rows" else 1), table.source, LARGE)
        self.records = Records(kind, folder, table.source)
        try:
            self._read()
            self.schema = self._schema()
        except BaseException:
            self.records.close()
            raise

    def _record_type(self) -> np.dtype[Any]:
        sizes = self.mapping
        width = len(sizes.observations)
        return np.dtype(
            [
                ("observations", np.float32, (width,)),
                # Actions, reward and costs. Actions are scaled when their bounds are known, with every digit.
                ("step", np.float64, (len(sizes.actions) + 1 + len(sizes.costs),)),
                *([("next_observations", np.float32, (width,))] if sizes.next_observations else []),
            ]
        )

    def _read(self) -> None:
        m, cells = self.mapping, self._cells
        ids, times = Codes(most=2**62), Times()
        codes: list[NDArray[Any]] = []
        marks: list[NDArray[np.uint8]] = []
        with progress(
            f"reading {Path(self.table.source).name}"[:30], self.table.size, self.table.unit
        ) as tick:
            for frame, taken in self.table.blocks(m.columns):
                if len(frame):
                    blank = self._blank(frame)
                    if m.episode:
                        codes.append(ids.read(cells, frame[m.episode], "").astype(np.int32))
                    if m.time:
                        times.read(cells, frame[m.time], blank)
                    marks.append(self._read_block(frame, blank))
                    cells.row += len(frame)
                tick(taken)
        self.account.rows = cells.row - 1
        if not marks:
            raise fault(self.table.source, "there is no row below the header; export it again")
        self.account.repaired(cells.commas, "numbers with a decimal comma")
        self.account.repaired(self._filled, "missing values filled with the number given")
        names = list(ids.known) if m.episode else []
        self.plan: Plan = plan_episodes(
            np.concatenate(codes) if m.episode else None,
            times.values() if m.time else None,
            times.second,
            np.concatenate(marks),
            m,
            self.account,
            lambda code: names[int(code)],
            self._same,
        )

    def _same(self, one: NDArray[np.int64], other: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which rows of `one` hold the same as those of `other`, in the columns that are used."""
        parts = []
        for first in range(0, len(one), BLOCK_ROWS):
            here = slice(first, first + BLOCK_ROWS)
            pair = (np.ascontiguousarray(self.records.take(rows[here])) for rows in (one, other))
            a, b = (records.view(np.uint8).reshape(len(records), -1) for records in pair)  # NaN is NaN
            parts.append((a == b).all(axis=1))
        return np.concatenate(parts)

    def _read_block(self, frame: Any, blank: NDArray[np.bool_]) -> NDArray[np.uint8]:
        """Lays down the records of a block; returns the marks of its rows."""
        m, cells = self.mapping, self._cells
        record = np.zeros(len(frame), self.records.kind)
        marks = np.where(blank, BLANK, 0).astype(np.uint8)
        for place, name in enumerate(m.observations):
            values = self._observation(frame[name], name)
            record["observations"][:, place] = self._mend(name, frame[name], values, marks, blank, NO_STATE)
        for place, name in enumerate(m.next_observations):
            values = self._observation(frame[name], m.observations[place])
            record["next_observations"][:, place] = values
            self._mark(name, frame[name], np.isnan(values) & ~blank, marks, NO_STATE)
        columns = [self._actions(frame[name], place) for place, name in enumerate(m.actions)]
        columns.append(cells.numbers(frame[m.reward]))
        columns += [self._costs(frame[name], name) for name in m.costs]
        idle = np.all(np.isnan(np.stack(columns)), axis=0)
        marks[idle] |= STATE_ONLY
        names = (*m.actions, m.reward, *m.costs)
        for place, (name, values) in enumerate(zip(names, columns, strict=True)):
            record["step"][:, place] = self._mend(name, frame[name], values, marks, blank, NO_STEP, idle)
        for name, bit in ((m.terminal, TERMINAL), (m.timeout, TIMEOUT)):
            if name:
                marks[cells.flags(frame[name])] |= bit
        self.records.append(record)
        return marks

    def _observation(self, series: Any, name: str) -> NDArray[np.float64]:
        """Numbers, or the codes of a category."""
        if name not in self._categories:
            return self._cells.numbers(series)
        codes = self._categories[name].read(self._cells, series, f", none of the categories of {name}")
        return np.where(codes < 0, np.nan, codes)

    def _actions(self, series: Any, place: int) -> NDArray[np.float64]:
        if self.mapping.discrete:
            codes = self._labels.read(self._cells, series, ", none of the action_labels")
            return np.where(codes < 0, np.nan, codes)
        values = self._cells.numbers(series, ", or give --discrete if actions are labels")
        there = values[~np.isnan(values)]
        if not there.size:
            return values
        name, bounds = self.mapping.actions[place], self._bounds[place]
        bounds[:] = min(bounds[0], there.min()), max(bounds[1], there.max())
        if name in self.mapping.action_bounds:
            low, high = self.mapping.action_bounds[name]
            room = ROUNDING * (high - low)
            outside = (values < low - room) | (values > high + room)
            if outside.any():
                why = f", outside its bounds {low:g} and {high:g}; widen them or correct it"
                raise self._cells.refuse(name, outside, series, why)
        seen = self._values[place]
        if seen is not None:
            seen |= set(np.unique(there[: 2**16]).tolist())
            whole = len(seen) <= FEW_VALUES and all(value.is_integer() for value in seen)
            self._values[place] = seen if whole else None
        return values

    def _costs(self, series: Any, name: str) -> NDArray[np.float64]:
        values = self._cells.numbers(series, truths=True)
        if (values < 0).any():
            raise self._cells.refuse(name, values < 0, series, _negative(series, values))
        over = values > self.mapping.max_cost.get(name, np.inf) * (1 + ROUNDING)
        if over.any():
            why = f", above the declared max_cost of {self.mapping.max_cost[name]:g}; declare a larger one"
            raise self._cells.refuse(name, over, series, why)
        return values

    def _mend(
        self,
        name: str,
        series: Any,
        values: NDArray[np.float64],
        marks: NDArray[np.uint8],
        blank: NDArray[np.bool_],
        bit: int,
        idle: NDArray[np.bool_] | None = None,
    ) -> NDArray[np.float64]:
        """Values with missing ones filled where the map gives a number; otherwise they are marked."""
        gone = np.isnan(values) & ~blank
        if not gone.any():
            return values
        rule = self.mapping.rule(name)
        if isinstance(rule, int | float):
            self._filled += int((gone & ~idle).sum() if idle is not None else gone.sum())
            return np.where(gone, rule, values)
        if rule == "forward":
            marks[gone] |= UNFILLED
        else:
            # A row with no action, reward and costs at all may be the state at the end of its episode.
            self._mark(name, series, gone, marks, bit, idle)
        return values

    def _mark(
        self,
        name: str,
        series: Any,
        gone: NDArray[np.bool_],
        marks: NDArray[np.uint8],
        bit: int,
        idle: NDArray[np.bool_] | None = None,
    ) -> None:
        refused = gone if idle is None else gone & ~idle
        if self.mapping.rule(name) == "error" and refused.any():
            raise self._cells.refuse(name, refused, series, ", no value; fill it in, or see --missing")
        marks[gone] |= bit

    def _schema(self) -> Schema:
        """Names, units, bounds or labels; an observation is named after its column, or column=category."""
        m, account = self.mapping, self.account
        names: list[str] = []
        for name in m.observations:
            labels = self._categories[name].sorted()[0] if name in self._categories else None
            names += [name] if labels is None else [f"{name}={label}" for label in labels]
        for name, codes in (*self._categories.items(), *zip(m.actions, [self._labels], strict=False)):
            for group in codes.look_alikes():
                account.notes.append(f"Warning: column {name} has labels that differ only in case: {group}.")
        parts: dict[str, Any] = {}
        if m.discrete:
            parts["action_labels"] = self._labels.sorted()[0]
            if len(parts["action_labels"]) < 2:
                raise fault(
                    account.source, f"column {m.actions[0]} has one label; there is nothing to choose"
                )
        else:
            pairs = [m.action_bounds.get(n, pair) for n, pair in zip(m.actions, self._bounds, strict=True)]
            self._check_bounds(pairs)
            parts["action_low"], parts["action_high"] = (
                tuple(map(float, side)) for side in zip(*pairs, strict=True)
            )
        units = {("reward" if name == m.reward else name): unit for name, unit in m.units.items()}
        if m.max_cost:
            parts["max_cost"] = tuple(float(m.max_cost[name]) for name in m.costs)
        return Schema(tuple(names), m.actions, m.costs, units=units, **parts)

    def _check_bounds(self, pairs: Sequence[Any]) -> None:
        m, account = self.mapping, self.account
        for name, (low, high), seen in zip(m.actions, pairs, self._values, strict=True):
            if not low < high:
                raise fault(
                    account.source,
                    f"column {name} is always {low:g}, so it has no bounds; give --action-bounds, or "
                    "leave it out",
                )
            if name not in m.action_bounds:
                account.notes.append(f"Action {name} is bounded by the table's own {low:.6g} and {high:.6g}.")
            if seen is not None:
                said = (
                    f"Action {name} has only {len(seen)} values, all whole: are they labels? See --discrete."
                )
                account.notes.append(said)

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shape of each field of the log."""
        n, d = self.account.transitions, len(self.schema.observation_names)
        a = len(self.schema.action_labels or self.schema.action_names)
        k = len(self.mapping.costs)
        return {
            "observations": (n, d),
            "actions": (n, a),
            "rewards": (n,),
            "costs": (n, k) if k > 1 else (n,),
            "next_observations": (n, d),
            "terminals": (n,),
            "timeouts": (n,),
        }

    def blocks(self) -> Iterator[dict[str, NDArray[Any]]]:
        """The seven fields of the log, block by block."""
        plan, count = self.plan, len(self.plan.rows)
        before = None
        filled = 0
        with progress("writing the log", count, "rows") as tick:
            for first in range(0, count, BLOCK_ROWS):
                here = slice(first, min(first + BLOCK_ROWS, count))
                record = self.records.take(plan.rows[here.start : here.stop + 1])
                step = plan.step[here]
                filled += _fill_forward(record, before, step)
                before = record[len(step) - 1 : len(step)].copy()
                observations = self._wide(record["observations"])
                if self.mapping.next_observations:
                    following = self._wide(record["next_observations"][: len(step)])
                else:
                    following = observations[1:]
                    if len(following) < len(step):  # the last row of all has no other next state than its own
                        following = np.concatenate([following, observations[-1:]])
                    following = np.where(plan.own_next[here, None], observations[: len(step)], following)
                steps, width = record["step"][: len(step)][step], len(self.mapping.actions)
                costs = steps[:, width + 1 :]
                yield {
                    "observations": observations[: len(step)][step],
                    "actions": self._unit_actions(steps[:, :width]),
                    "rewards": steps[:, width],
                    "costs": costs if len(self.mapping.costs) > 1 else costs[:, 0],
                    "next_observations": following[step],
                    "terminals": plan.terminals[here][step],
                    "timeouts": plan.timeouts[here][step],
                }
                tick(len(step))
        self.account.repaired(filled, "missing values filled with the one before")

    def _unit_actions(self, actions: NDArray[np.float64]) -> NDArray[np.float32]:
        if not self.mapping.discrete:
            return np.clip(self.schema.to_unit_box(actions), -1, 1).astype(np.float32)
        labels, places = self._labels.sorted()
        return np.eye(len(labels), dtype=np.float32)[places[actions[:, 0].astype(np.int64)]]

    def _wide(self, observations: NDArray[np.float32]) -> NDArray[np.float32]:
        """Observations with a column of 0 and 1 for each category."""
        if not self._categories:
            return observations
        parts = []
        for place, name in enumerate(self.mapping.observations):
            column = observations[:, place]
            if name in self._categories:
                labels, places = self._categories[name].sorted()
                parts.append(np.eye(len(labels), dtype=np.float32)[places[column.astype(np.int64)]])
            else:
                parts.append(column[:, None])
        return np.concatenate(parts, axis=1)

    def _blank(self, frame: Any) -> NDArray[np.bool_]:
        import polars as pl

        return frame.select(pl.all_horizontal(pl.all().is_null())).to_series().to_numpy()


def _negative(series: Any, costs: NDArray[np.float64]) -> str:
    """What to do about the first negative cost."""
    value = series[int(np.argmax(costs < 0))]
    way = "empty it"
    if isinstance(value, str):
        way = f'missing_words = ["{brief(value.strip(), 40)}"] in the map'
    return f"; costs must be ≥ 0: if it stands for a missing value, {way}; else shift all costs"


def _fill_forward(record: NDArray[Any], before: NDArray[Any] | None, step: NDArray[np.bool_]) -> int:
    """Puts the last value in the place of a missing one; the first row of an episode has none missing."""
    filled = 0
    for name in ("observations", "step"):
        values = record[name]
        gone = np.isnan(values)
        if not gone.any():
            continue
        counted = gone[: len(step)] if name == "observations" else gone[: len(step)] & step[:, None]
        filled += int(counted.sum())
        if before is not None:
            values = np.concatenate([before[name], values])
            gone = np.isnan(values)
        place = np.where(gone, 0, np.arange(len(values))[:, None])
        np.maximum.accumulate(place, axis=0, out=place)
        record[name] = np.take_along_axis(values, place, axis=0)[-len(record) :]
    return filled
