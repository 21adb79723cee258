"""`bcrl estimate`: what trained policies will cost and earn, from the log alone."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from bcrl.cli.model_options import OVER, ModelOptions
from bcrl.cli.terminal import next_step, print_columns, print_reasons, share, span

if TYPE_CHECKING:
    from bcrl.estimates.estimating import ThresholdEstimate


@dataclass(kw_only=True)
class Command(ModelOptions):
    """Estimate what trained policies will cost and earn at each threshold, from the log alone.

    They act in a model learned from the log. Intervals are the model's, never a guarantee (docs/estimate.md).
    """

    policies: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN_OR_POLICY")]
    """A policy file, or the folder of a run (every seed in it is estimated)."""
    thresholds: tuple[float, ...]
    """Episode costs that the policies are told, such as 5,10,20,40."""
    starts: int = 128
    out: Path | None = None
    """File for one row per policy and threshold, estimates.csv."""
    overwrite: tyro.conf.FlagCreatePairsOff[bool] = False
    """Replace the file if it exists."""

    def run(self) -> None:
        from bcrl.cli.out import check_file
        from bcrl.estimates import estimate
        from bcrl.policy import load_learned
        from bcrl.train.folder import policy_files

        if self.out is not None:
            check_file(self.out, (".csv",), self.overwrite)
        files = policy_files(self.policies)
        policies = [load_learned(path) for path in files]
        data = self.read_log()
        found = estimate(policies, data, self.thresholds, **self.arguments(policies, data))
        print(f"{self.policies}, from {self.data} alone")
        print_estimates(found, several=len(policies) > 1)
        self.print_episodes(data)
        if self.out is not None:
            found.save(self.out)
            print(f"{len(found)} estimates: {self.out}")
        if not any(map(_worth_calibrating, found)):
            return next_step(
                "no row can be trusted, so do not calibrate yet: train longer, or log more episodes or other "
                "columns, see docs/estimate.md#when-nothing-can-be-trusted"
            )
        told = ",".join(f"{threshold:g}" for threshold in self.thresholds)
        name = files[0].with_suffix("").name
        words = ["bcrl", "calibrate", files[0], "--data", self.data, "--thresholds", told]
        return next_step(*words, "--out", f"{name}-calibrated.bcrl", *self.passed_on())


def _worth_calibrating(row: "ThresholdEstimate") -> bool:
    """Whether the row is not red, or red for its cost alone: that can be told away."""
    return row.light != "red" or (row.cost_low > row.threshold and "; " not in row.reasons)


def print_estimates(rows: "Sequence[ThresholdEstimate]", several: bool) -> None:
    """A table of 80 columns at most, then the reasons of lights that are not green."""
    heads = (["seed"] if several else []) + ["threshold", "cost", "over", "return", "fallback", "light"]
    cells = []
    for row in rows:
        numbers = [
            f"{row.threshold:g}",
            f"{row.cost:.4g} ({span(row.cost_low, row.cost_high)})",
            share(row.over_share),
            f"{row.return_:.4g} ({span(row.return_low, row.return_high)})",
            share(row.fallback_share),
            row.light,
        ]
        cells.append(([str(row.seed)] if several else []) + numbers)
    print_columns(heads, cells)
    print(OVER)
    print_reasons(
        (f"{row.threshold:g}", reason)
        for row in rows
        for reason in (row.reasons.split("; ") if row.reasons else [])
    )
