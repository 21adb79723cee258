"""Where the original simulator does something odd: switches that replay it, to check figures against it."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Quirks:
    """The defaults are right; ORIGINAL has what the original does."""

    padding: Literal["mask", "zeros"] = "mask"
    """Rows of absent ships and of the unseen past are marked absent, or only zeros."""
    alone: Literal["far", "close"] = "far"
    """With no other ship in sight the nearest is infinitely far away, or at 0 m, which is close quarters."""
    cost_timing: Literal["after", "before"] = "after"
    """The cost of a step looks at the distances after it, or before it."""
    first_twice: bool = False
    """The first observation shows the first state twice, as if the ship had lain still for a step."""
    reward: Literal["goal", "repository"] = "goal"
    """100 at the goal; or, as published, 1 at the goal and -100 when cut short."""
    limits: Literal["speed", "box"] = "speed"
    """A full action is 200 m and half a turn, which every logged ship keeps; or a twentieth of the box and a
    quarter turn, which some do not."""


ORIGINAL = Quirks(
    padding="zeros",
    alone="close",
    cost_timing="before",
    first_twice=True,
    reward="repository",
    limits="box",
)
