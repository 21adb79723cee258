"""The 38 DSRL tasks under the paper's names: sizes, reference returns, thresholds and caveats."""

import json
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from bcrl.errors import BCRLError
from bcrl.learn.protocol import Spec
from bcrl.worlds.protocol import References, check_sizes, normalise

if TYPE_CHECKING:
    from bcrl.worlds.remote.pool import Envs

# What `learn.registry` calls the hyperparameters of a family is also what a task says it belongs to.
# The value is the name of the Python environment that runs it (`bcrl worlds install NAME`).
INSTALLS = {"bullet": "bullet", "safety-gym": "safety-gymnasium", "metadrive": "metadrive"}

THRESHOLDS = {
    "bullet": (10.0, 20.0, 40.0),
    "safety-gym": (20.0, 40.0, 80.0),
    "metadrive": (10.0, 20.0, 40.0),
    "gym": (10.0, 20.0, 40.0),
}
"""The episode costs at which DSRL evaluates a policy."""

METADRIVE_CAVEAT = (
    "an approximation: DSRL's MetaDrive is a private fork with 261 observations and other traffic; "
    "the released MetaDrive 0.2.6.0 has 259"
)
HARD_CAVEAT = METADRIVE_CAVEAT + ", and its hard routes are too short for the reference return"


@dataclass(frozen=True)
class Task:
    """A `World` of Gymnasium environments, which run in worker processes."""

    engine = "pool"
    cost_count = 1
    discrete = False

    name: str
    family: str
    """bullet, safety-gym or metadrive, which also names its default hyperparameters; or gym."""
    env_id: str
    observation_size: int
    action_size: int
    horizon: int
    reference_returns: References | None
    """Returns that DSRL counts as 0 and as 1."""
    thresholds: tuple[float, ...]
    data_file: str = ""
    """DSRL's file for the task."""
    data_observation_size: int = 0
    """The width of observations in DSRL's file."""
    ends_early: bool = False
    """Whether an episode may end before the horizon."""
    caveat: str = ""
    """What to say wherever a number of this task is shown."""
    config: dict[str, Any] = field(default_factory=dict, hash=False)
    """Keyword arguments of the environment."""
    python: str = ""
    """The interpreter that runs a user's own environment; a family has its own."""

    @property
    def label(self) -> str:
        return self.name

    def open(self, slots: int, workers: int | None = None) -> "Envs":
        """Environments for up to `slots` episodes side by side."""
        from bcrl.worlds.remote.pool import Pool

        return Pool(self, slots=slots, workers=workers)

    def normalise(self, returns: Any) -> Any:
        """Returns on DSRL's scale, (R − min)/(max − min), not clipped; NaN without references."""
        return normalise(returns, self.reference_returns)

    def check(self, spec: Spec) -> None:
        """Refuses a policy that was trained for other observations or actions."""
        if spec.observation_size == self.data_observation_size != self.observation_size:
            raise BCRLError(
                f"the policy has {spec.observation_size} observations, as DSRL's file for {self.name}, but "
                f"the released MetaDrive gives {self.observation_size}: train on a log recorded in this world"
            )
        check_sizes(self, spec)


@cache
def tasks() -> dict[str, Task]:
    """All tasks by name, in the order of the paper's families."""
    rows = json.loads(files("bcrl.worlds").joinpath("tasks.json").read_text(encoding="utf-8"))
    return {row["name"]: _task(row) for row in rows}


def _task(row: dict[str, Any]) -> Task:
    caveat = ""
    if row["family"] == "metadrive":
        caveat = HARD_CAVEAT if row["name"].startswith("hard") else METADRIVE_CAVEAT
    settled = {
        "reference_returns": tuple(row["reference_returns"]),
        "thresholds": THRESHOLDS[row["family"]],
        "data_observation_size": row.get("data_observation_size", row["observation_size"]),
        "caveat": caveat,
    }
    return Task(**(row | settled))


def find_task(name: str) -> Task:
    """The task of this name, in upper or lower case; the error names near misses."""
    by_lower = {known.lower(): task for known, task in tasks().items()}
    task = by_lower.get(name.lower())
    if task is not None:
        return task
    close = get_close_matches(name.lower(), by_lower, n=3, cutoff=0.5)
    hint = ", ".join(by_lower[match].name for match in close)
    said = f"did you mean {hint}?" if hint else "bcrl worlds lists them"
    raise BCRLError(f"there is no task {name!r}; {said}")
