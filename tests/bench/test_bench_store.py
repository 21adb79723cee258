"""The store: all of a cell or nothing of it, whatever happens."""

import dataclasses
import math
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from tiny_bench import content, tiny_works

from bcrl.assess.results import Result
from bcrl.bench.store import FILE, Outcome, Store, only_writer
from bcrl.errors import BCRLError


def row(cell, episode: int, cost: float = 3.0) -> Result:
    """Numbers that no decimal writes exactly."""
    return Result(
        *("bc-all", "", "", "finite-horizon", "point-circle", "d.npz", cell.seed, cell.threshold, episode),
        *(1 / 3, cost, -1e-17, cost / cell.threshold, 200, 0.1),
    )


@pytest.fixture
def cells(logs):
    return tiny_works(logs)[0].reported(0)


def outcomes(cells, count: int = 3, cost: float = 3.0) -> list[Outcome]:
    return [Outcome(cell, [row(cell, episode, cost) for episode in range(count)], "{}") for cell in cells]


def test_what_goes_in_comes_out(cells, tmp_path):
    with Store(tmp_path / FILE) as store:
        store.add(outcomes(cells))
    with Store(tmp_path / FILE) as store:
        assert store.cells() == cells
        assert store.done() == {cell.key for cell in cells}
        assert store.rows(cells[1].key) == [row(cells[1], episode) for episode in range(3)]
        assert store.rows("no such key") == []


def test_the_file_is_all_there_is(cells, tmp_path):
    """It can be copied while the bench goes on: no journal beside it holds a part."""
    with Store(tmp_path / FILE) as store:
        store.add(outcomes(cells))
        assert [path.name for path in tmp_path.iterdir()] == [FILE]


def test_a_store_from_before_candidates_goes_on(cells, tmp_path):
    with Store(tmp_path / FILE) as store:
        store.add(outcomes(cells[:1]))
        store.file.execute("ALTER TABLE cells DROP COLUMN candidates")
        store.file.execute("PRAGMA user_version = 1")
    for _ in range(2):
        with Store(tmp_path / FILE) as store:
            assert store.cells()[0] == cells[0]
            store.add(outcomes([dataclasses.replace(cells[1], candidates=8)]))
            assert [cell.candidates for cell in store.cells()] == [0, 8]
            assert len(store.rows(cells[1].key)) == 3


def test_a_cell_again_takes_the_place_of_the_old_one(cells, tmp_path):
    with Store(tmp_path / FILE) as store:
        store.add(outcomes(cells, 3))
        store.add(outcomes(cells[:1], 2, cost=5.0))
        assert len(store.cells()) == 2
        assert store.rows(cells[0].key) == [row(cells[0], episode, 5.0) for episode in range(2)]
        assert len(store.rows(cells[1].key)) == 3


def test_of_several_cells_all_or_none_are_added(cells, tmp_path):
    good, bad = outcomes(cells)
    bad.rows[2] = dataclasses.replace(bad.rows[2], cost=math.nan)
    with Store(tmp_path / FILE) as store:
        with pytest.raises(BCRLError, match="an episode has a NaN"):
            store.add([good, bad])
        assert store.cells() == []
        store.add([good])
        assert content(store) == {good.cell: good.rows}


KILLED = """
import os, signal, sys
from pathlib import Path
path, logs, *sys.path[:0] = sys.argv[1:]
from test_bench_store import Store, outcomes, tiny_works
store, (whole, half) = Store(Path(path)), outcomes(tiny_works(Path(logs))[0].reported(0))
store.add([whole])
count = 0
def die_at_the_fourth(statement):  # the cell and two of its three episodes are written
    global count
    count += statement.startswith("INSERT")
    if count == 4:
        os.kill(os.getpid(), signal.SIGKILL)
store.file.set_trace_callback(die_at_the_fourth)
store.add([half])
"""


def test_a_process_killed_while_it_adds_leaves_nothing_half(cells, logs, tmp_path):
    here = Path(__file__).parent
    words = [tmp_path / FILE, logs, here, here.parent]
    done = subprocess.run([sys.executable, "-c", KILLED, *map(str, words)], capture_output=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    whole, _ = outcomes(cells)
    with Store(tmp_path / FILE) as store:
        assert content(store) == {whole.cell: whole.rows}


@pytest.mark.parametrize("kind", ["text", "another database", "a later version", "a folder"])
def test_a_file_of_another_kind_is_refused_and_left_alone(kind, tmp_path):
    path = tmp_path / FILE
    if kind == "text":
        path.write_text("method,seed\n" * 1000)
    elif kind == "a folder":
        path.mkdir()
    else:
        with Store(path) if kind == "a later version" else sqlite3.connect(path) as file:
            execute = file.file.execute if isinstance(file, Store) else file.execute
            execute("PRAGMA user_version = 3" if isinstance(file, Store) else "CREATE TABLE mine (x)")
        if not isinstance(file, Store):
            file.close()
    before = path.read_bytes() if path.is_file() else None
    with pytest.raises(BCRLError, match=str(path)) as refused:
        Store(path)
    assert "\n" not in str(refused.value)
    assert before is None or path.read_bytes() == before


def test_two_benches_do_not_share_a_folder(tmp_path: Path):
    with (
        only_writer(tmp_path),
        pytest.raises(BCRLError, match="another bench is running"),
        only_writer(tmp_path),
    ):
        pass
    with only_writer(tmp_path):  # free again
        pass
