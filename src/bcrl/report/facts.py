"""Facts about a log and a training, as pairs of a name and a value for the page."""

import dataclasses
import platform
from collections.abc import Sequence
from importlib.metadata import version

from bcrl.assess.results import Result
from bcrl.data import Dataset, Schema, summarise
from bcrl.learn.protocol import Method
from bcrl.policy import Policy
from bcrl.report.episode_units import labelled
from bcrl.report.words import count, listed, percent

Pairs = list[tuple[str, str]]
MOST_NAMES = 12


def worlds(results: Sequence[Result]) -> list[str]:
    return sorted({result.world for result in results})


def of_log(dataset: Dataset) -> Pairs:
    """What the policy had to learn from."""
    known = summarise(dataset)
    schema = dataset.schema
    shortest, longest = known["shortest_episode"], known["horizon"]
    length = f"{longest:,} steps each" if shortest == longest else f"{shortest:,} to {longest:,} steps"
    pairs = [
        ("episodes", f"{known['episodes']:,} of {length}, {known['transitions']:,} transitions"),
        ("observation", count(known["observation_size"], "number") + _named(schema, "observation_names")),
        ("action", count(known["action_size"], "number") + _named(schema, "action_names")),
        ("return", _spread(known["episode_return"], schema.units.get("reward", ""))),
    ]
    kinds = zip(known["episode_cost"], known["share_of_episodes_within"], strict=True)
    for i, (spread, within) in enumerate(kinds, start=1):
        kind = "cost" if known["cost_count"] == 1 else f"cost {i}"
        shares = ", ".join(f"{limit}: {percent(share)}" for limit, share in within.items())
        unit = schema.units.get(schema.cost_names[i - 1], "") if schema.cost_names else ""
        pairs += [(kind, _spread(spread, unit)), (f"{kind} at most", f"{shares} of episodes")]
    return [*pairs, ("sha256", known["sha256"])]


def of_training(policies: Sequence[Policy]) -> list[tuple[str, Pairs]]:
    """A heading and the settings of each training; seeds of one training stand together."""
    trainings: dict[str, list[Policy]] = {}
    for policy in policies:
        common = {name: value for name, value in policy.provenance.items() if name != "seed"}
        trainings.setdefault(f"{policy.method} {common}", []).append(policy)
    many = len(trainings) > 1
    return [
        (f"The training of {group[0].method.name}" if many else "The training", _training(group))
        for group in trainings.values()
    ]


def _training(group: Sequence[Policy]) -> Pairs:
    method, known = group[0].method, group[0].provenance
    options = other_options(method)
    seeds = sorted({int(policy.provenance.get("seed", 0)) for policy in group})
    steps = known.get("steps")
    return [
        ("method", method.name),
        ("options", ", ".join(f"{name} {_value(value)}" for name, value in options) or "the defaults"),
        ("steps", f"{steps:,}" if isinstance(steps, int) else "unknown"),
        ("seed" if len(seeds) == 1 else "seeds", listed([str(seed) for seed in seeds])),
        ("log", str(known.get("data", "unknown"))),
        ("sha256 of log", str(known.get("data_sha256", "unknown"))),
        ("trained with", f"bcrl {known.get('bcrl', 'unknown')}"),
    ]


def other_options(method: Method) -> list[tuple[str, object]]:
    """The options that differ from the method's defaults, or have none."""
    given = [(field, getattr(method, field.name)) for field in dataclasses.fields(method)]  # type: ignore[arg-type]
    return [(field.name, value) for field, value in given if value != field.default]


def versions() -> str:
    """What made the page."""
    packages = ", ".join(f"{label} {version(label.lower())}" for label in ("JAX", "NumPy", "Matplotlib"))
    return f"Page made with bcrl {version('bcrl')}, Python {platform.python_version()}, {packages}."


def _spread(spread: dict[str, float], unit: str) -> str:
    numbers = (
        f"{spread['min']:.1f} to {spread['max']:.1f}, median {spread['q50']:.1f}, mean {spread['mean']:.1f}"
    )
    return f"{numbers} {unit}" if unit else numbers


def _named(schema: Schema, kind: str) -> str:
    """The first names with their units, where they are known."""
    names = getattr(schema, kind)
    some = ", ".join(labelled(name, schema.units.get(name, "")) for name in names[:MOST_NAMES])
    return f": {some}{', …' if len(names) > MOST_NAMES else ''}" if names else ""


def _value(value: object) -> str:
    return " × ".join(map(str, value)) if isinstance(value, tuple) else str(value)
