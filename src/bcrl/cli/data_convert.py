"""`bcrl data convert LOG --out NEW`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from bcrl.cli.out import check_log
from bcrl.cli.terminal import next_step
from bcrl.data import load_data, save_data


@dataclass
class Command:
    """Write a log in another format. Its contents stay the same bit for bit."""

    log: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="LOG")]
    """The log: .hdf5, .h5, .npz, the folder of a Minari data set, or minari:ID in Minari's own store."""
    out: Path
    """The new log; the suffix chooses the format: .hdf5, .h5, .npz, .minari (a folder). Or minari:ID."""
    cost_key: str = "cost"
    """The name of the costs in a Minari data set's infos, such as cost or cost_sum."""
    not_consecutive: tyro.conf.FlagCreatePairsOff[bool] = False
    """Accept a log whose rows do not follow one another, such as a sample of transitions; the new file is
    marked so."""
    uncompressed: tyro.conf.FlagCreatePairsOff[bool] = False
    """Write .npz without compression: training then reads a log larger than memory where it lies."""
    overwrite: tyro.conf.FlagCreatePairsOff[bool] = False
    """Replace an existing log."""

    def run(self) -> None:
        check_log(self.out, self.overwrite)
        consecutive = False if self.not_consecutive else None
        data = load_data(self.log, cost_key=self.cost_key, consecutive=consecutive)
        save_data(data, self.out, compressed=not self.uncompressed)
        print(f"{data.episode_count:,} episodes, {len(data):,} transitions: {self.out}")
        next_step("bcrl", "data", "info", self.out)
