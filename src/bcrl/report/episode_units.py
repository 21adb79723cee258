"""The units of an episode's cost and return, where the schema of a log or policy knows them."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from bcrl.data import Dataset
from bcrl.errors import brief
from bcrl.policy import Policy

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class EpisodeUnits(NamedTuple):
    """Empty where a unit is not known."""

    cost: str = ""
    earned: str = ""


def units_of(dataset: Dataset | None, policies: Sequence[Policy] = ()) -> EpisodeUnits:
    """The units in the schema of the log, or else of the first policy; of one kind of cost alone."""
    schemas = [known.schema for known in (dataset, *policies) if known is not None]
    if not schemas:
        return EpisodeUnits()
    names, units = schemas[0].cost_names, schemas[0].units
    cost = units.get(names[0], "") if len(names) == 1 else ""
    return EpisodeUnits(brief(cost, 40), brief(units.get("reward", ""), 40))


def labelled(text: str, unit: str) -> str:
    """A label with its unit in brackets, where that is known."""
    return f"{text} [{unit}]" if unit else text


def label_axes(axes: "Axes", x: str, y: str) -> None:
    """Adds units to the labels of a picture."""
    axes.set_xlabel(labelled(axes.get_xlabel(), x))
    axes.set_ylabel(labelled(axes.get_ylabel(), y))
