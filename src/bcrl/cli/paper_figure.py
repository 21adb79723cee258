"""`bcrl paper figure`: recomputes figures of the paper."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import tyro

from bcrl.errors import BCRLError, need


@dataclass(frozen=True)
class Command:
    """Compute a figure of the paper and write it as PNG and as CSV."""

    figure: tyro.conf.Positional[Literal["synthetic"]]
    """`synthetic`: return and cost of BCRL, the CMDP optimum and no constraint on a noisy grid."""
    map: str = "corridor"
    """The name of a grid-world layout, or a text file."""
    budgets: tuple[float, ...] = (0.2, 1.0)
    """The budgets on the discounted cost, one column of the figure each."""
    points: int = 26
    """Number of values of p, from 0.5 to 1."""
    out: Path = Path("runs/figures/synthetic.png")
    """The PNG file; its numbers are written beside it as CSV."""

    def run(self) -> None:
        import numpy as np

        need("scipy", "highspy", "numba", extra="cmdp")
        need("matplotlib", extra="report")
        from bcrl.paper import synthetic

        if self.out.suffix != ".png":
            raise BCRLError(f"--out must end in .png, not {self.out.name!r}")
        if self.points < 2:
            raise BCRLError(f"--points must be at least 2, not {self.points}")
        found = synthetic.points(self.map, self.budgets, np.linspace(0.5, 1.0, self.points).tolist())
        for path in synthetic.write(found, self.out):
            print(path)
