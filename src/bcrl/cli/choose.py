"""`bcrl choose`: the best of several policies, from the log alone."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from bcrl.cli.model_options import ModelOptions
from bcrl.cli.terminal import next_step, print_columns, print_notes
from bcrl.errors import BCRLError

SHOWN = 3


@dataclass(kw_only=True)
class Command(ModelOptions):
    """Rank trained policies by what they will earn within thresholds, from the log alone.

    Each is told what bcrl calibrate would tell it. All meet the same model, starts and random numbers.
    """

    runs: Annotated[
        tyro.conf.Positional[tuple[Path, ...]],
        tyro.conf.arg(metavar="RUN_OR_POLICY [RUN_OR_POLICY ...]", help_behavior_hint="(one or more)"),
    ]
    """Folders of runs (every seed in them is ranked) or policy files."""
    thresholds: tuple[float, ...] | None = None
    """Episode costs to keep, such as 10,20,40 (default: the quartiles of the log's episode costs)."""

    def run(self) -> None:
        from bcrl.estimates import choose
        from bcrl.policy import load_learned
        from bcrl.train.folder import policy_files

        files = list(dict.fromkeys(file for run in self.runs for file in policy_files(run)))
        if not files:
            raise BCRLError("no run was given; name folders of runs or policy files")
        policies = {str(file): load_learned(file) for file in files}
        data = self.read_log()
        ranking = choose(policies, data, self.thresholds, **self.arguments(data))
        wanted = ",".join(f"{choice.wanted:g}" for choice in ranking[0].choices)
        print(
            f"the best {min(SHOWN, len(ranking))} of {len(ranking)} at thresholds {wanted}, by the log alone"
        )
        rows = []
        for place, one in enumerate(ranking[:SHOWN], 1):
            behind = "" if one.behind is None else f"{one.behind.low:.4g}–{one.behind.high:.4g}"
            note = "indistinguishable" if one.indistinguishable else ""
            rows.append([str(place), f"{one.score:.4g}", f"{len(one.refused)}", behind, note])
        print_columns(["place", "score", "refused", "behind the first by", ""], rows)
        print_notes((str(place), one.name) for place, one in enumerate(ranking[:SHOWN], 1))
        print_notes(
            (f"{place}, threshold {choice.wanted:g}", choice.refusal)
            for place, one in enumerate(ranking[:SHOWN], 1)
            for choice in one.choices
            if choice.cell is None
        )
        print("score: mean lower return over the thresholds that are kept; refused: thresholds that are not;")
        print("behind: 95 % by the model, paired; indistinguishable: 0 is inside")
        if len(ranking[0].refused) == len(ranking[0].choices):
            return next_step("no policy keeps any of the thresholds: give larger ones, or train others")
        words = ["bcrl", "calibrate", ranking[0].name, "--data", self.data, "--thresholds", wanted]
        return next_step(*words, "--out", "calibrated.bcrl", *self.passed_on())
