"""The policy file and acting with it: one file, told at run time how much cost it may still spend.

    policy = bcrl.load("policy.bcrl")
    episode = policy.start(threshold=20, horizon=200)
    action = episode.act(observation)
    episode.observe(cost)

A policy file is safetensors with a JSON header: networks, normalisation, sizes, γ, tracking rule,
provenance, format version. Loading executes nothing from the file and checks everything in it.
"""

import dataclasses
import os
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from bcrl import budget as budgets
from bcrl.calibration import Calibration
from bcrl.data import NO_SCHEMA, Schema
from bcrl.episode import Episode, check_process
from bcrl.errors import BCRLError, brief, brief_repr
from bcrl.learn.protocol import Actor, Goal, Method, Spec, blank_actor
from bcrl.learn.registry import acts_by, find_method, from_record
from bcrl.learn.units import Units, in_user_units
from bcrl.runtime import Asked, CheckedPolicy, ObservedRange, OutOfRange
from bcrl.tensors import read_header, read_tensors, to_device, write_tensors

_BLANK = jax.jit(blank_actor, static_argnums=(0, 1))
"""Its shapes are found once for all files of one method and size."""


@partial(jax.jit, static_argnames="gamma_cost")
def _starting_budget(threshold: jax.Array, steps: jax.Array, gamma_cost: float) -> jax.Array:
    """δ before the first step."""
    return budgets.finite_horizon_budget(threshold, 0.0, steps[..., None], gamma_cost)


class Policy(CheckedPolicy):
    """A trained policy. `start` begins an episode (or a batch of them) under a budget."""

    def __init__(
        self,
        learned: Actor,
        method: Method,
        spec: Spec,
        provenance: dict[str, Any],
        units: Units | None = None,
        schema: Schema = NO_SCHEMA,
        calibration: Calibration | None = None,
        observed: ObservedRange | None = None,
    ):
        self.learned = learned
        """The actor as it was trained, in the units of its method."""
        self.method = method
        self.spec = spec
        self.provenance = provenance
        self.units = units or Units((1.0,) * spec.cost_count)
        self.schema = schema
        self.calibration = calibration
        self.actor = in_user_units(learned, self.units, schema)
        """The actor in the user's units: those of the log it was trained on."""
        self.name = method.name
        self.observed = observed
        self.tracks_budgets, self.longest = self.actor.tracks_budgets, self.actor.longest

    def __repr__(self) -> str:
        sizes = f"{self.spec.observation_size} observations, {self.spec.action_size} actions"
        return (
            f"Policy({self.method.name}, {sizes}, {self.spec.cost_count} cost, horizon {self.spec.horizon})"
        )

    @property
    def largest_costs(self) -> np.ndarray:
        return np.multiply(self.spec.max_cost, self.units.cost)

    def save(self, path: str | os.PathLike) -> None:
        """Writes the policy file, all or nothing."""
        header = {
            "format": "bcrl-policy",
            "version": 1,
            "method": self.method.name,
            "options": dataclasses.asdict(self.method),  # type: ignore[call-overload]
            "spec": dataclasses.asdict(self.spec),
            "units": self.units.to_dict(),
            "schema": self.schema.to_dict(),
            "provenance": self.provenance,
        }
        if self.observed is not None:
            header["observation_range"] = self.observed.to_dict()
        if self.calibration is not None:
            header["calibration"] = self.calibration.header()
        write_tensors(path, self.learned, header)

    def adjusted(self, **options: Any) -> "Policy":
        """A policy of the same networks that acts by other options, such as `safety_factor=1.0`.

        Only options of acting can change. The networks stay those of the training, also where it used such
        an option; its provenance says the values of the training. A calibration, made for the old options, is
        left out.
        """
        method = acts_by(self.method, options)
        blank = _BLANK.eval_shape(self.units.inside(method), self.spec)
        learned = jax.tree.unflatten(jax.tree.structure(blank), jax.tree.leaves(self.learned))
        before = self.provenance.get("adjusted")
        trained = {name: getattr(self.method, name) for name in options}
        trained |= before if isinstance(before, dict) else {}
        changed = {
            name: value
            for name, value in trained.items()
            if name in method.acting and value != getattr(method, name)
        }
        provenance = {name: value for name, value in self.provenance.items() if name != "adjusted"}
        provenance |= {"adjusted": changed} if changed else {}
        return Policy(learned, method, self.spec, provenance, self.units, self.schema, observed=self.observed)

    def goal(
        self,
        *,
        threshold: ArrayLike | None = None,
        budget: ArrayLike | None = None,
        horizon: ArrayLike | None = None,
        execution: budgets.Execution | None = None,
        candidates: int = 0,
        batch: int | None = None,
        calibrated: bool = False,
    ) -> Goal:
        """What an episode may spend, checked and brought to shape (..., k).

        Either `threshold` (undiscounted, for the whole episode, with `horizon`, by default the longest
        episode of the log) or `budget` (discounted by γ_C, no horizon needed). With `calibrated`, the policy
        is told what its calibration table says for `threshold`.
        """
        check_process()
        return self.goal_of(self.asked(threshold, budget, horizon, execution, candidates, batch, calibrated))

    def goal_of(self, asked: Asked, within: ObservedRange | None = None) -> Goal:
        """What was asked, for the actor; outside `within` the fallback acts."""
        steps, start = to_device((asked.steps, asked.allowed))
        allowed = start
        if asked.limited:
            start = _starting_budget(allowed, steps, self.actor.cost_discount)
        bounds = None
        if within is not None:
            bounds = jnp.broadcast_to(jnp.stack(within), (*steps.shape, 2, self.spec.observation_size))
        return Goal(allowed, start, steps, asked.execution, asked.candidates, bounds)

    def start(
        self,
        *,
        threshold: ArrayLike | None = None,
        budget: ArrayLike | None = None,
        horizon: ArrayLike | None = None,
        execution: budgets.Execution | None = None,
        candidates: int = 0,
        batch: int | None = None,
        calibrated: bool = False,
        seed: int = 0,
        out_of_range: OutOfRange = "warn",
    ) -> Episode:
        """Begins an episode. Arrays of thresholds, budgets or horizons, or `batch`, begin many at once.

        The first observation outside the range of the log is a warning; with `out_of_range="fallback"` the
        fallback acts at each of them instead.
        """
        check_process()
        asked = self.asked(threshold, budget, horizon, execution, candidates, batch, calibrated)
        try:
            key = jax.random.key(seed)
        except (TypeError, ValueError, OverflowError):
            raise BCRLError(f"seed is {brief_repr(seed)}, but must be a whole number below 2⁶³") from None
        return Episode(self, asked, key, out_of_range)


def load(path: str | os.PathLike) -> "Policy | Any":
    """Reads a policy file: a `Policy`, or the tabular policy that `bcrl.cmdp.plan` made.

    Executes nothing from it; names, shapes, types and values are checked.
    """
    header = read_header(path, "policy", "tabular")
    if header["format"] == "bcrl-tabular":
        from bcrl.cmdp import load_tabular

        return load_tabular(path, header)
    return _learned(path, header)


def load_learned(path: str | os.PathLike) -> Policy:
    """Reads the file of a policy that was trained on a log; a tabular one is an error."""
    header = read_header(path, "policy", "tabular")
    if header["format"] == "bcrl-tabular":
        raise BCRLError(
            f"{path}: is a tabular policy, which acts in the states of its own model; use it from Python "
            "(docs/cmdp.md), or give a policy that bcrl train wrote"
        )
    return _learned(path, header)


def _learned(path: str | os.PathLike, header: dict[str, Any]) -> Policy:
    check_process()
    method = read_options(header, path)
    spec = read_spec(header, path)
    provenance = header.get("provenance")
    if not isinstance(provenance, dict):
        raise BCRLError(f"{path}: the header's provenance is damaged ({brief_repr(provenance)})")
    seed, log = provenance.get("seed", 0), provenance.get("data", "")
    if type(seed) is not int or not 0 <= seed < 2**32 or not isinstance(log, str):  # evaluations use these
        raise BCRLError(
            f"{path}: the header's provenance is damaged (seed {brief_repr(seed)}, data {brief_repr(log)})"
        )
    units, schema = read_meaning(header, spec, path)
    blank = _BLANK.eval_shape(units.inside(method), spec)
    learned = read_tensors(path, blank, header)
    if not np.all(np.asarray(learned.normaliser.std) > 0):
        raise BCRLError(f"{path}: the normaliser's standard deviation is not positive: train again")
    calibration = Calibration.read(header, path)
    observed = ObservedRange.read(header, spec.observation_size, path)
    return Policy(learned, method, spec, provenance, units, schema, calibration, observed)


def read_meaning(header: dict[str, Any], spec: Spec, source: str | os.PathLike) -> tuple[Units, Schema]:
    """Units and schema; files of older versions have none, and their methods took every unit as it was."""
    try:
        plain = {"cost": [1.0] * spec.cost_count, "reward": 1.0}
        units = Units.from_dict(header.get("units", plain), spec.cost_count)
        schema = Schema.from_dict(header.get("schema", {}))
        schema.check(spec.observation_size, spec.action_size, spec.cost_count)
    except BCRLError as error:
        raise BCRLError(f"{source}: the header is damaged ({brief(error, 400)})") from None
    return units, schema


def read_spec(header: dict[str, Any], source: str | os.PathLike) -> Spec:
    """The sizes of the task that a file carries."""
    try:
        return Spec(**{**header["spec"], "max_cost": tuple(header["spec"]["max_cost"])})
    except (KeyError, TypeError, BCRLError) as error:
        raise BCRLError(f"{source}: the header's spec is damaged ({brief(error, 400)})") from None


def read_options(header: dict[str, Any], source: str | os.PathLike) -> Method:
    """A method from the names and values a file carries."""
    try:
        options: Any = find_method(header.get("method", "")).kind
    except BCRLError as error:
        raise BCRLError(f"{source}: {error}") from None
    values = header.get("options", {})
    if not isinstance(values, dict):
        raise BCRLError(f"{source}: the header's options are damaged ({brief_repr(values)})")
    names = {field.name for field in dataclasses.fields(options)}
    unknown = sorted(set(values) - names)
    if unknown:
        raise BCRLError(
            f"{source}: option {brief_repr(unknown[0])} is unknown to this bcrl: update it, or train again"
        )
    try:
        return from_record(options, values)
    except (TypeError, BCRLError) as error:
        raise BCRLError(f"{source}: an option in the header is damaged ({brief(error, 400)})") from None
