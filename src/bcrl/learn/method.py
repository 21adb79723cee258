"""What a method is: a frozen dataclass of options with five pure functions over PyTrees."""

from dataclasses import dataclass
from importlib import import_module
from typing import Any, ClassVar, Protocol

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from bcrl.budget import Execution
from bcrl.data import Dataset
from bcrl.errors import BCRLError

Part = str
Metrics = dict[str, Array]


@dataclass(frozen=True)
class Spec:
    """The sizes of a task: all that `init` needs to know of the data."""

    observation_size: int
    action_size: int
    cost_count: int
    horizon: int
    max_cost: tuple[float, ...]
    steps: int

    def __post_init__(self) -> None:
        for field in ("observation_size", "action_size", "cost_count", "horizon", "steps"):
            value = getattr(self, field)
            if not isinstance(value, int) or value < 1:
                raise BCRLError(f"{field} is {value!r}, but must be a whole number from 1 up")
        if len(self.max_cost) != self.cost_count or not all(cost >= 0 for cost in self.max_cost):
            raise BCRLError(f"max_cost is {self.max_cost}, but must be {self.cost_count} numbers from 0 up")

    @classmethod
    def of(cls, data: Dataset, steps: int) -> "Spec":
        """The sizes of a log."""
        return cls(
            observation_size=data.observation_size,
            action_size=data.action_size,
            cost_count=data.cost_count,
            horizon=data.horizon,
            max_cost=tuple(float(cost) for cost in data.max_cost),
            steps=steps,
        )


class Normaliser(eqx.Module):
    """Standardises observations with the statistics of the log."""

    mean: Float[Array, " d"]
    std: Float[Array, " d"]

    @classmethod
    def of(cls, observations: np.ndarray) -> "Normaliser":
        mean, std = observations.mean(0, dtype=np.float64), observations.std(0, dtype=np.float64)
        return cls(jnp.asarray(mean, jnp.float32), jnp.asarray(std + 1e-5, jnp.float32))

    def __call__(self, observations: Float[Array, "*b d"]) -> Float[Array, "*b d"]:
        return (observations - self.mean) / self.std


class Method(Protocol):
    """One agent, one file. The train loop scans `sample` and `update`, under `vmap` over seeds."""

    name: ClassVar[str]
    # A method may also have `family_options`: family -> its options there (see `presets`).

    @property
    def schedule(self) -> tuple[tuple[Part, ...], ...]:
        """Which parts are trained together; the groups run one after another, each for all steps."""
        ...

    def prepare(self, data: Dataset, normaliser: Normaliser) -> Any:
        """What the method needs on the device, as a PyTree of arrays."""
        ...

    def init(self, key: PRNGKeyArray, spec: Spec) -> Any: ...

    def sample(self, arrays: Any, key: PRNGKeyArray) -> Any: ...

    def update(
        self, state: Any, batch: Any, key: PRNGKeyArray, spec: Spec, parts: tuple[Part, ...]
    ) -> tuple[Any, Metrics]: ...

    def actor(self, state: Any, arrays: Any, normaliser: Normaliser, spec: Spec) -> "Actor":
        """What goes into the policy file."""
        ...

    def blank_actor(self, spec: Spec) -> "Actor":
        """An actor of the right shape, its arrays to be filled from a file."""
        ...


class Goal(eqx.Module):
    """What the caller of an episode asks for. `prune` > 0 draws that many actions and keeps safe ones."""

    threshold: Float[Array, " k"]
    budget: Float[Array, " k"]
    horizon: Int[Array, ""]
    execution: Execution = eqx.field(static=True)
    prune: int = eqx.field(static=True, default=0)


class Insight(eqx.Module):
    """What the last action was based on."""

    slack: Float[Array, " k"]
    fallback: Bool[Array, ""]


class Actor(Protocol):
    """How trained networks act in an episode. Its memory is a PyTree, so that a JAX world can scan it."""

    def start(self, key: PRNGKeyArray, goal: Goal) -> Any: ...

    def act(self, memory: Any, observation: Float[Array, " d"]) -> tuple[Float[Array, " a"], Any, Insight]:
        """One action, the next memory, and what it was based on."""
        ...

    def observe(self, memory: Any, cost: Float[Array, " k"], reward: Float[Array, ""]) -> Any: ...


METHODS = {
    "bcrl": "bcrl.learn.bcrl:BCRL",
    "bc-all": "bcrl.learn.baselines.bc:BCAll",
    "bc-safe": "bcrl.learn.baselines.bc:BCSafe",
    "bcq-lag": "bcrl.learn.baselines.bcq_lag:BCQLag",
    "cpq": "bcrl.learn.baselines.cpq:CPQ",
    "coptidice": "bcrl.learn.baselines.coptidice:COptiDICE",
    "cdt": "bcrl.learn.baselines.cdt:CDT",
    "caps": "bcrl.learn.baselines.caps:CAPS",
    "ccac": "bcrl.learn.baselines.ccac:CCAC",
    "lspc": "bcrl.learn.baselines.lspc:LSPC",
    "fisor": "bcrl.learn.baselines.fisor:FISOR",
    "bcrl-td3bc": "bcrl.learn.bcrl_td3:BCRLTD3",
}


def method_class(name: str) -> type:
    """The options class of a method, imported on demand."""
    if not isinstance(name, str) or name not in METHODS:
        raise BCRLError(f"there is no method {name!r}; known: {', '.join(METHODS)}")
    module, attribute = METHODS[name].split(":")
    return getattr(import_module(module), attribute)
