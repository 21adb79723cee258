"""New York Harbor, 1-7 December 2020: the AIS log inside the PyPI package tracktable-data (BSD-2)."""

from collections import Counter
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path

import numpy as np

from bcrl.errors import BCRLError
from bcrl.ship._ais import Reports

FILE = "NYHarbor_2020_12_first_week.traj"
SOURCE = f"tracktable-data {FILE}"


def read_new_york() -> Reports:
    """Positions and times; the file has neither speeds nor headings nor kinds of vessel."""
    return read_trajectories(_find())


def _find() -> Path:
    """The file in the installed package, which is not imported: only its data are used."""
    try:
        listed = files("tracktable-data") or []
    except PackageNotFoundError:
        raise BCRLError(
            "ny-harbor needs the package tracktable-data, which is not installed: pip install 'bcrl[ship]'"
        ) from None
    found = [Path(str(file.locate())) for file in listed if file.name == FILE]
    if not found or not found[0].is_file():
        raise BCRLError(f"the installed tracktable-data has no {FILE}: pip install tracktable-data==1.7.3.1")
    return found[0]


def read_trajectories(path: Path) -> Reports:
    """A file in Tracktable's format: each line is a ship's trajectory, each point four fields long.

    The fields before the mark *P* describe the trajectory, the five after it the points: longitude and
    latitude on the globe, no properties. Then for each point: ship, time, longitude, latitude.
    """
    ships, times, places = [], [], []
    bad: Counter[str] = Counter()
    rows = 0
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        fields = line.split(",")
        if fields[0] != "*T*" or "*P*" not in fields:
            raise BCRLError(f"{path}: line {number} is not a trajectory; install tracktable-data again")
        mark = fields.index("*P*")
        if fields[mark + 1 : mark + 6] != ["terrestrial", "2", "1", "1", "0"]:
            raise BCRLError(
                f"{path}: line {number} has points of an unknown form {fields[mark + 1 : mark + 6]}"
            )
        points = fields[mark + 6 :]
        for at in range(0, len(points), 4):
            rows += 1
            try:
                ship, moment, lon, lat = points[at : at + 4]
                values = int(ship), _seconds(moment), (float(lon), float(lat))
            except ValueError:
                bad["unreadable"] += 1
                continue
            ships.append(values[0])
            times.append(values[1])
            places.append(values[2])
    lon, lat = np.array(places).reshape(-1, 2).T
    return Reports.of_positions(np.array(ships), np.array(times), lon, lat, bad=bad, rows=rows)


def _seconds(moment: str) -> int:
    return int(datetime.fromisoformat(moment).replace(tzinfo=UTC).timestamp())
