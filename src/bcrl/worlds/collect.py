"""Recording a log in a world, for learning offline."""

import jax
import numpy as np
from numpy.typing import NDArray

from bcrl.data import Dataset
from bcrl.errors import BCRLError
from bcrl.progress import progress
from bcrl.worlds.base import World
from bcrl.worlds.ppo import Episodes, play_and_learn, start_learner
from bcrl.worlds.thinning import thin

STEPS = 6_000_000  # played and learnt from, of which the log is a part
EPISODES = 256  # played side by side, then learnt from
COST_CAP = 120.0  # an episode
SPARE = 4  # the pool is cut when it holds this many times what is wanted


def collect(
    world: World,
    transitions: int = 200_000,
    seed: int = 0,
    *,
    steps: int = STEPS,
    episodes: int = EPISODES,
    cost_cap: float = COST_CAP,
) -> Dataset:
    """A log of about `transitions` steps (whole episodes, so up to one episode more) that covers the plane.

    One agent, told each episode's penalty on cost, learns online from random to good. Its episodes of every
    age go into one pool; those that cost at most `cost_cap` are thinned evenly over return and cost. So the
    log has safe and unsafe, good and bad behaviour, like the logs of the DSRL benchmark. A short log is drawn
    from the same `steps` as a long one, hence takes as long. The same seed gives the same log.
    """
    if transitions < world.horizon:
        raise BCRLError(
            f"transitions is {transitions}; one episode of {world.name} has up to {world.horizon}"
        )
    rounds = max(1, round(steps / (episodes * world.horizon)))
    start, *keys = jax.random.split(jax.random.key(seed), rounds + 1)
    random = np.random.default_rng(seed)
    learner = start_learner(world, start, rounds)
    pool = Pool(transitions, cost_cap, random)
    with progress(f"recording {world.name}", rounds * episodes, "episodes") as tick:
        for key in keys:
            learner, played = play_and_learn(world, learner, key, episodes, rounds)
            pool.add(played)
            tick(episodes, pool.note)
    return Dataset.from_arrays(pool.log(), source=f"{world.name}, noise {world.noise}, seed {seed}")


class Pool:
    """The episodes recorded so far, cut now and then so that they fit into memory."""

    def __init__(self, transitions: int, cost_cap: float, random: np.random.Generator):
        self.transitions, self.cost_cap, self.random = transitions, cost_cap, random
        self.parts: list[dict[str, NDArray]] = []
        self.held = 0
        self.note = ""

    def add(self, played: Episodes) -> None:
        """Takes over a batch of episodes, except those that cost too much for any log."""
        fields = {name: np.asarray(array) for name, array in played._asdict().items()}
        alive = fields["alive"]
        part = {
            "observations": fields["observations"],
            "actions": np.clip(fields["drawn"], -1.0, 1.0),
            "rewards": fields["rewards"],
            "costs": fields["costs"],
        }
        part = {name: array.swapaxes(0, 1) for name, array in part.items()}
        part["lengths"] = alive.sum(0)
        part["ended"] = np.any(fields["terminals"] & alive, axis=0)
        part["returns"] = (fields["rewards"] * alive).sum(0)
        part["total_costs"] = (fields["costs"] * alive).sum(0)
        self.note = f"return {part['returns'].mean():.0f}, cost {part['total_costs'].mean():.0f}"
        chosen = part["total_costs"] <= self.cost_cap
        self.parts.append({name: array[chosen] for name, array in part.items()})
        self.held += int(self.parts[-1]["lengths"].sum())
        if self.held > 2 * SPARE * self.transitions:
            self._cut(SPARE * self.transitions)

    def log(self) -> dict[str, NDArray]:
        """The chosen episodes as transitions, back to back."""
        self._cut(self.transitions)
        (part,) = self.parts
        if not len(part["lengths"]):
            raise BCRLError(f"no episode cost {self.cost_cap} or less; raise the cost cap")
        steps = np.arange(part["rewards"].shape[1])
        alive = steps < part["lengths"][:, None]
        last = (steps == part["lengths"][:, None] - 1)[alive]
        ended = np.repeat(part["ended"], part["lengths"])
        return {
            "observations": part["observations"][:, :-1][alive],
            "actions": part["actions"][alive],
            "rewards": part["rewards"][alive],
            "costs": part["costs"][alive],
            "next_observations": part["observations"][:, 1:][alive],
            "terminals": last & ended,
            "timeouts": last & ~ended,
        }

    def _cut(self, transitions: int) -> None:
        whole = {name: np.concatenate([part[name] for part in self.parts]) for name in self.parts[0]}
        chosen = thin(
            whole["returns"], whole["total_costs"], whole["lengths"], transitions, self.cost_cap, self.random
        )
        self.parts = [{name: array[chosen] for name, array in whole.items()}]
        self.held = int(self.parts[0]["lengths"].sum())
