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
from typing import Any, get_args

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from bcrl import budget as budgets
from bcrl.calibration import Calibration
from bcrl.data import NO_SCHEMA, Schema
from bcrl.episode import Episode, check_process, numbers
from bcrl.errors import BCRLError, brief, brief_repr
from bcrl.learn.protocol import LARGEST, Actor, Goal, Method, Spec, blank_actor
from bcrl.learn.registry import find_method
from bcrl.learn.units import Units, in_user_units
from bcrl.tensors import read_header, read_tensors, write_tensors


class Policy:
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

    def __repr__(self) -> str:
        sizes = f"{self.spec.observation_size} observations, {self.spec.action_size} actions"
        return (
            f"Policy({self.method.name}, {sizes}, {self.spec.cost_count} cost, horizon {self.spec.horizon})"
        )

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
        if self.calibration is not None:
            header["calibration"] = self.calibration.header()
        write_tensors(path, self.learned, header)

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
        if (threshold is None) == (budget is None):
            raise BCRLError(
                "start needs either threshold=κ (cost of a whole episode) or budget=δ (discounted)"
            )
        if execution is None:
            # A bare budget has no horizon to convert by; soft is the rule the paper's theorem covers.
            execution = "finite-horizon" if budget is None else "soft"
        if not isinstance(execution, str) or execution not in get_args(budgets.Execution):
            known = ", ".join(get_args(budgets.Execution))
            raise BCRLError(f"execution is {brief_repr(execution)}, but must be one of {known}")
        if budget is not None and execution in ("finite-horizon", "min"):
            raise BCRLError(f"execution {execution!r} needs threshold=κ and a horizon, not budget=δ")
        if not isinstance(candidates, int) or candidates < 0:
            raise BCRLError(
                f"candidates is {brief_repr(candidates)}, but must be 0 (off) or a number of actions to draw"
            )
        if not self.actor.tracks_budgets and (candidates or execution != "finite-horizon"):
            raise BCRLError(
                f"{self.method.name} tracks no budget: give threshold, not budget, execution or candidates"
            )
        if batch is not None and (type(batch) is not int or batch < 1):
            raise BCRLError(f"batch is {brief_repr(batch)}, but must be a whole number from 1 up")
        steps = self._horizon(horizon)
        if type(calibrated) is not bool:
            raise BCRLError(f"calibrated is {brief_repr(calibrated)}, but must be True or False")
        if calibrated:
            if self.calibration is None or threshold is None:
                lack = "the policy is not calibrated" if threshold is not None else "it needs threshold=κ"
                raise BCRLError(f"calibrated=True, but {lack}: see bcrl calibrate")
            threshold = self.calibration.told(threshold, steps, execution, candidates)
        name, given = ("budget", budget) if threshold is None else ("threshold", threshold)
        allowed = self._costs(name, given)
        shapes = [allowed.shape[:-1], steps.shape, () if batch is None else (batch,)]
        try:
            shape = np.broadcast_shapes(*shapes)
        except ValueError:
            raise BCRLError(f"{name}, horizon and batch have shapes {shapes}: use one length") from None
        if len(shape) > 1:
            raise BCRLError(f"{name} has shape {allowed.shape[:-1]}, but a batch is a single row")
        if 0 in shape:
            raise BCRLError(f"{name} is {brief_repr(given)}, but a batch has at least one episode")
        steps = jnp.asarray(np.broadcast_to(steps, shape), jnp.int32)
        allowed = jnp.asarray(np.broadcast_to(allowed, (*shape, self.spec.cost_count)))
        start = allowed
        if threshold is not None:
            start = budgets.finite_horizon_budget(allowed, 0.0, steps[..., None], self.actor.cost_discount)
        return Goal(allowed, start, steps, execution, candidates)

    def _horizon(self, horizon: ArrayLike | None) -> np.ndarray:
        """A user's horizon(s) in whole steps."""
        try:
            steps = np.asarray(self.spec.horizon if horizon is None else horizon)
        except ValueError:  # nested lists of unequal length
            steps = np.zeros(())
        if steps.dtype.kind not in "iu" or np.any(steps < 1) or np.any(steps > LARGEST):
            raise BCRLError(
                f"horizon is {brief_repr(horizon)}, but must be a whole number of steps from 1 to 2³¹ − 1"
            )
        longest = self.actor.longest
        if longest is not None and np.any(steps > longest):
            raise BCRLError(
                f"horizon is {horizon}, but this episodic policy knows episodes of {longest} steps "
                "at most: train on a log of longer ones, or with the discounted criterion"
            )
        return steps

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
    ) -> Episode:
        """Begins an episode. Arrays of thresholds, budgets or horizons, or `batch`, begin many at once."""
        goal = self.goal(
            threshold=threshold,
            budget=budget,
            horizon=horizon,
            execution=execution,
            candidates=candidates,
            batch=batch,
            calibrated=calibrated,
        )
        try:
            key = jax.random.key(seed)
        except (TypeError, ValueError, OverflowError):
            raise BCRLError(f"seed is {brief_repr(seed)}, but must be a whole number below 2⁶³") from None
        # A bare budget is for any number of steps.
        return Episode(self, goal, key, limited=budget is None)

    def _costs(self, name: str, value: ArrayLike | None) -> np.ndarray:
        """A user's cost number(s) as (..., k)."""
        array = numbers(name, value)
        k = self.spec.cost_count
        if k == 1 and array.ndim <= 1:
            array = array[..., None]
        if array.shape[-1:] != (k,):
            raise BCRLError(
                f"{name} has shape {array.shape}, but this policy bounds {k} costs: give (..., {k})"
            )
        if not np.all(np.isfinite(array)) or np.any(array < 0):
            raise BCRLError(f"{name} is {brief_repr(value)}, but must be finite and not negative")
        return array


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
    blank = jax.eval_shape(lambda: blank_actor(units.inside(method), spec))
    learned = read_tensors(path, blank, header)
    if not np.all(np.asarray(learned.normaliser.std) > 0):
        raise BCRLError(f"{path}: the normaliser's standard deviation is not positive: train again")
    return Policy(learned, method, spec, provenance, units, schema, Calibration.read(header, path))


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
    unknown = sorted(set(values) - {field.name for field in dataclasses.fields(options)})
    if unknown:
        raise BCRLError(
            f"{source}: option {brief_repr(unknown[0])} is unknown to this bcrl: update it, or train again"
        )
    try:
        return options(**{k: tuple(v) if isinstance(v, list) else v for k, v in values.items()})
    except (TypeError, BCRLError) as error:
        raise BCRLError(f"{source}: an option in the header is damaged ({brief(error, 400)})") from None
