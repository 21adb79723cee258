"""CAPS (IQL instantiation): a few policies from "most reward" to "least cost", switched at every step.

Training sees no threshold. When acting, each head proposes an action; of those whose Q_C is below the
remaining budget, the one with the largest Q_R is executed.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PRNGKeyArray

from bcrl.budget import finite_horizon_budget
from bcrl.data import Dataset
from bcrl.learn.baselines import in_sample
from bcrl.learn.baselines.common import Baseline, Memory, PlainActor
from bcrl.learn.batch import Batch, Rows
from bcrl.learn.losses import advantage_weight, expectile_loss
from bcrl.learn.networks import LOG_STD_RANGE, MLP, gaussian_log_density
from bcrl.learn.options import option
from bcrl.learn.protocol import Insight, Metrics, Normaliser, Part, Spec
from bcrl.learn.train_state import Networks, Optimisers, TrainState, adam

RELEASED_DECAY_STEPS = 1_000_000  # the released cosine, of which training sees a tenth or a fifth


class Heads(eqx.Module):
    """H policies on one trunk: means by state, through tanh; one spread per head."""

    trunk: MLP
    log_std: Float[Array, "h a"]

    def __init__(self, state_size: int, action_size: int, hidden: tuple[int, ...], heads: int, key: Any):
        self.trunk = MLP((state_size, *hidden, action_size), key, heads=heads)
        self.log_std = jnp.zeros((heads, action_size))

    def __call__(self, features: Float[Array, "*b f"]) -> Float[Array, "*b h a"]:
        """The mean action of every head."""
        mean = jnp.tanh(self.trunk(features))
        return mean.reshape(*features.shape[:-1], *self.log_std.shape)


class SwitchingActor(PlainActor):
    """Executes the best of the heads' actions by Q_R with Q_C below the budget; if none is, the least Q_C."""

    heads: Heads
    critics: MLP
    gamma_cost: float = eqx.field(static=True)

    def act(
        self, memory: Memory, observation: Float[Array, " d"]
    ) -> tuple[Float[Array, " a"], Memory, Insight]:
        action, insight = self.decide(self.normaliser(observation), memory)
        return action, memory, insight

    def choose(self, features: Float[Array, " f"], memory: Memory, key: PRNGKeyArray) -> Float[Array, " a"]:
        del key
        return self.decide(features, memory)[0]

    def decide(self, features: Float[Array, " f"], memory: Memory) -> tuple[Float[Array, " a"], Insight]:
        """Q_C(s, a_k) < δ = (κ − C) φ(H − t) decides; slack is what the cheapest head leaves of δ."""
        actions = self.heads(features)
        rows = jnp.broadcast_to(features, (len(actions), features.shape[-1]))
        worth, cost = in_sample.twin_values(self.critics, rows, actions)
        goal = memory.goal
        steps_left = goal.horizon - memory.step
        budget = finite_horizon_budget(goal.threshold, memory.spent, steps_left, self.gamma_cost)
        fits = cost < budget
        best = jnp.argmax(jnp.where(fits, worth, -jnp.inf))
        chosen = jnp.where(fits.any(), best, jnp.argmin(cost))
        return actions[chosen], Insight(budget - cost.min(), ~fits.any())


@dataclass(frozen=True, repr=False)
class CAPS(Baseline):
    """CAPS, IQL instantiation."""

    name: ClassVar[str] = "caps"

    hidden: tuple[int, ...] = (512, 512)
    """Hidden layers of every network."""
    heads: int = option(2, least=2, most=1_024)
    """Policies H to switch between, from the most reward to the least cost."""
    tau_r: float = option(0.7, least=0.5, most=1.0, traced=True)
    """Expectile of the reward value; larger is nearer the best action of the log."""
    tau_c: float = option(0.3, above=0.0, most=0.5, traced=True)
    """Expectile of the cost value; smaller is nearer the least cost (1 − τ where −cost is maximised)."""
    beta: float = option(3.0, above=0.0, unit="1/scaled reward, 1/c_max", traced=True)
    """Inverse temperature of policy extraction: actions weigh exp(β · advantage)."""
    weight_limit: float = option(100.0, above=0.0, traced=True)
    """Largest weight of an action by reward, and by cost."""
    learning_rate: float = option(3e-4, above=0.0, traced=True)
    """Adam's step size; the policies' decays to 0 along a cosine."""
    reward_scale: float = option(0.1, above=0.0)
    """Rewards are multiplied by it."""

    def prepare(self, data: Dataset, normaliser: Normaliser) -> Rows:
        return self.rows(data, normaliser, reward_scale=self.reward_scale)

    def init(self, key: PRNGKeyArray, spec: Spec) -> TrainState:
        critic_key, heads_key = jax.random.split(key)
        d, a = spec.observation_size, spec.action_size
        networks = in_sample.networks(d, a, self.hidden, critic_key)
        networks["heads"] = Heads(d, a, self.hidden, self.heads, heads_key)
        return TrainState.start(networks, self.optimisers(spec), targets=("critics",))

    def optimisers(self, spec: Spec) -> Optimisers:
        steps = RELEASED_DECAY_STEPS if self.faithful else spec.steps
        decaying = optax.cosine_decay_schedule(self.learning_rate, steps)
        return adam({"values": self.learning_rate, "critics": self.learning_rate, "heads": decaying})

    def update(
        self, state: TrainState, batch: Batch, key: PRNGKeyArray, spec: Spec, parts: tuple[Part, ...]
    ) -> tuple[TrainState, Metrics]:
        """One gradient step of values, critics and heads at once."""
        del key, parts
        gradients, metrics = jax.grad(self.losses, has_aux=True)(state.networks, state.targets, batch)
        return state.step(gradients, self.optimisers(spec)).follow(self.target_rate), metrics

    def losses(self, trained: Networks, targets: Networks, batch: Batch) -> tuple[Array, Metrics]:
        """Their sum: no loss reaches the networks of another."""
        found = in_sample.estimate(trained, targets, batch)
        advantage = found.critic - found.value
        saved = found.cost_value - found.cost_critic
        metrics = {
            "reward/value_loss": expectile_loss(advantage, self.tau_r),
            "reward/critic_loss": in_sample.backup_loss(
                found.critics, batch.reward, batch.bootstrap, found.next_value, self.gamma
            ),
            "cost/value_loss": expectile_loss(-saved, self.tau_c),
            "cost/critic_loss": in_sample.backup_loss(
                found.cost_critics, batch.only_cost, batch.bootstrap, found.next_cost_value, self.gamma
            ),
            "policy/loss": self.heads_loss(
                trained["heads"], batch, *map(jax.lax.stop_gradient, (advantage, saved))
            ),
        }
        return sum(metrics.values(), jnp.zeros(())), metrics | {
            "reward/value": found.value.mean(),
            "cost/value": found.cost_value.mean(),
        }

    def heads_loss(self, heads: Heads, batch: Batch, advantage: Array, saved: Array) -> Array:
        """−E[w_k log N(a; μ_k(s), σ_k²)], the mean over heads; as released σ = 1, never learned."""
        weights = head_weights(
            advantage_weight(advantage, self.beta, self.weight_limit),
            advantage_weight(saved, self.beta, self.weight_limit),
            self.heads,
        )
        log_std = jnp.clip(jnp.zeros_like(heads.log_std) if self.faithful else heads.log_std, *LOG_STD_RANGE)
        likely = gaussian_log_density(heads(batch.features), log_std, batch.action[:, None, :])
        return -jnp.mean(weights * likely)

    def actor(self, state: TrainState, arrays: Any, normaliser: Normaliser, spec: Spec) -> SwitchingActor:
        del arrays, spec
        seen = self.seen_through(normaliser)
        return SwitchingActor(seen, state.networks["heads"], state.networks["critics"], self.gamma)


def head_weights(
    by_reward: Float[Array, " b"], by_cost: Float[Array, " b"], heads: int
) -> Float[Array, "b h"]:
    """Head 0 clones by reward, the last by cost, head k between them by w_R + 2k/(H − 1) · w_C."""
    inner = [by_reward + 2.0 * k / (heads - 1) * by_cost for k in range(1, heads - 1)]
    return jnp.stack([by_reward, *inner, by_cost], axis=1)
