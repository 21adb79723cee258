"""The facts of a policy file in words: for the screen, and as a model card in Markdown."""

from pathlib import Path
from typing import Any

from bcrl.errors import printable
from bcrl.report.facts import MOST_NAMES
from bcrl.report.inspection import Inspection, log_summary
from bcrl.report.words import percent

Pairs = list[tuple[str, str]]


def file_pairs(facts: Inspection) -> Pairs:
    """What the file is: method, options, sizes, speed."""
    pairs = [
        ("method", facts.method),
        ("file", f"{facts.bytes:,} bytes, {facts.parameters:,} numbers, sha256 {facts.sha256[:16]}…"),
    ]
    if facts.tabular:
        return [*pairs, ("sizes", ", ".join(f"{name} {value:,}" for name, value in facts.sizes.items()))]
    sizes = facts.sizes
    labels = "labels" if sizes["discrete"] else "numbers"
    pairs += [
        (
            "threshold",
            f"told {facts.told}" + (f", {facts.trained_for:g}" if facts.trained_for is not None else ""),
        ),
        (
            "sizes",
            f"{sizes['observation_size']:,} observations, {sizes['action_size']:,} action {labels}, "
            f"{'1 cost' if sizes['cost_count'] == 1 else str(sizes['cost_count']) + ' costs'}, "
            f"horizon {sizes['horizon']:,}",
        ),
        *_meaning(facts.schema),
        ("largest cost", ", ".join(f"{cost:g}" for cost in sizes["largest_costs"]) + " in a step"),
        ("calibrated", _calibrated(facts.calibration)),
    ]
    if facts.action_ms is not None and facts.first_action_s is not None:
        speed = f"{facts.action_ms:.2g} ms an action here, {facts.first_action_s:.2g} s to the first"
        pairs.append(("speed", speed))
    return pairs


def option_pairs(facts: Inspection) -> Pairs:
    """The options, those that differ from the defaults first."""
    if facts.tabular:
        return []
    pairs = [("changed", _options(facts.changed) or "none"), ("defaults", _options(facts.defaults) or "none")]
    trained = facts.provenance.get("adjusted")
    return [*pairs, ("in training", printable(_options(trained)))] if isinstance(trained, dict) else pairs


def log_pairs(facts: Inspection) -> Pairs:
    """What it was trained on, as far as the file says."""
    if facts.tabular:
        return []
    known = facts.provenance
    pairs = [
        ("log", printable(known.get("data", "unknown"))),
        ("sha256", printable(known.get("data_sha256", "unknown"))),
    ]
    log = log_summary(known)
    if log is None:
        pairs.append(("summary", "none in this file (an older bcrl wrote it): see bcrl data info"))
    else:
        pairs.append(("episodes", f"{log['episodes']:,}, {log['transitions']:,} transitions"))
        pairs.append(("return", _spread(log["episode_return"])))
        names = (
            ["cost"]
            if len(log["episode_cost"]) == 1
            else [f"cost {i + 1}" for i in range(len(log["episode_cost"]))]
        )
        pairs += [(name, _spread(spread)) for name, spread in zip(names, log["episode_cost"], strict=True)]
    made = [f"{name} {known[name]}" for name in ("bcrl", "jax", "device", "seed", "steps") if name in known]
    units = f"cost {', '.join(f'{unit:g}' for unit in facts.units['cost'])}; reward {facts.units['reward']:g}"
    return [*pairs, ("trained with", printable(", ".join(made)) or "unknown"), ("1 in training", units)]


def card(facts: Inspection, evaluation: list[dict[str, Any]] | None = None) -> str:
    """A model card in Markdown."""
    parts = [f"# Model card: {_cell(Path(facts.file).name)}", "## Intended use"]
    parts.append(_INTENDED if not facts.tabular else _INTENDED_TABULAR)
    parts += ["## What the budget means", _BUDGET[facts.told] if not facts.tabular else _BUDGET_TABULAR]
    if facts.calibration is not None:
        parts.append(f"Calibrated from the log alone: {_calibrated(facts.calibration)}.")
    parts += ["## The file", _table(file_pairs(facts))]
    if not facts.tabular:
        parts += ["## Training data", _table(log_pairs(facts)), "## Options", _table(option_pairs(facts))]
    parts += ["## Evaluation"]
    if evaluation:
        rows = [
            (
                f"{row['threshold']:g}",
                _interval(row["cost"]),
                percent(row["over"]),
                _interval(row["return"]),
                row["verdict"],
            )
            for row in evaluation
        ]
        lines = [
            "| threshold | cost | over | return | verdict |",
            "|---|---|---|---|---|",
            *(f"| {' | '.join(row)} |" for row in rows),
        ]
        what = f"{evaluation[0]['what'].capitalize()}; mean and 95 % interval"
        parts += [f"{what}. Over: episodes above the threshold.", "\n".join(lines)]
    else:
        parts.append(
            "None was given. Evaluate in a world, or estimate from the log, at the thresholds you need."
        )
    parts += ["## Limits", _LIMITS if not facts.tabular else _LIMITS_TABULAR]
    return "\n\n".join(parts) + "\n"


_INTENDED = """A policy learned offline from a log, for the process that the log describes and for
observations like the logged ones. At the start of each episode it is told how much the episode may cost."""
_INTENDED_TABULAR = """A policy computed for a known model, for the states of that model alone."""
_MEAN = "It is a limit on the mean over episodes: a single episode may cost more."
_BUDGET = {
    "at run time": f"""The **threshold** is the undiscounted cost that a whole episode may have, in the
unit of the log; the policy is told it when an episode begins. {_MEAN}""",
    "before training": f"""This method fixes its threshold before training. The threshold that an episode is
told does not change what it does. {_MEAN}""",
    "never": """This method knows no threshold: what an episode is told does not change what it does.""",
}
_BUDGET_TABULAR = (
    """The **budget** bounds the expected discounted cost from the start, by the model's own probabilities."""
)
_LIMITS = """- No guarantee: critics are learned, and the log limits what can be known.
- Outside the log's range of observations and costs the policy extrapolates.
- The mean cost is certified only by monitored episodes (`bcrl certify`).
- A process that has changed since the log was recorded is another process: monitor, and train again."""
_LIMITS_TABULAR = """- The answer is exact for the model. Where the model is wrong, it is wrong."""


def _meaning(schema: dict[str, Any]) -> Pairs:
    units = schema.get("units", {})
    pairs = []
    for label, kind in (
        ("observations", "observation_names"),
        ("actions", "action_names"),
        ("costs", "cost_names"),
    ):
        names = schema.get(kind, [])
        texts = [name + (f" [{units[name]}]" if name in units else "") for name in names[:MOST_NAMES]]
        if kind == "action_names" and schema.get("action_low"):
            bounds = zip(texts, schema["action_low"], schema["action_high"], strict=False)
            texts = [f"{text} {low:g}…{high:g}" for text, low, high in bounds]
        if texts:
            more = f" and {len(names) - len(texts):,} more" if len(names) > len(texts) else ""
            pairs.append((label, printable(", ".join(texts) + more)))
    if schema.get("action_labels"):
        pairs.append(("labels", printable(", ".join(schema["action_labels"][:MOST_NAMES]))))
    return pairs


def _calibrated(table: dict[str, Any] | None) -> str:
    if table is None:
        return "no"
    pairs = ", ".join(f"{wanted:g} (told {told:g})" for wanted, told in table["table"])
    return (
        f"for {pairs}; {table['execution']}, horizon {table['horizon']:,}, candidates {table['candidates']}"
    )


def _options(options: dict[str, Any]) -> str:
    def text(value: Any) -> str:
        return (
            "×".join(map(str, value))
            if isinstance(value, tuple)
            else f"{value:g}"
            if isinstance(value, float)
            else str(value)
        )

    return printable(", ".join(f"{name} {text(value)}" for name, value in options.items()))


def _spread(spread: dict[str, float]) -> str:
    return (
        f"{spread['min']:.4g} to {spread['max']:.4g}, median {spread['q50']:.4g}, "
        f"10–90 % {spread['q10']:.4g} to {spread['q90']:.4g}"
    )


def _interval(values: tuple[float, float, float]) -> str:
    return "{:.4g} ({:.4g} to {:.4g})".format(*values)


def _table(pairs: Pairs) -> str:
    return "\n".join(["| | |", "|---|---|", *(f"| {name} | {_cell(value)} |" for name, value in pairs)])


def _cell(text: str) -> str:
    """Text from a file as one cell: nothing in it is markup."""
    return "".join(f"\\{c}" if c in "\\|`*_[]<>#" else c for c in printable(text))
