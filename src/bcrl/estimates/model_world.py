"""One member of a learned model as a world, and episodes of a policy in several such worlds."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from bcrl.assess.rollout import scan, start
from bcrl.budget import Execution
from bcrl.data import NO_SCHEMA
from bcrl.estimates.ensemble import Member, Model, Scales, standard
from bcrl.learn.units import in_user_units
from bcrl.policy import Policy
from bcrl.progress import Tick
from bcrl.worlds import JaxWorld, Step

TOLERANCE = 0.01
"""A prediction counts as clipped when it leaves the log's range by more than this share of the range."""
CANDIDATES = 128
"""Held-out rows of which the nearest gives a residual."""
MOST_ROWS = 2048
"""Episodes that are simulated at once."""
MOST_TRACED = 2**24
"""Numbers that are recorded of the episodes that are simulated at once."""


class Imagined(NamedTuple):
    """A state of the model: an observation, and how it came about."""

    observation: Float[Array, " d"]
    pair: Float[Array, " d+a"]
    """The (s, a) before it."""
    clipped: Bool[Array, ""]
    """Whether its prediction left the range of the log."""


def first_states(observations: np.ndarray, before: np.ndarray) -> Imagined:
    """States that show these observations (n, d), and the actions (n, a) before them: 0 at a first step."""
    pairs = np.concatenate([observations, before], axis=1, dtype=np.float32)
    return Imagined(jnp.asarray(observations), jnp.asarray(pairs), jnp.zeros(len(pairs), bool))


class ModelWorld(JaxWorld):
    """One member. Its moves are the predicted means; with `sampled` 1, an error of the prediction is added.

    It is that of the nearest (s, a) among some held-out rows that are drawn anew at every step. Errors depend
    on the state, and those of several observations on one another.
    """

    name = "the learned model"

    member: Member = eqx.field(kw_only=True)
    places: Float[Array, "n i"] = eqx.field(kw_only=True)
    residuals: Float[Array, "n d"] = eqx.field(kw_only=True)
    scales: Scales = eqx.field(kw_only=True)
    sampled: Float[Array, ""] = eqx.field(kw_only=True)
    lags: bool = eqx.field(kw_only=True, static=True, default=False)
    constant: tuple[int, ...] = eqx.field(kw_only=True, static=True, default=())
    binary: tuple[int, ...] = eqx.field(kw_only=True, static=True, default=())

    def observe(self, state: Imagined) -> Array:
        return state.observation

    def trace(self, state: Imagined) -> tuple[Array, Array]:
        return state.pair, state.clipped

    def step(self, state: Imagined, action: Array, key: Array) -> Step:
        """One step. The action is as logs store it, in [-1, 1]."""
        residual, paid, end = jax.random.split(key, 3)
        scales, seen = self.scales, state.observation
        pair = scales.pairs(seen, action)
        place = scales.pairs(seen, action, state.pair[len(seen) :]) if self.lags else pair
        change = self.member.dynamics(place) * scales.change[1] + scales.change[0]
        after = seen + change + self.sampled * self._residual(place, residual)
        _, _, low, high = scales.observation
        # A category is always at an end of its range, so that any error of a prediction would leave it.
        if self.constant:
            at = np.array(self.constant)
            after = after.at[at].set(seen[at])
        if self.binary:
            at = np.array(self.binary)
            after = after.at[at].set(jnp.where(2 * after[at] > low[at] + high[at], high[at], low[at]))
        room = TOLERANCE * (high - low)
        clipped = jnp.any((after < low - room) | (after > high + room))
        after = jnp.clip(after, low, high)
        said = self.member.outcome(jnp.concatenate([pair, standard(scales.observation, after)]))
        reward, size = (
            jnp.clip(said[i] * scale[1, 0] + scale[0, 0], scale[2, 0], scale[3, 0])
            for i, scale in ((0, scales.reward), (2, scales.cost))
        )
        cost = jnp.where(jax.random.bernoulli(paid, jax.nn.sigmoid(said[1])), size, 0.0)
        terminal = (scales.ends > 0) & jax.random.bernoulli(end, jax.nn.sigmoid(said[3]))
        return Imagined(after, jnp.concatenate([seen, action]), clipped), reward, cost, terminal

    def _residual(self, place: Array, key: Array) -> Array:
        count = min(CANDIDATES, len(self.places))
        first = jax.random.randint(key, (), 0, len(self.places) - count + 1)
        places = jax.lax.dynamic_slice_in_dim(self.places, first, count)
        return self.residuals[first + jnp.argmin(jnp.sum((places - place) ** 2, axis=1))]

    def reset(self, key: Array) -> Any:
        raise NotImplementedError("an episode of the model begins from a logged observation")

    def move(self, state: Any, action: Array, key: Array) -> Step:
        raise NotImplementedError("step does all")


def member_worlds(model: Model, sampled: bool) -> list[ModelWorld]:
    """A world of each member. Mean or sampled is a number in it, so that one program serves both."""
    worlds = []
    fixed = {"lags": model.lags, "constant": model.constant, "binary": model.binary}
    for index in range(model.count):
        member, residuals = model.member(index)
        flag = jnp.float32(sampled)
        drawn = {"places": model.places, "residuals": residuals, "sampled": flag}
        worlds.append(ModelWorld(member=member, scales=model.scales, **fixed, **drawn))
    return worlds


@dataclass(frozen=True)
class Simulated:
    """Episodes of one policy, arrays (worlds, thresholds, starts)."""

    returns: np.ndarray
    costs: np.ndarray
    fallback: np.ndarray
    """Share of the steps that the fallback decided."""
    clipped: np.ndarray
    """Share of the steps whose prediction left the range of the log."""
    visited: np.ndarray
    """(worlds, thresholds, starts, d + a): one (s, a) of each episode, at a time that differs by start."""


def simulate(
    policy: Policy,
    worlds: Sequence[JaxWorld],
    states: Any,
    thresholds: Sequence[float] | np.ndarray,
    *,
    horizon: int,
    seed: int = 0,
    execution: Execution | None = None,
    candidates: int = 0,
    tick: Tick = lambda advance=1, note="": None,
) -> Simulated:
    """An episode of `horizon` steps from every state, at every threshold, in every world.

    Starts and keys are the same for all worlds, thresholds and policies. The keys are those of
    `bcrl.assess.rollout.roll_out`. `tick` counts episodes.
    """
    actor = in_user_units(policy.learned, policy.units, NO_SCHEMA)  # actions as logs store them
    count = len(jax.tree.leaves(states)[0])
    keys = _keys(jax.random.split(jax.random.key(seed), count))
    total = len(thresholds) * count
    width = policy.spec.observation_size + policy.spec.action_size
    pieces = -(-total // max(1, min(MOST_ROWS, MOST_TRACED // (width * horizon))))
    size = -(-total // pieces)
    rows = np.arange(pieces * size) % total  # pieces of one size: one program runs them all
    moments = np.random.default_rng(seed).integers(0, horizon, count)
    goal = policy.goal(
        threshold=np.repeat(thresholds, count)[rows],
        horizon=horizon,
        execution=execution,
        candidates=candidates,
    )
    goal, states = jax.tree.map(np.asarray, (goal, states))  # cut into pieces without compiling each cut
    found = []
    for world in worlds:
        parts = []
        for low in range(0, pieces * size, size):
            piece = slice(low, low + size)
            starts = rows[piece] % count
            act, move = keys[0][starts], keys[1][starts]
            begun = start(actor, act, jax.tree.map(lambda x, part=piece: x[part], goal))
            chosen = jax.tree.map(lambda x, index=starts: x[index], states)
            steps, trace = scan(actor, world, chosen, begun, _moves(move, horizon))
            parts.append(_totals(steps, trace, moments[starts]))
            tick(min(size, total - low))
        found.append([np.concatenate(column)[:total] for column in zip(*parts, strict=True)])
    columns = [np.stack(column) for column in zip(*found, strict=True)]
    shape = (len(worlds), len(thresholds), count)
    return Simulated(*(column.reshape(*shape, *column.shape[2:]) for column in columns))


def _totals(steps: np.ndarray, trace: Any, moments: np.ndarray) -> tuple[np.ndarray, ...]:
    """Sums over the steps of each episode, and its (s, a) at the given time, or at its last step."""
    returns, costs, lengths, fallback = steps.sum(axis=0, dtype=np.float64).T
    if trace == ():  # a world that is no model records nothing
        none = np.zeros(len(returns))
        return returns, costs, fallback / lengths, none, np.zeros((len(returns), 0))
    pairs, clipped = trace
    shared = np.sum(clipped * (steps[..., 2] > 0), axis=0) / lengths
    at = np.minimum(moments, lengths.astype(int) - 1)
    return returns, costs, fallback / lengths, shared, pairs[at, np.arange(len(at))]


@jax.jit
def _keys(keys: Array) -> tuple[Array, Array]:
    """Keys of the actor and of the world's steps; the first of three would draw a start."""
    _, act, move = jnp.moveaxis(jax.vmap(lambda key: jax.random.split(key, 3))(keys), 1, 0)
    return act, move


@partial(jax.jit, static_argnames="horizon")
def _moves(keys: Array, horizon: int) -> Array:
    """(steps, n) keys of the world's steps."""
    return jax.vmap(lambda key: jax.random.split(key, horizon))(keys).swapaxes(0, 1)
