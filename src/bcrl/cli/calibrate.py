"""`bcrl calibrate`: what to tell a policy so that wanted thresholds are kept, from the log alone."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from bcrl.budget import Execution


@dataclass
class Command:
    """Find, from the log alone, what to tell a policy so that wanted thresholds are kept.

    The estimates are a model's, never a guarantee (docs/estimate.md). The new file keeps the table: use it
    with bcrl evaluate --calibrated, or policy.start(threshold=20, calibrated=True).
    """

    policy: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="POLICY")]
    """A policy file."""
    data: Path
    """The log that the policy was trained on."""
    thresholds: tuple[float, ...]
    """Episode costs to keep, such as 10,20,40."""
    out: Path
    """The policy file to write, such as calibrated.bcrl."""
    model: Path | None = None
    """File of the learned model, such as log.model: read if it is there, else written."""
    horizon: int | None = None
    """Steps of an episode (default, and at most: the longest logged episode)."""
    execution: Execution = "finite-horizon"
    """How the budget is tracked while acting."""
    candidates: int = 0
    """Draw this many actions each step and take the best of those the cost critic allows; 0 is off."""
    starts: int = 64
    """Logged first states to act from, at most."""
    seed: int = 0
    """Decides the model, the held-out episodes and all draws."""
    overwrite: tyro.conf.FlagCreatePairsOff[bool] = False
    """Replace the file if it exists."""

    def run(self) -> None:
        from bcrl.cli.estimate import kept_model, print_columns, print_reasons
        from bcrl.cli.out import check_file
        from bcrl.cli.terminal import next_step
        from bcrl.data import load_data
        from bcrl.estimates import calibrate
        from bcrl.policy import load_learned

        check_file(self.out, (".bcrl",), self.overwrite)
        policy = load_learned(self.policy)
        data = load_data(self.data, storage="memory")
        found = calibrate(
            policy,
            data,
            self.thresholds,
            model=kept_model(self.model, data, self.seed),
            horizon=self.horizon,
            execution=self.execution,
            candidates=self.candidates,
            starts=self.starts,
            seed=self.seed,
        )
        rows, reasons = [], []
        for choice in found.choices:
            cell, wanted = choice.cell, f"{choice.wanted:g}"
            if cell is None:
                rows.append([wanted, "refused", "", "", ""])
                reasons.append((wanted, choice.refusal))
                continue
            reasons += [(wanted, why) for why in cell.verdict.reasons]
            rows.append(
                [
                    wanted,
                    f"{cell.threshold:.4g}",
                    f"{cell.cost.mean:.4g} ({cell.cost.low:.4g}–{cell.cost.high:.4g})",
                    f"{cell.earned.mean:.4g} ({cell.earned.low:.4g}–{cell.earned.high:.4g})",
                    str(cell.verdict.light),
                ]
            )
        print(f"{self.policy}, from {self.data} alone")
        print_columns(["wanted", "told", "cost", "return", "light"], rows)
        print_reasons(reasons)
        print(f"for episodes that start as the log's do, of {self.horizon or data.horizon} steps at most")
        found.policy.save(self.out)
        print(f"the calibrated policy: {self.out}")
        kept = next(wanted for wanted, _ in found.policy.calibration.table)  # type: ignore[union-attr]
        next_step(
            f"act with bcrl.load({str(self.out)!r}).start(threshold={kept:g}, calibrated=True), "
            "monitor some episodes and give their costs to bcrl certify"
        )
