"""`bcrl calibrate`: what to tell a policy so that wanted thresholds are kept, from the log alone."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from bcrl.cli.model_options import OVER, ModelOptions
from bcrl.cli.terminal import next_step, print_columns, print_reasons, share, span


@dataclass(kw_only=True)
class Command(ModelOptions):
    """Find, from the log alone, what to tell a policy so that wanted thresholds are kept.

    The estimates are a model's, never a guarantee (docs/estimate.md). The new file keeps the table: use it
    with bcrl evaluate --calibrated, or policy.start(threshold=20, calibrated=True).
    """

    policy: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="POLICY")]
    """A policy file."""
    thresholds: tuple[float, ...]
    """Episode costs to keep, such as 10,20,40."""
    out: Path
    """The policy file to write, such as calibrated.bcrl."""
    overwrite: tyro.conf.FlagCreatePairsOff[bool] = False
    """Replace the file if it exists."""

    def run(self) -> None:
        from bcrl.cli.out import check_file
        from bcrl.estimates import calibrate
        from bcrl.policy import load_learned

        check_file(self.out, (".bcrl",), self.overwrite)
        policy = load_learned(self.policy)
        data = self.read_log()
        found = calibrate(policy, data, self.thresholds, **self.arguments([policy], data))
        rows, reasons = [], []
        for choice in found.choices:
            cell, wanted = choice.cell, f"{choice.wanted:g}"
            if cell is None:
                rows.append([wanted, "refused", "", "", "", ""])
                reasons.append((wanted, choice.refusal))
                continue
            reasons += [(wanted, why) for why in cell.verdict.reasons]
            rows.append(
                [
                    wanted,
                    f"{cell.threshold:.4g}",
                    f"{cell.cost.mean:.4g} ({span(cell.cost.low, cell.cost.high)})",
                    share(cell.over_share(choice.wanted)),
                    f"{cell.earned.mean:.4g} ({span(cell.earned.low, cell.earned.high)})",
                    str(cell.verdict.light),
                ]
            )
        print(f"{self.policy}, from {self.data} alone")
        print_columns(["wanted", "told", "cost", "over", "return", "light"], rows)
        print(OVER.replace("the threshold", "the wanted threshold"))
        print_reasons(reasons)
        self.print_episodes(data)
        found.policy.save(self.out)
        print(f"the calibrated policy: {self.out}")
        kept = next(wanted for wanted, _ in found.policy.calibration.table)  # type: ignore[union-attr]
        next_step(
            f"act with bcrl.load({str(self.out)!r}).start(threshold={kept:g}, calibrated=True), "
            "monitor some episodes and give their costs to bcrl certify"
        )
