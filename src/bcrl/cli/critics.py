"""`bcrl critics`: a policy's cost critics on a log, beside what followed there."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from bcrl.cli.terminal import print_columns
from bcrl.errors import BCRLError

if TYPE_CHECKING:
    from bcrl.assess.critics import CostCritics


@dataclass
class Command:
    """Compare V_C and Q_C with the cost that followed in a log, and show when slack ran out there.

    V_C and Q_C are least costs: on a log, what followed should be more. On episodes of the fallback (bcrl
    evaluate --thresholds 0 --record FILE) it should be the same; so should Q_F, if it was learned. (A policy
    with fallback_mixtures first needs bcrl adjust --set fallback_mixtures=0.)
    """

    policy: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="POLICY_OR_RUN")]
    """A policy file, or the folder of a run (its first seed)."""
    data: Path
    """A log of the task: the one it was trained on, others, or what bcrl evaluate --record wrote."""
    thresholds: tuple[float, ...] | None = None
    """For slack along the episodes, such as 10,20,40 (default: the quartiles of the log's episode
    costs)."""
    cost: int = 0
    """Which of several costs, from 0."""
    out: Path | None = None
    """File for a picture: .png, .svg or .pdf."""
    overwrite: tyro.conf.FlagCreatePairsOff[bool] = False
    """Replace the file if it exists."""

    def run(self) -> None:
        from bcrl.assess.critics import cost_critics
        from bcrl.cli.out import check_file
        from bcrl.data import load_data
        from bcrl.estimates.estimating import check_thresholds
        from bcrl.policy import load_learned
        from bcrl.train.folder import policy_files

        if self.out is not None:
            check_file(self.out, (".png", ".svg", ".pdf"), self.overwrite)
        file = policy_files(self.policy)[0]
        data = load_data(self.data)
        if not data.consecutive:
            raise BCRLError(f"{self.data}: its rows do not follow one another, so nothing followed in it")
        critics = cost_critics(load_learned(file), data, self.cost)
        thresholds = check_thresholds(self.thresholds or critics.usual_thresholds())
        print(f"{file} on {self.data}: cost-to-go, discounted by {critics.gamma:g}")
        _print_bins(critics)
        _print_alarms(critics, thresholds)
        if self.out is not None:
            from bcrl.report.critics import draw_critics
            from bcrl.report.figure import save_figure

            save_figure(draw_critics(critics, thresholds), self.out)
            print(f"the picture: {self.out}")


def _print_bins(critics: "CostCritics") -> None:
    rows = []
    for name, predicted in critics.predictions.items():
        for part in critics.bins(predicted, 6):
            means = f"{part.predicted:.4g}", f"{part.observed:.4g}"
            rows.append([name.split("(")[0], *means, f"{part.low:.4g}–{part.high:.4g}", f"{part.count:,}"])
    print_columns(["critic", "says", "followed", "10–90 %", "transitions"], rows)


def _print_alarms(critics: "CostCritics", thresholds: list[float]) -> None:
    def number(value: float, form: str) -> str:
        return "–" if value != value else format(value, form)

    rows = [
        [
            f"{found.threshold:g}",
            f"{found.within:.0%}",
            number(found.false, ".1%"),
            f"{found.in_time:.0%}",
            number(found.left, ".3g"),
            number(found.spent, ".3g"),
        ]
        for found in map(critics.alarm, thresholds)
    ]
    print(f"slack below {critics.fallback_below:.3g}, where the fallback would act:")
    print_columns(["threshold", "within", "false alarm", "in time", "left then", "spent then"], rows)
    print(
        "within: episodes that kept the threshold; false alarm: share of their steps;\n"
        "in time: other episodes whose alarm came before the threshold was spent;\n"
        "left, spent then: of the threshold at the alarm; by the episode from there on"
    )
