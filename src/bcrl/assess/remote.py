"""Roll-outs in worlds that live in other processes: every threshold and episode in one batch."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from bcrl.assess.rollout import Episodes, roll_out
from bcrl.budget import Execution
from bcrl.errors import BCRLError
from bcrl.learn.protocol import Actor, Goal, Insight
from bcrl.policy import Policy
from bcrl.progress import Tick, progress
from bcrl.worlds import World
from bcrl.worlds.remote.pool import Pool
from bcrl.worlds.tasks import Task


def roll_out_remote(
    policy: Policy,
    task: Task,
    thresholds: tuple[float, ...],
    *,
    episodes: int = 20,
    seed: int = 0,
    execution: Execution | None = None,
    prune: int = 0,
    workers: int | None = None,
    pool: Pool | None = None,
    tick: Tick | None = None,
) -> Episodes:
    """`episodes` episodes at each threshold; the same starts and noise at all of them.

    The policy sees all episodes in one batched call per step. An episode follows from (seed, its number)
    alone, so neither the number of workers nor a crash changes what comes out. Give an open `pool` to keep
    its workers for the next policy, and `tick` where a progress bar of episodes is shown already.
    """
    _check(policy, task)
    if seed < 0:
        raise BCRLError(f"seed is {seed}, but must be 0 or more")
    rows = len(thresholds) * episodes
    with ExitStack() as stack:
        if pool is None:
            pool = stack.enter_context(Pool(task, slots=rows, workers=workers))
        if tick is None:
            tick = stack.enter_context(progress(f"running {task.name}", rows, "episodes"))
        return _Run(policy, task, thresholds, episodes, seed, execution, prune).with_pool(pool, tick)


@contextmanager
def runner(
    policies: Sequence[Policy], world: World | Task, rows: int, workers: int | None = None
) -> Iterator[Callable[..., Episodes]]:
    """`run(policy, thresholds=..., episodes=..., ...)` for one policy after another in the same world.

    A world in other processes keeps its workers between them; `rows` is thresholds × episodes. Shows one
    progress bar for all of it.
    """
    if isinstance(world, World):
        with progress(f"evaluating in {world.name}", len(policies), "policies") as tick:

            def run(policy: Policy, **asked: Any) -> Episodes:
                outcome = roll_out(policy, world, **asked)
                tick()
                return outcome

            yield run
        return
    for policy in policies:  # before a family is installed and its workers are started
        _check(policy, world)
    with (
        Pool(world, slots=rows, workers=workers) as pool,
        progress(f"evaluating in {world.name}", rows * len(policies), "episodes") as tick,
    ):
        yield partial(roll_out_remote, task=world, pool=pool, tick=tick)


def _check(policy: Policy, task: Task) -> None:
    task.check_sizes(policy.spec.observation_size, policy.spec.action_size)
    if policy.spec.cost_count != 1:
        raise BCRLError(f"the policy bounds {policy.spec.cost_count} costs, but {task.name} has one")


class _Run:
    """The books of one roll-out: a row per threshold and episode."""

    def __init__(self, policy, task, thresholds, episodes, seed, execution, prune):
        self.actor: Actor = policy.actor
        self.shape = (len(thresholds), episodes)
        self.horizon = task.horizon or policy.spec.horizon
        self.goal: Goal = policy.goal(
            threshold=np.repeat(thresholds, episodes), horizon=self.horizon, execution=execution, prune=prune
        )
        keys = jax.vmap(lambda n: jax.random.fold_in(jax.random.key(seed), n))(jnp.arange(episodes))
        self.keys = jnp.tile(keys, len(thresholds))
        self.seeds = [episode_seed(seed, number) for _ in thresholds for number in range(episodes)]
        rows = len(thresholds) * episodes
        self.memory = _start(self.actor, self.keys, self.goal)
        self.observations = np.zeros((rows, policy.spec.observation_size), np.float32)
        self.rewards, self.costs = np.zeros(rows, np.float32), np.zeros(rows, np.float32)
        self.totals = np.zeros((rows, 4))  # return, cost, length, steps of the fallback
        self.waiting = list(range(rows - 1, -1, -1))
        self.fresh = np.ones(rows, bool)
        self.slots: dict[int, int] = {}  # which row runs in a slot

    def with_pool(self, pool: Pool, tick: Tick) -> Episodes:
        while self.waiting or self.slots:
            ended = self._round(pool)
            if ended:
                tick(ended)
        returns, costs, lengths, fallback = (column.reshape(self.shape) for column in self.totals.T)
        return Episodes(returns, costs, lengths, fallback / lengths)

    def _round(self, pool: Pool) -> int:
        """One step of every running episode, and a reset in every free slot. The number that ended."""
        running = dict(self.slots)
        actions = self._act(running) if running else {}
        resets = {}
        for slot in range(pool.slots):
            if slot not in self.slots and self.waiting:
                self.slots[slot] = self.waiting.pop()
                resets[slot] = self.seeds[self.slots[slot]]
        outcome = pool.round(resets, actions)
        for slot, observation in outcome.seen.items():
            self.observations[self.slots[slot]] = observation
        for slot in resets:
            self._begin(self.slots[slot])
        ended = 0
        for slot, (reward, cost, terminal, timeout) in outcome.stepped.items():
            row = running[slot]
            self.rewards[row], self.costs[row] = reward, cost
            self.totals[row, :3] += reward, cost, 1.0
            if terminal or timeout or self.totals[row, 2] >= self.horizon:
                del self.slots[slot]
                ended += 1
        for slot in outcome.lost:
            if slot in self.slots:
                self.waiting.append(self.slots.pop(slot))
        return ended

    def _begin(self, row: int) -> None:
        self.totals[row] = 0.0
        self.fresh[row] = True

    def _act(self, running: dict[int, int]) -> dict[int, np.ndarray]:
        rows = list(running.values())
        live = np.zeros(len(self.seeds), bool)
        live[rows] = True
        # Always the whole batch: its shape does not depend on how many slots there are, so that an
        # episode's numbers do not either.
        actions, self.memory, insight = _decide(
            self.actor,
            self.memory,
            (self.keys, self.goal),
            (self.fresh, live),
            (self.costs, self.rewards),
            self.observations,
        )
        chosen = np.asarray(actions)
        self.totals[rows, 3] += np.asarray(insight.fallback)[rows]
        self.fresh[rows] = False
        return {slot: chosen[row] for slot, row in running.items()}


def episode_seed(seed: int, number: int) -> int:
    """The seed of an episode's environment, below 2³² as old generators want it."""
    return int(np.random.SeedSequence([seed, number]).generate_state(1)[0])


@eqx.filter_jit
def _start(actor: Actor, keys: jax.Array, goal: Goal) -> Any:
    return eqx.filter_vmap(actor.start)(keys, goal)


@eqx.filter_jit
def _decide(
    actor: Actor, memory: Any, begin: Any, marks: Any, paid: Any, observations: Any
) -> tuple[jax.Array, Any, Insight]:
    """One call a step for all rows: begin what is fresh, else learn what the last action cost; then act."""

    def row(memory, key, goal, fresh, live, cost, reward, observation):
        started = actor.start(key, goal)
        informed = actor.observe(memory, jnp.reshape(cost, goal.threshold.shape), reward)
        current = jax.tree.map(lambda new, old: jnp.where(fresh, new, old), started, informed)
        action, after, insight = actor.act(current, observation)
        # A row that waits or has ended keeps what it had.
        after = jax.tree.map(lambda new, old: jnp.where(live, new, old), after, memory)
        return action, after, insight

    keys, goal = begin
    fresh, live = (jnp.asarray(mark) for mark in marks)
    cost, reward = (jnp.asarray(number) for number in paid)
    return eqx.filter_vmap(row)(memory, keys, goal, fresh, live, cost, reward, jnp.asarray(observations))
