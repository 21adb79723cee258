"""Peak memory of `bcrl data import` on a large Parquet file, which is generated first.

    python benchmarks/import_large.py --size 5 --folder /tmp/large

prints one line: size of the table, rows, seconds, peak resident memory of the import, size of the log.
"""

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

OBSERVATIONS, ACTIONS, STEPS = 16, 2, 1_000
ROW_BYTES = 8 * (OBSERVATIONS + ACTIONS + 1)  # the other columns take next to nothing


def generate(path: Path, rows: int, shuffled: bool) -> None:
    """Random walks in float64, written in pieces; with `shuffled` episodes lie among one another."""
    import polars as pl

    random = np.random.default_rng(0)
    piece = 1_000_000

    def pieces(first: int) -> "pl.DataFrame":
        count = min(piece, rows - first)
        row = np.arange(first, first + count)
        columns: dict[str, Any] = {"episode": row // STEPS, "time": row % STEPS}
        if shuffled:  # a thousand machines that write in turn
            columns = {"episode": row // (STEPS * 1_000) * 1_000 + row % 1_000, "time": row // 1_000 % STEPS}
        for name in range(OBSERVATIONS):
            columns[f"x{name + 1}"] = random.normal(size=count).cumsum()
        for name in range(ACTIONS):
            columns[f"u{name + 1}"] = random.uniform(0, 5, count)
        columns |= {"r": random.normal(size=count), "c": (random.random(count) < 0.1).astype(float)}
        return pl.DataFrame(columns)

    parts = []
    for first in range(0, rows, piece):
        parts.append(path.with_suffix(f".{first}.parquet"))
        pieces(first).write_parquet(parts[-1], compression="snappy")
    pl.scan_parquet(parts).sink_parquet(path, compression="snappy", row_group_size=piece)
    for part in parts:
        part.unlink()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", type=float, default=5, help="GB of the table")
    parser.add_argument("--folder", type=Path, default=Path("large"))
    parser.add_argument("--shuffled", action="store_true", help="rows of many episodes among one another")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    table = options.folder / f"{'shuffled' if options.shuffled else 'table'}-{options.size:g}.parquet"
    log = options.folder / "log.hdf5"
    rows = int(options.size * 1e9 / ROW_BYTES)
    if not table.exists():
        # In its own process, so that the memory it takes is not counted.
        if os.fork() == 0:
            generate(table, rows, options.shuffled)
            os._exit(0)
        os.wait()
    words = ["data", "import", table, "--out", log, "--overwrite", "--observations", f"x1..x{OBSERVATIONS}"]
    words += ["--actions", "u1,u2", "--action-bounds", "0:5,0:5", "--reward", "r", "--costs", "c"]
    words += ["--episode", "episode", "--time", "time"]
    began = time.monotonic()
    child = subprocess.Popen([sys.executable, "-m", "bcrl", *map(str, words)])
    _, status, usage = os.wait4(child.pid, 0)
    seconds, peak = time.monotonic() - began, usage.ru_maxrss * 1024
    if status:
        raise SystemExit("the import failed")
    print(
        f"{table.stat().st_size / 1e9:.2f} GB, {rows:,} rows: {seconds:,.0f} s, "
        f"{peak / 1e9:.2f} GB resident at most, log of {log.stat().st_size / 1e9:.2f} GB"
    )


if __name__ == "__main__":
    main()
