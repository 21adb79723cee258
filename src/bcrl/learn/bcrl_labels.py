"""V_C and V_R of discrete actions: nothing is regressed, the actions of a state are compared as in execution.

A regression on the log's own actions misses the least cost where the log seldom takes the cheapest action,
and what it misses adds up over the steps of an episode (docs/discrete.md).
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax.lax import stop_gradient
from jaxtyping import Array, Bool, Float

from bcrl.learn.batch import Batch
from bcrl.learn.bcrl_gradient import GradientExtraction
from bcrl.learn.bcrl_parts import Budgets, Costs
from bcrl.learn.losses import Regression, cost_weighting
from bcrl.learn.networks import CategoricalPolicy, apply_each, one_hot
from bcrl.learn.train_state import Networks

MOST_COMPARED = 16
"""Labels that are compared in a state, the most likely ones; a log may have thousands."""


@dataclass(frozen=True, repr=False)
class LabelValues(GradientExtraction):
    """The targets of V_C and V_R where labels are compared."""

    def compares(self, networks: Networks, regression: Regression) -> bool:
        """Whether labels are compared in the place of this regression. XQL and SparseQL keep theirs.

        So do phases in turn: until the last one nothing has learned which labels the log supports.
        """
        labels = isinstance(networks["fallback"], CategoricalPolicy)
        asked = self.label_values == "compared" and self.phases == "together"
        return labels and asked and regression == "expectile"

    def cheapest(
        self, networks: Networks, targets: Networks, features: Float[Array, "b f"]
    ) -> tuple[Float[Array, "b n"], Float[Array, "b k"]]:
        """Of the labels that the fallback supports the one with the least Σ ω_i Q_C,i, and its Q_C."""
        actions, supported = self.likely(networks["fallback"], features)
        cost = self.costs_of(targets, features, actions)
        total = jnp.where(supported, cost @ cost_weighting(self.cost_weights, cost.shape[-1]), jnp.inf)
        least = jnp.argmin(total, axis=1)[:, None, None]
        return _at(actions, least), _at(cost, least)

    def largest_worth(
        self, networks: Networks, targets: Networks, batch: Batch, budget: Budgets, costs: Costs
    ) -> Float[Array, " b"]:
        """max Q_R(s, a, δ) over supported labels with Q_C ≤ δ; if there is none, that of the cheapest."""
        inputs = jnp.concatenate([batch.features, self.encode(budget.state)], axis=1)
        actions, supported = self.likely(networks["actor"], inputs)
        cheapest, _ = self.cheapest(networks, targets, batch.features)
        actions = jnp.concatenate([actions, cheapest[:, None]], axis=1)
        allowed = budget.state + costs.value if self.tracking == "soft" else budget.state
        left = allowed[:, None] - self.costs_of(targets, batch.features, actions)
        safe = supported & jnp.all(left[:, :-1] >= 0.0, axis=-1)
        safe = jnp.concatenate([safe, ~jnp.any(safe, axis=1, keepdims=True)], axis=1)
        shown = left if self.tracking == "soft" else jnp.broadcast_to(allowed[:, None], left.shape)
        pairs = _pairs(batch.features, actions)
        worth = apply_each(
            targets["critic"], jnp.concatenate([pairs, self.encode(jnp.maximum(shown, 0.0))], axis=-1)
        )
        return jnp.max(jnp.where(safe, jnp.min(worth[..., 0], axis=0), -jnp.inf), axis=1)

    def likely(
        self, network: CategoricalPolicy, inputs: Float[Array, "b i"]
    ) -> tuple[Float[Array, "b m n"], Bool[Array, "b m"]]:
        """The most likely labels as one-hot vectors, and which of them are supported."""
        log_probability = stop_gradient(network(inputs))
        count = log_probability.shape[1]
        most, labels = jax.lax.top_k(log_probability, min(count, MOST_COMPARED))
        return one_hot(labels, count), most >= most[:, :1] + jnp.log(self.support)

    def costs_of(self, targets: Networks, features: Array, actions: Array) -> Float[Array, "b m k"]:
        """Q_C of several actions in each state."""
        return jnp.max(apply_each(targets["cost_critic"], _pairs(features, actions)), axis=0)


def _pairs(features: Float[Array, "b f"], actions: Float[Array, "b m n"]) -> Float[Array, "b m f+n"]:
    rows = jnp.broadcast_to(features[:, None], (*actions.shape[:2], features.shape[1]))
    return jnp.concatenate([rows, actions], axis=-1)


def _at(values: Float[Array, "b m w"], index: Array) -> Float[Array, "b w"]:
    """In each row the entry with this number."""
    return jnp.take_along_axis(values, index, axis=1)[:, 0]
