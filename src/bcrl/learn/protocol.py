"""What every method and every actor must have. Methods are pure functions over PyTrees."""

from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from bcrl.budget import Execution
from bcrl.data import Dataset
from bcrl.data.blocks import moments
from bcrl.errors import BCRLError, brief_repr

LARGEST = 2**31 - 1  # steps and sizes are int32 on the device
MOST_LABELS = 4_096  # of discrete actions; the critics compare all of them, each as long as their number
Part = str
Metrics = dict[str, Array]


@dataclass(frozen=True)
class Spec:
    """The sizes of a task: all that `init` needs to know of the data. Costs are in the method's unit."""

    observation_size: int
    action_size: int
    cost_count: int
    horizon: int
    max_cost: tuple[float, ...]
    steps: int
    discrete: bool = False
    """Whether actions are labels: one-hot vectors of `action_size` entries."""

    def __post_init__(self) -> None:
        for field in ("observation_size", "action_size", "cost_count", "horizon", "steps"):
            value = getattr(self, field)
            if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= LARGEST:
                raise BCRLError(
                    f"{field} is {brief_repr(value)}, but must be a whole number from 1 to 2³¹ − 1"
                )
        if not isinstance(self.discrete, bool):
            raise BCRLError(f"discrete is {brief_repr(self.discrete)}, but must be true or false")
        if self.discrete and self.action_size > MOST_LABELS:
            raise BCRLError(
                f"action_size is {self.action_size}, but there may be {MOST_LABELS:,} labels at most"
            )
        costs = self.max_cost
        if len(costs) != self.cost_count or not all(
            0 <= cost < (LARGEST if isinstance(cost, int) else float("inf")) for cost in costs
        ):
            raise BCRLError(
                f"max_cost is {brief_repr(self.max_cost)}, but must be {self.cost_count} numbers from 0 up"
            )

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
            discrete=data.schema.discrete,
        )


class Normaliser(eqx.Module):
    """Standardises observations with the statistics of the log."""

    mean: Float[Array, " d"]
    std: Float[Array, " d"]

    @classmethod
    def of(cls, observations: np.ndarray) -> "Normaliser":
        """A column that is constant in the log, but for float32's last digit, is divided by its size: another
        value at run time shows how far off it is. One that varies by far less than 10⁻⁵ is rounding noise."""
        mean, std = moments(observations)
        size = np.where(np.abs(mean) > 1e-5, np.abs(mean), 1.0)
        scale = np.where(std <= 1e-7 * np.abs(mean), size, std + 1e-5)
        return cls(jnp.asarray(mean, jnp.float32), jnp.asarray(scale, jnp.float32))

    @classmethod
    def identity(cls, size: int) -> "Normaliser":
        """Leaves its input as it is."""
        return cls(jnp.zeros(size), jnp.ones(size))

    def __call__(self, observations: Float[Array, "*b d"]) -> Float[Array, "*b d"]:
        return (observations - self.mean) / self.std


class Method(Protocol):
    """One method, one file: a frozen dataclass of options with these functions.

    The train loop scans `sample` and `update`, under `vmap` over seeds. `MethodOptions` has defaults for the
    properties.
    """

    name: ClassVar[str]
    acting: ClassVar[tuple[str, ...]]
    """The options of acting: a trained policy can have others (`Policy.adjusted`)."""

    @property
    def instance(self) -> str:
        """The record of the registry that says what it can do; `name` unless options change that."""
        ...

    @property
    def schedule(self) -> tuple[tuple[Part, ...], ...]:
        """Which parts are trained together; the groups run one after another, each for all steps."""
        ...

    @property
    def trained_for(self) -> float | None:
        """The threshold that training was for; None where training sees none."""
        ...

    @property
    def cost_unit(self) -> tuple[float, ...] | None:
        """The costs that count as 1 in training; None: the largest of a step (`units.py`)."""
        ...

    @property
    def reward_unit(self) -> float | None:
        """The reward that counts as 1 in training; None: chosen from the log (`units.py`)."""
        ...

    @property
    def in_task_units(self) -> bool:
        """Whether costs and rewards are taken as they are in the log, for constants of a published task."""
        ...

    @property
    def budget_form(self) -> tuple[str, str]:
        """Tracking and criterion of a method that trains on budgets; empty words for the others."""
        ...

    def prepare(self, data: Dataset, normaliser: Normaliser) -> Any:
        """What the method needs on the device, as a PyTree of arrays."""
        ...

    def init(self, key: PRNGKeyArray, spec: Spec) -> Any:
        """The train state before the first step."""
        ...

    def sample(self, arrays: Any, key: PRNGKeyArray) -> Any:
        """A random batch."""
        ...

    def update(
        self, state: Any, batch: Any, key: PRNGKeyArray, spec: Spec, parts: tuple[Part, ...]
    ) -> tuple[Any, Metrics]:
        """One gradient step on the networks of `parts`."""
        ...

    def actor(self, state: Any, arrays: Any | None, normaliser: Normaliser, spec: Spec) -> "Actor":
        """What goes into the policy file; without `arrays`, statistics of the log are zeros."""
        ...


def blank_actor(method: Method, spec: Spec) -> "Actor":
    """An actor of the right shape, its arrays to be filled from a file."""
    state = method.init(jax.random.key(0), spec)
    return method.actor(state, None, Normaliser.identity(spec.observation_size), spec)


class Goal(eqx.Module):
    """What the caller of an episode asks for; `candidates` > 0 samples that many actions each step."""

    threshold: Float[Array, " k"]
    budget: Float[Array, " k"]
    horizon: Int[Array, ""]
    execution: Execution = eqx.field(static=True)
    candidates: int = eqx.field(static=True, default=0)
    within: Float[Array, "2 d"] | None = None
    """Lowest and highest observations; at others the fallback acts. None: no limits."""


class Insight(eqx.Module):
    """What the last action was based on."""

    slack: Float[Array, " k"]
    fallback: Bool[Array, ""]


class Actor(Protocol):
    """How trained networks act in an episode. Its memory is a PyTree, so that a JAX world can scan it."""

    @property
    def tracks_budgets(self) -> bool:
        """Whether execution rules, `budget=` and candidates have a meaning."""
        ...

    @property
    def needs_reward(self) -> bool:
        """Whether `observe` must be told the reward too."""
        ...

    @property
    def cost_discount(self) -> float:
        """γ_C, by which a threshold becomes a discounted budget; 1 where nothing is discounted."""
        ...

    @property
    def longest(self) -> int | None:
        """The longest horizon it can act for; None where any will do."""
        ...

    def start(self, key: PRNGKeyArray, goal: Goal) -> Any:
        """The memory at the beginning of an episode."""
        ...

    def act(self, memory: Any, observation: Float[Array, " d"]) -> tuple[Float[Array, " a"], Any, Insight]:
        """One action, the next memory, and what the action was based on."""
        ...

    def observe(self, memory: Any, cost: Float[Array, " k"], reward: Float[Array, ""]) -> Any:
        """The memory after the step's cost and reward are known."""
        ...
