"""Environments as one batch of episodes: slots, the rows that run in them, and worker processes.

An episode depends on its seed alone, so when a worker is lost (it crashed, or a step took too long) another
is started and the caller repeats the episodes that ran there.
"""

import contextlib
import math
import os
import selectors
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from importlib.resources import as_file, files
from pathlib import Path
from typing import IO, Any, Protocol

import numpy as np

from bcrl.errors import BCRLError, brief, brief_repr
from bcrl.worlds.remote._worker import read_message, write_message
from bcrl.worlds.remote.install import family_python
from bcrl.worlds.tasks import INSTALLS, THRESHOLDS, Task

STEP_SECONDS = 60.0
"""A step or reset that takes longer ends its worker. The slowest resets take about a second."""
START_SECONDS = 300.0
"""Importing a family from a cold disk and making its first environment."""
RESTARTS = 3
"""A worker that is lost more often than this ends the evaluation."""
MOST_COPIES = 64


@dataclass(frozen=True)
class Outcome:
    """What one round gave, by slot (or by row: see `Rows`). A lost one is in neither `seen` nor `stepped`."""

    seen: dict[int, np.ndarray]
    """Observations of those that were reset or stepped."""
    stepped: dict[int, tuple[float, float, bool, bool]]
    """Reward, cost, terminal, timeout."""
    lost: list[int]
    """Those whose episode must be begun again."""


class Envs(Protocol):
    """Environments for `slots` episodes side by side: a `Pool` of workers, or one in this process."""

    @property
    def name(self) -> str:
        """The world's."""
        ...

    @property
    def slots(self) -> int: ...

    def round(self, resets: Mapping[int, int], actions: Mapping[int, np.ndarray]) -> Outcome:
        """Resets slots with their seeds and steps others with their actions."""
        ...

    def __enter__(self) -> "Envs": ...

    def __exit__(self, *_: object) -> None: ...


class Rows:
    """Which row of a table of episodes runs in which slot. Rows wait for a free slot in their order."""

    def __init__(self, count: int):
        self.waiting = list(range(count - 1, -1, -1))
        self.slots: dict[int, int] = {}  # slot -> row
        self.fresh: set[int] = set()  # rows that are in a slot and must be reset there

    @property
    def open(self) -> bool:
        """Whether a row waits or runs."""
        return bool(self.waiting or self.slots)

    @property
    def running(self) -> list[int]:
        """The rows that can be stepped."""
        return [row for row in self.slots.values() if row not in self.fresh]

    def round(self, envs: Envs, actions: np.ndarray, seed: Callable[[int], int]) -> Outcome:
        """One step of every running row and a reset, with the row's seed, of every other; by row.

        `actions` has an entry for every row. A lost row waits to be begun again.
        """
        running = {slot: actions[row] for slot, row in self.slots.items() if row not in self.fresh}
        for slot in range(envs.slots):
            if slot not in self.slots and self.waiting:
                self.slots[slot] = self.waiting.pop()
                self.fresh.add(self.slots[slot])
        resets = {slot: seed(row) for slot, row in self.slots.items() if row in self.fresh}
        found = envs.round(resets, running)
        of = dict(self.slots)
        if fault := _fault(found):
            row = of[fault[0]]
            raise BCRLError(f"{envs.name}: in episode {row} (seed {seed(row)}) {fault[1]}")
        self.fresh -= {of[slot] for slot in found.seen}
        lost = [of[slot] for slot in found.lost if slot in of]
        self.end(lost)
        self.waiting += lost
        return Outcome(
            {of[slot]: seen for slot, seen in found.seen.items()},
            {of[slot]: step for slot, step in found.stepped.items()},
            lost,
        )

    def end(self, rows: Iterable[int]) -> None:
        """Frees the slots of these rows."""
        gone = set(rows)
        self.fresh -= gone
        self.slots = {slot: row for slot, row in self.slots.items() if row not in gone}


def _fault(found: Outcome) -> tuple[int, str] | None:
    """The first slot with a number that would make results meaningless, and what is wrong with it."""
    for slot, (reward, cost, *_) in found.stepped.items():
        if not math.isfinite(reward):
            return slot, f"a reward is {reward:g}; rewards must be finite"
        if not 0.0 <= cost < math.inf:
            return slot, f"a cost is {cost:g}; costs must be finite and 0 or more"
    if np.isfinite(list(found.seen.values())).all():
        return None
    slot = next(slot for slot, seen in found.seen.items() if not np.isfinite(seen).all())
    return slot, "an observation holds NaN or infinity"


class Pool:
    """Slots for episodes, spread over workers. Use it in a `with` block, which ends the workers.

    The workers end with the thread that made the pool, so one thread must keep it.
    """

    def __init__(
        self,
        task: Task,
        *,
        slots: int,
        workers: int | None = None,
        step_seconds: float = STEP_SECONDS,
        python: str | None = None,
    ):
        wanted = _cores() if workers is None else workers
        if wanted < 1 or slots < 1:
            raise BCRLError(f"workers is {wanted} and slots {slots}, but both must be at least 1")
        self.task, self.name = task, task.name
        count = min(wanted, slots)
        copies = min(_most_copies(task), -(-slots // count))
        self.slots = min(slots, count * copies)
        python = python or task.python or family_python(INSTALLS[task.family])
        self._workers = [_Worker(task, python, step_seconds) for _ in range(count)]
        try:
            for worker in self._workers:
                worker.launch()
            for worker in self._workers:
                self.facts = worker.greet()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> "Pool":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for worker in self._workers:
            worker.end()

    @property
    def processes(self) -> list[int]:
        """The workers' process ids."""
        return [worker.process.pid for worker in self._workers]

    def round(self, resets: Mapping[int, int], actions: Mapping[int, np.ndarray]) -> Outcome:
        """Resets slots with their seeds and steps others with their actions, all workers at once."""
        busy: dict[_Worker, tuple[list[int], list[int]]] = {}
        for slot in sorted(resets):
            busy.setdefault(self._worker(slot), ([], []))[0].append(slot)
        for slot in sorted(actions):
            busy.setdefault(self._worker(slot), ([], []))[1].append(slot)
        for worker, (reset, step) in busy.items():
            worker.send(
                {"reset": [[slot, resets[slot]] for slot in reset], "step": step},
                np.asarray([actions[slot] for slot in step], np.float32),
            )
        outcome = Outcome({}, {}, [])
        for worker, (reset, step) in busy.items():
            arrays = worker.receive(len(reset), len(step))
            if arrays is None:
                # Every episode in that process is lost, also those that only waited there.
                outcome.lost.extend(s for s in range(self.slots) if self._worker(s) is worker)
                worker.restart()
                continue
            for slot, observation in zip([*reset, *step], arrays["observations"], strict=True):
                outcome.seen[slot] = observation
            rows = zip(arrays["rewards"], arrays["costs"], arrays["ends"], strict=True)
            for slot, (reward, cost, ends) in zip(step, rows, strict=True):
                outcome.stepped[slot] = (float(reward), float(cost), bool(ends[0]), bool(ends[1]))
        return outcome

    def _worker(self, slot: int) -> "_Worker":
        return self._workers[slot % len(self._workers)]


class _Worker:
    """One process and its pipe."""

    def __init__(self, task: Task, python: str, step_seconds: float):
        self.task, self.python, self.step_seconds = task, python, step_seconds
        self.lost = 0
        self.said: IO[bytes] | None = None
        self.process: Any = None

    def launch(self) -> None:
        self.end()
        self.said = tempfile.TemporaryFile()  # noqa: SIM115 (closed in `end`)
        with as_file(files("bcrl.worlds.remote").joinpath("_worker.py")) as script:
            command = [self.python, str(script), str(os.getpid())]
            try:
                self.process = subprocess.Popen(
                    command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=self.said,
                    env=_environment(self.task),
                )
            except OSError as error:
                raise BCRLError(f"{self.python}: {error.strerror}: give --python a Python to run") from None
        request = {
            "family": self.task.family,
            "id": self.task.env_id,
            "config": self.task.config,
            "step_seconds": self.step_seconds,
            # An environment of the user's own may be a file in the current folder.
            "path": [os.getcwd()] if self.task.family == "gym" else [],
        }
        self._write(request, None)

    def greet(self) -> dict[str, Any]:
        """The facts of the environment, when it is made. A worker that cannot even start is not retried."""
        answer = self._read(START_SECONDS)
        if answer is None:
            raise BCRLError(f"the worker of {self.task.name} did not start: {self._last_line()}")
        facts, wanted = answer[0], self.task.observation_size  # 0 where the environment itself is to say it
        if wanted and (found := facts.get("observation_size")) != wanted:
            raise BCRLError(
                f"{self.task.name}: its observations have {brief_repr(found)} numbers, but {wanted} are "
                "wanted: is it another version of the environment?"
            )
        return facts

    def send(self, request: dict[str, Any], actions: np.ndarray) -> None:
        self._write(request, actions)

    def receive(self, resets: int, steps: int) -> dict[str, np.ndarray] | None:
        """The answer to the last request, or None when the worker is lost."""
        # The worker watches its own steps; this catches one that is stopped or stuck in its start.
        answer = self._read(self.step_seconds * (resets + steps + 1))
        if answer is None:
            return None
        arrays, size = answer[1], self.task.observation_size
        shapes = {
            "observations": (resets + steps, size),
            "rewards": (steps,),
            "costs": (steps,),
            "ends": (steps, 2),
        }
        found = {name: array.shape for name, array in arrays.items() if array.dtype.kind in "fu"}
        return arrays if found == shapes else None  # an environment wrote into the pipe

    def restart(self) -> None:
        self.lost += 1
        if self.lost > RESTARTS:
            raise BCRLError(
                f"a worker of {self.task.name} was lost {self.lost} times "
                f"({self._how_it_ended()}): {self._last_line()}"
            )
        self.launch()
        self.greet()

    def end(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            for pipe in (self.process.stdin, self.process.stdout):
                with contextlib.suppress(OSError):  # unwritten bytes for a process that has ended
                    pipe.close()
        if self.said is not None:
            self.said.close()
        self.process = self.said = None

    def _write(self, request: dict[str, Any], actions: np.ndarray | None) -> None:
        arrays = [] if actions is None else [("actions", actions)]
        with contextlib.suppress(OSError):  # the process has ended, which reading notices
            write_message(self.process.stdin, request, arrays)

    def _read(self, seconds: float) -> tuple[dict[str, Any], dict[str, np.ndarray]] | None:
        deadline = time.monotonic() + seconds
        pipe = self.process.stdout.fileno()

        def read(count: int) -> bytes:
            data = bytearray()
            while len(data) < count:
                left = deadline - time.monotonic()
                if left <= 0 or not selector.select(left):
                    raise EOFError
                piece = os.read(pipe, count - len(data))
                if not piece:
                    raise EOFError
                data += piece
            return bytes(data)

        with selectors.DefaultSelector() as selector:
            selector.register(pipe, selectors.EVENT_READ)
            try:
                header, arrays = read_message(read)
            except (EOFError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
                return None  # no answer, or not a message
        if "error" in header:
            text = " ".join(str(header["error"]).split())
            raise BCRLError(f"{self.task.name} failed in its worker: {brief(text, 1000)}")
        return header, arrays

    def _how_it_ended(self) -> str:
        try:
            status = self.process.wait(1.0)
        except subprocess.TimeoutExpired:
            return f"it did not answer in {self.step_seconds:g} s a step"
        if status == -14:  # SIGALRM
            return f"a step took longer than {self.step_seconds:g} s"
        return f"signal {-status}" if status < 0 else f"exit status {status}"

    def _last_line(self) -> str:
        if self.said is None:
            return "no output"
        self.said.seek(max(0, self.said.seek(0, os.SEEK_END) - 10_000))
        lines = [line for line in self.said.read().decode(errors="replace").splitlines() if line.strip()]
        return brief(lines[-1].strip(), 1000) if lines else "no output"


def _cores() -> int:
    """The cores this process may use, which in a container can be fewer than there are."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _most_copies(task: Task) -> int:
    """How many environments of a task one process holds; further episodes wait."""
    if task.family == "metadrive":
        return 1  # its engine is one per process
    if task.family == "bullet" and task.name.startswith(("Car", "Drone")):
        return 16  # their meshes take 90 MB and up to 0.4 s each
    return MOST_COPIES


def _environment(task: Task) -> dict[str, str]:
    """The worker's environment variables: quiet, one thread each, and nothing of this Python's modules."""
    inherited = dict(os.environ)
    if task.family != "gym":
        for name in ("PYTHONPATH", "PYTHONHOME"):
            inherited.pop(name, None)
    return inherited | {"PYTHONWARNINGS": "ignore", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


def user_task(env_id: str, python: str, config: dict[str, Any] | None = None) -> Task:
    """Any Gymnasium environment of the Python at `python`, with the sizes that it reports itself."""
    if not Path(python).is_file():
        raise BCRLError(f"{python}: there is no such Python")
    task = Task(
        name=f"gym:{env_id}",
        family="gym",
        env_id=env_id,
        observation_size=0,
        action_size=0,
        horizon=0,
        reference_returns=None,
        thresholds=THRESHOLDS["gym"],
        config=config or {},
        python=python,
    )
    with Pool(task, slots=1, workers=1) as pool:
        return replace(task, **sizes(task.name, pool.facts))


def sizes(name: str, facts: Mapping[str, Any]) -> dict[str, int]:
    """The sizes of an environment that describes itself; refuses actions outside [-1, 1]."""
    numbers: dict[str, Any] = {key: facts.get(key) for key in ("observation_size", "action_size")}
    numbers["max_episode_steps"] = facts.get("horizon") or 0
    for key, value in numbers.items():
        least = 0 if key == "max_episode_steps" else 1
        if not isinstance(value, int) or not least <= value < 2**31:
            raise BCRLError(
                f"{name}: {key} is {brief_repr(value)}, but must be below 2,147,483,648 and {least} or more"
            )
    if (facts.get("action_low"), facts.get("action_high")) != (-1.0, 1.0):
        raise BCRLError(
            f"{name}: its actions lie in {facts.get('action_low')}…{facts.get('action_high')}, but policies "
            "act in -1…1: wrap it in gymnasium.wrappers.RescaleAction"
        )
    horizon = numbers.pop("max_episode_steps")
    return {**numbers, "horizon": horizon}
