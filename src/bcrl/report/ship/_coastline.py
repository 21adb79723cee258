"""A coastline from a local GeoJSON file, in the metres of a box and cut at its edges. numpy only."""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from bcrl.errors import BCRLError, brief_repr
from bcrl.progress import progress
from bcrl.ship import Box


@dataclass(frozen=True)
class Coastline:
    land: list[list[np.ndarray]] = field(default_factory=list)
    """Areas; each is an outer ring (n, 2) and the rings of its holes."""
    lines: list[np.ndarray] = field(default_factory=list)
    """(n, 2) each."""


def read_coastline(path: str | os.PathLike[str], box: Box) -> Coastline:
    """Lines and polygons of the file as far as they are inside the box; points are left out."""
    path = Path(path)
    if not path.is_file():
        raise BCRLError(f"{path}: there is no such file")
    try:
        content = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        raise BCRLError(f"{path}: not GeoJSON; give a file of lines or polygons in degrees") from None
    try:
        shapes = list(_shapes(content))
        coast = Coastline()
        with progress("coastline", len(shapes), "shapes") as tick:
            for kind, coordinates in shapes:
                if kind == "LineString":
                    coast.lines.extend(_cut_line(_metres(coordinates, box), box.size))
                else:
                    rings = [_cut_area(_metres(ring, box), box.size) for ring in coordinates]
                    rings = [ring for ring in rings if len(ring) >= 3]
                    if rings:
                        coast.land.append(rings)
                tick()
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
        raise BCRLError(
            f"{path}: not GeoJSON of lines or polygons in degrees ({brief_repr(error)})"
        ) from None
    return coast


def _shapes(content: Any) -> Iterator[tuple[str, Any]]:
    """Every LineString and Polygon, at any depth."""
    kind = content["type"]
    if kind == "FeatureCollection":
        for feature in content["features"]:
            yield from _shapes(feature)
    elif kind == "Feature":
        if content["geometry"] is not None:
            yield from _shapes(content["geometry"])
    elif kind == "GeometryCollection":
        for geometry in content["geometries"]:
            yield from _shapes(geometry)
    elif kind in ("LineString", "Polygon"):
        yield kind, content["coordinates"]
    elif kind in ("MultiLineString", "MultiPolygon"):
        for part in content["coordinates"]:
            yield kind.removeprefix("Multi"), part
    elif kind not in ("Point", "MultiPoint"):
        raise ValueError(f"the type {kind!r} is not known")


def _metres(coordinates: Any, box: Box) -> np.ndarray:
    """(n, 2). A position may have a height, which is left out."""
    degrees = np.array([position[:2] for position in coordinates], float).reshape(-1, 2)
    if not (np.abs(degrees) <= 360).all():
        raise ValueError("a position is not in degrees")
    return np.stack(box.to_metres(degrees[:, 0], degrees[:, 1]), axis=1)


def _cut_line(line: np.ndarray, size: tuple[float, float]) -> Iterator[np.ndarray]:
    """The parts inside the rectangle from (0, 0) to `size`."""
    part: list[np.ndarray] = []
    for begin, end in pairwise(line):
        low, high = _inside(begin, end - begin, size)
        if low < high:
            if not part or low > 0:
                part = [begin + low * (end - begin)]
            part.append(begin + high * (end - begin))
        if part and (high < 1 or low >= high):
            yield np.array(part)
            part = []
    if part:
        yield np.array(part)


def _inside(begin: np.ndarray, way: np.ndarray, size: tuple[float, float]) -> tuple[float, float]:
    """From which share of the way to which share it is inside; nowhere if the first is not the smaller."""
    low, high = 0.0, 1.0
    for axis in (0, 1):
        if way[axis] == 0:
            if not 0 <= begin[axis] <= size[axis]:
                return 1.0, 0.0
            continue
        enter, leave = sorted((-begin[axis] / way[axis], (size[axis] - begin[axis]) / way[axis]))
        low, high = max(low, enter), min(high, leave)
    return low, high


def _cut_area(ring: np.ndarray, size: tuple[float, float]) -> np.ndarray:
    """The ring cut by the four edges, one after another; what is outside is drawn along the edge."""
    for axis, edge, sign in ((0, 0.0, 1), (1, 0.0, 1), (0, size[0], -1), (1, size[1], -1)):
        if not len(ring):
            break
        kept: list[np.ndarray] = []
        before = ring[-1]
        for point in ring:
            inside, was_inside = (sign * (p[axis] - edge) >= 0 for p in (point, before))
            if inside != was_inside:
                share = (edge - before[axis]) / (point[axis] - before[axis])
                kept.append(before + share * (point - before))
            if inside:
                kept.append(point)
            before = point
        ring = np.array(kept).reshape(-1, 2)
    return ring
