"""Estimates from the log alone beside the truth of the world that the log is from.

    python benchmarks/estimate_truth.py [--logs 5] [--out runs/estimate-truth]
    python benchmarks/estimate_truth.py --log BallCircle.hdf5 --world BallCircle --policy policy.bcrl

The first form records `--logs` logs in each of point-circle and point-run, with and without noise, trains a
policy on each, estimates and calibrates it, and runs it. One JSON file for each log; what is there already is
kept, so a stopped run goes on. The second form takes a log, a policy and the world that are there. Both print
a row for each cell and what the cells say together. One log of 60k transitions takes about six minutes on one
CPU core.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bcrl.assess import evaluate
from bcrl.data import Dataset, load_data
from bcrl.errors import BCRLError
from bcrl.estimates import calibrate, estimate, fit_model
from bcrl.files import write_text
from bcrl.learn.registry import make_method
from bcrl.policy import Policy, load_learned
from bcrl.train.run import fit
from bcrl.worlds import World, built_in_world, make_world
from bcrl.worlds.collect import collect

THRESHOLDS = (5.0, 10.0, 20.0, 40.0, 60.0)
WORLDS = ("point-circle", "point-run")
NOISES = (0.0, 0.2)
Cell = dict[str, Any]


def cells(
    policy: Policy,
    data: Dataset,
    world: World,
    thresholds: Sequence[float],
    episodes: int,
    steps: int = 8_000,
    starts: int = 128,
) -> list[Cell]:
    """One policy at every threshold: estimate, truth, and the truth of the calibrated policy."""
    model = fit_model(data, steps=steps)
    said = estimate(policy, data, thresholds, model=model, starts=starts)
    try:
        calibrated = calibrate(policy, data, thresholds, model=model, starts=min(starts, 64)).policy
        told = dict(calibrated.calibration.table) if calibrated.calibration else {}
    except BCRLError as error:
        print(error, flush=True)
        calibrated, told = policy, {}
    plain = _truth(policy, world, thresholds, episodes)
    better = _truth(calibrated, world, sorted(told), episodes, calibrated=True) if told else {}
    found = []
    for row in said:
        costs, returns = plain[row.threshold]
        error = float(costs.std(ddof=1)) / episodes**0.5
        cell: Cell = {
            "world": world.label,
            "threshold": row.threshold,
            "cost": row.cost,
            "low": row.cost_low,
            "high": row.cost_high,
            "true": float(costs.mean()),
            "error": error,
            "return": row.return_,
            "return_low": row.return_low,
            "return_high": row.return_high,
            "true_return": float(returns.mean()),
            "fallback": row.fallback_share,
            "light": row.light,
            "reasons": row.reasons,
            "told": told.get(row.threshold),
        }
        if row.threshold in told:
            costs, earned = better[row.threshold]
            more = earned - returns  # the same starts and noise
            cell |= {
                "told_cost": float(costs.mean()),
                "told_error": float(costs.std(ddof=1)) / episodes**0.5,
                "told_return": float(earned.mean()),
                "more_error": float(more.std(ddof=1)) / episodes**0.5,
            }
        found.append(cell)
    return found


def _truth(policy: Policy, world: World, thresholds: Sequence[float], episodes: int, **how: Any) -> dict:
    rows = evaluate(policy, world, thresholds, episodes=episodes, **how)
    return {
        threshold: tuple(
            np.array([getattr(row, name) for row in rows if row.threshold == threshold])
            for name in ("cost", "return_")
        )
        for threshold in thresholds
    }


def summary(found: Sequence[Cell]) -> dict[str, Any]:
    """What the cells say together, most of it as shares of them."""

    def share(values: list[bool]) -> float | None:
        return round(sum(values) / len(values), 3) if values else None

    lights = [cell["light"] for cell in found]
    told = [cell for cell in found if cell["told"] is not None]
    both = [
        cell
        for cell in told
        if cell["told_cost"] <= cell["threshold"] + 2 * cell["told_error"]
        and cell["true"] <= cell["threshold"] + 2 * cell["error"]
    ]
    return {
        "cells": len(found),
        "lights": {light: lights.count(light) for light in ("green", "amber", "red")},
        "covered": share([cell["low"] <= cell["true"] <= cell["high"] for cell in found]),
        "close": share([abs(c["cost"] - c["true"]) <= max(1, 0.05 * c["threshold"]) for c in found]),
        "return covered": share([c["return_low"] <= c["true_return"] <= c["return_high"] for c in found]),
        "green but over by 10 %": sum(
            cell["light"] == "green" and cell["true"] > 1.1 * cell["threshold"] for cell in found
        ),
        "refused": len(found) - len(told),
        "calibrated kept": share(
            [cell["told_cost"] <= cell["threshold"] + 2 * cell["told_error"] for cell in told]
        ),
        "uncalibrated kept": share([cell["true"] <= cell["threshold"] + 2 * cell["error"] for cell in found]),
        "both keep": len(both),
        "of these, calibrated earns as much": share(
            [c["told_return"] >= c["true_return"] - 2 * c["more_error"] for c in both]
        ),
        "of these, return over uncalibrated": round(
            float(np.mean([c["told_return"] / c["true_return"] for c in both])), 3
        )
        if both
        else None,
    }


def table(found: Sequence[Cell]) -> str:
    """A row for each cell."""
    lines = [
        "| world | κ | true cost | estimate | true return | estimate | fallback | light "
        "| told | cost | return |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for cell in found:
        told = "refused | |"
        if cell["told"] is not None:
            told = f"{cell['told']:.1f} | {cell['told_cost']:.1f} | {cell['told_return']:.4g}"
        lines.append(
            f"| {cell['world']} | {cell['threshold']:g} | {cell['true']:.2f} ± {cell['error']:.2f} "
            f"| {cell['cost']:.2f} ({cell['low']:.2f}–{cell['high']:.2f}) | {cell['true_return']:.4g} "
            f"| {cell['return']:.4g} ({cell['return_low']:.4g}–{cell['return_high']:.4g}) "
            f"| {cell['fallback']:.0%} | {cell['light']} | {told} |"
        )
    return "\n".join(lines)


def point_worlds(words: argparse.Namespace) -> list[Cell]:
    """All cells of the built-in worlds; each log has its own seed, in recording and in training."""
    found = []
    for seed in range(words.logs):
        for name in words.worlds.split(","):
            for noise in NOISES:
                path = words.out / f"{name}-{noise:g}-{seed}.json"
                if not path.exists():
                    print(path.stem, flush=True)
                    world = built_in_world(name, noise)
                    data = collect(world, words.transitions, seed, steps=words.collect_steps)
                    method = make_method("bcrl", preset="cpu", family="point")
                    policy = fit(data, method, seeds=(seed,), steps=words.steps).policy()
                    one = cells(
                        policy, data, world, THRESHOLDS, words.episodes, words.model_steps, words.starts
                    )
                    write_text(path, json.dumps(one, indent=1) + "\n")
                found += json.loads(path.read_text())
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/estimate-truth"))
    parser.add_argument("--logs", type=int, default=5, help="logs of each world, with and without noise")
    parser.add_argument("--worlds", default=",".join(WORLDS))
    parser.add_argument("--transitions", type=int, default=60_000)
    parser.add_argument("--collect-steps", type=int, default=1_500_000)
    parser.add_argument("--steps", type=int, default=6_000, help="gradient steps of each policy")
    parser.add_argument("--model-steps", type=int, default=8_000)
    parser.add_argument("--starts", type=int, default=128)
    parser.add_argument("--episodes", type=int, default=200, help="true episodes for each cell")
    parser.add_argument("--log", type=Path, help="a log that is there, with --world and --policy")
    parser.add_argument("--world", help="its world, as in bcrl evaluate --world")
    parser.add_argument("--policy", type=Path)
    parser.add_argument("--thresholds", default=",".join(f"{x:g}" for x in THRESHOLDS))
    words = parser.parse_args()
    if words.log:
        thresholds = [float(word) for word in words.thresholds.split(",")]
        policy, data, world = load_learned(words.policy), load_data(words.log), make_world(words.world)
        found = cells(policy, data, world, thresholds, words.episodes, words.model_steps, words.starts)
        write_text(words.out / f"{words.policy.stem}.json", json.dumps(found, indent=1) + "\n")
    else:
        found = point_worlds(words)
    print(f"{table(found)}\n\n{json.dumps(summary(found), indent=1, ensure_ascii=False)}")


if __name__ == "__main__":
    main()
