"""`bcrl estimate`: what trained policies will cost and earn, from the log alone."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from bcrl.budget import Execution
from bcrl.errors import BCRLError

if TYPE_CHECKING:
    from bcrl.data import Dataset
    from bcrl.estimates import Model
    from bcrl.estimates.estimating import ThresholdEstimate


@dataclass
class Command:
    """Estimate what trained policies will cost and earn at each threshold, from the log alone.

    They act in a model learned from the log. Intervals are the model's, never a guarantee (docs/estimate.md).
    """

    policies: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN_OR_POLICY")]
    """A policy file, or the folder of a run (every seed in it is estimated)."""
    data: Path
    """The log that the policies were trained on."""
    thresholds: tuple[float, ...]
    """Episode costs that the policies are told, such as 5,10,20,40."""
    out: Path | None = None
    """File for one row per policy and threshold, estimates.csv."""
    model: Path | None = None
    """File of the learned model, such as log.model: read if it is there, else written."""
    horizon: int | None = None
    """Steps of an episode (default, and at most: the longest logged episode)."""
    execution: Execution = "finite-horizon"
    """How the budget is tracked while acting."""
    candidates: int = 0
    """Draw this many actions each step and take the best of those the cost critic allows; 0 is off."""
    starts: int = 128
    """Logged first states to act from, at most."""
    seed: int = 0
    """Decides the model, the held-out episodes and all draws."""

    def run(self) -> None:
        from bcrl.cli.out import check_file
        from bcrl.cli.terminal import next_step
        from bcrl.data import load_data
        from bcrl.estimates import estimate
        from bcrl.policy import load_learned
        from bcrl.train.folder import policy_files

        if self.out is not None:
            check_file(self.out, (".csv",), overwrite=True)
        files = policy_files(self.policies)
        policies = [load_learned(path) for path in files]
        data = load_data(self.data, storage="memory")
        found = estimate(
            policies,
            data,
            self.thresholds,
            model=kept_model(self.model, data, self.seed),
            horizon=self.horizon,
            execution=self.execution,
            candidates=self.candidates,
            starts=self.starts,
            seed=self.seed,
        )
        print(f"{self.policies}, from {self.data} alone")
        print_estimates(found, several=len(policies) > 1)
        print(f"for episodes that start as the log's do, of {self.horizon or data.horizon} steps at most")
        if self.out is not None:
            found.save(self.out)
            print(f"{len(found)} estimates: {self.out}")
        told = ",".join(f"{threshold:g}" for threshold in self.thresholds)
        name = files[0].with_suffix("").name
        words = ["bcrl", "calibrate", files[0], "--data", self.data, "--thresholds", told]
        next_step(*words, "--out", f"{name}-calibrated.bcrl", *same_options(self))


def same_options(command: Any) -> list[object]:
    """What `bcrl calibrate` is to be given as this command was, where it is not the default."""
    given = ((name, getattr(command, name)) for name in ("model", "horizon", "execution", "candidates"))
    pairs = [(f"--{name}", value) for name, value in given if value not in (None, "finite-horizon", 0)]
    return [word for pair in pairs for word in pair]


def kept_model(path: Path | None, data: "Dataset", seed: int) -> "Model | None":
    """The model in a file; if there is no file, it is learned and written there."""
    from bcrl.cli.out import check_writable
    from bcrl.estimates import Model, fit_model

    if path is None:
        return None
    if path.is_file():
        model = Model.load(path)
        try:
            model.check(data)
        except BCRLError as error:
            raise BCRLError(f"--model {path}: {error}, or name another file") from None
        return model
    check_writable(path)
    model = fit_model(data, seed=seed)
    model.save(path)
    print(f"the model: {path}")
    return model


def print_estimates(rows: "Sequence[ThresholdEstimate]", several: bool) -> None:
    """A table of 80 columns at most, then the reasons of lights that are not green."""
    heads = (["seed"] if several else []) + ["threshold", "cost", "return", "fallback", "light"]
    cells = []
    for row in rows:
        numbers = [
            f"{row.threshold:g}",
            f"{row.cost:.4g} ({row.cost_low:.4g}–{row.cost_high:.4g})",
            f"{row.return_:.4g} ({row.return_low:.4g}–{row.return_high:.4g})",
            f"{row.fallback_share:.0%}",
            row.light,
        ]
        cells.append(([str(row.seed)] if several else []) + numbers)
    print_columns(heads, cells)
    print_reasons(
        (f"{row.threshold:g}", reason)
        for row in rows
        for reason in (row.reasons.split("; ") if row.reasons else [])
    )


def print_columns(heads: list[str], cells: list[list[str]]) -> None:
    """Numbers to the right, under their heads."""
    widths = [max(len(row[i]) for row in [heads, *cells]) for i in range(len(heads))]
    for row in [heads, *cells]:
        print("  ".join(f"{cell:>{width}}" for cell, width in zip(row, widths, strict=True)))


def print_reasons(pairs: Iterable[tuple[str, str]]) -> None:
    """Each reason once, after the thresholds it is for."""
    reasons: dict[str, dict[str, None]] = {}
    for threshold, reason in pairs:
        reasons.setdefault(reason, {})[threshold] = None
    print_notes((f"at {','.join(at)}", reason) for reason, at in reasons.items())


def print_notes(notes: Iterable[tuple[str, str]]) -> None:
    """A note a line, wrapped to 80 columns."""
    import textwrap

    for where, note in notes:
        print(textwrap.fill(f"{where}: {note}", 80, subsequent_indent="  "))
