"""Stopping a training cleanly: Ctrl-C and SIGTERM are noticed between steps, never inside the compiler."""

import atexit
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class StopRequest:
    """Whether a signal has asked for a stop. A second one ends the program at once."""

    def __init__(self) -> None:
        self.signal: int | None = None

    def __call__(self, number: int, frame: Any) -> None:
        del frame
        if self.signal is not None:
            os._exit(128 + number)
        self.signal = number
        # os.write: print could be interrupted by this very handler.
        os.write(sys.stderr.fileno(), b"\nbcrl: stopping after this step; once more to stop at once\n")

    @property
    def status(self) -> int:
        """130 after Ctrl-C, 143 after SIGTERM."""
        return 128 + (self.signal or signal.SIGINT)


class _Noted:
    """Ctrl-C as usual, and a note of it."""

    noted = False

    def __call__(self, number: int, frame: Any) -> None:
        self.noted = True
        signal.default_int_handler(number, frame)


@contextmanager
def interrupts_noted() -> Iterator[None]:
    """For a program: a training stops at once if Ctrl-C came before it began and was lost.

    Python drops a KeyboardInterrupt that is raised inside a callback of the garbage collector; JAX has one,
    and importing it takes seconds.
    """
    usual = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if not usual or threading.current_thread() is not threading.main_thread():
        yield
        return
    signal.signal(signal.SIGINT, _Noted())
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        # While libraries clean up at the end, Ctrl-C ends the program, without a traceback.
        atexit.register(signal.signal, signal.SIGINT, signal.SIG_DFL)


@contextmanager
def stop_request() -> Iterator[StopRequest]:
    """Signals set a flag for as long as this is open. Other threads than the main one get no signals."""
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request
        return
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, request) for number in numbers}
    if getattr(before[signal.SIGINT], "noted", False):
        request.signal = signal.SIGINT
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
