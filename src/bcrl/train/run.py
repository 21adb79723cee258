"""Training a method on a log: `fit`, and the `Run` it returns."""

import dataclasses
import os
import time
from collections.abc import Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import bcrl
from bcrl.data import NO_SCHEMA, Dataset, Schema, outline
from bcrl.data.blocks import extremes
from bcrl.episode import check_process
from bcrl.errors import BCRLError, Stopped, brief_repr
from bcrl.learn.bcrl import BCRL
from bcrl.learn.loop import Point, initial_state, train
from bcrl.learn.protocol import Method, Normaliser, Spec
from bcrl.learn.registry import check_discrete, check_from_disk
from bcrl.learn.units import Units
from bcrl.policy import Policy, load_learned, read_meaning, read_options, read_spec
from bcrl.progress import progress
from bcrl.runtime import ObservedRange
from bcrl.tensors import tensors_sha256
from bcrl.train.folder import RunFolder, as_partial, from_partial, read_config, read_metrics, summary_writer
from bcrl.train.interrupt import StopRequest, stop_request

CHECKPOINT_SECONDS = 300  # a stop never costs much more than this, however slow the machine


@dataclass(repr=False)
class Run:
    """A trained policy for each seed: what `fit` and `load_run` return."""

    method: Method
    spec: Spec
    seeds: tuple[int, ...]
    provenance: dict[str, Any]
    units: Units
    schema: Schema = NO_SCHEMA
    folder: Path | None = None
    metrics: list[dict[str, float]] = field(default_factory=list)
    """A row per seed and log point."""
    normaliser: Normaliser | None = None
    observed: ObservedRange | None = None
    arrays: Any = None
    state: Any = None
    """The train states, stacked by seed; None for a run that was loaded."""

    def __repr__(self) -> str:
        seeds = ", ".join(map(str, self.seeds))
        where = f", {self.folder}" if self.folder else ""
        return f"Run({self.method.name}, seeds {seeds}, {self.spec.steps:,} steps{where})"

    def policy(self, seed: int | None = None) -> Policy:
        """The policy of one seed (the first by default)."""
        seed = self.seeds[0] if seed is None else seed
        if seed not in self.seeds:
            raise BCRLError(f"seed {seed} was not trained; trained: {', '.join(map(str, self.seeds))}")
        if self.state is None or self.normaliser is None:
            assert self.folder is not None
            return load_learned(self.folder / f"policy-{seed}.bcrl")
        one = jax.tree.map(lambda x: x[self.seeds.index(seed)], self.state)
        learned = self.units.inside(self.method).actor(one, self.arrays, self.normaliser, self.spec)
        provenance = {**self.provenance, "seed": seed}
        return Policy(
            learned, self.method, self.spec, provenance, self.units, self.schema, observed=self.observed
        )


def load_run(folder: str | os.PathLike) -> Run:
    """The run in a folder that `fit` or `bcrl train` wrote; its policies are read when asked for."""
    folder = Path(folder)
    config = read_config(folder)
    source = folder / "config.json"
    spec = read_spec(config, source)
    return Run(
        read_options(config, source),
        spec,
        tuple(config["seeds"]),
        config["provenance"],
        *read_meaning(config, spec, source),
        folder,
        read_metrics(folder),
    )


def fit(
    data: Dataset,
    method: Method | None = None,
    *,
    seeds: Sequence[int] = (0,),
    steps: int = 100_000,
    out: str | os.PathLike | None = None,
    resume: bool = False,
    overwrite: bool = False,
    log_every: int = 1_000,
    checkpoint_every: int = 10_000,
    keep_every: int = 0,
    cost_critics: Policy | None = None,
    tensorboard: bool = False,
) -> Run:
    """Trains `method` (by default BCRL) on a log, all seeds as one program.

    With `out`, the run is kept in a folder; `resume` continues there after a stop, to the same result, and
    goes on with a finished run that is given more steps; `overwrite` replaces the run there.
    `keep_every` > 0 also keeps the policies at intermediate steps, as steps/STEP/policy-SEED.bcrl.
    `cost_critics` takes the trained cost critics of another BCRL policy and does not train them, for
    another reward on the same states.
    """
    check_process()
    method = BCRL() if method is None else method
    _check(
        data,
        method,
        seeds,
        steps,
        log_every,
        checkpoint_every,
        keep_every,
        resume,
        overwrite,
        out,
        tensorboard,
    )
    if data.schema.discrete:
        check_discrete(method, data.source)
    if data.on_disk:
        check_from_disk(method, data.source)
    normaliser = Normaliser.of(data.observations)
    units = Units.of(data, method, None if cost_critics is None else cost_critics.units.cost)
    inside, log = units.inside(method), units.log_inside(data)
    spec = Spec.of(log, steps)
    schedule = method.schedule
    if cost_critics is not None:
        normaliser = _adopted_normaliser(method, spec, cost_critics)
        schedule = tuple(kept for parts in schedule if (kept := tuple(p for p in parts if p != "cost")))
    provenance = _provenance(data, steps, cost_critics)
    where = Path(out) if out else None
    run = Run(
        method,
        spec,
        tuple(seeds),
        provenance,
        units,
        data.schema,
        where,
        normaliser=normaliser,
        observed=ObservedRange(*extremes(data.observations)),
    )
    folder = None
    if run.folder is not None:
        pace = {"log_every": log_every, "checkpoint_every": checkpoint_every, "keep_every": keep_every}
        how = {"data": str(Path(data.source).absolute()), **pace}
        config = _config(run) | {"how": how}
        folder = RunFolder(run.folder, config, resume=resume, overwrite=overwrite, phases=len(schedule))
    with stop_request() as request, nullcontext() if folder is None else closing(folder):
        with progress("preparing", 2, "parts") as tick:
            run.arrays = inside.prepare(log, normaliser)
            tick(note="data")
            run.state = initial_state(inside, spec, run.seeds)
            tick(note="networks")
        if cost_critics is not None:
            run.state = _with_cost_critics(run.state, cost_critics, len(seeds))
        step, partial = 0, {}
        if folder is not None:
            step, run.state, partial, run.metrics = folder.open(run.state, tensorboard)
        total = steps * len(schedule)
        if step > total:
            raise BCRLError(f"{out}: is trained for {step:,} steps already: give more --steps")
        points = train(
            inside,
            run.arrays,
            spec,
            run.seeds,
            run.state,
            schedule=schedule,
            step=step,
            log_every=log_every,
            partial=from_partial(partial, len(run.seeds)),
        )
        saver = _Saver(run, folder, total, log_every, checkpoint_every, keep_every)
        with progress("training", total, start=step) as tick:
            for point in points:
                run.state = point.state
                saver.take(point, request)
                tick(point.step - step, saver.note)
                step = point.step
        saver.finish()
    return run


class _Saver:
    """What happens at the points of a training: metrics, checkpoints, policies."""

    def __init__(
        self,
        run: Run,
        folder: RunFolder | None,
        total: int,
        log_every: int,
        checkpoint_every: int,
        keep_every: int,
    ):
        self.run, self.folder, self.total = run, folder, total
        self.log_every, self.checkpoint_every, self.keep_every = log_every, checkpoint_every, keep_every
        self.saved = time.monotonic()
        self.note = ""

    def take(self, point: Point, request: StopRequest) -> None:
        """Writes what is due at this point; raises `Stopped` once a stop was asked for."""
        due = False
        if point.metrics is not None:
            self._log(point.step, point.metrics)
            self.note = _headline(point.metrics)
            if self.keep_every and point.step % self.keep_every < self.log_every and point.step < self.total:
                self._keep(point.step)  # before the checkpoint, from which a stopped run goes on
            due = point.step % self.checkpoint_every < self.log_every or point.step == self.total
            due = due or time.monotonic() - self.saved >= CHECKPOINT_SECONDS
        stopping = request.signal is not None and point.step < self.total
        if self.folder is not None and (due or stopping):
            self.folder.checkpoint(point.step, self.run.state, as_partial(*point.partial))
            self.saved = time.monotonic()
        if stopping:
            how = "go on with --resume" if self.folder is not None else "nothing was kept: give out"
            raise Stopped(f"stopped at step {point.step:,}; {how}", request.status)

    def finish(self) -> None:
        """Writes the policies."""
        if self.folder is not None:
            for seed in self.run.seeds:
                self.run.policy(seed).save(self.folder.path / f"policy-{seed}.bcrl")

    def _log(self, step: int, metrics: dict[str, np.ndarray]) -> None:
        broken = [name for name, values in metrics.items() if not np.isfinite(values).all()]
        if broken:
            raise BCRLError(
                f"training diverged: {broken[0]} is not finite at step {step:,}; lower learning_rate "
                "(a checkpoint, if there is one, is from before)"
            )
        rows = [
            {"step": step, "seed": seed, **{name: float(values[i]) for name, values in metrics.items()}}
            for i, seed in enumerate(self.run.seeds)
        ]
        self.run.metrics += rows
        if self.folder is not None:
            self.folder.add(rows)

    def _keep(self, step: int) -> None:
        assert self.folder is not None
        for seed in self.run.seeds:
            policy = self.run.policy(seed)
            policy.provenance["step"] = step
            policy.save(self.folder.path / "steps" / str(step) / f"policy-{seed}.bcrl")


def _provenance(data: Dataset, steps: int, cost_critics: Policy | None) -> dict[str, Any]:
    provenance = {
        "bcrl": bcrl.__version__,
        "jax": jax.__version__,
        "device": jax.devices()[0].device_kind,
        "data": Path(data.source).name,
        "data_sha256": data.fingerprint(),
        "log": outline(data),
        "steps": steps,
    }
    if cost_critics is not None:
        provenance["cost_critics"] = {
            "options": dataclasses.asdict(cost_critics.method),  # type: ignore[call-overload]
            "provenance": cost_critics.provenance,
            "sha256": tensors_sha256(cost_critics.learned),
        }
    return provenance


def _config(run: Run) -> dict[str, Any]:
    return {
        "method": run.method.name,
        "options": dataclasses.asdict(run.method),  # type: ignore[call-overload]
        "seeds": list(run.seeds),
        "spec": dataclasses.asdict(run.spec),
        "provenance": run.provenance,
        "units": run.units.to_dict(),
        "schema": run.schema.to_dict(),
    }


def _check(
    data: Dataset,
    method: Method,
    seeds: Sequence[int],
    steps: int,
    log_every: int,
    checkpoint_every: int,
    keep_every: int,
    resume: bool,
    overwrite: bool,
    out: str | os.PathLike | None,
    tensorboard: bool,
) -> None:
    if not isinstance(data, Dataset):
        raise BCRLError(
            f"data is {data!r}, but must be a Dataset: bcrl.load_data(path) reads one from a file"
        )
    if isinstance(method, type) or not hasattr(method, "schedule"):
        raise BCRLError(f"method is {brief_repr(method)}, but must be one: bcrl.make_method('bcrl'), say")
    if not isinstance(out, str | os.PathLike | None) or out == "":
        raise BCRLError(f"out is {brief_repr(out)}, but must be the path of a folder")
    given, seeds = seeds, tuple(seeds) if isinstance(seeds, Sequence) else ()
    whole = all(isinstance(seed, int | np.integer) and not isinstance(seed, bool) for seed in seeds)
    if not seeds or not whole or len(set(seeds)) != len(seeds) or not 0 <= min(seeds) <= max(seeds) < 2**32:
        raise BCRLError(
            f"seeds are {brief_repr(given)}, but must be different whole numbers from 0 up to 2³² − 1"
        )
    for name, value in (("steps", steps), ("log_every", log_every), ("checkpoint_every", checkpoint_every)):
        if not isinstance(value, int) or not 1 <= value < 2**31:
            raise BCRLError(f"{name} is {brief_repr(value)}, but must be a whole number, at least 1")
    if not isinstance(keep_every, int) or keep_every < 0 or 0 < keep_every < log_every:
        raise BCRLError(
            f"keep_every is {brief_repr(keep_every)}, but must be 0 (the last alone) or at least log_every "
            f"{log_every}"
        )
    wanted = {"keep_every": keep_every, "resume": resume, "overwrite": overwrite, "tensorboard": tensorboard}
    for name, given in wanted.items():
        if given and out is None:
            raise BCRLError(f"{name} needs the folder of a run: give out")
    if resume and overwrite:
        raise BCRLError("resume goes on with a run and overwrite replaces it: give one of them")
    if tensorboard:
        summary_writer()  # a missing package is reported before anything is written
    if not float(data.max_cost.max()) > 0:
        raise BCRLError(
            f"{data.source}: every cost is 0, so there is nothing to bound; check the field costs"
        )


def _adopted_normaliser(method: Method, spec: Spec, donor: Policy) -> Normaliser:
    """The normaliser the donor's cost critics were trained with, after checking that they fit."""
    if not isinstance(method, BCRL) or not isinstance(donor.method, BCRL):
        raise BCRLError("cost critics can be taken over from BCRL to BCRL only")
    for name in ("hidden", "criterion", "gamma_cost", "nonnegative_values"):
        if getattr(method, name) != getattr(donor.method, name):
            raise BCRLError(
                f"{name} is {getattr(method, name)}, but the cost critics were trained with "
                f"{getattr(donor.method, name)}: use the same"
            )
    for name in ("observation_size", "action_size", "discrete", "cost_count", "horizon"):
        if name == "horizon" and method.criterion == "discounted":
            continue  # only episodic critics know the time
        ours, theirs = getattr(spec, name), getattr(donor.spec, name)
        if ours != theirs:
            raise BCRLError(f"{name} of the log is {ours}, but the cost critics were trained with {theirs}")
    actor: Any = donor.learned
    return actor.normaliser


def _with_cost_critics(state: Any, donor: Policy, seeds: int) -> Any:
    actor: Any = donor.learned
    # Copies: buffers are donated to the train step, so no two leaves may share one.
    value, critic, target = jax.tree.map(
        lambda x: jnp.repeat(x[None], seeds, axis=0), (actor.cost_value, actor.cost_critic, actor.cost_critic)
    )
    return eqx.tree_at(
        lambda s: (s.networks["cost_value"], s.networks["cost_critic"], s.targets["cost_critic"]),
        state,
        (value, critic, target),
    )


_CRITICS = {
    "r": (("reward/critic_loss", "reward/value"), ("critic/loss", "critic/value")),
    "c": (("cost/critic_loss", "cost/value"), ("cost/loss", "cost/value")),
}


def _headline(metrics: dict[str, Any]) -> str:
    """What falls or stays while training goes well, for the progress bar.

    The root mean square TD errors of the reward and cost critics, as shares of the mean values. The losses
    themselves rise with the values. A method without critics shows the loss of its policy.
    """
    mean = {name: float(np.mean(values)) for name, values in metrics.items()}
    shares = {
        part: 100 * min(mean[loss] ** 0.5 / max(abs(mean[value]), 1e-9), 9.99)
        for part, pairs in _CRITICS.items()
        for loss, value in pairs
        if loss in mean and value in mean
    }
    if shares:
        return "TD error: " + ", ".join(f"{p} {x:.{int(x < 10)}f} %" for p, x in shares.items())
    name = next((n for n in ("policy/loss", "loss") if n in mean), next(iter(mean)))
    return f"{name} {mean[name]:.3g}"
