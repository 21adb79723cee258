"""Worlds under one protocol, `World`: built-in ones in JAX, DSRL tasks, Gymnasium environments."""

import sys
from typing import Any

from bcrl.errors import BCRLError, brief_repr, did_you_mean
from bcrl.worlds._base import JaxWorld, Step
from bcrl.worlds._point_circle import PointCircle
from bcrl.worlds._point_goal import PointGoal
from bcrl.worlds._point_run import PointRun
from bcrl.worlds.protocol import World
from bcrl.worlds.tasks import find_task

__all__ = ["WORLDS", "JaxWorld", "Step", "World", "as_world", "built_in_world", "make_world"]

_BUILT_IN: dict[str, type[JaxWorld]] = {world.name: world for world in (PointCircle, PointRun, PointGoal)}

WORLDS = tuple(_BUILT_IN)
"""The names of the built-in worlds."""


def make_world(name: str, noise: float = 0.0, python: str | None = None) -> World:
    """The world of this name: a built-in one, a DSRL task, or with `gym:ID` a Gymnasium environment.

    `noise` is the standard deviation of a built-in world's actuator error. `python` is the interpreter that
    has the environment of `gym:ID`, by default this one.
    """
    if name in WORLDS:
        if python is not None:
            raise BCRLError(f"--python is for --world gym:ID; {name} runs inside bcrl")
        return built_in_world(name, noise)
    if noise:
        raise BCRLError(f"--noise is for the built-in worlds ({', '.join(WORLDS)}), not for {name}")
    if name.startswith("gym:"):
        from bcrl.worlds.remote.pool import user_task

        return user_task(name.removeprefix("gym:"), python or sys.executable)
    if python is not None:
        raise BCRLError(f"--python is for --world gym:ID; {name} runs in a Python of its own")
    try:
        return find_task(name)
    except BCRLError as error:
        hint = did_you_mean(name, WORLDS)
        said = f"there is no world {name!r}{hint}" if hint else str(error)
        raise BCRLError(f"{said}; built in are {', '.join(WORLDS)}") from None


def built_in_world(name: str, noise: float = 0.0) -> JaxWorld:
    """The built-in world of this name."""
    if name not in _BUILT_IN:
        raise BCRLError(f"there is no world {name!r}{did_you_mean(name, WORLDS)}; known: {', '.join(WORLDS)}")
    if not 0.0 <= noise < float("inf"):
        raise BCRLError(f"noise is {noise}; it is a standard deviation, so give 0 or more")
    return _BUILT_IN[name](noise=float(noise))


def as_world(given: Any) -> World:
    """The world of a name, of a live Gymnasium environment, or the world itself."""
    if isinstance(given, str):
        return make_world(given)
    # Whose environment it is was imported before; built-in worlds do without the package.
    gymnasium = sys.modules.get("gymnasium")
    if gymnasium is not None and isinstance(given, gymnasium.Env):
        from bcrl.worlds._live import live_world

        return live_world(given)
    if isinstance(given, type) or not hasattr(given, "engine"):
        raise BCRLError(
            f"world is {brief_repr(given)}, but must be the name of one, a World or a Gymnasium environment"
        )
    return given
