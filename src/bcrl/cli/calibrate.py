"""`bcrl calibrate`: what to tell a policy so that wanted thresholds are kept, from the log alone."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from bcrl.cli.model_options import OVER, ModelOptions
from bcrl.cli.terminal import next_step, print_columns, print_reasons, share, span
from bcrl.errors import BCRLError

if TYPE_CHECKING:
    from bcrl.estimates.calibrating import Choice


@dataclass(kw_only=True)
class Command(ModelOptions):
    """Find, from the log alone, what to tell a policy so that wanted thresholds are kept.

    The estimates are a model's, never a guarantee (docs/estimate.md). The new file keeps the table: use it
    with bcrl evaluate --calibrated, or policy.start(threshold=20, calibrated=True).
    """

    policies: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="POLICY")]
    """A policy file, or the folder of a run (every seed in it, by one model)."""
    thresholds: tuple[float, ...]
    """Episode costs to keep, such as 10,20,40."""
    out: Path
    """The policy file to write, such as calibrated.bcrl; for a run, the folder."""
    overwrite: tyro.conf.FlagCreatePairsOff[bool] = False
    """Replace files that exist."""

    def run(self) -> None:
        from bcrl.cli.out import policy_places
        from bcrl.estimates import calibrate, fit_model
        from bcrl.policy import load_learned
        from bcrl.train.folder import policy_files

        files = policy_files(self.policies)
        places = policy_places(self.policies, files, self.out, self.overwrite)
        policies = [load_learned(file) for file in files]
        data = self.read_log()
        arguments = self.arguments(policies, data)
        if len(files) > 1 and arguments["model"] is None:
            arguments["model"] = fit_model(data, seed=self.seed)
        made, refused = {}, {}
        for file, policy, place in zip(files, policies, places, strict=True):
            try:
                found = calibrate(policy, data, self.thresholds, **arguments)
            except BCRLError as error:  # the refusal of one seed stops no other
                refused.setdefault(str(error), []).append(str(file))
                continue
            print(f"{file}, from {self.data} alone")
            _print_choices(found.choices)
            found.policy.save(place)
            made[place] = found.choices
        if made:
            place, choices = made.popitem()
            kept = next(choice.wanted for choice in choices if choice.cell is not None)
            self.print_episodes(data)
            print(f"the calibrated {'policy' if self.policies.is_file() else 'policies'}: {self.out}")
            next_step(
                f"act with bcrl.load({str(place)!r}).start(threshold={kept:g}, calibrated=True), "
                "monitor some episodes and give their costs to bcrl certify"
            )
        if refused:
            named = (f"{', '.join(at)}: {error}" for error, at in refused.items())
            raise BCRLError("; ".join(refused if len(files) == 1 else named))


def _print_choices(choices: "tuple[Choice, ...]") -> None:
    rows, reasons = [], []
    for choice in choices:
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
    print_columns(["wanted", "told", "cost", "over", "return", "light"], rows)
    print(OVER.replace("the threshold", "the wanted threshold"))
    if any(choice.cell is not None and choice.cell.cost.high > choice.wanted for choice in choices):
        print("An interval may reach above what is wanted: a narrower bound of the mean")
        print("decides (docs/estimate.md#calibrated-thresholds).")
    print_reasons(reasons)
