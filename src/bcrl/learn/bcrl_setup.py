"""What surrounds Algorithm 1: the log on the device, the networks with their optimisers, and the actor."""

import dataclasses
import math
import warnings
from dataclasses import dataclass
from typing import Any

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
from bcrl.learn.acting_discrete import CategoricalActor
from bcrl.learn.batch import Batch, Rows
from bcrl.learn.bcrl_options import PARTS, BCRLOptions
from bcrl.learn.networks import MLP, ensemble, policy_network
from bcrl.learn.protocol import Normaliser, Part, Spec
from bcrl.learn.stretches import stretches
from bcrl.learn.tracking import TrackingActor
from bcrl.learn.train_state import Networks, TrainState


class Arrays(eqx.Module):
    """The log on the device: its transitions, and its initial states."""

    rows: Rows
    initial_features: Float[Array, "e f"]


@dataclass(frozen=True, repr=False)
class BCRLSetup(BCRLOptions):
    """All of BCRL but its losses."""

    def prepare(self, data: Dataset, normaliser: Normaliser) -> Arrays:
        """Standardised transitions; with the episodic criterion the time is one more feature."""
        self._check_costs(data)

        def features(observations: np.ndarray, step: np.ndarray) -> np.ndarray:
            normal = np.asarray(normaliser(jnp.asarray(observations)))
            if self.criterion == "discounted":
                return normal
            return np.concatenate([normal, (step / data.horizon).astype(np.float32)[:, None]], axis=1)

        data = self.priced(data)
        steps = stretches(data, self.n_step, self.gamma, self.discount_cost)
        rows = Rows.of_transitions(
            data,
            features,
            data.terminals | data.timeouts if self.ends_at_timeouts else data.terminals,
            *([steps.lengths] if self.n_step > 1 else []),
            stretches=steps,
        )
        initial = features(data.initial_observations, np.zeros(data.episode_count))
        return Arrays(rows, jnp.asarray(initial))

    def priced(self, data: Dataset) -> Dataset:
        """The log whose rewards are less by the price of the costs."""
        if self.cost_price is None:
            return data
        price = np.broadcast_to(np.asarray(self.cost_price, np.float32), (data.cost_count,))
        rewards = (data.rewards - data.costs_2d @ price).astype(np.float32)
        return Dataset.of_checked(data.arrays() | {"rewards": rewards}, data.source, data.about)

    def _check_costs(self, data: Dataset) -> None:
        if self.cost_weights is not None and len(self.cost_weights) != data.cost_count:
            raise BCRLError(
                f"cost_weights has {len(self.cost_weights)} numbers, but {data.source or 'the log'} has "
                f"{data.cost_count} costs: give one weight for each"
            )
        limit = float(self.slack_limit(Spec.of(data, steps=1)).min())
        if not data.schema.discrete and limit < 10 * self.fallback_below:
            warnings.warn(
                f"budgets reach {limit:g} times the largest cost of a step at most, and below "
                f"{self.fallback_below:g} the fallback acts: give a smaller fallback_below",
                stacklevel=3,
            )

    def sample(self, arrays: Arrays, key: PRNGKeyArray) -> Batch:
        """A random batch of transitions."""
        batch, extra = arrays.rows.sample_batch(key, self.batch_size)
        return dataclasses.replace(batch, steps=extra[0][:, 0]) if extra else batch

    def init(self, key: PRNGKeyArray, spec: Spec) -> TrainState:
        """Fresh networks, targets of the critics, and optimisers."""
        networks, optimisers = self.make_networks(key, spec), self.optimisers(PARTS, spec)
        return TrainState.start(networks, optimisers, [name for name in networks if name.endswith("critic")])

    def make_networks(self, key: PRNGKeyArray, spec: Spec) -> Networks:
        """V_C, twin Q_C, V_R, twin Q_R, policy, fallback and twin Q_F if it is asked for.

        Those of reward and the policy see budgets.
        """
        s, a, k = spec.observation_size + (self.criterion == "episodic"), spec.action_size, spec.cost_count
        cost_key, reward_key, actor_key, fallback_key = jax.random.split(key, 4)
        cost_keys, reward_keys = jax.random.split(cost_key), jax.random.split(reward_key)
        networks = {
            "cost_value": MLP((s, *self.hidden, k), cost_keys[0], layer_norm=True),
            "cost_critic": ensemble((s + a, *self.hidden, k), cost_keys[1]),
            "value": MLP((s + k, *self.hidden, 1), reward_keys[0], layer_norm=True),
            "critic": ensemble((s + k + a, *self.hidden, 1), reward_keys[1], layer_norm=self.critic_norm),
            "actor": policy_network(spec.discrete, s + k, a, self.hidden, self.dropout, actor_key),
            "fallback": policy_network(spec.discrete, s, a, self.hidden, self.dropout, fallback_key),
        }
        if self.evaluates_fallback(spec):
            fifth = jax.random.fold_in(key, 4)  # beyond the four above, so that these stay as without it
            networks["fallback_critic"] = ensemble((s + a, *self.hidden, k), fifth)
        return networks

    def evaluates_fallback(self, spec: Spec) -> bool:
        """Whether Q_F is learned. Of labels the fallback's is the cheapest by Q_C, compared in execution."""
        return self.fallback_critic and not spec.discrete

    def optimisers(self, parts: tuple[Part, ...], spec: Spec) -> dict[str, optax.GradientTransformation]:
        """Adam for each network of these parts.

        Step sizes decay along a cosine as `decay` says; that of the cost critics is 0 after `cost_share`.
        """
        last = math.ceil(self.cost_share * spec.steps)
        falling = optax.cosine_decay_schedule(self.learning_rate, spec.steps)
        rates: dict[Part, Any] = dict.fromkeys(parts, self.learning_rate)
        rates["policy"] = falling
        if self.decay == "all":
            rates |= {"reward": falling, "cost": optax.cosine_decay_schedule(self.learning_rate, last)}
        elif self.cost_share < 1.0:
            rates["cost"] = optax.piecewise_constant_schedule(self.learning_rate, {last: 0.0})
        names = {part: self.networks_of[part] for part in parts}
        if "policy" in names and self.evaluates_fallback(spec):
            names["policy"] += ("fallback_critic",)
        return {name: optax.adam(rates[part]) for part in parts for name in names[part]}

    def actor(
        self, state: TrainState, arrays: Arrays | None, normaliser: Normaliser, spec: Spec
    ) -> TrackingActor:
        """Policy, fallback and critics, with E[V_C(s₀)] over the log's initial states."""
        networks, targets = state.networks, state.targets
        start_value = jnp.zeros(spec.cost_count)
        if arrays is not None:
            start_value = jnp.mean(self.floor(networks["cost_value"](arrays.initial_features)), axis=0)
        shared = (
            networks["actor"],
            networks["fallback"],
            networks["cost_value"],
            targets["cost_critic"],
            targets["critic"],
            normaliser,
            start_value,
            self.slack_limit(spec),
            self.discount_cost,
            spec.horizon,
            self.tracking,
            self.criterion,
            self.budget_input,
            self.nonnegative_values,
            self.cost_weights,
        )
        if spec.discrete:
            return CategoricalActor(*shared, 1.0, self.support)
        return BudgetedActor(
            *shared,
            self.safety_factor,
            self.fallback_below,
            self.fallback_draws,
            self.fallback_beta,
            # An action that is not in the log can be unsafe with slack to spare.
            guarded=self.check_action or self.climbs,
            fallback_ramp=self.fallback_ramp,
            fallback_mixtures=self.fallback_mixtures,
            fallback_critic=targets.get("fallback_critic"),
        )

    def floor(self, cost_value: Array) -> Array:
        """V_C, not below 0: costs are not negative."""
        return jnp.maximum(cost_value, 0.0) if self.nonnegative_values else cost_value

    def encode(self, budget: Array) -> Array:
        """A budget as the networks take it."""
        return budgets.encode(budget, self.budget_input)
