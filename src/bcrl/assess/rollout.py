"""Roll-outs in built-in worlds: every threshold and episode at once, in one jitted program."""

from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from bcrl.budget import Execution
from bcrl.errors import BCRLError
from bcrl.learn.protocol import Actor, Goal
from bcrl.policy import Policy
from bcrl.worlds import World


@dataclass(frozen=True)
class Episodes:
    """What happened, one row per threshold and one column per episode."""

    returns: np.ndarray
    costs: np.ndarray
    lengths: np.ndarray
    fallback_share: np.ndarray


def roll_out(
    policy: Policy,
    world: World,
    thresholds: tuple[float, ...],
    *,
    episodes: int = 20,
    seed: int = 0,
    execution: Execution | None = None,
    prune: int = 0,
) -> Episodes:
    """`episodes` episodes at each threshold; the same starts and noise at all of them."""
    sizes = (policy.spec.observation_size, policy.spec.action_size, policy.spec.cost_count)
    theirs = (world.observation_size, world.action_size, world.cost_count)
    if sizes != theirs:
        raise BCRLError(
            f"the policy has (observations, actions, costs) {sizes}, but {world.name} {theirs}: "
            "evaluate in the world the log is from"
        )
    goal = policy.goal(
        threshold=np.repeat(thresholds, episodes), horizon=world.horizon, execution=execution, prune=prune
    )
    keys = jax.random.split(jax.random.key(seed), episodes)
    rows = _roll(policy.actor, world, goal, jnp.tile(keys, len(thresholds)))
    shaped = [np.asarray(x).reshape(len(thresholds), episodes) for x in rows]
    return Episodes(*shaped)


@eqx.filter_jit
def _roll(actor: Actor, world: World, goals: Goal, keys: jax.Array) -> tuple[jax.Array, ...]:
    def episode(goal: Goal, key: jax.Array) -> tuple[jax.Array, ...]:
        reset_key, act_key, world_key = jax.random.split(key, 3)

        def step(carry, key):
            state, memory, alive = carry
            action, memory, insight = actor.act(memory, world.observe(state))
            state, reward, cost, terminal = world.step(state, action, key)
            memory = actor.observe(memory, jnp.reshape(cost, goal.threshold.shape), reward)
            row = jnp.stack([reward, cost, jnp.ones_like(reward), insight.fallback]) * alive
            return (state, memory, alive & ~terminal), row

        first = (world.reset(reset_key), actor.start(act_key, goal), jnp.asarray(True))
        _, rows = jax.lax.scan(step, first, jax.random.split(world_key, world.horizon))
        earned, spent, length, fallback = jnp.sum(rows, axis=0)
        return earned, spent, length, fallback / length

    return eqx.filter_vmap(episode)(goals, keys)
