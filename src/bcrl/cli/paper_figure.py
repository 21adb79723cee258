"""`bcrl paper figure`: figures of the paper, computed anew."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import tyro

from bcrl.cli.arguments import numbers
from bcrl.errors import BCRLError


@dataclass(frozen=True)
class Command:
    """Compute a figure of the paper and write it as PNG and as CSV."""

    figure: tyro.conf.Positional[Literal["synthetic"]]
    """`synthetic`: return and cost of BCRL, the CMDP optimum and no constraint on a noisy grid."""
    map: str = "corridor"
    """A grid-world layout by name or a text file of your own."""
    budgets: str = "0.2,1"
    """The discounted budgets, a column of the figure each."""
    points: int = 26
    """How many values of p, from 0.5 to 1."""
    out: Path = Path("runs/figures/synthetic.png")
    """The PNG; the numbers go beside it as CSV."""

    def run(self) -> None:
        import numpy as np

        from bcrl.cmdp._extras import need

        need("scipy", "highspy", "numba")
        need("matplotlib", extra="report")
        from bcrl.paper import synthetic

        if self.out.suffix != ".png":
            raise BCRLError(f"--out must end in .png, not {self.out.name!r}")
        if self.points < 2:
            raise BCRLError(f"--points must be at least 2, not {self.points}")
        budgets = numbers("budgets", self.budgets)
        found = synthetic.points(self.map, budgets, np.linspace(0.5, 1.0, self.points).tolist())
        for path in synthetic.write(found, self.out):
            print(path)
