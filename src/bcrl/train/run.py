"""Training a method on a log: `fit`, and the `Run` it returns."""

import dataclasses
import os
import time
from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import bcrl
from bcrl.data import NO_SCHEMA, Dataset, Schema, outline
from bcrl.data.blocks import extremes
from bcrl.episode import check_process
from bcrl.errors import BCRLError, Stopped
from bcrl.learn.bcrl import BCRL
from bcrl.learn.devices import agreed, fails_for_all, is_writer, part_of, told
from bcrl.learn.loop import initial_state, train
from bcrl.learn.protocol import Method, Normaliser, Spec
from bcrl.learn.registry import check_discrete, check_from_disk
from bcrl.learn.traced import differing, prepare_together
from bcrl.learn.units import Units
from bcrl.policy import Policy, load_learned, read_meaning, read_options, read_spec
from bcrl.progress import Tick, progress
from bcrl.runtime import ObservedRange
from bcrl.tensors import tensors_sha256, to_device
from bcrl.train.checks import check_arguments
from bcrl.train.cost_critics import adopted_normaliser, with_cost_critics
from bcrl.train.folder import RunFolder, from_partial, read_config, read_metrics
from bcrl.train.interrupt import StopRequest, stop_request
from bcrl.train.saver import Pace, Saver

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
        index = self.seeds.index(seed)
        # By numpy: jax would compile a program for each shape.
        one = to_device(jax.tree.map(lambda x: np.asarray(x)[index], self.state))
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
    training = Training(
        data,
        [BCRL() if method is None else method],
        [out],
        seeds=seeds,
        steps=steps,
        resume=resume,
        overwrite=overwrite,
        pace=Pace(log_every, checkpoint_every, keep_every),
        cost_critics=cost_critics,
        tensorboard=tensorboard,
    )
    return training.run()[0]


class Training:
    """One program: runs whose methods differ in traced options alone, each with all seeds.

    Making it checks everything and writes nothing.
    """

    def __init__(
        self,
        data: Dataset,
        methods: Sequence[Method],
        outs: Sequence[str | os.PathLike | None],
        *,
        seeds: Sequence[int],
        steps: int,
        resume: bool,
        overwrite: bool,
        pace: Pace,
        cost_critics: Policy | None,
        tensorboard: bool,
    ):
        check_process()
        for method, out in zip(methods, outs, strict=True):
            check_arguments(data, method, seeds, steps, pace, resume, overwrite, out, tensorboard)
            if data.schema.discrete:
                check_discrete(method, data.source)
            if data.on_disk:
                check_from_disk(method, data.source)
        method = methods[0]
        normaliser = Normaliser.of(data.observations)
        units = Units.of(data, method, None if cost_critics is None else cost_critics.units.cost)
        self.log = units.log_inside(data)
        spec = Spec.of(self.log, steps)
        self.schedule = method.schedule
        if cost_critics is not None:
            normaliser = adopted_normaliser(method, spec, cost_critics)
            without = (tuple(part for part in parts if part != "cost") for parts in self.schedule)
            self.schedule = tuple(parts for parts in without if parts)
        run = Run(
            method,
            spec,
            tuple(seeds),
            _provenance(data, steps, cost_critics),
            units,
            data.schema,
            normaliser=normaliser,
            observed=ObservedRange(*extremes(data.observations)),
        )
        self.runs = [
            dataclasses.replace(run, method=method, folder=Path(out) if out else None, metrics=[])
            for method, out in zip(methods, outs, strict=True)
        ]
        how = {"data": str(Path(data.source).absolute()), **pace._asdict()}
        with fails_for_all():
            self.folders = [
                None
                if run.folder is None or not is_writer()
                else RunFolder(
                    run.folder,
                    _config(run) | {"how": how},
                    resume=resume,
                    overwrite=overwrite,
                    phases=len(self.schedule),
                )
                for run in self.runs
            ]
        self.inside = [units.inside(method) for method in methods]
        self.pace, self.cost_critics, self.tensorboard = pace, cost_critics, tensorboard
        self.total = steps * len(self.schedule)

    def run(self, label: str = "training") -> dict[int, Run]:
        """The trained runs by number. One that diverges is left out, with a warning; if all do, an error."""
        with stop_request() as request, ExitStack() as opened:
            for folder in self.folders:
                if folder is not None:
                    opened.enter_context(closing(folder))
            savers = self._open()
            several, seeds = len(savers) > 1, len(self.runs[0].seeds)
            worth = seeds if several else 1  # a step of one run, on the progress bar
            done = sum(saver.step for saver in savers) * worth
            unit = "seed-steps" if several else "steps"
            with progress(label, self.total * len(savers) * worth, unit, start=done) as tick:
                # Those at the same step go on together: a kill between their checkpoints parts them.
                for place in sorted({saver.place for saver in savers}):
                    here = [i for i, saver in enumerate(savers) if saver.place == place]
                    inside = [self.inside[i] for i in here]
                    self._train([savers[i] for i in here], inside, request, tick, worth)
        finished = {i: saver.run for i, saver in enumerate(savers) if saver.diverged is None}
        if not finished:
            assert savers[0].diverged is not None
            raise savers[0].diverged
        return finished

    def _open(self) -> list[Saver]:
        """Data, networks and folders; each run where its checkpoint stands."""
        first = self.runs[0]
        members = first.seeds * len(self.runs)
        assert first.normaliser is not None
        with progress("preparing", 2, "parts") as tick:
            arrays, self.inside = prepare_together(self.inside, self.log, first.normaliser)
            tick(note="data")
            state = initial_state(self.inside[0], first.spec, members, self._swept(self.inside))
            tick(note="networks")
        if self.cost_critics is not None:
            state = with_cost_critics(state, self.cost_critics, len(members))
        savers = []
        for number, (run, folder) in enumerate(zip(self.runs, self.folders, strict=True)):
            saver = Saver(run, folder, self.total, self.pace, alone=len(self.runs) == 1)
            run.arrays, run.state = arrays, part_of(state, number, len(self.runs))
            with fails_for_all():
                if folder is not None:
                    saver.step, run.state, partial, run.metrics = folder.open(run.state, self.tensorboard)
                    saver.sums, saver.summed = from_partial(partial, len(run.seeds))
            if run.folder is not None:
                place, run.state = told((np.array(saver.place, np.int32), run.state))
                saver.step, saver.summed = map(int, place)
            if saver.step > self.total:
                raise BCRLError(
                    f"{run.folder}: is trained for {saver.step:,} steps already: give more --steps"
                )
            savers.append(saver)
        return savers

    def _train(
        self,
        savers: Sequence[Saver],
        inside: Sequence[Method],
        request: StopRequest,
        tick: Tick,
        worth: int,
    ) -> None:
        """Trains runs from the step at which they all stand to the end."""
        first, step = savers[0].run, savers[0].step
        states = [saver.run.state for saver in savers]
        points = train(
            inside[0],
            first.arrays,
            first.spec,
            first.seeds * len(savers),
            states[0] if len(states) == 1 else jax.tree.map(lambda *x: jnp.concatenate(x), *states),
            schedule=self.schedule,
            step=step,
            log_every=self.pace.log_every,
            partial=(
                {name: np.concatenate([saver.sums[name] for saver in savers]) for name in savers[0].sums},
                savers[0].summed,
            ),
            swept=self._swept(inside),
        )
        del states
        if step < self.total:
            for saver in savers:
                saver.run.state = None  # it is in `points` now
        saved = time.monotonic()
        for point in points:
            late = point.metrics is not None and time.monotonic() - saved >= CHECKPOINT_SECONDS
            asked, late = agreed(request.signal or 0, late)
            now = bool(asked or late)
            if True in [saver.take(point, i, len(savers), now) for i, saver in enumerate(savers)]:
                saved = time.monotonic()
            going = [saver for saver in savers if saver.diverged is None]
            tick((point.step - step) * worth * len(savers), going[0].note if going else "")
            step = point.step
            if asked and step < self.total:
                request.signal = asked
                how = "go on with --resume" if first.folder is not None else "nothing was kept: give out"
                raise Stopped(f"stopped at step {step:,}; {how}", request.status)
            if not going:
                return
        for saver in savers:
            saver.finish()

    def _swept(self, methods: Sequence[Method]) -> dict[str, np.ndarray]:
        """The options in which the methods differ, a value for each of their seeds."""
        seeds = len(self.runs[0].seeds)
        return {name: np.repeat(values, seeds, axis=0) for name, values in differing(methods).items()}


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
