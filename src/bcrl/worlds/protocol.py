"""`World`: what evaluation, recording and benchmarks read of a world, wherever it runs."""

from typing import Any, Protocol

from bcrl.errors import BCRLError
from bcrl.learn.protocol import Spec

References = tuple[float, float]
"""Returns that count as 0 and as 1 after normalisation."""


class World(Protocol):
    """A constrained task. `JaxWorld`, `Task`, `EnvWorld` and `ShipWorld` satisfy it."""

    @property
    def engine(self) -> str:
        """How episodes are run: "scan" over pure JAX functions, or in a "pool" of Gymnasium environments."""
        ...

    @property
    def name(self) -> str: ...

    @property
    def label(self) -> str:
        """The name with what changes the dynamics (noise): the column `world` of results."""
        ...

    @property
    def family(self) -> str:
        """Whose hyperparameters the world takes, and whose average it belongs to."""
        ...

    @property
    def observation_size(self) -> int: ...

    @property
    def action_size(self) -> int: ...

    @property
    def cost_count(self) -> int: ...

    @property
    def discrete(self) -> bool:
        """Whether actions are labels, given as one-hot vectors."""
        ...

    @property
    def horizon(self) -> int:
        """Steps after which an episode is truncated; 0 where the world does not say."""
        ...

    @property
    def thresholds(self) -> tuple[float, ...]:
        """The episode costs at which a policy is evaluated by default."""
        ...

    @property
    def reference_returns(self) -> References | None:
        """None: returns of this world cannot be normalised."""
        ...

    @property
    def caveat(self) -> str:
        """What to print wherever a number of this world is shown."""
        ...

    @property
    def data_file(self) -> str:
        """DSRL's file for the task, if there is one."""
        ...

    def normalise(self, returns: Any) -> Any:
        """Returns on the scale where the reference returns are 0 and 1; NaN without references."""
        ...

    def check(self, spec: Spec) -> None:
        """Refuses a policy of other sizes."""
        ...


def normalise(returns: Any, references: References | None) -> Any:
    """(R − low)/(high − low), not clipped; NaN without references."""
    low, high = references or (0.0, float("nan"))
    return (returns - low) / (high - low)


def check_sizes(world: World, spec: Spec, hint: str = "evaluate in the world the log is from") -> None:
    """Refuses a policy whose sizes are not the world's."""
    sizes = (spec.observation_size, spec.action_size, spec.cost_count)
    theirs = (world.observation_size, world.action_size, world.cost_count)
    if sizes != theirs:
        raise BCRLError(
            f"the policy has (observations, actions, costs) {sizes}, but {world.name} {theirs}: {hint}"
        )
    if spec.discrete != world.discrete:
        ours, theirs = ("discrete" if one else "continuous" for one in (spec.discrete, world.discrete))
        raise BCRLError(f"the policy has {ours} actions, but {world.name} {theirs} ones: {hint}")
