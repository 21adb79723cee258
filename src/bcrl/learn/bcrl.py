"""BCRL, the IQL instantiation: Algorithm 1 of the paper, in slack coordinates.

Read `update` from top to bottom. Deviations from the paper and from the published code, each with its
reason, are listed in docs/method.md.
"""

import warnings
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, PRNGKeyArray

from bcrl import budget as budgets
from bcrl.data import Dataset
from bcrl.errors import BCRLError
from bcrl.learn.acting import BudgetedActor
from bcrl.learn.checks import check_options
from bcrl.learn.losses import (
    advantage_weight,
    expectile_loss,
    gaussian_log_density,
    joint_expectile_loss,
)
from bcrl.learn.method import Metrics, Normaliser, Part, Spec
from bcrl.learn.networks import MLP, GaussianPolicy, apply_twin, twin


class Batch(eqx.Module):
    features: Float[Array, "b f"]
    action: Float[Array, "b a"]
    reward: Float[Array, " b"]
    cost: Float[Array, "b k"]
    next_features: Float[Array, "b f"]
    goes_on: Float[Array, " b"]  # 0 where the backup ends


class Arrays(eqx.Module):
    """The log on the device: one packed row per transition (one gather per batch), and initial states."""

    rows: Float[Array, "n w"]
    initial_features: Float[Array, "e f"]
    widths: tuple[int, ...] = eqx.field(static=True)


class Critics(eqx.Module):
    """A state value and twin action values with their slowly moving copies θ_T."""

    value: MLP
    critic: MLP
    target: MLP


class Policies(eqx.Module):
    actor: GaussianPolicy
    fallback: GaussianPolicy


class State(eqx.Module):
    networks: dict[Part, Any]  # "cost": Critics, "reward": Critics, "policy": Policies
    optimisers: dict[Part, Any]


class Augmented(eqx.Module):
    """The budget as each network sees it: V_R and π at s, Q_R at (s, a), V_R at s′."""

    state: Float[Array, "b k"]
    action: Float[Array, "b k"]
    next_state: Float[Array, "b k"]


PARTS: tuple[Part, ...] = ("cost", "reward", "policy")


@dataclass(frozen=True)
class BCRL:
    """Options of BCRL. The defaults are the paper's for Bullet tasks, with the repairs of docs/method.md."""

    name: ClassVar[str] = "bcrl"

    tracking: budgets.Tracking = "soft"
    """How budgets move in training: soft (stochastic worlds, the paper's g) or direct (deterministic)."""
    criterion: budgets.Criterion = "discounted"
    """What a budget bounds: discounted cost, or the episode's plain sum (time enters the state)."""
    tau_c: float = 0.2
    """Expectile τ_C of the cost value; smaller is nearer the least cost, 0.5 is the log's own policy."""
    tau_r: float = 0.5
    """Expectile τ_R of the reward value; larger is nearer the best action of the log."""
    beta: float = 3.0
    """Inverse temperature β of policy extraction: actions weigh exp(β · advantage)."""
    gamma: float = 0.99
    """Discount of reward."""
    gamma_cost: float = 0.99
    """Discount γ_C of cost. The episodic criterion ignores it (1 there)."""
    hidden: tuple[int, ...] = (512, 512)
    """Hidden layers of every network."""
    batch_size: int = 512
    """Transitions per gradient step."""
    budget_samples: int = 1
    """Budgets n drawn for each transition of a batch."""
    learning_rate: float = 3e-4
    """Adam's step size; the policies' decays to 0 along a cosine."""
    target_rate: float = 0.005
    """Share α by which target critics follow at each step."""
    clip_norm: float = 10.0
    """Largest gradient norm of the critics, per network."""
    dropout: float = 0.1
    """Dropout of the policies after their last hidden layer."""
    weight_limit: float = 100.0
    """Largest weight of an action in policy extraction."""
    slack_draw: Literal["log-uniform", "uniform"] = "log-uniform"
    """How slack is drawn in training; uniform is the paper's."""
    budget_input: Literal["log", "raw"] = "log"
    """What networks see of a budget x: log(1 + x), or x itself as in the paper."""
    nonnegative_values: bool = True
    """Use max(V_C, 0) in backups and slacks; False is the published code's behaviour."""
    fallback_below: float = 0.1
    """Slack under which the least-cost fallback acts."""
    max_budget: float | None = None
    """Largest slack to train for; by default c_max/(1 − γ_C), or c_max · horizon when episodic."""
    cost_weights: tuple[float, ...] | None = None
    """With several costs: their weights ω in the base policy's objective (default: 1 each)."""
    phases: Literal["together", "in-turn"] = "together"
    """Train cost critics, reward critics and policy in one loop, or one after another, each for all steps."""

    def __post_init__(self) -> None:
        check_options(self)
        if self.criterion == "discounted" and self.gamma_cost == 1.0:
            raise BCRLError("gamma_cost is 1, but discounted budgets need less: use criterion 'episodic'")
        if self.cost_weights is not None and not all(weight > 0 for weight in self.cost_weights):
            raise BCRLError(f"cost_weights is {self.cost_weights}, but each must be above 0")

    @property
    def schedule(self) -> tuple[tuple[Part, ...], ...]:
        return (PARTS,) if self.phases == "together" else tuple((part,) for part in PARTS)

    @property
    def discount_cost(self) -> float:
        """γ_C in force."""
        return 1.0 if self.criterion == "episodic" else self.gamma_cost

    # ---- protocol: data -------------------------------------------------------------------------

    def prepare(self, data: Dataset, normaliser: Normaliser) -> Arrays:
        if self.cost_weights is not None and len(self.cost_weights) != data.cost_count:
            raise BCRLError(
                f"cost_weights has {len(self.cost_weights)} numbers, but {data.source or 'the log'} has "
                f"{data.cost_count} costs: give one weight for each"
            )

        limit = self.slack_limit(Spec.of(data, steps=1))
        if float(limit.min()) < 10 * self.fallback_below:
            warnings.warn(
                f"budgets reach {float(limit.min()):g} at most, and below {self.fallback_below:g} the "
                "fallback acts: give a smaller fallback_below, or costs in a larger unit",
                stacklevel=2,
            )

        def features(observations: np.ndarray, step: np.ndarray) -> np.ndarray:
            normal = np.asarray(normaliser(jnp.asarray(observations)))
            if self.criterion == "discounted":
                return normal
            time = (step / data.horizon).astype(np.float32)
            return np.concatenate([normal, time[:, None]], axis=1)

        # A time limit is no end of the world, so values are bootstrapped there, unless the criterion
        # itself stops counting at the time limit.
        ended = data.terminals | data.timeouts if self.criterion == "episodic" else data.terminals
        columns = [
            features(data.observations, data.steps),
            np.clip(data.actions, -1 + 1e-5, 1 - 1e-5),
            data.rewards[:, None],
            data.costs_2d,
            features(data.next_observations, data.steps + 1),
            1.0 - ended[:, None],
        ]
        initial = features(data.initial_observations, np.zeros(data.episode_count))
        widths = tuple(column.shape[1] for column in columns)
        rows = np.concatenate(columns, axis=1, dtype=np.float32)
        return Arrays(jnp.asarray(rows), jnp.asarray(initial), widths)

    def sample(self, arrays: Arrays, key: PRNGKeyArray) -> Batch:
        index = jax.random.randint(key, (self.batch_size,), 0, len(arrays.rows))
        edges = np.cumsum(arrays.widths)[:-1].tolist()
        features, action, reward, cost, next_features, goes_on = jnp.split(arrays.rows[index], edges, axis=1)
        return Batch(features, action, reward[:, 0], cost, next_features, goes_on[:, 0])

    # ---- protocol: networks ---------------------------------------------------------------------

    def init(self, key: PRNGKeyArray, spec: Spec) -> State:
        feature_size = spec.observation_size + (self.criterion == "episodic")
        k, a = spec.cost_count, spec.action_size

        def critics(key: PRNGKeyArray, budget_size: int, outputs: int) -> Critics:
            value_key, critic_key = jax.random.split(key)
            state_size = feature_size + budget_size
            value = MLP((state_size, *self.hidden, outputs), value_key, layer_norm=True)
            critic = twin((state_size + a, *self.hidden, outputs), critic_key)
            return Critics(value, critic, jax.tree.map(jnp.copy, critic))

        cost_key, reward_key, actor_key, fallback_key = jax.random.split(key, 4)
        networks = {
            "cost": critics(cost_key, 0, k),
            "reward": critics(reward_key, k, 1),
            "policy": Policies(
                GaussianPolicy(feature_size + k, a, self.hidden, self.dropout, actor_key),
                GaussianPolicy(feature_size, a, self.hidden, self.dropout, fallback_key),
            ),
        }
        optimisers = {part: self.optimiser(part, spec).init(_trained(networks[part])) for part in PARTS}
        return State(networks, optimisers)

    def optimiser(self, part: Part, spec: Spec) -> optax.GradientTransformation:
        decaying = optax.cosine_decay_schedule(self.learning_rate, spec.steps)
        return optax.adam(decaying if part == "policy" else self.learning_rate)

    # ---- Algorithm 1 ----------------------------------------------------------------------------

    def update(
        self, state: State, batch: Batch, key: PRNGKeyArray, spec: Spec, parts: tuple[Part, ...]
    ) -> tuple[State, Metrics]:
        """One gradient step of Algorithm 1 on every network of `parts`."""
        budget_key, dropout_key = jax.random.split(key)

        def loss(trained: dict[Part, Any]) -> tuple[Array, Metrics]:
            cost, reward, policy = (
                eqx.combine(trained[part], state.networks[part]) if part in trained else state.networks[part]
                for part in PARTS
            )
            cost_loss, q_c, v_c, next_v_c, metrics = self.cost_losses(cost, batch)
            # The safe set is known now: extend every transition by budgets inside it (the data set D̄).
            wide = jax.tree.map(lambda x: jnp.repeat(x, self.budget_samples, axis=0), batch)
            q_c, v_c, next_v_c = (jnp.repeat(x, self.budget_samples, axis=0) for x in (q_c, v_c, next_v_c))
            budget = self.augment(budget_key, wide, q_c, v_c, next_v_c, spec)
            reward_loss, advantage, more = self.reward_losses(reward, wide, budget)
            metrics |= more
            policy_loss, more = self.policy_losses(policy, wide, budget, advantage, v_c - q_c, dropout_key)
            return cost_loss + reward_loss + policy_loss, metrics | more

        before = {part: _trained(state.networks[part]) for part in parts}
        gradients, metrics = jax.grad(loss, has_aux=True)(before)
        networks, optimisers = dict(state.networks), dict(state.optimisers)
        for part in parts:
            gradient = gradients[part] if part == "policy" else _clipped(gradients[part], self.clip_norm)
            step, optimisers[part] = self.optimiser(part, spec).update(gradient, state.optimisers[part])
            networks[part] = eqx.combine(optax.apply_updates(before[part], step), state.networks[part])
            if part != "policy":
                networks[part] = _follow(networks[part], self.target_rate)
        return State(networks, optimisers), metrics

    def cost_losses(self, cost: Critics, batch: Batch) -> tuple[Array, Array, Array, Array, Metrics]:
        """Eq. loss_vcs and loss_qcs: the τ_C-expectile of Q_C, and its backup. Also Q_C, V_C, V_C(s′)."""
        state_action = jnp.concatenate([batch.features, batch.action], axis=1)
        q_c = jnp.max(apply_twin(cost.target, state_action), axis=0)
        value = cost.value(batch.features)
        omega = jnp.ones(q_c.shape[1]) if self.cost_weights is None else jnp.asarray(self.cost_weights)
        value_loss = joint_expectile_loss(q_c - value, self.tau_c, omega)

        v_c, next_v_c = (
            self.floor(jax.lax.stop_gradient(v)) for v in (value, cost.value(batch.next_features))
        )
        goal = batch.cost + self.discount_cost * batch.goes_on[:, None] * next_v_c
        critic_loss = jnp.mean((apply_twin(cost.critic, state_action) - goal) ** 2) * q_c.shape[1]
        metrics = {
            "cost/value_loss": value_loss,
            "cost/critic_loss": critic_loss,
            "cost/value": v_c.mean(),
            "cost/critic": q_c.mean(),
        }
        return value_loss + critic_loss, q_c, v_c, next_v_c, metrics

    def augment(
        self, key: PRNGKeyArray, batch: Batch, q_c: Array, v_c: Array, next_v_c: Array, spec: Spec
    ) -> Augmented:
        """One δ per row, drawn where (s, δ) and (s, a, δ) are safe, and δ′ = g(s, a, s′, δ).

        Soft: δ ≥ max(Q_C, V_C); in slack, V_R sees δ − V_C, Q_R sees δ − Q_C, and g gives (δ − Q_C)/γ_C.
        Direct: δ′ = (δ − c)/γ_C must be safe too, δ′ ≥ V_C(s′) where the episode goes on; networks see
        the budgets themselves.
        """
        extra = budgets.draw_slack(key, q_c.shape, self.slack_limit(spec), self.slack_draw)
        if self.tracking == "soft":
            delta = jnp.maximum(q_c, v_c) + extra
            return Augmented(delta - v_c, delta - q_c, (delta - q_c) / self.discount_cost)
        next_needs = batch.cost + self.discount_cost * batch.goes_on[:, None] * next_v_c
        delta = jnp.maximum(jnp.maximum(q_c, v_c), next_needs) + extra
        return Augmented(delta, delta, budgets.direct_next(delta, batch.cost, self.discount_cost))

    def reward_losses(self, reward: Critics, batch: Batch, budget: Augmented) -> tuple[Array, Array, Metrics]:
        """Eq. loss_vr and loss_qr inside the safe set, and the advantage for policy extraction."""
        inputs = jnp.concatenate([batch.features, batch.action, self.show(budget.action)], axis=1)
        q = jnp.min(apply_twin(reward.target, inputs)[..., 0], axis=0)
        v = reward.value(jnp.concatenate([batch.features, self.show(budget.state)], axis=1))[:, 0]
        value_loss = expectile_loss(q - v, self.tau_r)

        next_inputs = jnp.concatenate([batch.next_features, self.show(budget.next_state)], axis=1)
        next_v = jax.lax.stop_gradient(reward.value(next_inputs))[:, 0]
        goal = batch.reward + self.gamma * batch.goes_on * next_v
        critic_loss = jnp.mean((apply_twin(reward.critic, inputs)[..., 0] - goal) ** 2)
        metrics = {
            "reward/value_loss": value_loss,
            "reward/critic_loss": critic_loss,
            "reward/value": v.mean(),
        }
        return value_loss + critic_loss, jax.lax.stop_gradient(q - v), metrics

    def policy_losses(
        self,
        policy: Policies,
        batch: Batch,
        budget: Augmented,
        advantage: Array,
        cost_advantage: Array,
        key: PRNGKeyArray,
    ) -> tuple[Array, Metrics]:
        """Eq. loss_pi for the policy (weights by reward) and for the fallback (weights by cost saved)."""
        actor_key, fallback_key = jax.random.split(key)
        inputs = jnp.concatenate([batch.features, self.show(budget.state)], axis=1)
        weight = advantage_weight(advantage, self.beta, self.weight_limit)
        likely = gaussian_log_density(*policy.actor(inputs, actor_key), batch.action)
        actor_loss = -jnp.mean(weight * likely)

        omega = 1.0 if self.cost_weights is None else jnp.asarray(self.cost_weights)
        saved = jnp.sum(omega * cost_advantage, axis=-1)
        safe_weight = advantage_weight(saved, self.beta, self.weight_limit)
        likely = gaussian_log_density(*policy.fallback(batch.features, fallback_key), batch.action)
        fallback_loss = -jnp.mean(safe_weight * likely)
        metrics = {
            "policy/loss": actor_loss,
            "policy/fallback_loss": fallback_loss,
            "policy/weight": weight.mean(),
            "policy/weight_limited": jnp.mean(weight >= self.weight_limit),
        }
        return actor_loss + fallback_loss, metrics

    # ---- small things ---------------------------------------------------------------------------

    def slack_limit(self, spec: Spec) -> Array:
        if self.max_budget is not None:
            return jnp.full(spec.cost_count, self.max_budget)
        return budgets.slack_limit(jnp.asarray(spec.max_cost), self.discount_cost, spec.horizon)

    def show(self, budget: Array) -> Array:
        return budgets.encode(budget, self.budget_input)

    def floor(self, cost_value: Array) -> Array:
        return jnp.maximum(cost_value, 0.0) if self.nonnegative_values else cost_value

    # ---- protocol: what is kept -----------------------------------------------------------------

    def actor(self, state: State, arrays: Arrays | None, normaliser: Normaliser, spec: Spec) -> BudgetedActor:
        cost, reward, policy = (state.networks[part] for part in PARTS)
        starts = jnp.zeros(spec.cost_count)
        if arrays is not None:
            starts = jnp.mean(self.floor(cost.value(arrays.initial_features)), axis=0)
        return BudgetedActor(
            policy.actor,
            policy.fallback,
            cost.value,
            cost.target,
            reward.target,
            normaliser,
            starts,
            self.slack_limit(spec),
            self.discount_cost,
            spec.horizon,
            self.tracking,
            self.criterion,
            self.budget_input,
            self.nonnegative_values,
            self.fallback_below,
        )

    def blank_actor(self, spec: Spec) -> BudgetedActor:
        state = self.init(jax.random.key(0), spec)
        normaliser = Normaliser(jnp.zeros(spec.observation_size), jnp.ones(spec.observation_size))
        return self.actor(state, None, normaliser, spec)


def _trained(networks: Any) -> Any:
    """The arrays that gradients move: all but the targets."""
    if isinstance(networks, Critics):
        networks = eqx.tree_at(lambda c: c.target, networks, None)
    return eqx.filter(networks, eqx.is_array)


def _follow(critics: Critics, rate: float) -> Critics:
    """θ_T ← (1 − α) θ_T + α θ."""
    target = jax.tree.map(lambda slow, fast: slow + rate * (fast - slow), critics.target, critics.critic)
    return eqx.tree_at(lambda c: c.target, critics, target)


def _clipped(gradients: Critics, limit: float) -> Any:
    """Gradients of norm at most `limit`, value and critic on their own: a spike in one spares the other."""

    def clip(tree: Any) -> Any:
        # One long vector, not one reduction per leaf: few kernels are what makes a step fast on a GPU.
        norm = jnp.linalg.norm(jnp.concatenate([g.ravel() for g in jax.tree.leaves(tree)]))
        scale = jnp.minimum(1.0, limit / (norm + 1e-12))
        return jax.tree.map(lambda g: g * scale, tree)

    return Critics(clip(gradients.value), clip(gradients.critic), gradients.target)
