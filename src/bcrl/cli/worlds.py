"""`bcrl worlds`: the built-in worlds, the families in processes of their own, and whether they run."""

import shutil
import textwrap
from dataclasses import dataclass

import tyro

from bcrl.errors import BCRLError


@dataclass
class Command:
    """List the worlds and what is installed of them."""

    check: tyro.conf.FlagCreatePairsOff[bool] = False
    """Step one environment of each installed family."""
    tasks: tyro.conf.FlagCreatePairsOff[bool] = False
    """List the tasks with their sizes, horizons and thresholds too."""

    def run(self) -> None:
        from bcrl.worlds import WORLDS
        from bcrl.worlds.remote.install import is_installed, read_lock
        from bcrl.worlds.tasks import INSTALLS, tasks

        print(f"built in: {', '.join(WORLDS)}")
        failed = []
        for family, name in INSTALLS.items():
            lock = read_lock(name)
            members = [task for task in tasks().values() if task.family == family]
            there = is_installed(lock)
            state = f"installed\n  {lock.folder}" if there else f"not installed (bcrl worlds install {name})"
            print(f"\n{name}: {len(members)} tasks, {state}")
            if self.tasks:
                print(f"  {'task':<20} observations  actions  steps  thresholds")
                for task in members:
                    sizes = f"{task.observation_size:>12} {task.action_size:>8} {task.horizon:>6}"
                    limits = "/".join(f"{threshold:g}" for threshold in task.thresholds)
                    print(f"  {task.name:<20} {sizes}  {limits}")
            else:
                _print_filled(", ".join(task.name for task in members))
            for caveat in sorted({task.caveat for task in members if task.caveat})[:1]:
                _print_filled(caveat)
            if self.check and there:
                failed += [name] if not _steps(members[0]) else []
        if failed:
            raise BCRLError(
                f"{', '.join(failed)} cannot be stepped: remove the folder and install the family again"
            )


def _print_filled(text: str) -> None:
    """Prints an indented paragraph as wide as the terminal, broken between words only."""
    width = shutil.get_terminal_size().columns - 2
    lines = textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False)
    print(textwrap.indent("\n".join(lines), "  "))


def _steps(task) -> bool:
    """Whether an environment can be reset and stepped; prints the answer."""
    import numpy as np

    try:
        with task.open(slots=1, workers=1) as pool:
            pool.round({0: 0}, {})
            outcome = pool.round({}, {0: np.zeros(task.action_size, np.float32)})
            seen = outcome.seen[0]
        if len(seen) != task.observation_size:
            raise BCRLError(f"{len(seen)} observations, but the table says {task.observation_size}")
    except (BCRLError, KeyError) as error:
        print(f"  {task.name} fails: {error}")
        return False
    print(f"  {task.name} steps")
    return True
