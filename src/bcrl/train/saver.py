"""What happens while a run is trained: rows of metrics, checkpoints, policies."""

import warnings
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bcrl.errors import BCRLError
from bcrl.learn.devices import part_of
from bcrl.learn.loop import Point
from bcrl.train.folder import RunFolder, as_partial

if TYPE_CHECKING:
    from bcrl.train.run import Run


class Pace(NamedTuple):
    """Steps between rows of metrics, checkpoints, and kept policies (0: the last alone)."""

    log_every: int = 1_000
    checkpoint_every: int = 10_000
    keep_every: int = 0


class Diverged(BCRLError):
    """A metric is no longer finite."""


class Saver:
    """What happens to one run at the points of a training: metrics, checkpoints, policies."""

    def __init__(self, run: "Run", folder: RunFolder | None, total: int, pace: Pace, alone: bool):
        self.run, self.folder, self.total, self.pace, self.alone = run, folder, total, pace, alone
        self.step, self.summed = 0, 0
        """Where the run stands before it is trained, and how many steps before that are in `sums`."""
        self.sums: dict[str, np.ndarray] = {}
        """Of metrics since the last row, as the checkpoint has them."""
        self.diverged: Diverged | None = None
        self.note = ""

    @property
    def place(self) -> tuple[int, int]:
        """What runs must have in common to go on as one program."""
        return self.step, self.summed

    def take(self, point: Point, number: int, count: int, now: bool) -> bool:
        """Writes what is due at this point, a checkpoint also `now`; returns whether it wrote one.

        The run is the `number`-th of `count` that the point is of.
        """
        if self.diverged is not None:
            return False
        log_every, checkpoint_every, keep_every = self.pace
        last, keep, due = point.step == self.total, False, False
        if point.metrics is not None:
            metrics = part_of(point.metrics, number, count)
            self._check(point.step, metrics)
            if self.diverged is not None:
                return False
            self._log(point.step, metrics)
            self.note = headline(metrics)
            keep = keep_every > 0 and point.step % keep_every < log_every and not last
            due = point.step % checkpoint_every < log_every or last
        due = due or now
        if not (keep or due):
            return False
        self.run.state = part_of(point.state, number, count)
        if keep and self.folder is not None:
            self._keep(point.step)  # before the checkpoint, from which a stopped run goes on
        if self.folder is not None and due:
            sums, summed = point.partial
            self.folder.checkpoint(
                point.step, self.run.state, as_partial(part_of(sums, number, count), summed)
            )
        if not last:
            self.run.state = None  # the memory is for training
        return due

    def finish(self) -> None:
        """Writes the policies."""
        if self.folder is not None and self.diverged is None:
            for seed in self.run.seeds:
                self.run.policy(seed).save(self.folder.path / f"policy-{seed}.bcrl")

    def _check(self, step: int, metrics: dict[str, np.ndarray]) -> None:
        """Notes a divergence. The other runs of a program go on."""
        broken = [name for name, values in metrics.items() if not np.isfinite(values).all()]
        if not broken:
            return
        words = f"training diverged: {broken[0]} is not finite at step {step:,}; lower learning_rate "
        self.diverged = Diverged(words + "(a checkpoint, if there is one, is from before)")
        self.run.state = None
        if not self.alone:
            warnings.warn(f"{self.run.folder or self.run.method}: {self.diverged}", stacklevel=4)

    def _log(self, step: int, metrics: dict[str, np.ndarray]) -> None:
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


_CRITICS = {
    "r": (("reward/critic_loss", "reward/value"), ("critic/loss", "critic/value")),
    "c": (("cost/critic_loss", "cost/value"), ("cost/loss", "cost/value")),
}


def headline(metrics: dict[str, Any]) -> str:
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
