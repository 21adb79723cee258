"""A training run: `fit`, and the folder that holds its config, metrics, checkpoint and policies."""

import csv
import dataclasses
import json
import os
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import bcrl
from bcrl.data import Dataset
from bcrl.errors import BCRLError
from bcrl.files import atomic_path, write_text
from bcrl.learn.bcrl import BCRL
from bcrl.learn.loop import initial_state, train
from bcrl.learn.protocol import Method, Normaliser, Spec
from bcrl.policy import Policy
from bcrl.progress import progress
from bcrl.tensors import read_header, read_tensors, tensors_sha256, write_tensors

CHECKPOINT_SECONDS = 300  # a stop never costs much more than this, however slow the machine


@dataclass
class Run:
    """The outcome of `fit`: trained networks for each seed."""

    method: Method
    spec: Spec
    seeds: tuple[int, ...]
    arrays: Any
    normaliser: Normaliser
    provenance: dict[str, Any]
    folder: Path | None = None
    state: Any = None
    metrics: list[dict[str, float]] = field(default_factory=list)

    def policy(self, seed: int | None = None) -> Policy:
        """The policy of one seed (the first by default)."""
        seed = self.seeds[0] if seed is None else seed
        if seed not in self.seeds:
            raise BCRLError(f"seed {seed} was not trained; trained: {', '.join(map(str, self.seeds))}")
        one = jax.tree.map(lambda x: x[self.seeds.index(seed)], self.state)
        actor = self.method.actor(one, self.arrays, self.normaliser, self.spec)
        return Policy(actor, self.method, self.spec, {**self.provenance, "seed": seed})


def fit(
    data: Dataset,
    method: Method | None = None,
    *,
    seeds: Sequence[int] = (0,),
    steps: int = 100_000,
    out: str | os.PathLike | None = None,
    resume: bool = False,
    log_every: int = 1_000,
    checkpoint_every: int = 10_000,
    keep_every: int = 0,
    cost_critics: Policy | None = None,
    tensorboard: bool = False,
) -> Run:
    """Trains `method` (by default BCRL) on a log, all seeds as one program.

    With `out`, the run is kept in a folder; `resume` continues there after a stop, to the same result.
    `keep_every` > 0 keeps the policies of the way too, as steps/STEP/policy-SEED.bcrl.
    `cost_critics` takes the trained cost critics of another BCRL policy and leaves them as they are, for
    another reward on the same states.
    """
    method = BCRL() if method is None else method
    _check(data, seeds, steps, log_every, checkpoint_every, keep_every, resume, out)
    normaliser = Normaliser.of(data.observations)
    spec = Spec.of(data, steps)
    schedule = method.schedule
    if cost_critics is not None:
        normaliser = _adopted_normaliser(method, spec, cost_critics)
        schedule = tuple(kept for parts in schedule if (kept := tuple(p for p in parts if p != "cost")))
    provenance = {
        "bcrl": bcrl.__version__,
        "jax": jax.__version__,
        "device": jax.devices()[0].device_kind,
        "data": Path(data.source).name,
        "data_sha256": data.fingerprint(),
        "steps": steps,
    }
    if cost_critics is not None:
        provenance["cost_critics"] = {
            "options": _json(cost_critics.method),
            "provenance": cost_critics.provenance,
            "sha256": tensors_sha256(cost_critics.actor),
        }
    run = Run(method, spec, tuple(seeds), None, normaliser, provenance, Path(out) if out else None)
    log = _Log(run, tensorboard)
    log.check(resume)  # before anything takes time
    with progress("preparing", 2, "parts") as tick:
        run.arrays = method.prepare(data, normaliser)
        tick(note="data")
        run.state = initial_state(method, spec, run.seeds)
        tick(note="networks")
    if cost_critics is not None:
        run.state = _with_cost_critics(run.state, cost_critics, len(seeds))
    step = log.open()
    total = steps * len(schedule)
    points = train(
        method, run.arrays, spec, run.seeds, run.state, schedule=schedule, step=step, log_every=log_every
    )
    with progress("training", total, start=step) as tick:
        note = ""
        for point in points:
            run.state = point.state
            if point.metrics is not None:
                log.add(point.step, point.metrics)
                note = _headline(point.metrics)
                if keep_every and point.step % keep_every < log_every and point.step < total:
                    log.keep(point.step)  # before the checkpoint, from which a stopped run goes on
                due = point.step % checkpoint_every < log_every or point.step == total
                if due or time.monotonic() - log.saved >= CHECKPOINT_SECONDS:
                    log.checkpoint(point.step)
            tick(point.step - step, note)
            step = point.step
    log.close()
    return run


class _Log:
    """The run folder. Without a folder, metrics are kept in memory alone."""

    def __init__(self, run: Run, tensorboard: bool):
        if tensorboard and run.folder is None:
            raise BCRLError("TensorBoard logs need the folder of a run: give out")
        if tensorboard:
            _summary_writer()  # a missing package is to be told before anything is written
        self.run = run
        self.rows: list[dict[str, float]] = run.metrics
        self.tensorboard = tensorboard
        self.board: Any = None
        self.saved = time.monotonic()

    @property
    def config(self) -> dict[str, Any]:
        run = self.run
        return {
            "method": run.method.name,
            "options": _json(run.method),
            "seeds": list(run.seeds),
            "spec": _json(run.spec),
            "provenance": run.provenance,
        }

    def check(self, resume: bool) -> None:
        """Whether the folder is free, or holds this very run. Writes nothing."""
        folder = self.run.folder
        if folder is not None and (config := folder / "config.json").exists():
            if not resume:
                raise BCRLError(f"{folder}: holds a run already: give --resume to go on, or another --out")
            _check_same(self.config, _read_config(config), config)

    def open(self) -> int:
        """Writes the config, or takes up where the checkpoint left off; returns the step to go on from."""
        folder = self.run.folder
        if folder is None:
            return 0
        config, checkpoint = folder / "config.json", folder / "checkpoint.safetensors"
        step = 0
        if not config.exists():
            clear_run(folder)  # what an earlier run left must not be taken for this one's
            write_text(config, json.dumps(self.config, indent=2) + "\n")
        for cut_short in folder.rglob(".*.[0-9]*.*"):
            cut_short.unlink()  # half a file that a killed run was writing
        if checkpoint.exists():
            step = int(read_header(checkpoint, "checkpoint")["step"])
            self.run.state = read_tensors(checkpoint, self.run.state)
        self._keep_rows_until(step)
        if self.tensorboard:
            self.board = _summary_writer()(str(folder / "tensorboard"), purge_step=step)
        return step

    def add(self, step: int, metrics: dict[str, Any]) -> None:
        broken = [name for name, values in metrics.items() if not np.isfinite(values).all()]
        if broken:
            raise BCRLError(
                f"training diverged: {broken[0]} is not finite at step {step:,}; lower learning_rate "
                "(a checkpoint, if there is one, is from before)"
            )
        new = [
            {"step": step, "seed": seed, **{name: float(values[i]) for name, values in metrics.items()}}
            for i, seed in enumerate(self.run.seeds)
        ]
        self.rows += new
        if self.run.folder is None:
            return
        path = self.run.folder / "metrics.csv"
        # Phases have metrics of their own: columns are fixed by the first row, which holds them all.
        with open(path, "a", newline="") as file:
            writer = csv.DictWriter(file, fieldnames=list(new[0]))
            if file.tell() == 0:
                writer.writeheader()
            writer.writerows(new)
        if self.board is not None:
            for row in new:
                for name, value in row.items():
                    if name not in ("step", "seed"):
                        self.board.add_scalar(f"seed-{row['seed']}/{name}", value, step)

    def keep(self, step: int) -> None:
        assert self.run.folder is not None
        for seed in self.run.seeds:
            policy = self.run.policy(seed)
            policy.provenance["step"] = step
            policy.save(self.run.folder / "steps" / str(step) / f"policy-{seed}.bcrl")

    def checkpoint(self, step: int) -> None:
        if self.run.folder is not None:
            header = {"format": "bcrl-checkpoint", "version": 1, "step": step}
            write_tensors(self.run.folder / "checkpoint.safetensors", self.run.state, header)
        self.saved = time.monotonic()

    def close(self) -> None:
        if self.board is not None:
            self.board.close()
        if self.run.folder is not None:
            for seed in self.run.seeds:
                self.run.policy(seed).save(self.run.folder / f"policy-{seed}.bcrl")

    def _keep_rows_until(self, step: int) -> None:
        """Forgets metrics later than the checkpoint: those steps are done again."""
        assert self.run.folder is not None
        path = self.run.folder / "metrics.csv"
        if not path.exists():
            return
        with open(path, newline="") as file:
            reader = csv.DictReader(file)
            # A row cut short by the stop has None in its last columns, and is later than the checkpoint.
            kept = [row for row in reader if None not in row.values() and int(row["step"]) <= step]
            names = list(reader.fieldnames or [])
        with atomic_path(path) as temporary, open(temporary, "w", newline="") as file:
            writer = csv.DictWriter(file, fieldnames=names)
            writer.writeheader()
            writer.writerows(kept)
        self.rows += [{name: float(value) for name, value in row.items()} for row in kept]


def clear_run(folder: Path) -> None:
    """Removes what `fit` writes into a folder, and nothing else; the config last, since it marks a run."""
    names = (
        "checkpoint.safetensors",
        "metrics.csv",
        "policy-*.bcrl",
        "steps/*/policy-*.bcrl",
        "config.json",
    )
    for path in (path for name in names for path in folder.glob(name)):
        path.unlink()


def _check(
    data: Dataset,
    seeds: Sequence[int],
    steps: int,
    log_every: int,
    checkpoint_every: int,
    keep_every: int,
    resume: bool,
    out: str | os.PathLike | None,
) -> None:
    if not seeds or len(set(seeds)) != len(seeds) or not 0 <= min(seeds) <= max(seeds) < 2**32:
        raise BCRLError(f"seeds are {tuple(seeds)}, but must be different whole numbers from 0 up to 2³² − 1")
    for name, value in (("steps", steps), ("log_every", log_every), ("checkpoint_every", checkpoint_every)):
        if value < 1:
            raise BCRLError(f"{name} is {value}, but must be at least 1")
    if keep_every < 0 or 0 < keep_every < log_every:
        raise BCRLError(
            f"keep_every is {keep_every}, but must be 0 (the last alone) or at least log_every {log_every}"
        )
    if keep_every and out is None:
        raise BCRLError("keep_every needs the folder of a run: give out")
    if resume and out is None:
        raise BCRLError("resume needs the folder of the run: give out")
    for place in () if out is None else (Path(out), *Path(out).parents):
        if place.is_file():
            raise BCRLError(f"{place}: is a file, but a run needs a folder")
    if not float(data.max_cost.max()) > 0:
        raise BCRLError(
            f"{data.source}: every cost is 0, so there is nothing to bound; check the field costs"
        )


def _read_config(path: Path) -> dict[str, Any]:
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, TypeError, OSError) as error:
        raise BCRLError(f"{path}: not a readable config ({error}): train into another folder") from None


def _check_same(now: dict[str, Any], before: dict[str, Any], path: Path) -> None:
    """Refuses to go on with another run; another version or machine only costs the bit-for-bit equality."""
    now = json.loads(json.dumps(now))
    made_by = ("bcrl", "jax", "device")
    for section in now:
        new, old = now[section], before.get(section)
        pairs = [(section, new, old)]
        if isinstance(new, dict) and isinstance(old, dict):
            pairs = [(f"{section}.{name}", new.get(name), old.get(name)) for name in {**new, **old}]
        for name, new_value, old_value in pairs:
            last = name.rpartition(".")[2]
            if new_value == old_value or name == "provenance.data":  # a log may be moved: its sha256 counts
                continue
            if name.startswith("provenance.") and last in made_by:
                warnings.warn(f"{path}: {last} was {old_value} and is now {new_value}", stacklevel=3)
                continue
            raise BCRLError(
                f"{path}: {name} was {old_value} and is now {new_value}; resume needs the same run"
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
    for name in ("observation_size", "action_size", "cost_count", "horizon"):
        if name == "horizon" and method.criterion == "discounted":
            continue  # only episodic critics know the time
        ours, theirs = getattr(spec, name), getattr(donor.spec, name)
        if ours != theirs:
            raise BCRLError(f"{name} of the log is {ours}, but the cost critics were trained with {theirs}")
    actor: Any = donor.actor
    return actor.normaliser


def _with_cost_critics(state: Any, donor: Policy, seeds: int) -> Any:
    actor: Any = donor.actor
    # Copies: buffers are donated to the train step, so no two leaves may share one.
    value, critic, target = jax.tree.map(
        lambda x: jnp.repeat(x[None], seeds, axis=0), (actor.cost_value, actor.cost_critic, actor.cost_critic)
    )
    return eqx.tree_at(
        lambda s: (s.networks["cost_value"], s.networks["cost_critic"], s.targets["cost_critic"]),
        state,
        (value, critic, target),
    )


def _headline(metrics: dict[str, Any]) -> str:
    """The most telling loss for the progress bar."""
    name = next((n for n in ("policy/loss", "loss") if n in metrics), next(iter(metrics)))
    return f"{name} {float(metrics[name].mean()):.3g}"


def _json(record: Any) -> dict[str, Any]:
    return dataclasses.asdict(record)


def _summary_writer() -> Any:
    try:
        from tensorboardX import SummaryWriter  # type: ignore[import-not-found]
    except ImportError:
        raise BCRLError("TensorBoard logs need one more package: pip install 'bcrl[tensorboard]'") from None
    return SummaryWriter
