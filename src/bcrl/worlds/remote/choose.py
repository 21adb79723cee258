"""From what the user calls a world to the world."""

from bcrl.errors import BCRLError
from bcrl.worlds import WORLDS, World, make_world
from bcrl.worlds.tasks import Task, find_task


def choose_world(name: str, noise: float = 0.0, python: str | None = None) -> World | Task:
    """A built-in world, a DSRL task, or with `gym:ID` an environment of the Python at `python`."""
    if name in WORLDS:
        if python is not None:
            raise BCRLError(f"--python is for --world gym:ID; {name} runs inside bcrl")
        return make_world(name, noise)
    if noise:
        raise BCRLError(f"--noise is for the built-in worlds ({', '.join(WORLDS)}), not for {name}")
    if name.startswith("gym:"):
        from bcrl.worlds.remote.pool import user_task

        if python is None:
            raise BCRLError(f"--world {name} needs --python PATH, the Python that the environment runs in")
        return user_task(name.removeprefix("gym:"), python)
    if python is not None:
        raise BCRLError(f"--python is for --world gym:ID; {name} runs in a Python of its own")
    try:
        return find_task(name)
    except BCRLError as error:
        raise BCRLError(f"{error}; built in are {', '.join(WORLDS)}") from None
