"""FISOR: a hard constraint. Where cost can be avoided for good, earn; elsewhere, get back there.

A diffusion policy clones the actions that do. No threshold is ever seen.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, PRNGKeyArray

from bcrl.data import Dataset
from bcrl.errors import BCRLError
from bcrl.learn.baselines import in_sample
from bcrl.learn.baselines.common import (
    Baseline,
    Batch,
    Memory,
    PlainActor,
    adam_step,
    blank_normaliser,
    check_positive,
    check_whole,
    start_adam,
)
from bcrl.learn.baselines.diffusion import Diffusion, NoisePredictor
from bcrl.learn.losses import advantage_weight, expectile_loss
from bcrl.learn.method import Metrics, Normaliser, Part, Spec
from bcrl.learn.networks import MLP, apply_each, follow
from bcrl.learn.rows import Rows

VIOLATED, KEPT = 25.0, -1.0  # h of a step that costs something, and of one that does not


class State(eqx.Module):
    networks: dict[str, Any]
    moments: dict[str, Any]


class DiffusionActor(PlainActor):
    """Of several drawn actions the one that stays safest; budgets are accepted and ignored."""

    policy: NoisePredictor
    critics: MLP  # the slow copies
    diffusion: Diffusion
    candidates: int = eqx.field(static=True)

    def choose(self, features: Float[Array, " f"], memory: Memory, key: PRNGKeyArray) -> Float[Array, " a"]:
        del memory
        rows = jnp.broadcast_to(features, (self.candidates, features.shape[-1]))
        actions = self.diffusion.draw(self.policy, rows, key)
        return actions[jnp.argmin(in_sample.twin_values(self.critics, rows, actions)[1])]


@dataclass(frozen=True)
class FISOR(Baseline):
    """Options of FISOR."""

    name: ClassVar[str] = "fisor"
    family_options: ClassVar[dict[str, dict[str, Any]]] = {"metadrive": {"least_escape_weight": 1.0}}

    batch_size: int = 2048
    """Transitions per step: the policy takes two gradient steps, on half of them each."""
    critic_batch: int = 256
    """How many of them train the values and critics."""
    learning_rate: float = 3e-4
    """Adam's step size; the policy's decays along a cosine."""
    expectile: float = 0.9
    """Expectile of the reward value; the feasibility value's is as far from the other end."""
    beta: float = 3.0
    """Inverse temperature where cost can be avoided: actions weigh exp(β · advantage)."""
    weight_limit: float = 100.0
    """Largest weight of an action there."""
    escape_beta: float = 5.0
    """Inverse temperature elsewhere: actions weigh exp(this · feasibility gained)."""
    escape_weight_limit: float = 150.0
    """Largest weight of an action elsewhere."""
    least_escape_weight: float = 0.0
    """Smallest weight of an action elsewhere; 1 in the code released for MetaDrive."""
    return_range: float | None = None
    """A best return less a worst, to scale rewards by; by default the range of the log's episodes."""
    policy_width: int = 256
    """Units of the policy's residual stream."""
    policy_blocks: int = 3
    """Residual blocks of the policy."""
    dropout: float = 0.1
    """Dropout at the start of each block, in 256ths."""
    diffusion_steps: int = 5
    """Steps from noise to an action."""
    candidates: int = 16
    """Actions drawn to choose from."""
    slow_rate: float = 0.001
    """Share by which the policy that acts follows the trained one at each gradient step of it."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(self, "escape_beta", "escape_weight_limit", "slow_rate")
        check_whole(self, "critic_batch", "policy_width", "policy_blocks", "diffusion_steps", "candidates")
        if self.return_range is not None:
            check_positive(self, "return_range")
        if not 0.5 <= self.expectile <= 1.0:
            raise BCRLError(f"expectile is {self.expectile}, but must be a number from 0.5 to 1")
        if not self.least_escape_weight >= 0.0:
            raise BCRLError(f"least_escape_weight is {self.least_escape_weight}, but must be 0 or more")
        if self.batch_size < 2:
            raise BCRLError("batch_size is 1, but the policy learns from two halves of it: give 2 or more")

    @property
    def schedule(self) -> tuple[tuple[Part, ...], ...]:
        return (("all",),)

    # ---- protocol: data -------------------------------------------------------------------------

    def prepare(self, data: Dataset, normaliser: Normaliser) -> Rows:
        """Rewards times horizon/(best return − worst), so that β fits whatever the task's unit."""
        width = float(np.ptp(data.episode_returns)) if self.return_range is None else self.return_range
        if not width > 0:
            raise BCRLError(f"{data.source}: all episodes return the same: give return_range, above 0")
        return self.rows(data, normaliser, data.horizon / width)

    def sample(self, arrays: Rows, key: PRNGKeyArray) -> Batch:
        return self.draw(arrays, key)[0]

    # ---- protocol: networks ---------------------------------------------------------------------

    def init(self, key: PRNGKeyArray, spec: Spec) -> State:
        critic_key, policy_key = jax.random.split(key)
        d, a = spec.observation_size, spec.action_size
        # Feasibility takes the place of cost: values [V, V_h], critics [Q, Q, Q_h, Q_h].
        networks = in_sample.networks(d, a, self.hidden, critic_key)
        policy = NoisePredictor(d, a, self.policy_width, self.policy_blocks, self.dropout, policy_key)
        networks |= {"policy": policy, "slow_policy": jax.tree.map(jnp.copy, policy)}
        return State(networks, start_adam(networks, self.critic_rates | self.policy_rate(spec)))

    @property
    def critic_rates(self) -> dict[str, Any]:
        return dict.fromkeys(("values", "critics"), self.learning_rate)

    def policy_rate(self, spec: Spec) -> dict[str, Any]:
        """Down to 0 at the end of training; as released, after 3 million gradient steps of the policy."""
        length = 3_000_000 if self.faithful else 2 * spec.steps
        return {"policy": optax.cosine_decay_schedule(self.learning_rate, length)}

    @property
    def diffusion(self) -> Diffusion:
        return Diffusion(self.diffusion_steps)

    # ---- one step -------------------------------------------------------------------------------

    def update(
        self, state: State, batch: Batch, key: PRNGKeyArray, spec: Spec, parts: tuple[Part, ...]
    ) -> tuple[State, Metrics]:
        """Two gradient steps of the policy, with half of the batch each, then one of values and critics."""
        del parts
        networks, moments = state.networks, state.moments
        weight = self.weights(networks, batch)
        middle, policy_loss = self.batch_size // 2, jnp.zeros(())
        for half, half_key in zip((slice(middle), slice(middle, None)), jax.random.split(key), strict=True):
            loss, gradient = jax.value_and_grad(self.policy_loss)(
                networks["policy"], batch.features[half], batch.action[half], weight[half], half_key
            )
            networks, moments = adam_step(networks, {"policy": gradient}, moments, self.policy_rate(spec))
            networks["slow_policy"] = follow(networks["slow_policy"], networks["policy"], self.slow_rate)
            policy_loss += loss / 2

        trained = {name: networks[name] for name in self.critic_rates}
        few = jax.tree.map(lambda x: x[: self.critic_batch], batch)
        gradients, metrics = jax.grad(self.critic_losses, has_aux=True)(trained, networks["targets"], few)
        networks, moments = adam_step(networks, gradients, moments, self.critic_rates)
        networks["targets"] = follow(networks["targets"], networks["critics"], self.target_rate)
        metrics |= {"policy/loss": policy_loss, "policy/weight": weight.mean()}
        return State(networks, moments), metrics

    def weights(self, networks: dict[str, Any], batch: Batch) -> Float[Array, " b"]:
        """How much each action is cloned: by reward where feasible, by feasibility elsewhere."""
        q, q_h = in_sample.twin_values(networks["targets"], batch.features, batch.action)
        v, v_h = apply_each(networks["values"], batch.features)[..., 0]
        return self.weight(q - v, q_h, v_h)

    def weight(self, advantage: Array, q_h: Array, v_h: Array) -> Float[Array, " b"]:
        """V_h > 0 (cost cannot be avoided): exp(5 (V_h − Q_h)). V_h ≤ 0: exp(3 A) if Q_h ≤ 0, else none."""
        escape = advantage_weight(v_h - q_h, self.escape_beta, self.escape_weight_limit)
        earn = advantage_weight(advantage, self.beta, self.weight_limit) * (q_h <= 0)
        return jnp.where(v_h > 0, jnp.maximum(escape, self.least_escape_weight), earn)

    def policy_loss(
        self, policy: NoisePredictor, features: Array, action: Array, weight: Array, key: PRNGKeyArray
    ) -> Array:
        """E[w ‖ε(s, a_t, t) − ε‖²] with a_t = √ᾱ_t a + √(1 − ᾱ_t) ε."""
        time_key, noise_key, dropout_key = jax.random.split(key, 3)
        time = jax.random.randint(time_key, weight.shape, 0, self.diffusion_steps)
        noise = jax.random.normal(noise_key, action.shape, action.dtype)
        found = policy(features, self.diffusion.noised(action, noise, time), time, dropout_key)
        return jnp.mean(weight * jnp.sum((found - noise) ** 2, axis=-1))

    def critic_losses(self, trained: dict[str, Any], targets: MLP, batch: Batch) -> tuple[Array, Metrics]:
        """Their sum: no loss reaches the networks of another."""
        found = in_sample.estimate(trained["values"], trained["critics"], targets, batch)
        wanted = self.feasibility(batch.cost, batch.goes_on, found.next_cost_value)
        losses = {
            "reward/value_loss": expectile_loss(found.critic - found.value, self.expectile),
            "reward/critic_loss": in_sample.backup_loss(
                found.critics, batch.reward, batch.goes_on, found.next_value, self.gamma
            ),
            "safety/value_loss": expectile_loss(found.cost_critic - found.cost_value, 1.0 - self.expectile),
            "safety/critic_loss": jnp.mean((found.cost_critics - wanted) ** 2),
        }
        return sum(losses.values(), jnp.zeros(())), losses | {
            "reward/value": found.value.mean(),
            "safety/value": found.cost_value.mean(),
            "safety/feasible": jnp.mean(found.cost_value <= 0.0),
        }

    def feasibility(self, cost: Array, goes_on: Array, next_value: Array) -> Float[Array, " b"]:
        """(1 − γ) h + γ max(h, V_h(s′)), and h where the backup ends: the worst h to come, discounted."""
        h = jnp.where(cost > 0, VIOLATED, KEPT)
        later = (1.0 - self.gamma) * h + self.gamma * jnp.maximum(h, next_value)
        return goes_on * later + (1.0 - goes_on) * h

    # ---- protocol: what is kept -----------------------------------------------------------------

    def actor(self, state: State, arrays: Any, normaliser: Normaliser, spec: Spec) -> DiffusionActor:
        del arrays, spec
        policy, critics = state.networks["slow_policy"], state.networks["targets"]
        return DiffusionActor(self.seen_through(normaliser), policy, critics, self.diffusion, self.candidates)

    def blank_actor(self, spec: Spec) -> DiffusionActor:
        return self.actor(self.init(jax.random.key(0), spec), None, blank_normaliser(spec), spec)
