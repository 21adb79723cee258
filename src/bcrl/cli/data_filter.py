"""`bcrl data filter LOG --out NEW`."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from bcrl.cli.out import check_log
from bcrl.cli.terminal import next_step
from bcrl.data import load_data, save_data
from bcrl.errors import BCRLError

if TYPE_CHECKING:
    from bcrl.data import Dataset
    from bcrl.data.preprocess import Box, Grid


@dataclass
class Command:
    """Write a filtered copy of a log: thinned, with gaps, without the best, misleading or noisy, as in DSRL.

    The filters are applied in the order of the options below, in whatever order they are given.
    """

    log: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="LOG")]
    """The log to read."""
    out: Path
    """The log to write; the suffix chooses the format."""
    most_per_cell: int | None = None
    """Thin: keep at most this many episodes of each cell of a grid over cost and return [DSRL's: 5]."""
    sparse_cell: int | None = None
    """Thin: drop cells with this many episodes or fewer [DSRL's: 2]. Each of these four turns thinning on."""
    cost_cells: int | None = None
    """Thin: number of cells over the range of costs [DSRL's: 10]."""
    return_cells: int | None = None
    """Thin: number of cells over the range of returns [DSRL's: 50]."""
    inpaint: Annotated[tuple[float, ...], tyro.conf.arg(metavar="C0,C1,R0,R1")] = ()
    """Drop episodes with cost and return in a box, such as 0.25,0.5,0.5,1: fractions of their ranges."""
    drop_best_safe: float | None = None
    """Drop episodes within --threshold whose return is less than this below the best of them."""
    drop_best_unsafe: float | None = None
    """The same for episodes beyond --threshold."""
    outliers: float | None = None
    """Share of episodes, costly and rewarding ones, that are changed to look safe and still better."""
    noise: float | None = None
    """Standard deviation of noise on observations, as a fraction of their own."""
    threshold: float | None = None
    """Largest cost of a safe episode."""
    seed: int = 0
    """The same seed gives the same log."""
    overwrite: tyro.conf.FlagCreatePairsOff[bool] = False
    """Replace an existing log."""

    def run(self) -> None:
        from bcrl.data import preprocess

        grid, boxes = self._grid(), self._boxes()
        for name in ("drop_best_safe", "drop_best_unsafe", "outliers"):
            if getattr(self, name) is not None and self.threshold is None:
                raise BCRLError(
                    f"--{name.replace('_', '-')} needs --threshold, the largest cost of a safe episode"
                )
        if self.seed < 0:
            raise BCRLError(f"--seed {self.seed} is negative; give 0 or more")
        check_log(self.out, self.overwrite)

        whole = data = load_data(self.log, storage="memory")
        threshold = 0.0 if self.threshold is None else self.threshold
        if grid is not None:
            data = _report("thin", data, preprocess.thin(data, grid, self.seed))
        if boxes:
            data = _report("inpaint", data, preprocess.inpaint(data, boxes, whole))
        if self.drop_best_safe is not None:
            kept = preprocess.drop_best(data, threshold, self.drop_best_safe, safe=True)
            data = _report("drop best safe", data, kept)
        if self.drop_best_unsafe is not None:
            kept = preprocess.drop_best(data, threshold, self.drop_best_unsafe, safe=False)
            data = _report("drop best unsafe", data, kept)
        if self.outliers is not None:
            data = preprocess.add_outliers(data, self.outliers, threshold, self.seed)
        if self.noise is not None:
            data = preprocess.add_noise(data, self.noise, self.seed)
        if data is whole:
            raise BCRLError(
                "nothing to do; see bcrl data filter --help, or bcrl data convert for another format"
            )
        save_data(data, self.out)
        print(f"{data.episode_count:,} episodes, {len(data):,} transitions: {self.out}")
        next_step("bcrl", "data", "info", self.out)

    def _grid(self) -> "Grid | None":
        """The grid for thinning, or None if no option of it was given."""
        from bcrl.data.preprocess import Grid

        names = ("most_per_cell", "sparse_cell", "cost_cells", "return_cells")
        given = {name: getattr(self, name) for name in names if getattr(self, name) is not None}
        return Grid(**given) if given else None

    def _boxes(self) -> list["Box"]:
        from bcrl.data.preprocess import Box

        given = self.inpaint
        if len(given) % 4:
            said = ",".join(f"{number:g}" for number in given)
            raise BCRLError(
                f"--inpaint {said} is {len(given)} numbers; give four for each box: cost from, to, "
                "return from, to"
            )
        return [Box(*given[i : i + 4]) for i in range(0, len(given), 4)]


def _report(step: str, before: "Dataset", after: "Dataset") -> "Dataset":
    print(f"{step}: {before.episode_count:,} episodes, {after.episode_count:,} kept")
    return after
