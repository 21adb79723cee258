"""The tables of docs/results.md for the built-in worlds: what each policy earns and costs per threshold.

    python benchmarks/point_worlds.py [--out runs/point-worlds]
    python benchmarks/point_worlds.py --anchor

Records the logs (200k transitions each), trains three seeds of every variant with the preset `cpu`,
evaluates 20 episodes per seed and threshold, and writes `results.csv` and `tables.md` into the folder. What
is there already is kept, so a stopped run goes on. About half an hour on two CPU cores. With --anchor: the
best return that a planner which knows the world finds within each threshold, in some minutes, and no more.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bcrl.assess import Result, evaluate, write_results
from bcrl.assess.statistics import Kept, Summary
from bcrl.data import Dataset, load_data
from bcrl.files import write_text
from bcrl.learn.registry import default_steps, make_method
from bcrl.policy import Policy, load
from bcrl.train.run import fit
from bcrl.worlds import JaxWorld, built_in_world
from bcrl.worlds._point_run import ACCELERATION, DRAG, SECONDS, SPEED_LIMIT
from bcrl.worlds.collect import collect
from bcrl.worlds.planning import plan_episodes

SEEDS = (0, 10, 20)
THRESHOLDS = (10.0, 20.0, 40.0)
NOISE = 0.2


class Study:
    """Runs that are kept in one folder and made only when missing."""

    def __init__(self, folder: Path, steps: int | None):
        self.folder = folder
        self.steps = steps
        self.results: list[Result] = []

    def log(self, world: JaxWorld) -> Dataset:
        path = self.folder / f"{world.name}{'-noise' if world.noise else ''}.npz"
        if not path.exists():
            collect(world).save(path)
        return load_data(path)

    def policies(self, world: JaxWorld, method: str, **options) -> list[Policy]:
        words = "-".join([method, *(str(value) for value in options.values())])
        folder = self.folder / f"{world.name}{'-noise' if world.noise else ''}-{words}"
        files = [folder / f"policy-{seed}.bcrl" for seed in SEEDS]
        if not all(file.exists() for file in files):
            print(f"training {folder.name}", flush=True)
            made = make_method(method, preset="cpu", family="point", **options)
            steps = default_steps(method, "cpu", "point")
            steps = self.steps or steps
            fit(self.log(world), made, seeds=SEEDS, steps=steps, out=folder, resume=True)
        return [load(file) for file in files]

    def cells(
        self, policies: Sequence[Policy], world: JaxWorld, thresholds=THRESHOLDS, execution=None
    ) -> list[str]:
        rows = evaluate(policies, world, thresholds, episodes=20, execution=execution)
        self.results += rows
        return [_cell(line) for line in rows.summary() if line.threshold is not None]


def _cell(line: Summary) -> str:
    """Reward / cost, each ± its standard error (steps of the fallback); broken thresholds are bold."""
    bold = "" if line.kept is not Kept.BROKEN else "**"
    reward, cost = (f"{x.mean:.3f} ± {x.error:.3f}" for x in (line.reward, line.cost))
    return f"{reward} / {bold}{cost}{bold} ({line.fallback_share:.0%})"


def promises(study: Study) -> str:
    """BCRL beside behaviour cloning on the episodes that kept each threshold."""
    lines = ["| world | method | κ = 10 | κ = 20 | κ = 40 |", "|---|---|---|---|---|"]
    for name in ("point-circle", "point-run"):
        world = built_in_world(name)
        cells = study.cells(study.policies(world, "bcrl"), world)
        lines.append(f"| {name} | BCRL, one policy a seed | {' | '.join(cells)} |")
        cells = []
        for threshold in THRESHOLDS:
            policies = study.policies(world, "bc-safe", threshold=threshold)
            cells += study.cells(policies, world, (threshold,))
        lines.append(f"| {name} | BC-Safe, one policy a seed and threshold | {' | '.join(cells)} |")
    return "\n".join(lines)


def variants(study: Study) -> str:
    """Under actuator noise: every tracking, criterion and execution rule."""
    lines = [
        "| world | tracking | criterion | execution | κ = 10 | κ = 20 | κ = 40 |",
        "|---|---|---|---|---|---|---|",
    ]
    for name in ("point-circle", "point-goal"):
        world = built_in_world(name, NOISE)
        for tracking in ("soft", "direct"):
            for criterion in ("discounted", "episodic"):
                policies = study.policies(world, "bcrl", tracking=tracking, criterion=criterion)
                for execution in ("finite-horizon", "soft", "direct", "min"):
                    cells = study.cells(policies, world, execution=execution)
                    lines.append(f"| {name} | {tracking} | {criterion} | {execution} | {' | '.join(cells)} |")
    return "\n".join(lines)


def towards(state: Any, place: jax.Array) -> jax.Array:
    """point-circle: the action towards a place."""
    return 4.0 * (place - state.position) - state.velocity


def ellipse(threshold: float) -> np.ndarray:
    """Places on a narrow ellipse between the limits, a round in 45 steps."""
    turn = np.linspace(0, 200, 51) * 2 * np.pi / 45
    return np.stack([0.7 * np.cos(turn), 1.4 * np.sin(turn)], axis=1)


def at_speed(state: Any, speed: jax.Array) -> jax.Array:
    """point-run: the action for this speed in the middle of the corridor."""
    throttle = ((speed[0] - state.speed) / SECONDS + DRAG * state.speed) / ACCELERATION
    return jnp.stack([throttle, 5.0 * (-jnp.clip(state.offset, -0.5, 0.5) - state.heading)])


def late_burst(threshold: float) -> np.ndarray:
    """Just below the limit, and as fast as possible for as many last steps as may cost."""
    speed = np.where(np.linspace(0, 200, 41) > 200 - threshold, ACCELERATION / DRAG, 0.99 * SPEED_LIMIT)
    return speed[:, None]


def anchors(starts: int) -> str:
    """What a planner that knows the world earns within each threshold, over some starts."""
    thresholds = (0.0, *THRESHOLDS, 200.0)
    lines = [
        f"| world | {' | '.join(f'κ = {threshold:g}' for threshold in thresholds)} |",
        f"|---{'|---' * len(thresholds)}|",
    ]
    for name, follow, start, spread in (
        ("point-circle", towards, ellipse, 0.3),
        ("point-run", at_speed, late_burst, 0.3),
    ):
        world = built_in_world(name)
        bought = plan_episodes(world, follow, start, spread, thresholds, episodes=starts)
        earned, spent = world.normalise(bought.returns), bought.costs
        error = earned.std(axis=1, ddof=1) / np.sqrt(earned.shape[1])
        cells = [
            f"{mean:.3f} ± {off:.3f} / {cost:.1f}"
            for mean, off, cost in zip(earned.mean(axis=1), error, spent.mean(axis=1), strict=True)
        ]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/point-worlds"))
    parser.add_argument("--steps", type=int, help="gradient steps of each run (default: the preset's)")
    parser.add_argument("--anchor", action="store_true", help="only what a planner earns")
    parser.add_argument("--starts", type=int, default=20, help="episodes of --anchor, two or more")
    words = parser.parse_args()
    if words.anchor:
        print(anchors(words.starts))
        return
    study = Study(words.out, words.steps)
    tables = f"{promises(study)}\n\n{variants(study)}\n"
    write_results(study.results, words.out / "results.csv")
    write_text(words.out / "tables.md", tables)
    print(tables)


if __name__ == "__main__":
    main()
