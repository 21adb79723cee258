"""Does what is missing of a benchmark in this process: train, evaluate, store, one work after another."""

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bcrl.assess import evaluate
from bcrl.bench.cells import Cell, Evaluation, Work, facts, missing
from bcrl.bench.store import Outcome, Store
from bcrl.errors import BCRLError, printable
from bcrl.policy import Policy, load_learned
from bcrl.train.jobs import Job, kept_policies, policy_file, train, untrained


@dataclass(frozen=True)
class Pace:
    """How the work is done. None of it changes results."""

    train_only: bool = False
    """Leave the evaluation for later, or for another machine."""
    workers: int | None = None
    """Processes that step a world outside bcrl (default: one per core)."""
    log_every: int = 1_000
    """As in `fit`."""
    checkpoint_every: int = 10_000
    """As in `fit`."""

    def train(self, work: Work, runs: Path) -> None:
        train(work.job, work.log, runs, log_every=self.log_every, checkpoint_every=self.checkpoint_every)

    def judge(self, evaluation: Evaluation) -> list[Outcome]:
        return judge(evaluation, self.workers)


def run_here(works: Sequence[Work], store: Store, runs: Path, pace: Pace) -> list[str]:
    """Does all that is missing; returns one line for each work that failed. A failure stops no other work."""
    failures, diverged = [], {}
    for number, work in enumerate(works, start=1):
        title = f"[{number}/{len(works)}] {work.name}"
        try:
            if needs_training(work, store, runs, pace):
                if error := diverged.get(work.job.folder):  # a column before it shares the training
                    raise error
                print(f"{title}: training", flush=True)
                try:
                    pace.train(work, runs)
                except BCRLError as error:
                    diverged[work.job.folder] = error
                    raise
            _judge_all(title, work, store, runs, pace)
        except BCRLError as error:
            failures.append(failed(work, error))
    return failures


def _judge_all(title: str, work: Work, store: Store, runs: Path, pace: Pace) -> None:
    if pace.train_only:
        return
    for seed in work.job.seeds:
        while evaluations := to_evaluate(work, seed, store, runs):
            for evaluation in evaluations:
                print(f"{title}: evaluating seed {seed}, {evaluation.cells[0].policy} policy", flush=True)
                store.add(pace.judge(evaluation))


def failed(work: Work, reason: object) -> str:
    """Prints why a work failed; returns the line, which is repeated at the end."""
    line = printable(f"{work.name}: {reason}")
    print(f"bcrl: {line}", file=sys.stderr, flush=True)
    return line


def needs_training(work: Work, store: Store, runs: Path, pace: Pace) -> bool:
    """Whether a policy is missing that is still wanted."""
    if not untrained(work.job, runs):
        return False
    done = store.done()
    wanted = [seed for seed in work.job.seeds if missing(work.reported(seed), done)]
    return pace.train_only or any(policy_file(work.job, runs, seed) is None for seed in wanted)


def to_evaluate(work: Work, seed: int, store: Store, runs: Path) -> list[Evaluation]:
    """The evaluations of this seed that can be done now; none when its reported cells are in the store.

    To be called again when they are done: the best policy is known only after trials of all kept ones.
    """
    done = store.done()
    wanted = missing(work.reported(seed), done)
    if not wanted:
        return []
    final = policy_file(work.job, runs, seed)
    if final is None:
        raise BCRLError(f"{runs / work.job.folder}: has no policy of seed {seed}; train it first")
    if not work.protocol.best:
        return [Evaluation(work, final, wanted)]
    candidates = {f"step {step}": path for step, path in kept_policies(final).items()} | {"final": final}
    trials = {name: work.cells(seed, name, reported=False) for name in candidates}
    open_trials = [
        Evaluation(work, candidates[name], cells)
        for name, trial in trials.items()
        if (cells := missing(trial, done))
    ]
    return open_trials or [Evaluation(work, candidates[best_of(trials, store)], wanted)]


def best_of(trials: dict[str, list[Cell]], store: Store) -> str:
    """The policy that earns most among those whose mean cost over the thresholds is at most 1.

    Where there is none, the one that costs least.
    """

    def worth(name: str) -> tuple[bool, float]:
        rows = [row for cell in trials[name] for row in store.rows(cell.key)]
        cost = float(np.mean([row.normalised_cost for row in rows]))
        reward = float(np.mean([row.normalised_reward for row in rows]))
        return (True, reward) if cost <= 1.0 else (False, -cost)

    return max(trials, key=worth)


def judge(evaluation: Evaluation, workers: int | None = None) -> list[Outcome]:
    """Runs a policy at the thresholds of its cells."""
    started = time.monotonic()
    policy = load_learned(evaluation.policy)
    _check_trained(policy, evaluation.work.job, evaluation.policy)
    policy = policy.adjusted(**evaluation.work.acting) if evaluation.work.acting else policy
    first = evaluation.cells[0]
    rows = evaluate(
        policy,
        first.task,
        [cell.threshold for cell in evaluation.cells],
        episodes=first.episodes,
        execution=first.execution,  # type: ignore[arg-type]
        candidates=first.candidates,
        seed=first.episode_seed,
        workers=workers,
    )
    about = facts(policy.provenance, time.monotonic() - started)
    return [
        Outcome(cell, [row for row in rows if row.threshold == cell.threshold], about)
        for cell in evaluation.cells
    ]


def _check_trained(policy: Policy, job: Job, path: Path) -> None:
    """Refuses a policy that another job trained; policies may come from another machine."""
    said = {
        "method": policy.method.name,
        "options": policy.method,
        "steps": policy.provenance.get("steps"),
        "data_sha256": policy.provenance.get("data_sha256"),
    }
    wanted = {
        "method": job.method,
        "options": job.make(),
        "steps": job.steps,
        "data_sha256": job.data_sha256,
    }
    for name, value in wanted.items():
        if said[name] != value:
            raise BCRLError(f"{path}: {name} is {said[name]}, but the bench wants {value}; train it again")
