"""Progress with the time left: a bar on a terminal if rich is installed, otherwise lines."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from rich.console import Console


class Tick(Protocol):
    def __call__(self, advance: int = 1, note: str = "") -> None: ...


@contextmanager
def progress(label: str, total: int, unit: str = "steps", start: int = 0) -> Iterator[Tick]:
    """Shows progress: `with progress("training", 1000) as tick: tick(10, "loss 0.3")`.

    `start` is what was done before, for example by a run that is resumed.
    """
    try:
        from rich.console import Console
    except ImportError:  # rich may be missing on a machine for training
        with _lines(label, total, unit, start) as tick:
            yield tick
        return
    console = Console(stderr=True)
    with (bar if console.is_terminal else _lines)(label, total, unit, start, console) as tick:
        yield tick


@contextmanager
def bar(label: str, total: int, unit: str, start: int, console: "Console") -> Iterator[Tick]:
    """A bar on one line. Where the line is short, first the note goes, then the rate; numbers stay whole."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
    from rich.table import Column

    columns = (
        TextColumn("{task.fields[label]}", markup=False),
        BarColumn(bar_width=None, table_column=Column(ratio=1)),
        TextColumn("{task.completed:,}/{task.total:,}"),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(compact=True, elapsed_when_finished=True, table_column=Column(no_wrap=True)),
        TextColumn("{task.fields[note]}", style="dim", markup=False),
    )
    room = console.width - len(label) - 2 * len(f"{total:,}") - 20  # a short bar, the time, gaps
    with Progress(*columns, console=console, expand=True) as shown:
        task = shown.add_task("", total=total, completed=start, label=label, rate="", note="")
        speed = Speed(start)

        def tick(advance: int = 1, note: str = "") -> None:
            shown.update(task, advance=advance)
            rate = f"{_rate(speed(int(shown.tasks[task].completed)))} {unit}/s"
            left = room - len(rate) - 1
            shown.update(
                task, rate=rate if left >= 0 else "", note=note if len(note) + 1 <= max(left, 0) else ""
            )

        yield tick


@contextmanager
def _lines(label: str, total: int, unit: str, start: int, console: object = None) -> Iterator[Tick]:
    """Prints a line at most every ten seconds, for logs and pipes."""
    started = shown = time.monotonic()
    done, finished, speed = start, False, Speed(start)

    def tick(advance: int = 1, note: str = "") -> None:
        nonlocal done, shown, finished
        done += advance
        now, rate = time.monotonic(), speed(done)
        if now - shown >= 10 or (done >= total and not finished and now - started >= 2):
            shown, finished = now, done >= total
            left = max(total - done, 0) / max(rate, 1e-9)
            print(
                f"{label}: {done:,}/{total:,} {unit}, {_rate(rate)}/s, {left:,.0f} s left {note}".rstrip(),
                file=sys.stderr,
                flush=True,
            )

    yield tick


class Speed:
    """Steps per second since the first tick: what came before, such as compilation, does not come again."""

    def __init__(self, start: int):
        self.since, self.before, self.first = time.monotonic(), start, True

    def __call__(self, done: int) -> float:
        now = time.monotonic()
        rate = (done - self.before) / max(now - self.since, 1e-9)
        if self.first:
            self.since, self.before, self.first = now, done, False
        return rate


def _rate(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"
