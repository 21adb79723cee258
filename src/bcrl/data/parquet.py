"""Parquet files are tried in a process of their own: a damaged one can end the process that reads it."""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from bcrl.errors import BCRLError, brief

# polars panics, or asks for exabytes and aborts, where a page of the file claims the impossible. The trial
# decodes as the reader does, slice by slice.
_TRIAL = """
import json, sys
import polars
path, columns, step = json.load(sys.stdin)
frame = polars.scan_parquet(path, glob=False)
try:
    columns = frame.collect_schema().names() if columns is None else columns
    for first in range(0, frame.select(polars.len()).collect().item(), step) if columns else ():
        frame.select(columns).slice(first, step).collect(engine="streaming")
except (polars.exceptions.PolarsError, polars.exceptions.PanicException, OSError) as error:
    print(error)
    sys.exit(3)
"""


def check_parquet(path: Path, columns: Sequence[str] | None = None, step: int = 2**20) -> None:
    """Refuses a Parquet file unless these columns (None: all) can be read, `step` rows at once."""
    done = subprocess.run(
        [sys.executable, "-P", "-c", _TRIAL],
        input=json.dumps([str(path), None if columns is None else list(columns), step]).encode(),
        capture_output=True,
        check=False,
    )
    if done.returncode:
        said = done.stdout.decode(errors="replace").splitlines() if done.returncode == 3 else []
        reason = brief(" ".join((said or [f"polars gives up with status {done.returncode}"])[0].split()), 160)
        raise BCRLError(f"{path}: is damaged or cut short ({reason}); copy or export it again")
