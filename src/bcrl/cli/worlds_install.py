"""`bcrl worlds install FAMILY`."""

import time
from dataclasses import dataclass
from typing import Annotated, Literal

import tyro


@dataclass
class Command:
    """Make the Python environment of a family of worlds, under the cache folder (see BCRL_CACHE)."""

    families: Annotated[
        tyro.conf.Positional[tuple[Literal["bullet", "safety-gymnasium", "metadrive"], ...]],
        tyro.conf.arg(metavar="FAMILY"),
    ]
    """bullet, safety-gymnasium or metadrive; several may be given."""

    def run(self) -> None:
        from bcrl.worlds.remote.install import install, read_lock

        for family in self.families:
            lock = read_lock(family)
            started = time.monotonic()
            made = install(lock)
            took = f"installed in {time.monotonic() - started:.0f} s" if made else "already installed"
            print(f"{family}: {took}: {lock.folder}")
