"""A bench so small that it runs in seconds, for tests and for the programs that tests start."""

from pathlib import Path

from tiny_log_maker import make_log

from bcrl.bench.cells import Protocol, Work
from bcrl.bench.plan import Entry, Plan, works
from bcrl.bench.run import Pace
from bcrl.bench.store import Store

SMALL = {"hidden": (8,), "batch_size": 8}
ENTRIES = (Entry("bc-all", "bc-all", SMALL), Entry("bc-safe", "bc-safe", SMALL))
PACE = Pace(log_every=10, checkpoint_every=20)


def write_log(folder: Path) -> Path:
    """A log under the name of a built-in world, so that none is recorded."""
    make_log().save(folder / "point-circle.npz")
    return folder


def tiny_works(logs: Path, **changes) -> list[Work]:
    """Behaviour cloning on one task: one training for all thresholds, and one for each."""
    plan = {
        "entries": ENTRIES,
        "tasks": ("point-circle",),
        "seeds": (0, 10),
        "thresholds": (10.0, 20.0),
        "preset": "cpu",
        "steps": 40,
        "protocol": Protocol(episodes=2),
        "keep_every": 20,
    }
    return works(Plan(**(plan | changes)), logs)


def content(store: Store) -> dict:
    """All that a store says, without the times."""
    return {cell: store.rows(cell.key) for cell in sorted(store.cells(), key=lambda cell: cell.key)}
