"""`bcrl evaluate`: run trained policies in a world at many thresholds."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from bcrl.budget import Execution


@dataclass
class Command:
    """Run trained policies in a world at every threshold; print what they earn and cost."""

    policies: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="POLICY_OR_RUN")]
    """A policy file, or the folder of a run (every seed in it is evaluated)."""
    world: str
    """A built-in world (point-circle, point-run, point-goal), a DSRL task (see bcrl worlds), or gym:ID.
    Without a simulator: bcrl estimate judges by the log."""
    thresholds: tuple[float, ...] | None = None
    """Episode costs to keep, such as 10,20,40 (default: what a policy was trained for, if it was
    for one; else the world's own)."""
    episodes: int = 20
    """Episodes per seed and threshold."""
    execution: Execution = "finite-horizon"
    """How the budget is tracked while acting; soft is the rule the paper's theorem covers."""
    candidates: int = 0
    """Draw this many actions each step and take the best of those the cost critic allows; 0 is off."""
    calibrated: tyro.conf.FlagCreatePairsOff[bool] = False
    """Tell the policy what its calibration table says for each threshold (see bcrl calibrate)."""
    noise: float = 0.0
    """Actuator noise of a built-in world."""
    python: str | None = None
    """The Python that has the environment of --world gym:ID (default: this one)."""
    workers: int | None = None
    """Processes that step a world outside bcrl (default: one per core)."""
    seed: int = 0
    """Decides starts and noise of the episodes."""
    out: Path | None = None
    """File for one row per episode, results.csv."""
    record: Path | None = None
    """File for every transition, as a log: .npz or .hdf5."""
    overwrite: tyro.conf.FlagCreatePairsOff[bool] = False
    """Replace files that exist."""

    def run(self) -> None:
        from bcrl.assess import evaluate
        from bcrl.assess.evaluation import trained_for
        from bcrl.assess.recording import Recording
        from bcrl.cli.out import check_file
        from bcrl.cli.terminal import next_step, print_summary
        from bcrl.learn.tracking import TrackingActor
        from bcrl.policy import load_learned
        from bcrl.train.folder import policy_files
        from bcrl.worlds import make_world

        world = make_world(self.world, self.noise, self.python)
        if self.out is not None:
            check_file(self.out, (), self.overwrite)
        if self.record is not None:
            check_file(self.record, (".npz", ".hdf5"), self.overwrite, option="--record")
        recording = None if self.record is None else Recording()
        files = policy_files(self.policies)
        policies = [load_learned(path) for path in files]
        results = evaluate(
            policies,
            world,
            self.thresholds,
            episodes=self.episodes,
            execution=self.execution,
            candidates=self.candidates,
            calibrated=self.calibrated,
            seed=self.seed,
            workers=self.workers,
            record=recording,
        )
        title = f"{self.policies} in {world.name}, execution {self.execution}"
        print_summary(results.summary(), title)  # before what may fail
        own = trained_for(policies)
        if own and self.thresholds not in (None, own):
            print(f"trained for a threshold of {own[0]:g} alone: it acts the same at others")
        if world.caveat:
            print(f"{world.name}: {world.caveat}")
        if self.out is not None:
            results.save(self.out)
            print(f"{len(results)} episodes: {self.out}")
        if recording is not None and self.record is not None:
            log = recording.dataset(str(self.record), policies[0].schema)
            log.save(self.record)
            print(f"{len(log):,} transitions: {self.record}")
            if len(files) == 1 and isinstance(policies[0].learned, TrackingActor):
                next_step("bcrl", "critics", files[0], "--data", self.record)
        if self.out is not None:
            next_step("bcrl", "report", self.out, "--out", self.out.with_suffix(".html"))
