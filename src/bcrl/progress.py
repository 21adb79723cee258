"""Progress with the time left: a bar on a terminal if rich is installed, otherwise lines."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol


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
    if not console.is_terminal:
        with _lines(label, total, unit, start) as tick:
            yield tick
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(compact=True, elapsed_when_finished=True),
        TextColumn("[dim]{task.fields[note]}"),
    )
    with Progress(*columns, console=console) as bar:
        task = bar.add_task(label, total=total, completed=start, rate="", note="")
        started = time.monotonic()

        def tick(advance: int = 1, note: str = "") -> None:
            bar.update(task, advance=advance, note=note)
            rate = (bar.tasks[task].completed - start) / max(time.monotonic() - started, 1e-9)
            bar.update(task, rate=f"{_rate(rate)} {unit}/s")

        yield tick


@contextmanager
def _lines(label: str, total: int, unit: str, start: int) -> Iterator[Tick]:
    """Prints a line at most every ten seconds, for logs and pipes."""
    started = shown = time.monotonic()
    done, finished = start, False

    def tick(advance: int = 1, note: str = "") -> None:
        nonlocal done, shown, finished
        done += advance
        now = time.monotonic()
        if now - shown >= 10 or (done >= total and not finished and now - started >= 2):
            shown, finished = now, done >= total
            rate = (done - start) / max(now - started, 1e-9)
            left = max(total - done, 0) / max(rate, 1e-9)
            print(
                f"{label}: {done:,}/{total:,} {unit}, {_rate(rate)}/s, {left:,.0f} s left {note}".rstrip(),
                file=sys.stderr,
                flush=True,
            )

    yield tick


def _rate(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"
