"""How far a model may be trusted: replays of held-out episodes, and whether visited (s, a) are in the log."""

from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from bcrl.assess.rollout import scan
from bcrl.data import Dataset
from bcrl.estimates.ensemble import Model, standard
from bcrl.estimates.log import actions_before, held_out, spaced
from bcrl.estimates.model_world import first_states, member_worlds
from bcrl.learn.protocol import Insight
from bcrl.progress import Tick

REPLAYED = 25
"""Steps of a replay."""
MOST_REPLAYS = 512
REFERENCE = 16_384
"""Rows of the log to which visited (s, a) are compared."""
OWN = 4_096
"""Held-out rows that say how far the log is from itself."""


class Logged(eqx.Module):
    """An actor that repeats logged actions. Its memory is their list and the number of the next."""

    def act(self, memory: Any, observation: jax.Array) -> tuple[jax.Array, Any, Insight]:
        actions, step = memory
        return actions[step], memory, Insight(jnp.zeros(1), jnp.zeros((), bool))

    def observe(self, memory: Any, cost: jax.Array, reward: jax.Array) -> Any:
        actions, step = memory
        return actions, step + 1


@dataclass(frozen=True)
class Replay:
    """Costs of held-out pieces of episodes: what was logged, and what the model says of the same actions."""

    logged: np.ndarray
    """(pieces,)."""
    mean: np.ndarray
    """(members, pieces), with mean transitions."""
    sampled: np.ndarray
    """(members, pieces), with sampled ones."""
    least: float
    """Errors are shares of the mean logged cost, or of this if that is smaller."""

    @property
    def error(self) -> float:
        """The better score, as a share of the mean logged cost of a piece."""
        best = min(score(said, self.logged) for said in (self.mean, self.sampled))
        return best / max(float(self.logged.mean()), self.least)

    @property
    def sampled_is_better(self) -> bool:
        """Whether sampled transitions have the better score; the mean ones are better for a tie."""
        return score(self.sampled, self.logged) < score(self.mean, self.logged)


def score(said: np.ndarray, logged: np.ndarray) -> float:
    """CRPS of forecasts by members, mean |X − y| − ½ mean |X − X′|: lowest for the true distribution.

    So sampled transitions win where the noise is that of the world, and lose where residuals are no noise.
    """
    pairs = np.abs(said[:, None] - said[None]).sum() / (len(said) * (len(said) - 1) * len(logged))
    return float(np.abs(said - logged).mean() - pairs / 2)


def replay(model: Model, data: Dataset, tick: Tick = lambda advance=1, note="": None) -> Replay:
    """Replays logged actions for 25 steps (or the longest held-out episode) from held-out states."""
    out = np.flatnonzero(held_out(data, model.seed))
    length = int(min(REPLAYED, data.episode_lengths[out].max()))
    firsts = np.concatenate([data.starts[e] + np.arange(data.episode_lengths[e] - length + 1) for e in out])
    firsts = spaced(firsts, MOST_REPLAYS)
    rows = firsts[:, None] + np.arange(length)
    actions = jnp.asarray(data.actions[rows])
    keys = jax.random.split(jax.random.key(model.seed), (model.count, length, len(firsts)))
    said = []
    states = first_states(data.observations[firsts], actions_before(data)[firsts])
    begun = (actions, jnp.zeros(len(firsts), jnp.int32))
    for sampled in (False, True):
        worlds = member_worlds(model, sampled)
        # Each with its own keys: forecasts must differ as often as the world does.
        actor: Any = Logged()
        played = [scan(actor, world, states, begun, key) for world, key in zip(worlds, keys, strict=True)]
        said.append(np.stack([steps[..., 1].sum(0) for steps, _ in played]))
        tick()
    least = 0.005 * float(data.max_cost[0]) * length
    return Replay(data.costs_2d[rows, 0].sum(1), said[0], said[1], least)


@dataclass(frozen=True)
class Support:
    """Rows of the log, standardised, and the distance that 99 % of held-out rows keep to the nearest."""

    scale: np.ndarray
    rows: np.ndarray
    limit: float

    @classmethod
    def of(cls, model: Model, data: Dataset) -> "Support":
        random = np.random.default_rng([model.seed, 3])
        out = held_out(data, model.seed)[data.episode]
        scale = np.concatenate([np.asarray(model.scales.observation), np.asarray(model.scales.action)], 1)
        pairs = standard(scale, np.concatenate([data.observations, data.actions], 1))

        def some(mask: np.ndarray, most: int) -> np.ndarray:
            return pairs[random.permutation(np.flatnonzero(mask))[:most]]

        rows = some(~out, REFERENCE)
        return cls(scale, rows, float(np.quantile(nearest(rows, some(out, OWN)), 0.99)))

    def far(self, visited: np.ndarray) -> float:
        """Share of (s, a) that are farther from the log than 99 % of its own held-out rows."""
        return float(np.mean(nearest(self.rows, standard(self.scale, visited)) > self.limit))


def nearest(rows: np.ndarray, points: np.ndarray) -> np.ndarray:
    """The distance of each point to the nearest row; by products, since trees fail in many dimensions."""
    rows, points = rows.astype(np.float32), points.astype(np.float32)
    squares = (rows**2).sum(1)
    found = [
        (squares - 2 * part @ rows.T).min(1) + (part**2).sum(1)
        for part in np.array_split(points, -(-len(points) // 512))
    ]
    return np.sqrt(np.maximum(np.concatenate(found), 0.0))
