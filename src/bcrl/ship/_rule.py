"""The rule that turns position reports into tracks and scenarios, and the box on the chart it is used in."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bcrl.errors import BCRLError

SECONDS = 10
"""Between two steps, in every part of the package."""
MAX_SPEED = 20.0
"""m/s. A report that its ship could only reach faster is taken for an error."""
EARTH = 6_371_000.0
"""Metres; a sphere is good enough for a box of some kilometres."""
KNOT = 0.514444
"""m/s."""


@dataclass(frozen=True)
class Rule:
    """How reports become tracks (all traffic) and scenarios (the tracks that policies sail)."""

    gap: int = 300
    """Seconds without a report that end a track: a straight line over more would cross land."""
    moving: float = 0.5
    """m/s. A step that is slower ends a track, so that moored ships are no traffic; 0 keeps them."""
    min_steps: int = 30
    """A scenario has at least this many steps of 10 s."""
    min_metres: float = 400.0
    """A scenario's goal is at least this far from its start: twice the distance at which it is reached."""
    min_reports: int = 2
    """Reports between two gaps that are needed for a track."""
    cut_first: bool = False
    """Drop reports outside the box before tracks are made, as the original does: a ship that leaves and comes
    back is then joined by a straight line. Otherwise tracks are cut at the edge of the box."""
    skip_first_instant: bool = False
    """A report that lies on the 10 s grid starts its track 10 s later, as in the original."""
    under_way_only: bool = False
    """Use only reports with status 0 and a heading, where the file has them, as the original does."""

    @property
    def margin(self) -> float:
        """Metres around the box from which a ship can reach it between two reports."""
        return 0.0 if self.cut_first else MAX_SPEED * self.gap


RULES = {
    "moving": Rule(),
    "original": Rule(
        gap=1800,
        moving=0.0,
        min_steps=1,
        min_metres=0.0,
        min_reports=5,
        cut_first=True,
        skip_first_instant=True,
        under_way_only=True,
    ),
}
"""The rule of this package, and that of the original simulator for comparison."""


@dataclass(frozen=True)
class Box:
    """A rectangle on the chart, in degrees, and local metres from its south-west corner."""

    west: float
    south: float
    east: float
    north: float

    def __post_init__(self) -> None:
        edges = (self.west, self.south, self.east, self.north)
        inside = -180 <= self.west < self.east <= 180 and -89 <= self.south < self.north <= 89
        if not (np.isfinite(edges).all() and inside):
            raise BCRLError(
                f"the box is {','.join(f'{edge:g}' for edge in edges)}, but must be west,south,east,north in "
                "degrees with west < east and south < north, such as -74.053,40.672,-73.97,40.735"
            )

    @property
    def size(self) -> tuple[float, float]:
        """Metres from west to east (along the southern edge) and from south to north."""
        x, y = self.to_metres(np.array(self.east), np.array(self.north))
        return float(x), float(y)

    def to_metres(
        self, lon: NDArray[np.float64], lat: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Metres east and north of the south-west corner, with the southern edge's length of a degree."""
        x = np.radians(lon - self.west) * (EARTH * np.cos(np.radians(self.south)))
        return x, np.radians(lat - self.south) * EARTH

    def to_degrees(
        self, x: NDArray[np.float64], y: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Longitude and latitude of local metres."""
        lon = self.west + np.degrees(x / (EARTH * np.cos(np.radians(self.south))))
        return lon, self.south + np.degrees(y / EARTH)

    def grown(self, metres: float) -> "Box":
        """The box with this margin on all sides, as far as the globe allows."""
        north = np.degrees(metres / EARTH)
        east = north / np.cos(np.radians(self.south))
        return Box(
            max(self.west - east, -180.0),
            max(self.south - north, -89.0),
            min(self.east + east, 180.0),
            min(self.north + north, 89.0),
        )


NEW_YORK = Box(-74.053, 40.672, -73.970, 40.735)
"""The Upper Bay and the mouths of Hudson and East River."""
SINGAPORE = Box(103.82, 1.15, 103.88, 1.22)
"""The original's part of the Singapore Strait."""
