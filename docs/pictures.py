"""Draws the figures of the documents from the files that `make demo` wrote; run it from the root.

.venv/bin/python docs/pictures.py
"""

from pathlib import Path

import jax
import numpy as np
from matplotlib.figure import Figure

import bcrl
from bcrl.assess.results import read_results
from bcrl.policy import Policy
from bcrl.report import draw, save_figure
from bcrl.worlds import make_world

DEMO = Path("runs/demo")
IMAGES = Path("docs/images")


def slack_picture(policy: Policy, threshold: float) -> Figure:
    """A figure of one episode: budget, least cost V_C times the safety factor, and the slack between them."""
    world = make_world("point-circle")
    episode = policy.start(threshold=threshold, horizon=world.horizon)
    key, reset = jax.random.split(jax.random.key(1))
    state = world.reset(reset)
    step = jax.jit(world.step)
    factor, rows = policy.method.safety_factor, []  # type: ignore[attr-defined]
    for t in range(world.horizon):
        action = episode.act(np.asarray(world.observe(state)))
        actor = policy.actor
        least = actor.least_cost(actor.features(world.observe(state), episode.memory.step))  # type: ignore[attr-defined]
        state, _, cost, _ = step(state, action, jax.random.fold_in(key, t))
        episode.observe(float(cost))
        rows.append((factor * float(least[0]), float(episode.slack[0]), float(cost), bool(episode.fallback)))
    least, slack, cost, fallback = map(np.array, zip(*rows, strict=True))
    time = np.arange(world.horizon)
    figure = Figure(figsize=(8, 3.6), layout="constrained")
    axes = figure.subplots()
    axes.fill_between(time, least, least + slack, where=slack > 0, color="#56B4E9", alpha=0.45, lw=0)
    axes.plot(time, least + slack, color="#0072B2", label="budget δ: what may still be spent")
    axes.plot(
        time,
        least,
        color="#D55E00",
        label=f"{factor:g} V_C(s): the least that will be spent, with the safety factor",
    )
    spent = np.flatnonzero(cost)
    axes.plot(spent, np.full(len(spent), -0.25), "|", color="black", ms=7, label="steps that cost 1")
    if fallback.any():
        acted = np.flatnonzero(fallback)
        axes.plot(acted, np.full(len(acted), -0.6), ".", color="#999999", ms=3, label="fallback acts")
    axes.annotate("slack", (time[8], (least + slack / 2)[8]), color="#0072B2", fontsize=12, ha="center")
    axes.set(
        xlabel="step of the episode",
        ylabel="discounted cost",
        title=f"An episode of point-circle told to cost at most {threshold:g} (it cost {cost.sum():g})",
    )
    axes.legend(frameon=False, loc="upper right")
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def main() -> None:
    IMAGES.mkdir(parents=True, exist_ok=True)
    policy = bcrl.load(DEMO / "policy.bcrl")
    slack_picture(policy, 20.0).savefig(IMAGES / "slack.png", dpi=110)
    log = next(DEMO.glob("*.npz"))
    save_figure(draw(read_results(DEMO / "results.csv"), bcrl.load_data(log)), IMAGES / "demo.png")


if __name__ == "__main__":
    main()
