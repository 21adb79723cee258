"""The learned model of a log: K members, each a network of the dynamics and one of the outcome.

f(s, a) gives the change of the observation, by squared error. Where the action before explains what f misses,
as with motors that lag, f also sees that action. g(s, a, s′) gives reward, cost and end; it is trained on the
logged s′ and asked with the predicted one. A cost is a Bernoulli draw (was anything paid?)
times a size, which is trained on the rows that paid; where all such rows cost the same, the size is exact.
Every member is trained on whole episodes drawn with replacement. A tenth of the episodes is held out.
"""

import os
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float

from bcrl.data import Dataset
from bcrl.data.blocks import extremes
from bcrl.errors import BCRLError, brief
from bcrl.estimates.log import actions_before, check_log, held_out, steady_columns
from bcrl.learn.batch import Rows
from bcrl.learn.networks import MLP
from bcrl.learn.options import MOST_ENTRIES
from bcrl.progress import progress
from bcrl.tensors import read_header, read_tensors, to_device, write_tensors

RATE = 2e-3
BATCH = 256
RESIDUALS = 4096
"""Held-out rows whose prediction errors are kept for sampled transitions, at most."""
LAG = 0.01
"""Share of the variance of the change that f misses and the action before explains, from which f sees it."""
OUTCOMES = 4  # reward, whether anything is paid, the size of the cost, the end
_SEGMENT = 250  # steps between two looks at the progress bar


class Scales(eqx.Module):
    """Means, deviations and ranges of the log; networks see standardised numbers."""

    observation: Float[Array, "4 d"]
    """Mean, standard deviation, least, largest; the same for the others."""
    action: Float[Array, "4 a"]
    change: Float[Array, "4 d"]
    reward: Float[Array, "4 1"]
    cost: Float[Array, "4 1"]
    """Of costs above 0."""
    ends: Float[Array, ""]
    """1 if the log has terminals, else 0: then no episode ends before its horizon."""

    @classmethod
    def of(cls, data: Dataset) -> "Scales":
        paid = data.costs_2d[data.costs_2d[:, 0] > 0]
        change = data.next_observations - data.observations
        low, high = extremes(data.next_observations)  # an episode's last state is no row's observation
        return cls(
            _scale(data.observations).at[2].min(low).at[3].max(high),
            _scale(data.actions),
            _scale(change),
            _scale(data.rewards[:, None]),
            _scale(paid),
            jnp.asarray(data.terminals.any(), jnp.float32),
        )

    @classmethod
    def blank(cls, observations: int, actions: int) -> "Scales":
        """Zeros, to be filled from a file."""
        seen, one = jnp.zeros((4, observations)), jnp.zeros((4, 1))
        return cls(seen, jnp.zeros((4, actions)), seen, one, one, jnp.zeros(()))

    def pairs(self, observations: Any, actions: Any, before: Any = None) -> Any:
        """(s, a) as the networks see it, with the action before where it is given."""
        seen = [standard(self.observation, observations), standard(self.action, actions)]
        if before is not None:
            seen.append(standard(self.action, before))
        return jnp.concatenate(seen, axis=-1)

    def on_host(self) -> "Scales":
        """The same in numpy, for whole logs."""
        return jax.tree.map(np.asarray, self)


def _scale(values: np.ndarray) -> Array:
    wide = values.astype(np.float64)
    mean, std, low, high = wide.mean(0), wide.std(0), wide.min(0), wide.max(0)
    # What never changes is 0 after standardising, whatever its unit.
    std = np.where(std > 1e-7 * np.maximum(np.abs(low), np.abs(high)), std, 1.0)
    return jnp.asarray(np.stack([mean, std, low, high]), jnp.float32)


def standard(scale: Any, values: Any) -> Any:
    """(x − mean) / standard deviation."""
    return (values - scale[0]) / scale[1]


class Member(eqx.Module):
    """The networks of one member, or of all of them, stacked."""

    dynamics: MLP
    outcome: MLP

    @classmethod
    def new(
        cls, key: Array, observations: int, actions: int, hidden: tuple[int, ...], lags: bool
    ) -> "Member":
        first, second = jax.random.split(key)
        sizes = observations + (2 if lags else 1) * actions, *hidden, observations
        wider = 2 * observations + actions, *hidden, OUTCOMES
        return cls(MLP(sizes, first, activation="silu"), MLP(wider, second, activation="silu"))


class Model(eqx.Module):
    """A learned model of one log, as `fit_model` returns it."""

    members: Member
    """Stacked on axis 0."""
    places: Float[Array, "n i"]
    """What f sees of held-out rows, in random order."""
    residuals: Float[Array, "k n d"]
    """Errors of each member's dynamics there, in the unit of the observations."""
    scales: Scales
    data_sha256: str = eqx.field(static=True)
    hidden: tuple[int, ...] = eqx.field(static=True)
    seed: int = eqx.field(static=True)
    lags: bool = eqx.field(static=True, default=False)
    """Whether f sees the action before."""
    constant: tuple[int, ...] = eqx.field(static=True, default=())
    """Columns of the observation that no logged step changes: the model carries them over."""
    binary: tuple[int, ...] = eqx.field(static=True, default=())
    """Other columns that have two values in the log: the model rounds to the nearer one."""

    @property
    def count(self) -> int:
        """K."""
        return len(self.residuals)

    def member(self, index: int) -> tuple[Member, Array]:
        """The networks of one member and its residuals."""
        # By numpy: jax would compile a program for each shape.
        return to_device(jax.tree.map(lambda x: np.asarray(x)[index], (self.members, self.residuals)))

    def check(self, data: Dataset) -> None:
        """Refuses another log than the one the model was learned from."""
        if self.data_sha256 != data.fingerprint():
            raise BCRLError(
                f"{data.source or 'data set'}: the model was learned from another log: fit one from this log"
            )

    def save(self, path: str | os.PathLike) -> None:
        """Writes the model file, all or nothing."""
        header = {
            "format": "bcrl-model",
            "version": 1,
            "sizes": [self.count, self.scales.observation.shape[1], self.scales.action.shape[1]],
            "residuals": self.residuals.shape[1],
            "hidden": list(self.hidden),
            "data_sha256": self.data_sha256,
            "seed": self.seed,
            "lags": self.lags,
            "constant": list(self.constant),
            "binary": list(self.binary),
        }
        write_tensors(path, self, header)

    @classmethod
    def load(cls, path: str | os.PathLike) -> "Model":
        """Reads a model file; names, shapes, types and values are checked."""
        header = read_header(path, "model")
        try:
            members, observations, actions = header["sizes"]
            sizes = [members, observations, actions, header["residuals"], *header["hidden"]]
            if not all(type(size) is int and 1 <= size <= 1_000_000 for size in sizes):
                raise ValueError(f"sizes are {sizes}")
            hidden, told = tuple(header["hidden"]), (str(header["data_sha256"]), int(header["seed"]))
            lags = header.get("lags", False)  # older files have no such model
            if type(lags) is not bool:
                raise ValueError(f"lags is {lags!r}")
            columns = [header.get(name, []) for name in ("constant", "binary")]  # older files predict all
            if not all(type(at) is int and 0 <= at < observations for part in columns for at in part):
                raise ValueError(f"constant and binary columns are {columns}")
            if len(hidden) > MOST_ENTRIES:
                raise ValueError(f"there are {len(hidden)} hidden layers")
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise BCRLError(f"{path}: the header is damaged ({brief(error)}): fit the model again") from None

        def blank() -> Model:
            keys = jax.random.split(jax.random.key(0), members)
            new = eqx.filter_vmap(lambda key: Member.new(key, observations, actions, hidden, lags))(keys)
            places = jnp.zeros((header["residuals"], observations + (2 if lags else 1) * actions))
            residuals = jnp.zeros((members, header["residuals"], observations))
            scales = Scales.blank(observations, actions)
            return cls(new, places, residuals, scales, told[0], hidden, told[1], lags, *map(tuple, columns))

        return read_tensors(path, jax.eval_shape(blank), header)


def fit_model(
    data: Dataset,
    *,
    members: int = 5,
    hidden: tuple[int, ...] = (128, 128),
    steps: int = 8_000,
    seed: int = 0,
) -> Model:
    """Learns the model of a log, all members as one program. Same seed, same model.

    It is learned twice where the action before explains what the first misses.
    """
    check_log(data)
    for name, value, least in (("members", members, 2), ("steps", steps, 1)):
        if not isinstance(value, int) or value < least:
            raise BCRLError(f"{name} is {value}, but must be a whole number from {least} up")
    model = _fit(data, members, tuple(hidden), steps, seed, False)
    # A second model only where the first shows that it is needed.
    return _fit(data, members, tuple(hidden), steps, seed, True) if _lag(model, data) > LAG else model


def _fit(data: Dataset, members: int, hidden: tuple[int, ...], steps: int, seed: int, lags: bool) -> Model:
    scales = Scales.of(data)
    bags = _bags(data, ~held_out(data, seed), members, seed)
    make, train = jax.random.split(jax.random.key(seed))
    sizes = data.observation_size, data.action_size, hidden, lags
    networks, moments = _new(jax.random.split(make, members), sizes, steps)
    rows, keys = _rows(data, scales, lags), jax.random.split(train, members)
    with progress("learning the model" + (" again, with the action before" if lags else ""), steps) as tick:
        for first in range(0, steps, _SEGMENT):
            length = min(_SEGMENT, steps - first)
            networks, moments, loss = _train(
                networks, moments, rows, bags, keys, jnp.int32(first), length, steps
            )
            if not np.isfinite(loss).all():
                raise BCRLError(f"{data.source}: the model's loss is not finite at step {first + length:,}")
            tick(length, f"loss {float(np.mean(loss)):.3g}")
    unseen = _unseen(data, seed)
    told = actions_before(data)[unseen] if lags else None
    places, residuals = _residuals(networks, scales, told, *(jnp.asarray(x[unseen]) for x in _moves(data)))
    known = data.fingerprint(), hidden, seed, lags
    return Model(networks, places, residuals, scales, *known, *steady_columns(data))


def _unseen(data: Dataset, seed: int) -> np.ndarray:
    """Some held-out rows, in random order."""
    rows = np.flatnonzero(held_out(data, seed)[data.episode])
    return np.random.default_rng([seed, 3]).permutation(rows)[:RESIDUALS]


def _lag(model: Model, data: Dataset) -> float:
    """The share of the variance of the change that f misses and the action before explains, on held-out rows.

    The regression learns on one half of them and is asked on the other.
    """
    missed = np.asarray(model.residuals.mean(0) / model.scales.change[1])
    before = actions_before(data)[_unseen(data, model.seed)]
    columns = np.concatenate([before, np.ones((len(before), 1))], axis=1)
    half = len(before) // 2
    weights = np.linalg.lstsq(columns[:half], missed[:half], rcond=None)[0]
    return float(np.mean(missed[half:] ** 2) - np.mean((missed[half:] - columns[half:] @ weights) ** 2))


def _bags(data: Dataset, train: np.ndarray, members: int, seed: int) -> Array:
    """(K, n) row numbers: whole episodes drawn with replacement, cut to one length."""
    random, episodes = np.random.default_rng([seed, 2]), np.flatnonzero(train)
    rows = [np.arange(low, high + 1) for low, high in zip(data.starts, data.ends, strict=True)]
    bags = [[rows[e] for e in random.choice(episodes, len(episodes))] for _ in range(members)]
    bags = [np.concatenate(bag) for bag in bags]
    shortest = min(map(len, bags))
    return jnp.asarray(np.stack([bag[:shortest] for bag in bags]), jnp.int32)


def _moves(data: Dataset) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return data.observations, data.actions, data.next_observations - data.observations


def _rows(data: Dataset, scales: Scales, lags: bool) -> Rows:
    """What training reads, standardised: (s, a), s′, the change, the outcome, and the action before.

    The outcome is reward, paid, size and end. Without lags the action before has no columns.
    """
    host = scales.on_host()
    observations, actions, change = _moves(data)
    paid = data.costs_2d > 0
    outcomes = (
        standard(host.reward, data.rewards[:, None]),
        paid,
        np.where(paid, standard(host.cost, data.costs_2d), 0.0),
        data.terminals[:, None],
    )
    return Rows.of(
        np.concatenate([standard(host.observation, observations), standard(host.action, actions)], axis=1),
        standard(host.observation, data.next_observations),
        standard(host.change, change),
        np.concatenate(outcomes, axis=1),
        *([standard(host.action, actions_before(data))] if lags else []),
    )


def _optimiser(steps: int) -> optax.GradientTransformation:
    return optax.adamw(optax.cosine_decay_schedule(RATE, steps))


@eqx.filter_jit
def _new(keys: Array, sizes: tuple[int, int, tuple[int, ...], bool], steps: int) -> tuple[Member, Any]:
    """The members before training, and the states of their optimisers."""
    networks = eqx.filter_vmap(lambda key: Member.new(key, *sizes))(keys)
    return networks, eqx.filter_vmap(_optimiser(steps).init)(networks)


def _loss(member: Member, columns: list[Array]) -> Array:
    """Squared errors of change, reward and size, log losses of paid and end."""
    pairs, after, change, wanted, *before = columns
    said = member.outcome(jnp.concatenate([pairs, after], axis=1))
    moved = jnp.mean(
        jnp.sum((member.dynamics(jnp.concatenate([pairs, *before], axis=1)) - change) ** 2, axis=1)
    )
    squared, logs = (said - wanted) ** 2, optax.sigmoid_binary_cross_entropy(said, wanted)
    reward, paid, size, end = squared[:, 0], logs[:, 1], squared[:, 2] * wanted[:, 1], logs[:, 3]
    return moved + jnp.mean(reward + paid + size + end)


@partial(jax.jit, static_argnames=("length", "steps"), donate_argnames=("networks", "moments"))
def _train(
    networks: Member,
    moments: Any,
    rows: Rows,
    bags: Array,
    keys: Array,
    first: Array,
    length: int,
    steps: int,
) -> tuple[Member, Any, Array]:
    optimiser = _optimiser(steps)

    def one(networks: Member, moments: Any, bag: Array, key: Array) -> tuple[Member, Any, Array]:
        def step(now: Any, number: Array) -> tuple[Any, Array]:
            networks, moments = now
            drawn = jax.random.randint(jax.random.fold_in(key, number), (BATCH,), 0, len(bag))
            loss, slope = eqx.filter_value_and_grad(_loss)(networks, rows.take(bag[drawn]))
            change, moments = optimiser.update(slope, moments, networks)
            return (eqx.apply_updates(networks, change), moments), loss

        (networks, moments), losses = jax.lax.scan(step, (networks, moments), first + jnp.arange(length))
        return networks, moments, losses.mean()

    return jax.vmap(one)(networks, moments, bags, keys)


@eqx.filter_jit
def _residuals(
    networks: Member,
    scales: Scales,
    before: np.ndarray | None,
    observations: Array,
    actions: Array,
    change: Array,
) -> tuple[Array, Array]:
    pairs = scales.pairs(observations, actions, before)
    guess = eqx.filter_vmap(lambda member: member.dynamics(pairs))(networks)
    return pairs, change - (guess * scales.change[1] + scales.change[0])
