"""Built-in worlds: small constrained tasks as pure JAX functions."""

from bcrl.errors import BCRLError
from bcrl.worlds.base import World
from bcrl.worlds.point_circle import PointCircle
from bcrl.worlds.point_goal import PointGoal
from bcrl.worlds.point_run import PointRun

__all__ = ["WORLDS", "World", "make_world"]

_BUILT_IN: dict[str, type[World]] = {world.name: world for world in (PointCircle, PointRun, PointGoal)}

WORLDS = tuple(_BUILT_IN)
"""The names `make_world` knows."""


def make_world(name: str, noise: float = 0.0) -> World:
    """The world of this name; `noise` is the standard deviation of its actuators' error."""
    if name not in _BUILT_IN:
        raise BCRLError(f"there is no world {name!r}; known: {', '.join(WORLDS)}")
    if not 0.0 <= noise < float("inf"):
        raise BCRLError(f"noise is {noise}; it is a standard deviation, so give 0 or more")
    return _BUILT_IN[name](noise=float(noise))
