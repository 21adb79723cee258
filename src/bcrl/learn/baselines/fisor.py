"""FISOR: a hard constraint. Where cost can be avoided for good, maximise reward; elsewhere, regain that.

A diffusion policy clones the actions that do, by their weights. Training and acting see no threshold.
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
from bcrl.learn.baselines.common import Baseline, Memory, PlainActor
from bcrl.learn.baselines.diffusion import Diffusion, NoisePredictor
from bcrl.learn.batch import Batch, Rows
from bcrl.learn.losses import advantage_weight, expectile_loss
from bcrl.learn.networks import MLP, apply_each
from bcrl.learn.options import option
from bcrl.learn.protocol import Metrics, Normaliser, Part, Spec
from bcrl.learn.stages import stage
from bcrl.learn.train_state import Networks, Optimisers, TrainState, adam

VIOLATED, KEPT = 25.0, -1.0  # h of a step that costs something, and of one that does not


class DiffusionActor(PlainActor):
    """Executes, of several sampled actions, the one with the least Q_h; budgets are accepted and ignored."""

    policy: NoisePredictor
    critics: MLP  # the target networks
    diffusion: Diffusion
    candidates: int = eqx.field(static=True)

    def choose(self, features: Float[Array, " f"], memory: Memory, key: PRNGKeyArray) -> Float[Array, " a"]:
        del memory
        rows = jnp.broadcast_to(features, (self.candidates, features.shape[-1]))
        actions = self.diffusion.sample(self.policy, rows, key)
        return actions[jnp.argmin(in_sample.twin_values(self.critics, rows, actions)[1])]


@dataclass(frozen=True, repr=False)
class FISOR(Baseline):
    """FISOR."""

    name: ClassVar[str] = "fisor"

    batch_size: int = option(2048, least=2, most=10_000_000)
    """Transitions per step: the policy takes two gradient steps, on half of them each."""
    critic_batch: int = option(256, least=1)
    """How many of them train the values and critics."""
    learning_rate: float = option(3e-4, above=0.0, traced=True)
    """Adam's step size; the policy's decays along a cosine."""
    expectile: float = option(0.9, least=0.5, most=1.0, traced=True)
    """Expectile of the reward value; the feasibility value's is as far from the other end."""
    beta: float = option(3.0, above=0.0, traced=True)
    """Inverse temperature where cost can be avoided: actions weigh exp(β · advantage)."""
    weight_limit: float = option(100.0, above=0.0, traced=True)
    """Largest weight of an action there."""
    escape_beta: float = option(5.0, above=0.0, traced=True)
    """Inverse temperature elsewhere: actions weigh exp(this · feasibility gained)."""
    escape_weight_limit: float = option(150.0, above=0.0, traced=True)
    """Largest weight of an action elsewhere."""
    least_escape_weight: float = option(0.0, least=0.0, traced=True)
    """Smallest weight of an action elsewhere; 1 in the code released for MetaDrive."""
    return_range: float | None = option(None, above=0.0, unit="reward")
    """A best return less a worst, to scale rewards by; by default the range of the log's episodes."""
    policy_width: int = option(256, least=1, most=65_536)
    """Units of the policy's residual stream."""
    policy_blocks: int = option(3, least=1, most=256)
    """Residual blocks of the policy."""
    dropout: float = option(0.1, least=0.0, below=1.0)
    """Dropout at the start of each block, in 256ths."""
    diffusion_steps: int = option(5, least=1, most=1_000)
    """Steps from noise to an action."""
    candidates: int = option(16, least=1, most=10_000)
    """Actions sampled to choose from."""
    slow_rate: float = option(0.001, above=0.0, most=1.0, traced=True)
    """Rate at which the target policy, which acts, follows the trained one at each gradient step of it."""

    # ---- protocol: data -------------------------------------------------------------------------

    def prepare(self, data: Dataset, normaliser: Normaliser) -> Rows:
        """Rows, rewards times horizon/(best return − worst): so β does not depend on their unit."""
        width = float(np.ptp(data.episode_returns)) if self.return_range is None else self.return_range
        if not width > 0:
            raise BCRLError(f"{data.source}: all episodes return the same: give return_range, above 0")
        return self.rows(data, normaliser, reward_scale=data.horizon / width)

    # ---- protocol: networks ---------------------------------------------------------------------

    def init(self, key: PRNGKeyArray, spec: Spec) -> TrainState:
        critic_key, policy_key = jax.random.split(key)
        d, a = spec.observation_size, spec.action_size
        # Feasibility takes the place of cost: values [V, V_h], critics [Q, Q, Q_h, Q_h].
        networks = in_sample.networks(d, a, self.hidden, critic_key)
        width, blocks = self.policy_width, self.policy_blocks
        networks["policy"] = NoisePredictor(d, a, width, blocks, self.dropout, policy_key)
        optimisers = {**self.critic_optimisers, **self.policy_optimiser(spec)}
        return TrainState.start(networks, optimisers, targets=("critics", "policy"))

    @property
    def critic_optimisers(self) -> Optimisers:
        return adam(dict.fromkeys(("values", "critics"), self.learning_rate))

    def policy_optimiser(self, spec: Spec) -> Optimisers:
        """Down to 0 at the end of training; as released, after 3 million gradient steps of the policy."""
        length = 3_000_000 if self.faithful else 2 * spec.steps
        return adam({"policy": optax.cosine_decay_schedule(self.learning_rate, length)})

    @property
    def diffusion(self) -> Diffusion:
        return Diffusion(self.diffusion_steps)

    # ---- one step -------------------------------------------------------------------------------

    def update(
        self, state: TrainState, batch: Batch, key: PRNGKeyArray, spec: Spec, parts: tuple[Part, ...]
    ) -> tuple[TrainState, Metrics]:
        """Two gradient steps of the policy, with half of the batch each, then one of values and critics."""
        del parts
        weight = self.weights(state, batch)
        middle, policy_loss = self.batch_size // 2, jnp.zeros(())
        for half, half_key in zip((slice(middle), slice(middle, None)), jax.random.split(key), strict=True):
            loss, gradient = jax.value_and_grad(self.policy_loss)(
                state.networks["policy"], batch.features[half], batch.action[half], weight[half], half_key
            )
            state = state.step({"policy": gradient}, self.policy_optimiser(spec))
            state = state.follow(self.slow_rate, ("policy",))
            policy_loss += loss / 2

        trained = {name: state.networks[name] for name in self.critic_optimisers}
        few = jax.tree.map(lambda x: x[: self.critic_batch], batch)
        gradients, metrics = jax.grad(self.critic_losses, has_aux=True)(trained, state.targets, few)
        state = state.step(gradients, self.critic_optimisers).follow(self.target_rate, ("critics",))
        return state, metrics | {"policy/loss": policy_loss, "policy/weight": weight.mean()}

    @stage("weights")
    def weights(self, state: TrainState, batch: Batch) -> Float[Array, " b"]:
        """The weight of each action in cloning: by reward where feasible, by feasibility elsewhere."""
        q, q_h = in_sample.twin_values(state.targets["critics"], batch.features, batch.action)
        v, v_h = apply_each(state.networks["values"], batch.features)[..., 0]
        return self.weight(q - v, q_h, v_h)

    def weight(self, advantage: Array, q_h: Array, v_h: Array) -> Float[Array, " b"]:
        """V_h > 0 (cost cannot be avoided): exp(5 (V_h − Q_h)). V_h ≤ 0: exp(3 A) if Q_h ≤ 0, else none."""
        escape = advantage_weight(v_h - q_h, self.escape_beta, self.escape_weight_limit)
        earn = advantage_weight(advantage, self.beta, self.weight_limit) * (q_h <= 0)
        return jnp.where(v_h > 0, jnp.maximum(escape, self.least_escape_weight), earn)

    @stage("policy")
    def policy_loss(
        self, policy: NoisePredictor, features: Array, action: Array, weight: Array, key: PRNGKeyArray
    ) -> Array:
        """E[w ‖ε(s, a_t, t) − ε‖²] with a_t = √ᾱ_t a + √(1 − ᾱ_t) ε."""
        time_key, noise_key, dropout_key = jax.random.split(key, 3)
        time = jax.random.randint(time_key, weight.shape, 0, self.diffusion_steps)
        noise = jax.random.normal(noise_key, action.shape, action.dtype)
        noisy = self.diffusion.noised(action, noise, time)
        found = policy.in_training(features, noisy, time, dropout_key, self.diffusion_steps)
        return jnp.mean(weight * jnp.sum((found - noise) ** 2, axis=-1))

    @stage("critics")
    def critic_losses(self, trained: Networks, targets: Networks, batch: Batch) -> tuple[Array, Metrics]:
        """Their sum: no loss reaches the networks of another."""
        found = in_sample.estimate(trained, targets, batch)
        wanted = self.feasibility(batch.only_cost, batch.bootstrap, found.next_cost_value)
        losses = {
            "reward/value_loss": expectile_loss(found.critic - found.value, self.expectile),
            "reward/critic_loss": in_sample.backup_loss(
                found.critics, batch.reward, batch.bootstrap, found.next_value, self.gamma
            ),
            "safety/value_loss": expectile_loss(found.cost_critic - found.cost_value, 1.0 - self.expectile),
            "safety/critic_loss": jnp.mean((found.cost_critics - wanted) ** 2),
        }
        return sum(losses.values(), jnp.zeros(())), losses | {
            "reward/value": found.value.mean(),
            "safety/value": found.cost_value.mean(),
            "safety/feasible": jnp.mean(found.cost_value <= 0.0),
        }

    def feasibility(self, cost: Array, bootstrap: Array, next_value: Array) -> Float[Array, " b"]:
        """(1 − γ) h + γ max(h, V_h(s′)), and h where the backup ends: the worst h to come, discounted."""
        h = jnp.where(cost > 0, VIOLATED, KEPT)
        later = (1.0 - self.gamma) * h + self.gamma * jnp.maximum(h, next_value)
        return bootstrap * later + (1.0 - bootstrap) * h

    # ---- protocol: what is kept -----------------------------------------------------------------

    def actor(self, state: TrainState, arrays: Any, normaliser: Normaliser, spec: Spec) -> DiffusionActor:
        del arrays, spec
        policy, critics = state.targets["policy"], state.targets["critics"]
        return DiffusionActor(self.seen_through(normaliser), policy, critics, self.diffusion, self.candidates)
