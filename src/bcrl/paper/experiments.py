"""The paper's experiments as data: tasks, columns, and where their published numbers are.

`bcrl paper run NAME` does one of them. `bench/experiment.py` turns it into a plan for the bench.
"""

from dataclasses import dataclass, field
from typing import Any, Literal

from bcrl.paper.published import NAMES, published
from bcrl.worlds.tasks import tasks

Kind = Literal["scores", "time", "feasible", "ships", "grid"]


@dataclass(frozen=True)
class Column:
    """One column of an experiment's table: a method with options."""

    label: str
    method: str = "bcrl"
    options: dict[str, Any] = field(default_factory=dict)
    setting: str = ""
    """The column's `setting` in published.csv."""

    @property
    def title(self) -> str:
        """Its name for readers."""
        return NAMES[self.method] if self.label == self.method else self.label


@dataclass(frozen=True)
class Experiment:
    """What `bcrl paper run NAME` does."""

    name: str
    title: str
    place: str
    """Where the paper has it."""
    kind: Kind
    columns: tuple[Column, ...]
    tasks: tuple[str, ...]
    """The paper's; for `ships` scenario files, for `grid` layouts."""
    table: str = ""
    """The table of published.csv; empty where the paper prints no pairs of reward and cost."""
    best: bool = False
    """Of the best of fifty policies of a training, not of the last."""
    steps: int | None = None
    """The paper's steps, where they are not those of its other trainings."""
    note: str = ""
    """What must be said beside its numbers."""


def _methods(*names: str) -> tuple[Column, ...]:
    return tuple(Column(name, name) for name in names)


def _values(
    option: str, values: tuple[float, ...], name: str, setting: str = "", **others: Any
) -> tuple[Column, ...]:
    """BCRL with each value of an option, and `others`; `setting` is how published.csv names it."""
    return tuple(
        Column(f"{name} {x:g}", options={option: x} | others, setting=setting and setting.format(x))
        for x in values
    )


def _of_table(table: str) -> tuple[str, ...]:
    """The tasks of a table, in its order."""
    return tuple(dict.fromkeys(row.task for row in published() if row.table == table and row.task in tasks()))


_ADAPTIVE = _methods("cdt", "caps", "ccac", "lspc")
_BCRL = _methods("bcrl")
_VARIANTS = (
    Column("BCRL deterministic", options={"tracking": "direct"}, setting="deterministic"),
    Column("BCRL stochastic", options={"tracking": "soft"}, setting="stochastic"),
)
_OURS = "The paper announces this ablation and prints no number of it; values and tasks are ours."

EXPERIMENTS: dict[str, Experiment] = {
    experiment.name: experiment
    for experiment in (
        Experiment(
            "main",
            "BCRL and the methods that adapt to a threshold",
            "main table, and its complete form in the appendix",
            "scores",
            (*_ADAPTIVE, *_BCRL),
            _of_table("main"),
            "main",
        ),
        Experiment(
            "variants",
            "Both kinds of budget tracking beside the adaptive methods",
            "appendix, main results with both versions",
            "scores",
            (*_ADAPTIVE, *_VARIANTS),
            _of_table("variants"),
            "variants",
        ),
        Experiment(
            "non-adaptive",
            "BCRL and the methods that do not adapt to a threshold",
            "appendix, non-adaptive baselines",
            "scores",
            (*_methods("bc-safe", "bcq-lag", "coptidice", "cpq"), *_BCRL),
            _of_table("non-adaptive"),
            "non-adaptive",
        ),
        Experiment(
            "maritime",
            "Ships: distance from the expert, close quarters, success",
            "maritime table",
            "ships",
            _methods("caps", "ccac", "lspc", "bcrl"),
            ("ny-harbor",),
            note="The paper's scenarios are of the Singapore Strait and not public, and it does not state "
            "its budget.",
        ),
        Experiment(
            "tau-r",
            "The expectile τ_R of the reward value",
            "appendix, expectile table, left",
            "scores",
            _values("tau_r", (0.5, 0.6, 0.7), "tau_r", "tau_r={:g}"),
            _of_table("tau_r"),
            "tau_r",
        ),
        Experiment(
            "tau-c",
            "The expectile τ_C of the cost value",
            "appendix, expectile table, right",
            "scores",
            # Over several steps τ_C means something else: the safety-gym family has 0.01 there.
            _values("tau_c", (0.2, 0.3, 0.4), "tau_c", "tau_c={:g}", n_step=1),
            _of_table("tau_c"),
            "tau_c",
        ),
        Experiment(
            "beta",
            "The inverse temperature β of policy extraction",
            "appendix, announced",
            "scores",
            _values("beta", (1.0, 3.0, 8.0), "beta"),
            _of_table("tau_r"),
            note=_OURS,
        ),
        Experiment(
            "samples",
            "The number n of budgets sampled for each transition",
            "appendix, announced",
            "scores",
            _values("budget_samples", (1, 2, 4), "n"),
            _of_table("tau_r"),
            note=_OURS,
        ),
        Experiment(
            "feasible",
            "Share of the log's actions with Q_C(s, a) ≤ δ, against the budget δ",
            "appendix, figure of feasible actions",
            "feasible",
            _BCRL,
            tuple(tasks()),
            note="The paper shows its curves in a picture; what its text says of them are the marks.",
        ),
        Experiment(
            "partial-critic",
            "Cost critics that stop learning early",
            "appendix, partly learned cost critic",
            "scores",
            tuple(
                Column(f"cost critic {share:g}", options={"cost_share": share}, setting=f"{100 * share:g} %")
                for share in (0.2, 0.5, 0.8, 1.0)
            ),
            _of_table("partial-critic"),
            "partial-critic",
        ),
        Experiment(
            "best-policy",
            "The best policy during training, LSPC and BCRL",
            "appendix, best policy obtained by LSPC",
            "scores",
            tuple(Column(name, name, setting="best policy") for name in ("lspc", "bcrl")),
            _of_table("best-policy"),
            "best-policy",
            best=True,
            steps=1_000_000,
            note="The best policy is chosen in the simulator, so this is no longer offline. The paper does "
            "not state its rule; ours is in docs/benchmark.md.",
        ),
        Experiment(
            "run-time",
            "Time of training and evaluation",
            "appendix, run time",
            "time",
            _BCRL,
            tuple(tasks()),
            note="Wall-clock time of all seeds together, as one program, with compilation. The paper's is "
            "for one RTX 3090; it does not say whether for one seed or three.",
        ),
        Experiment(
            "synthetic",
            "Return and cost on a noisy grid, beside the CMDP optimum",
            "figure of the synthetic CMDPs",
            "grid",
            (),
            ("corridor",),
            note="The paper shows its map and its curves only as pictures.",
        ),
    )
}
