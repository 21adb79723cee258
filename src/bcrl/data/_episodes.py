"""From rows with an episode and a time to transitions: order, ends, next states, and what is left out."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bcrl.data._checks import fault
from bcrl.data._mapping import TableMap
from bcrl.errors import brief

# What is noted of each row while the table is read, as bits of one byte.
NO_STATE = 1
"""A value of the observation is missing, and its episode must go."""
NO_STEP = 2
"""The same for the action, the reward or a cost."""
STATE_ONLY = 4
"""Action, reward and costs are all missing: the row is the state that an episode ended in."""
UNFILLED = 8
"""A value is missing that the row before must give."""
TERMINAL = 16
TIMEOUT = 32
BLANK = 64
"""Nothing is in the row."""
LONG_STEP = 1.5
"""Times the usual step in time: a longer one is a gap."""
SAMPLE = 2**20

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass
class Account:
    """What was read, made and repaired."""

    source: str
    rows: int = 0
    episodes: int = 0
    transitions: int = 0
    horizon: int = 0
    repairs: list[tuple[int, str]] = field(default_factory=list)
    """How many, and of what; rows and episodes that were left out or changed."""
    notes: list[str] = field(default_factory=list)
    """What was decided for the user, and what looks odd."""

    def repaired(self, count: int, what: str) -> None:
        if count:
            self.repairs.append((int(count), what))


@dataclass(frozen=True)
class Plan:
    """Rows of the table in the order of the log, and what each becomes."""

    rows: Ints
    """Rows of complete episodes, one episode after the other, by time."""
    step: Bools
    """Whether it becomes a transition; if not, it is only the next state of the row before."""
    own_next: Bools
    """Whether its own state stands for the next one, which is not known."""
    terminals: Bools
    timeouts: Bools


def plan_episodes(
    codes: NDArray[Any] | None,
    times: NDArray[Any] | None,
    second: float,
    marks: NDArray[np.uint8],
    mapping: TableMap,
    account: Account,
    name: Callable[[Any], str],
    same: Callable[[Ints, Ints], Bools],
) -> Plan:
    """The plan for rows of these episodes (numbered as they come; −1 for none), times and marks.

    `second` is the unit of `split_gap` in times; `name(code)` is the user's id of an episode; `same(a, b)`
    says which rows of a hold what those of b do.
    """
    source = account.source
    rows = _present(codes, marks, mapping, account)
    if not rows.size:
        raise fault(source, "there is no row below the header; export it again")
    codes = np.zeros(len(marks), np.int8) if codes is None else codes
    if len(rows) < len(marks):
        codes, times = codes[rows], None if times is None else times[rows]
    rows, code, time = _sort(rows, codes, times, mapping, account, name)
    if time is not None:
        rows, code, time = _once(rows, code, time, second, marks, mapping, account, name, same)
    last = np.append(code[1:] != code[:-1], True)
    if time is not None:
        split = _gaps(time, last, second, mapping, account)
        last |= split
        # Nothing is known of the world there: like a time limit, whatever `ends` says of other ends.
        marks[rows[split]] |= TIMEOUT
    rows, last = _cut_at_flags(rows, last, marks, mapping, account)
    return _steps(rows, last, marks[rows], mapping, account)


def _present(
    codes: NDArray[Any] | None, marks: NDArray[np.uint8], mapping: TableMap, account: Account
) -> Ints:
    """The rows that are not blank; each must have an episode."""
    blank = (marks & BLANK) > 0
    account.repaired(blank.sum(), "blank rows left out")
    if codes is not None:
        lost = (codes < 0) & ~blank
        if lost.any():
            raise fault(
                account.source,
                f"column {mapping.episode}, row {int(np.argmax(lost)) + 1:,} is empty, so the row has no "
                "episode; correct or delete it",
            )
    return np.flatnonzero(~blank)


def _sort(
    rows: Ints, code: Ints, time: NDArray[Any] | None, mapping: TableMap, account: Account, name: Any
) -> tuple[Ints, Ints, NDArray[Any] | None]:
    """Episodes back to back in the order in which they begin, each by time."""
    apart = code[1:] < code[:-1]
    if apart.any() and time is None:
        row = rows[int(np.argmax(apart)) + 1]
        raise fault(
            account.source,
            f"column {mapping.episode}, row {row + 1:,}: episode {name(code[np.argmax(apart) + 1])} "
            "comes again after another one; give the column of the time, or each episode its own id",
        )
    if apart.any():
        account.repaired(apart.sum(), "times an episode came again after another one: put together")
        order = np.argsort(code, kind="stable")
        rows, code, time = rows[order], code[order], None if time is None else time[order]
    if time is None:
        return rows, code, None
    same = code[1:] == code[:-1]
    early = same & (time[1:] < time[:-1])
    if early.any():
        account.repaired(early.sum(), "rows earlier than the row before: sorted by time")
        order = np.lexsort((time, code))
        rows, code, time = rows[order], code[order], time[order]
    return rows, code, time


def _once(
    rows: Ints,
    code: Ints,
    time: NDArray[Any],
    second: float,
    marks: NDArray[np.uint8],
    mapping: TableMap,
    account: Account,
    name: Callable[[Any], str],
    same: Callable[[Ints, Ints], Bools],
) -> tuple[Ints, Ints, NDArray[Any]]:
    """One row for each episode and time. Exact copies are left out; of other rows the map says which."""

    def again() -> Bools:
        """Whether the row before has the same episode and time."""
        return np.append(False, (code[1:] == code[:-1]) & (time[1:] == time[:-1]))

    twice = again()
    if not twice.any():
        return rows, code, time
    one, two = rows[:-1][twice[1:]], rows[twice]
    copies = twice.copy()
    copies[twice] = same(one, two) & (marks[one] == marks[two])
    account.repaired(copies.sum(), "exact copies of another row left out: harmless")
    rows, code, time = rows[~copies], code[~copies], time[~copies]
    twice = again()
    if not twice.any():
        return rows, code, time
    place = int(np.argmax(twice))
    first, other, at = rows[place - 1] + 1, rows[place] + 1, time[place]
    when = np.datetime_as_string(np.datetime64(int(at), "us"), "s") if second > 1 else f"{at:.10g}"
    whose = f"episode {brief(name(code[place]), 80)}, " if mapping.episode else ""
    if mapping.duplicates == "error":
        raise fault(
            account.source,
            f"column {mapping.time}, rows {first:,} and {other:,} ({whose}time {when}) have the same time "
            f"but other values ({twice.sum():,} such rows); make ids unique, or see --duplicates",
        )
    account.repaired(
        twice.sum(),
        f"rows of a time that came before, with other values: the {mapping.duplicates} kept, such as of rows "
        f"{first:,} and {other:,} ({whose}time {when})",
    )
    kept = ~(twice if mapping.duplicates == "first" else np.append(twice[1:], False))
    return rows[kept], code[kept], time[kept]


def _gaps(time: NDArray[Any], last: Bools, second: float, mapping: TableMap, account: Account) -> Bools:
    """(N,) whether an episode is cut after a row, because too much time passes."""
    cut = np.zeros(len(last), bool)
    inside = ~last[:-1]
    if not inside.any():
        return cut
    passed = np.diff(time) / second
    usual = float(np.median(passed[inside][:: max(len(passed) // SAMPLE, 1)]))
    long = inside & (passed > LONG_STEP * usual)
    if mapping.split_gap is not None:
        over = inside & (passed > mapping.split_gap)
        cut[:-1] = over
        account.repaired(over.sum(), f"gaps in time over {mapping.split_gap:g}: the episode cut there")
        long &= ~over
    if long.any():
        account.repaired(
            long.sum(),
            f"gaps in time over {LONG_STEP} × the usual step of {usual:.4g} (up to {passed[long].max():.4g}) "
            "left as they are",
        )
    return cut


def _cut_at_flags(
    rows: Ints, last: Bools, marks: NDArray[np.uint8], mapping: TableMap, account: Account
) -> tuple[Ints, Bools]:
    """Ends episodes where a flag says so. With ids, only more flags may follow."""
    flagged = (marks[rows] & (TERMINAL | TIMEOUT)) > 0
    if not mapping.episode:
        if not flagged.any() and not last[:-1].any() and (mapping.terminal or mapping.timeout):
            account.notes.append("No terminal or timeout is set: all rows are one episode.")
        return rows, last | flagged
    if not flagged.any():
        return rows, last
    # Within an episode: the rows after the first flag.
    episode = np.append(0, np.cumsum(last[:-1]))
    starts = np.append(0, np.flatnonzero(last[:-1]) + 1)
    running = np.cumsum(flagged) - flagged
    after = running > running[starts][episode]
    if (after & ~flagged).any():
        row = rows[int(np.argmax(after & ~flagged))]
        raise fault(
            account.source,
            f"row {row + 1:,} goes on with an episode after its {mapping.terminal or mapping.timeout} was "
            "set; leave --episode out to cut episodes there, or correct the flag",
        )
    account.repaired(after.sum(), "rows after the end of their episode left out")
    ends = last.copy()
    ends[np.flatnonzero(after) - 1] = True
    return rows[~after], ends[~after] | flagged[~after]


def _steps(rows: Ints, last: Bools, marks: NDArray[np.uint8], mapping: TableMap, account: Account) -> Plan:
    """Which rows are transitions and how episodes end; episodes with missing values are left out."""
    ends = np.flatnonzero(last)
    starts = np.append(0, ends[:-1] + 1)
    by_flag = (marks[ends] & TERMINAL) > 0
    limited = (marks[ends] & TIMEOUT) > 0
    terminal = by_flag | (~limited if mapping.ends == "terminal" else False)
    if not (by_flag | limited).all() and mapping.ends == "timeout":
        some = "All" if not (by_flag | limited).any() else "Other"
        account.notes.append(f"{some} ends of episodes are taken as time limits (--ends, --terminal).")
    given = bool(mapping.next_observations)
    state_only = (marks[ends] & STATE_ONLY) > 0
    closing = state_only.copy()
    if not given and mapping.last_row == "next":
        closing |= ~terminal
    step = np.ones(len(rows), bool)
    step[ends[closing]] = False

    no_state, no_step = (marks & NO_STATE) > 0, (marks & NO_STEP) > 0
    bad = (no_state & step if given else no_state) | (no_step & step)
    bad[starts] |= (marks[starts] & UNFILLED) > 0
    if bad.any() and mapping.missing == "error":
        row = rows[int(np.argmax(bad))] + 1
        raise fault(account.source, f"row {row:,} has no action, reward and cost; see --missing")
    spoiled = np.logical_or.reduceat(bad, starts)
    account.repaired(spoiled.sum(), "episodes with missing values left out")
    empty = ~np.logical_or.reduceat(step, starts) & ~spoiled
    account.repaired(empty.sum(), "episodes of one row, which has no next state, left out")
    keep = ~spoiled & ~empty
    if not keep.any():
        said = ", ".join(f"{count:,} {what}" for count, what in account.repairs)
        raise fault(account.source, f"no episode is left ({said}); see --missing and --last-row")
    if (unseen := np.logical_or.reduceat(bad & no_state, starts)).any():
        said = f"{unseen.mean():.1%} of the episodes are left out for missing observations"
        account.notes.append(f"{said}; --missing forward takes the value before instead.")
    account.repaired((closing & ~state_only & keep).sum(), "last rows used only as the next state")
    account.repaired((closing & state_only & keep).sum(), "last rows without an action: the state at the end")

    lengths = ends - starts + 1
    inside = np.repeat(keep, lengths)
    final = ends - closing  # the last transition of each episode
    own_next, terminals, timeouts = np.zeros((3, len(rows)), bool)
    own_next[ends] = not given
    terminals[final[terminal & keep]] = True
    timeouts[final[~terminal & keep]] = True
    steps = (lengths - closing)[keep]
    account.episodes, account.transitions = len(steps), int(steps.sum())
    account.horizon = int(steps.max())
    account.repaired((steps == 1).sum(), "episodes of one step: kept")
    if not given and mapping.last_row == "keep":
        kept = int((~terminal & ~closing & keep).sum())
        account.repaired(kept, "time limits with the own state as the next one")
    flags = (array[inside] for array in (step, own_next, terminals, timeouts))
    return Plan(rows[inside], *flags)
