"""Evaluation speed in a real world as JSON: workers and one batched call, against the usual loop.

The usual loop, in the same run: one environment, one policy call per step for one observation. The policies
are untrained networks of the paper's size: speed does not depend on what they say. The usual loop has its
environment in the same process, so the time of the pipe is taken off it. Needs the family
(`bcrl worlds install bullet`).

    python benchmarks/evaluate.py [--task BallCircle] [--episodes 20] [--seeds 3] [--share 0.1]
"""

import argparse
import json
import os
import time
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from bcrl.assess.rollout import episode_seed, roll_out
from bcrl.learn.bcrl import BCRL
from bcrl.learn.protocol import Actor, Spec, blank_actor
from bcrl.policy import Policy
from bcrl.worlds.remote.pool import Pool
from bcrl.worlds.tasks import Task, find_task


def untrained(task: Task, hidden: tuple[int, ...], seed: int) -> Policy:
    """Random weights in the shape of a trained policy."""
    method = BCRL(hidden=hidden)
    spec = Spec(task.observation_size, task.action_size, 1, task.horizon, (1.0,), 1000)
    blank = jax.eval_shape(lambda: blank_actor(method, spec))
    leaves, shape = jax.tree.flatten(blank)
    random = np.random.default_rng(seed)
    filled = [_numbers(random, leaf) for leaf in leaves]
    return Policy(jax.tree.unflatten(shape, filled), method, spec, {"seed": seed})


def _numbers(random: np.random.Generator, leaf) -> jax.Array:
    if not np.issubdtype(leaf.dtype, np.floating):
        return jax.numpy.zeros(leaf.shape, leaf.dtype)
    scale = 1.0 / np.sqrt(leaf.shape[-1]) if leaf.shape else 1.0
    return jax.numpy.asarray(np.abs(random.normal(size=leaf.shape)) * scale, leaf.dtype)


@eqx.filter_jit
def one_call(actor: Actor, memory: Any, paid: Any, observation: Any) -> tuple[jax.Array, Any]:
    """Learns what the last step cost and chooses the next action, for one episode."""
    cost, reward = paid
    memory = actor.observe(memory, jnp.reshape(cost, (1,)), jnp.asarray(reward))
    action, memory, _ = actor.act(memory, jnp.asarray(observation))
    return action, memory


def usual_loop(policy: Policy, pool: Pool, thresholds: tuple[float, ...], episodes: int) -> int:
    """One episode after another, one call a step. The number of steps."""
    steps = 0
    for threshold in thresholds:
        goal = policy.goal(threshold=threshold, horizon=pool.task.horizon)
        for number in range(episodes):
            memory = policy.actor.start(jax.random.key(number), goal)
            seen, ended = pool.round({0: episode_seed(0, number)}, {}).seen[0], False
            paid = np.zeros(2, np.float32)
            while not ended:
                action, memory = one_call(policy.actor, memory, paid, seen)
                outcome = pool.round({}, {0: np.asarray(action)})
                seen, (reward, cost, *ends) = outcome.seen[0], outcome.stepped[0]
                paid = np.array([cost, reward], np.float32)
                steps += 1
                ended = any(ends)
    return steps


def pipe_seconds(pool: Pool, rounds: int = 500) -> float:
    """What an empty question to a worker takes. The usual loop would have its environment in the process."""
    worker = pool._workers[0]
    started = time.perf_counter()
    for _ in range(rounds):
        worker.send({"reset": [], "step": []}, np.zeros((0, pool.task.action_size), np.float32))
        worker.receive(0, 0)
    return (time.perf_counter() - started) / rounds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--task", default="BallCircle")
    parser.add_argument("--hidden", type=int, nargs="+", default=[512, 512])
    parser.add_argument("--episodes", type=int, default=20, help="per threshold and seed")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--workers", type=int, default=None, help="default: the number of cores")
    parser.add_argument("--share", type=float, default=1.0, help="share of the episodes in the usual loop")
    chosen = parser.parse_args()
    task = find_task(chosen.task)
    policies = [untrained(task, tuple(chosen.hidden), seed) for seed in range(chosen.seeds)]
    rows = len(task.thresholds) * chosen.episodes

    with task.open(rows, chosen.workers) as envs:
        asked: dict[str, Any] = {"episodes": chosen.episodes, "envs": envs}
        roll_out(policies[0], task, task.thresholds, **asked)  # compiles, makes environments
        started = time.perf_counter()
        steps = sum(
            int(roll_out(policy, task, task.thresholds, seed=seed, **asked).lengths.sum())
            for seed, policy in enumerate(policies)
        )
        ours = time.perf_counter() - started

    few = max(1, round(chosen.episodes * chosen.share))
    with Pool(task, slots=1, workers=1) as pool:
        usual_loop(policies[0], pool, task.thresholds[:1], 1)  # compiles
        started = time.perf_counter()
        usual_steps = sum(usual_loop(policy, pool, task.thresholds, few) for policy in policies)
        measured = time.perf_counter() - started
        usual = measured - usual_steps * pipe_seconds(pool)

    result = {
        "task": task.name,
        "cores": os.cpu_count(),
        "episodes": rows * chosen.seeds,
        "steps": steps,
        "seconds": round(ours, 2),
        "steps_per_second": round(steps / ours),
        "usual_steps": usual_steps,
        "usual_steps_per_second_with_pipe": round(usual_steps / measured),
        "usual_steps_per_second": round(usual_steps / usual),
        "ratio": round((steps / ours) / (usual_steps / usual), 2),
    }
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
