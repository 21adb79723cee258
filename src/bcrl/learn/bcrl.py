"""BCRL by in-sample learning (IQL, XQL, SparseQL): Algorithm 1 of the paper, in slack coordinates.

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
    Regression,
    SparseWeight,
    advantage_weight,
    cost_weighting,
    gaussian_log_density,
    gumbel_weight,
    joint_expectile_loss,
    joint_loss,
    sparse_advantage_weight,
    sparse_weight,
    spread,
)
from bcrl.learn.method import Metrics, Normaliser, Part, Spec
from bcrl.learn.networks import MLP, GaussianPolicy, apply_each, ensemble, follow
from bcrl.learn.rows import Rows


class Batch(eqx.Module):
    features: Float[Array, "b f"]
    action: Float[Array, "b a"]
    reward: Float[Array, " b"]
    cost: Float[Array, "b k"]
    next_features: Float[Array, "b f"]
    goes_on: Float[Array, " b"]  # 0 where the backup ends


class Arrays(eqx.Module):
    """The log on the device: its transitions, and initial states."""

    rows: Rows
    initial_features: Float[Array, "e f"]


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

# In spreads; what they mean for V is told in docs/instances.md.
TEMPERATURES: dict[Regression, float] = {"gumbel": 1.0, "sparse": 0.5}


@dataclass(frozen=True)
class BCRL:
    """Options of BCRL. The defaults are the paper's for Bullet tasks, with the repairs of docs/method.md."""

    name: ClassVar[str] = "bcrl"
    has_reward_value: ClassVar[bool] = True  # an instance may do without V_R
    # The paper's table of hyperparameters; MetaDrive's network and dropout are the published code's.
    family_options: ClassVar[dict[str, dict[str, Any]]] = {
        "bullet": {"tau_c": 0.2, "tau_r": 0.5, "beta": 3.0},
        "safety-gym": {"tau_c": 0.3, "tau_r": 0.6, "beta": 3.0},
        "metadrive": {
            "tracking": "direct",
            "tau_c": 0.4,
            "tau_r": 0.6,
            "beta": 8.0,
            "hidden": (256, 256),
            "dropout": 0.0,
        },
        # The built-in point tasks: as Bullet, with a reward value nearer the best (chosen on circle and run).
        "point": {"tau_c": 0.2, "tau_r": 0.7, "beta": 3.0},
        # Ships: a reward of 100 at the goal asks for a small β.
        "ship": {"tau_c": 0.1, "tau_r": 0.7, "beta": 0.1, "gamma_cost": 0.98},
    }

    tracking: budgets.Tracking = "soft"
    """How budgets move in training: soft (stochastic worlds, the paper's g) or direct (deterministic)."""
    criterion: budgets.Criterion = "discounted"
    """What a budget bounds: discounted cost, or the episode's plain sum (time enters the state)."""
    time_limits: Literal["go-on", "end"] = "go-on"
    """Whether a time limit ends backups; no in the paper. With the episodic criterion it always does."""
    tau_c: float = 0.2
    """Expectile τ_C of the cost value; smaller is nearer the least cost, 0.5 is the log's own policy."""
    tau_r: float = 0.5
    """Expectile τ_R of the reward value; larger is nearer the best action of the log."""
    beta: float = 3.0
    """Inverse temperature β of policy extraction: actions weigh exp(β · advantage)."""
    cost_regression: Regression = "expectile"
    """How V_C is learned from Q_C: expectile (IQL), gumbel (XQL) or sparse (SparseQL)."""
    reward_regression: Regression = "expectile"
    """How V_R is learned from Q_R, the same choice."""
    temperature_c: float | None = None
    """Gumbel's β or sparse's α for V_C; smaller is nearer the least cost. By default 1 and 0.5."""
    temperature_r: float | None = None
    """Gumbel's β or sparse's α for V_R; smaller is nearer the best action. By default 1 and 0.5."""
    temperature_unit: Literal["spread", "raw"] = "spread"
    """Temperatures in root mean squares of Q − V, or in units of cost and reward as in the paper."""
    exponent_limit: float | None = 5.0
    """Gumbel: (Q − V)/β above which a sample pulls no harder; None is the paper's."""
    sparse_extraction: SparseWeight = "above"
    """Sparse: actions weigh max(A, 0)/2α, the code's (above), or max(1 + A/2α, 0), the theory's (support)."""
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
    fallback_draws: int = 8
    """Actions drawn from the fallback in each of its steps and averaged, cheap ones more; 0: its mean."""
    fallback_beta: float = 5.0
    """Inverse temperature among those draws: they weigh exp(−β · Q_C)."""
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

        # A time limit is no end of the world, so values are bootstrapped there, unless nobody counts on.
        stops = self.time_limits == "end" or self.criterion == "episodic"
        ended = data.terminals | data.timeouts if stops else data.terminals
        rows = Rows.of(
            features(data.observations, data.steps),
            np.clip(data.actions, -1 + 1e-5, 1 - 1e-5),
            data.rewards,
            data.costs_2d,
            features(data.next_observations, data.steps + 1),
            1.0 - ended,
        )
        initial = features(data.initial_observations, np.zeros(data.episode_count))
        return Arrays(rows, jnp.asarray(initial))

    def sample(self, arrays: Arrays, key: PRNGKeyArray) -> Batch:
        drawn = arrays.rows.draw(key, self.batch_size)
        features, action, reward, cost, next_features, goes_on = drawn
        return Batch(features, action, reward[:, 0], cost, next_features, goes_on[:, 0])

    # ---- protocol: networks ---------------------------------------------------------------------

    def init(self, key: PRNGKeyArray, spec: Spec) -> State:
        feature_size = spec.observation_size + (self.criterion == "episodic")
        k, a = spec.cost_count, spec.action_size

        def critics(key: PRNGKeyArray, budget_size: int, outputs: int, with_value: bool = True) -> Critics:
            value_key, critic_key = jax.random.split(key)
            state_size = feature_size + budget_size
            value: Any = None
            if with_value:
                value = MLP((state_size, *self.hidden, outputs), value_key, layer_norm=True)
            critic = ensemble((state_size + a, *self.hidden, outputs), critic_key)
            return Critics(value, critic, jax.tree.map(jnp.copy, critic))

        cost_key, reward_key, actor_key, fallback_key = jax.random.split(key, 4)
        networks = {
            "cost": critics(cost_key, 0, k),
            "reward": critics(reward_key, k, 1, self.has_reward_value),
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
            costs = q_c, v_c, next_v_c
            inside, more = self.losses_inside((cost, reward, policy), wide, budget, costs, dropout_key)
            return cost_loss + inside, metrics | more

        before = {part: _trained(state.networks[part]) for part in parts}
        gradients, metrics = jax.grad(loss, has_aux=True)(before)
        networks, optimisers = dict(state.networks), dict(state.optimisers)
        for part in parts:
            gradient = gradients[part] if part == "policy" else _clipped(gradients[part], self.clip_norm)
            step, optimisers[part] = self.optimiser(part, spec).update(gradient, state.optimisers[part])
            networks[part] = eqx.combine(optax.apply_updates(before[part], step), state.networks[part])
            if part != "policy":
                networks[part] = _with_targets(networks[part], self.target_rate)
        return State(networks, optimisers), metrics

    def cost_losses(self, cost: Critics, batch: Batch) -> tuple[Array, Array, Array, Array, Metrics]:
        """Eq. loss_vcs and loss_qcs: V_C low among Q_C, and Q_C's backup. Also Q_C, V_C, V_C(s′)."""
        state_action = jnp.concatenate([batch.features, batch.action], axis=1)
        q_c = jnp.max(apply_each(cost.target, state_action), axis=0)
        value = cost.value(batch.features)
        omega = cost_weighting(self.cost_weights, q_c.shape[1])
        value_loss = self.value_loss("cost", q_c - value, omega)

        v_c, next_v_c = (
            self.floor(jax.lax.stop_gradient(v)) for v in (value, cost.value(batch.next_features))
        )
        goal = batch.cost + self.discount_cost * batch.goes_on[:, None] * next_v_c
        critic_loss = jnp.mean((apply_each(cost.critic, state_action) - goal) ** 2) * q_c.shape[1]
        metrics = {
            "cost/value_loss": value_loss,
            "cost/critic_loss": critic_loss,
            "cost/value": v_c.mean(),
            "cost/critic": q_c.mean(),
        }
        return value_loss + critic_loss, q_c, v_c, next_v_c, metrics

    def value_loss(self, part: Part, gap: Array, omega: Array) -> Array:
        """The paper's L*, gap = Q − V: V_C is drawn towards the least of Q_C, V_R towards the most of Q_R."""
        regression, tau = self.regression(part)
        if regression == "expectile":
            return joint_expectile_loss(gap, tau, omega)
        better = -gap @ omega if part == "cost" else gap @ omega
        temperature = self.temperature(part, better)
        if regression == "gumbel":
            return joint_loss(gap, gumbel_weight(better, temperature, self.exponent_limit))
        return joint_loss(gap, sparse_weight(better, temperature))

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

    def losses_inside(
        self,
        networks: tuple[Critics, Critics, Policies],
        batch: Batch,
        budget: Augmented,
        costs: tuple[Array, Array, Array],
        key: PRNGKeyArray,
    ) -> tuple[Array, Metrics]:
        """What is learned inside the safe set: reward critics, policy and fallback."""
        _, reward, policy = networks
        q_c, v_c, _ = costs
        reward_loss, advantage, metrics = self.reward_losses(reward, batch, budget)
        policy_loss, more = self.policy_losses(policy, batch, budget, advantage, v_c - q_c, key)
        return reward_loss + policy_loss, metrics | more

    def reward_losses(self, reward: Critics, batch: Batch, budget: Augmented) -> tuple[Array, Array, Metrics]:
        """Eq. loss_vr and loss_qr inside the safe set, and the advantage for policy extraction."""
        inputs = jnp.concatenate([batch.features, batch.action, self.show(budget.action)], axis=1)
        q = jnp.min(apply_each(reward.target, inputs)[..., 0], axis=0)
        v = reward.value(jnp.concatenate([batch.features, self.show(budget.state)], axis=1))[:, 0]
        value_loss = self.value_loss("reward", (q - v)[:, None], jnp.ones(1))

        next_inputs = jnp.concatenate([batch.next_features, self.show(budget.next_state)], axis=1)
        next_v = jax.lax.stop_gradient(reward.value(next_inputs))[:, 0]
        goal = batch.reward + self.gamma * batch.goes_on * next_v
        critic_loss = jnp.mean((apply_each(reward.critic, inputs)[..., 0] - goal) ** 2)
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
        weight = self.extraction_weight("reward", advantage)
        likely = gaussian_log_density(*policy.actor(inputs, actor_key), batch.action)
        actor_loss = -jnp.mean(weight * likely)
        fallback_loss = self.fallback_loss(policy.fallback, batch, cost_advantage, fallback_key)
        metrics = {
            "policy/loss": actor_loss,
            "policy/fallback_loss": fallback_loss,
            "policy/weight": weight.mean(),
            "policy/weight_limited": jnp.mean(weight >= self.weight_limit),
        }
        if self.reward_regression == "sparse":  # where V_R is too high, no action is left to learn from
            metrics["policy/weight_zero"] = jnp.mean(weight == 0.0)
        return actor_loss + fallback_loss, metrics

    def fallback_loss(
        self, fallback: GaussianPolicy, batch: Batch, cost_advantage: Array, key: PRNGKeyArray
    ) -> Array:
        omega = cost_weighting(self.cost_weights, cost_advantage.shape[-1])
        weight = self.extraction_weight("cost", jnp.sum(omega * cost_advantage, axis=-1))
        return -jnp.mean(weight * gaussian_log_density(*fallback(batch.features, key), batch.action))

    def extraction_weight(self, part: Part, advantage: Array) -> Array:
        """How strongly the policy clones an action, by the rule that belongs to the regression."""
        if self.regression(part)[0] != "sparse":
            return advantage_weight(advantage, self.beta, self.weight_limit)
        temperature = self.temperature(part, advantage)
        return sparse_advantage_weight(advantage, temperature, self.weight_limit, self.sparse_extraction)

    # ---- small things ---------------------------------------------------------------------------

    def regression(self, part: Part) -> tuple[Regression, float]:
        if part == "cost":
            return self.cost_regression, self.tau_c
        return self.reward_regression, self.tau_r

    def temperature(self, part: Part, difference: Array) -> float | Array:
        """In units of cost or reward."""
        given = self.temperature_c if part == "cost" else self.temperature_r
        number = TEMPERATURES[self.regression(part)[0]] if given is None else given
        return number * spread(difference) if self.temperature_unit == "spread" else number

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
            fallback_draws=self.fallback_draws,
            fallback_beta=self.fallback_beta,
            cost_weights=self.cost_weights,
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


def _with_targets(critics: Critics, rate: float) -> Critics:
    return eqx.tree_at(lambda c: c.target, critics, follow(critics.target, critics.critic, rate))


def _clipped(gradients: Critics, limit: float) -> Any:
    """Gradients of norm at most `limit`, value and critic on their own: a spike in one spares the other."""

    def clip(tree: Any) -> Any:
        if tree is None:  # no such network
            return None
        # One long vector, not one reduction per leaf: few kernels are what makes a step fast on a GPU.
        norm = jnp.linalg.norm(jnp.concatenate([g.ravel() for g in jax.tree.leaves(tree)]))
        scale = jnp.minimum(1.0, limit / (norm + 1e-12))
        return jax.tree.map(lambda g: g * scale, tree)

    return Critics(clip(gradients.value), clip(gradients.critic), gradients.target)
