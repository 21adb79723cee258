"""Recording a log in a world of another process, for learning offline.

As `worlds.collect`, with the same agent. Steps are slow here: each is used in more updates, observations
are scaled by their running mean and spread, and a recording that was stopped can be continued.
"""

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np

from bcrl.data import Dataset
from bcrl.errors import BCRLError
from bcrl.progress import progress
from bcrl.worlds._ppo import Learner, Played, Recipe, draw_shares, learn, start_learner
from bcrl.worlds._recorder import Recorder
from bcrl.worlds.remote._partial import Partial
from bcrl.worlds.remote._play import Scaling, play
from bcrl.worlds.tasks import Task

RECIPE = Recipe(gamma=0.99, entropy=0.003, log_std=-0.5, epochs=8, minibatches=32, learning_rate=1e-3)
ROUND_STEPS = 8_000  # played, then learned from
FEWEST, MOST = 8, 64  # episodes side by side
CHECKPOINT_SECONDS = 120

# What one core steps in some minutes, by the part of a task's name that determines its speed.
STEPS: dict[str, dict[str, int]] = {
    "bullet": {"Ball": 800_000, "Drone": 600_000, "Car": 400_000, "Ant": 400_000},
    "safety-gym": {
        "Velocity": 1_500_000,
        "Circle": 500_000,
        "Push": 400_000,
        "Goal1": 400_000,
        "Goal2": 200_000,
        "Button": 200_000,
    },
    "metadrive": {"": 200_000},
    "gym": {"": 1_000_000},
}


def default_steps(task: Task) -> int:
    """Default number of steps to play and learn from."""
    return next(steps for part, steps in STEPS[task.family].items() if part in task.name)


def default_transitions(task: Task) -> int:
    """Default number of steps to keep: at least 500 whole episodes."""
    return max(200_000, 500 * task.horizon)


def collect_remote(
    task: Task,
    transitions: int | None = None,
    seed: int = 0,
    *,
    steps: int | None = None,
    cost_cap: float | None = None,
    workers: int | None = None,
    folder: Path | None = None,
) -> Dataset:
    """A log of about `transitions` steps that covers the reward–cost plane, as `worlds.collect.collect` says.

    `cost_cap` is three times the task's loosest threshold if not given. The same seed gives the same log,
    whatever the number of workers and whichever of them crash. With `folder`, a recording that was
    stopped continues from there, to the same log; the caller removes the folder after saving the log.
    """
    transitions = default_transitions(task) if transitions is None else transitions
    steps = default_steps(task) if steps is None else steps
    cost_cap = 3.0 * max(task.thresholds) if cost_cap is None else cost_cap
    _check(task, transitions, steps, seed)
    columns = min(max(round(ROUND_STEPS / task.horizon), FEWEST), MOST)
    rounds = max(1, round(steps / (columns * task.horizon)))
    key = jax.random.key(seed)
    learner = start_learner(
        jax.random.fold_in(key, rounds), task.observation_size, task.action_size, RECIPE, rounds
    )
    step = _jitted(learner, rounds)
    scaling = Scaling(task.observation_size)
    recorder = Recorder(transitions, cost_cap, seed)
    asked = {
        "task": task.name,
        "seed": seed,
        "transitions": transitions,
        "steps": steps,
        "cost_cap": cost_cap,
    }
    kept = Partial(folder, asked)
    begun, learner = kept.resume(learner, scaling, recorder)
    saved = time.monotonic()
    size = columns * task.horizon
    with (
        jax.default_device(jax.devices("cpu")[0]),  # small networks; a GPU would also round sums differently
        task.open(columns, workers) as pool,
        progress(f"recording {task.name}", rounds * size, "steps", begun * size) as tick,
    ):
        for number in range(begun, rounds):
            share_key, noise_key, learn_key = jax.random.split(jax.random.fold_in(key, number), 3)
            shares = np.asarray(draw_shares(share_key, task.horizon, columns))
            noise = np.asarray(jax.random.normal(noise_key, (task.horizon, columns, task.action_size)))
            played, episodes = play(
                pool,
                learner.agent,
                scaling,
                shares,
                noise,
                seed=(seed, number),
                tick=lambda count: tick(count, recorder.note),
            )
            recorder.add(episodes)
            learner = step(learner, played, learn_key)
            if time.monotonic() - saved >= CHECKPOINT_SECONDS:
                kept.save(number + 1, learner, scaling, recorder)
                saved = time.monotonic()
    return Dataset.from_arrays(recorder.log(), source=f"{task.name}, seed {seed}")


def _jitted(like: Learner, rounds: int) -> Callable[[Learner, Played, jax.Array], Learner]:
    """`learn` as one program on one thread: split over cores, sums would depend on how many there are."""
    _, functions = eqx.partition(like, eqx.is_array)

    @partial(jax.jit, compiler_options={"xla_cpu_multi_thread_eigen": False})
    def step(arrays: Any, played: Played, key: jax.Array) -> Any:
        after = learn(eqx.combine(arrays, functions), played, key, RECIPE, rounds)
        return eqx.filter(after, eqx.is_array)

    return lambda learner, played, key: eqx.combine(
        step(eqx.filter(learner, eqx.is_array), played, key), functions
    )


def _check(task: Task, transitions: int, steps: int, seed: int) -> None:
    if not task.horizon:
        raise BCRLError(
            f"{task.name} does not say how long an episode is: register it with max_episode_steps"
        )
    if transitions < task.horizon:
        raise BCRLError(f"transitions is {transitions}; one episode of {task.name} has up to {task.horizon}")
    if steps < 1 or seed < 0:
        raise BCRLError(f"steps is {steps} and seed {seed}, but steps must be at least 1 and seed 0")
