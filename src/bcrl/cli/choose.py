"""`bcrl choose`: the best of several policies, from the log alone."""

import math
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from bcrl.cli.model_options import ModelOptions
from bcrl.cli.terminal import next_step, print_columns, print_notes, span
from bcrl.errors import BCRLError

SHOWN = 3
FOOTNOTE = (
    "score: mean lower return over the thresholds that are kept; refused: thresholds that are not; behind: "
    "95 % by the model, paired; indistinguishable: 0 is inside"
)


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
        from bcrl.estimates.light import grouped
        from bcrl.policy import load_learned
        from bcrl.train.folder import policy_files

        files = list(dict.fromkeys(file for run in self.runs for file in policy_files(run)))
        if not files:
            raise BCRLError("no run was given; name folders of runs or policy files")
        policies = {str(file): load_learned(file) for file in files}
        data = self.read_log()
        ranking = choose(policies, data, self.thresholds, **self.arguments(policies.values(), data))
        wanted = ",".join(f"{choice.wanted:g}" for choice in ranking[0].choices)
        print(
            f"the best {min(SHOWN, len(ranking))} of {len(ranking)} at thresholds {wanted}, by the log alone"
        )
        rows = []
        for place, one in enumerate(ranking[:SHOWN], 1):
            behind = "" if one.behind is None else span(one.behind.low, one.behind.high)
            note = "indistinguishable" if one.indistinguishable else ""
            score = "none" if math.isnan(one.score) else f"{one.score:.4g}"
            rows.append([str(place), score, f"{len(one.refused)}", behind, note])
        print_columns(["place", "score", "refused", "behind the first by", ""], rows)
        print_notes((str(place), one.name) for place, one in enumerate(ranking[:SHOWN], 1))
        for place, one in enumerate(ranking[:SHOWN], 1):
            refused = grouped((f"{c.wanted:g}", c.refusal) for c in one.choices if c.cell is None)
            print_notes((f"{place}, refused at {','.join(at)}", reason) for at, reason in refused)
        print(textwrap.fill(FOOTNOTE, 80))
        self.print_episodes(data)
        words = ["bcrl", "calibrate", ranking[0].name, "--data", self.data, "--thresholds", wanted]
        next_step(*words, "--out", "calibrated.bcrl", *self.passed_on())
