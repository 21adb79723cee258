"""One tiny bench, done once in this process; other ways of doing it are compared with it."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from tiny_bench import PACE, content, tiny_works, write_log

from bcrl.bench.run import run_here
from bcrl.bench.store import FILE, Store


@pytest.fixture(scope="session")
def logs(tmp_path_factory) -> Path:
    return write_log(tmp_path_factory.mktemp("logs"))


@pytest.fixture(scope="session")
def tiny_bench_folder(logs, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("bench")
    with Store(out / FILE) as store:
        assert run_here(tiny_works(logs), store, out / "runs", PACE) == []
    return out


@pytest.fixture(scope="session")
def done_here(tiny_bench_folder) -> dict:
    with Store(tiny_bench_folder / FILE) as store:
        return content(store)
