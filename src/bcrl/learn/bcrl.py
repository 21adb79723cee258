"""BCRL: Algorithm 1 of the paper by in-sample learning (IQL, XQL, SparseQL), in slack coordinates.

Read `total_loss` first: it names the five steps. Every deviation from the paper and from the published code
is listed with its reason in docs/method.md. The options are in `bcrl_options.py`, data and networks in
`bcrl_setup.py`, execution in `acting.py`, the gradient form of step 4 in `bcrl_gradient.py`, what labels
change in `bcrl_labels.py`.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax.lax import stop_gradient
from jaxtyping import Array, Float, PRNGKeyArray

from bcrl import budget as budgets
from bcrl.learn.acting import drawn, weighed
from bcrl.learn.batch import Batch
from bcrl.learn.bcrl_labels import LabelValues
from bcrl.learn.bcrl_parts import Budgets, Costs
from bcrl.learn.losses import cost_weighting
from bcrl.learn.networks import MLP, PolicyNetwork, apply_each
from bcrl.learn.protocol import Metrics, Part, Spec
from bcrl.learn.stages import stage
from bcrl.learn.train_state import Networks, TrainState, clip


@dataclass(frozen=True, repr=False)
class BCRL(LabelValues):
    """BCRL with in-sample critics: IQL by default, XQL or SparseQL by the regressions."""

    name: ClassVar[str] = "bcrl"

    # ---- Algorithm 1 -------------------------------------------------------------------------------

    def update(
        self, state: TrainState, batch: Batch, key: PRNGKeyArray, spec: Spec, parts: tuple[Part, ...]
    ) -> tuple[TrainState, Metrics]:
        """One gradient step on the networks of `parts`, then on their targets."""
        optimisers = self.optimisers(parts, spec)
        trained = {name: state.networks[name] for name in optimisers}

        def loss(trained: Networks) -> tuple[Array, Metrics]:
            return self.total_loss(state.networks | trained, state.targets, batch, key, spec)

        gradients, metrics = jax.grad(loss, has_aux=True)(trained)
        for name in gradients:
            if name not in self.networks_of["policy"]:
                gradients[name] = clip(gradients[name], self.clip_norm)
        return state.step(gradients, optimisers).follow(self.target_rate, optimisers), metrics

    def total_loss(
        self, networks: Networks, targets: Networks, batch: Batch, key: PRNGKeyArray, spec: Spec
    ) -> tuple[Array, Metrics]:
        """The sum of all losses. No loss has a gradient in the networks of another.

        (`gradient_loss` holds two: the policy's, and one more of V_R.)
        """
        budget_key, dropout_key = jax.random.split(key)
        actor_key, fallback_key = jax.random.split(dropout_key)

        # 1. Cost critics: they define the safe set of every budget.
        cost_loss, costs, metrics = self.cost_losses(networks, targets, batch)
        # 2. Budgets inside the safe set, and δ′ = g: the augmented data set D̄.
        batch, costs = self.repeat(batch), self.repeat(costs)
        budget = self.augment(budget_key, batch, costs, spec)
        # 3. Reward critics inside the safe set.
        reward_loss, advantage, reward_metrics = self.reward_losses(networks, targets, batch, budget, costs)
        # 4. The policy, by the advantage in reward, or also by the gradient of Q_R.
        if self.climbs:
            policy_loss, policy_metrics = self.gradient_loss(
                networks, targets, batch, budget, costs, advantage, actor_key
            )
        else:
            policy_loss, policy_metrics = self.policy_loss(
                networks["actor"], batch, budget, advantage, actor_key
            )
        # 5. The fallback, by the advantage in cost, and what its own actions cost.
        fallback_loss, fallback_metrics = self.fallback_losses(networks, targets, batch, costs, fallback_key)

        metrics |= reward_metrics | policy_metrics | fallback_metrics
        return cost_loss + reward_loss + policy_loss + fallback_loss, metrics

    @stage("cost critics")
    def cost_losses(
        self, networks: Networks, targets: Networks, batch: Batch
    ) -> tuple[Array, Costs, Metrics]:
        """The losses of V_C and Q_C, and what both say of the batch."""
        q_c = jnp.max(apply_each(targets["cost_critic"], batch.pairs), axis=0)
        value = networks["cost_value"](batch.features)
        next_value = networks["cost_value"](batch.next_features)
        costs = Costs(q_c, *(self.floor(stop_gradient(v)) for v in (value, next_value)))
        if self.compares(networks, self.cost_regression):
            _, least = self.cheapest(networks, targets, batch.features)
            value_loss = jnp.mean(jnp.sum((least - value) ** 2, axis=1))
        else:
            value_loss = self.cost_value_loss(q_c, value)
        critic_loss = self.cost_critic_loss(networks["cost_critic"], batch, costs.next_value)
        metrics = {
            "cost/value_loss": value_loss,
            "cost/critic_loss": critic_loss,
            "cost/value": costs.value.mean(),
            "cost/critic": q_c.mean(),
        }
        return value_loss + critic_loss, costs, metrics

    def cost_value_loss(self, q_c: Array, value: Array) -> Float[Array, ""]:
        """E[L*(Q_C(s, a) − V_C(s))], towards the least Q_C of the log (Eq. loss_vcs)."""
        return self.cost_rule.value_loss(q_c - value, cost_weighting(self.cost_weights, q_c.shape[1]))

    def cost_critic_loss(self, critic: MLP, batch: Batch, next_value: Array) -> Float[Array, ""]:
        """E[‖Q_C(s, a) − (c + γ_C V_C(s′))‖²] (Eq. loss_qcs)."""
        target = batch.cost + self.cost_discount(batch) * batch.bootstrap[:, None] * next_value
        return jnp.mean((apply_each(critic, batch.pairs) - target) ** 2) * target.shape[1]

    @stage("budgets")
    def augment(self, key: PRNGKeyArray, batch: Batch, costs: Costs, spec: Spec) -> Budgets:
        """One δ per row, sampled where (s, δ) and (s, a, δ) are safe, and δ′ = g(s, a, s′, δ).

        Soft: δ ≥ max(Q_C, V_C); in slack, V_R sees δ − V_C, Q_R sees δ − Q_C, and g gives (δ − Q_C)/γ_C.
        Direct: δ′ = (δ − c)/γ_C must be safe too, δ′ ≥ V_C(s′) where the backup bootstraps; networks see
        the budgets themselves.
        """
        least = jnp.maximum(costs.critic, costs.value)
        extra = budgets.draw_slack(key, least.shape, self.slack_limit(spec), self.slack_draw)
        if self.tracking == "soft":
            left = (delta := least + extra) - costs.critic
            return Budgets(delta - costs.value, left, left / self.cost_discount(batch))
        next_least = batch.cost + self.cost_discount(batch) * batch.bootstrap[:, None] * costs.next_value
        delta = jnp.maximum(least, next_least) + extra
        return Budgets(delta, delta, budgets.direct_next(delta, batch.cost, self.cost_discount(batch)))

    @stage("reward critics")
    def reward_losses(
        self, networks: Networks, targets: Networks, batch: Batch, budget: Budgets, costs: Costs
    ) -> tuple[Array, Array, Metrics]:
        """The losses of V_R and Q_R, and the advantage Q_R − V_R."""
        inputs = jnp.concatenate([batch.pairs, self.encode(budget.action)], axis=1)
        q = jnp.min(apply_each(targets["critic"], inputs)[..., 0], axis=0)
        value = self.value(networks["value"], batch.features, budget.state)
        next_value = self.value(networks["value"], batch.next_features, budget.next_state)
        if self.compares(networks, self.reward_regression):
            best = self.largest_worth(networks, targets, batch, budget, costs)
            value_loss = jnp.mean((best - value) ** 2)
        else:
            value_loss = self.reward_value_loss(q, value)
        critic_loss = self.reward_critic_loss(networks["critic"], inputs, batch, stop_gradient(next_value))
        metrics = {
            "reward/value_loss": value_loss,
            "reward/critic_loss": critic_loss,
            "reward/value": value.mean(),
        }
        return value_loss + critic_loss, stop_gradient(q - value), metrics

    def reward_value_loss(self, q: Array, value: Array) -> Float[Array, ""]:
        """E[L*(Q_R(s, a, δ) − V_R(s, δ))], towards the largest Q_R of the log (Eq. loss_vr)."""
        return self.reward_rule.value_loss((q - value)[:, None], jnp.ones(1))

    def reward_critic_loss(
        self, critic: MLP, inputs: Array, batch: Batch, next_value: Array
    ) -> Float[Array, ""]:
        """E[(Q_R(s, a, δ) − (r + γ V_R(s′, δ′)))²] (Eq. loss_qr)."""
        target = batch.reward + batch.discount(self.gamma) * batch.bootstrap * next_value
        return jnp.mean((apply_each(critic, inputs)[..., 0] - target) ** 2)

    @stage("policy")
    def policy_loss(
        self, actor: PolicyNetwork, batch: Batch, budget: Budgets, advantage: Array, key: PRNGKeyArray
    ) -> tuple[Array, Metrics]:
        """−E[w(Q_R − V_R) log π(a|s, δ)], w = exp(β ·) or the sparse rule's (Eq. loss_pi)."""
        weight = self.reward_rule.weight(advantage)
        inputs = jnp.concatenate([batch.features, self.encode(budget.state)], axis=1)
        loss = -jnp.mean(weight * actor.log_density(inputs, key, batch.action))
        metrics = {
            "policy/loss": loss,
            "policy/weight": weight.mean(),
            "policy/weight_limited": jnp.mean(weight >= self.weight_limit),
        }
        if self.reward_regression == "sparse":  # where V_R is too high, no action is left to learn from
            metrics["policy/weight_zero"] = jnp.mean(weight == 0.0)
        return loss, metrics

    @stage("policy")
    def gradient_loss(
        self,
        networks: Networks,
        targets: Networks,
        batch: Batch,
        budget: Budgets,
        costs: Costs,
        advantage: Array,
        key: PRNGKeyArray,
    ) -> tuple[Array, Metrics]:
        """`climbing_loss` with the weights of cloning; V_R also regresses on Q_R(s, π, δ) where π is safe.

        So the policy's own actions count in what a state is worth, and improvement goes on over steps.
        """
        weight = self.reward_rule.weight(advantage)
        inputs = jnp.concatenate([batch.features, self.encode(budget.state)], axis=1)
        mean, log_std = networks["actor"](inputs, key)
        loss, worth, safe, metrics = self.climbing_loss(
            targets, batch, budget, costs, mean, log_std, weight / (weight.mean() + 1e-6)
        )
        value = self.value(networks["value"], batch.features, budget.state)
        value_loss = self.reward_value_loss(jnp.where(safe, worth, stop_gradient(value)), value)
        return loss + value_loss, metrics | {"policy/weight": weight.mean()}

    @stage("fallback")
    def fallback_losses(
        self, networks: Networks, targets: Networks, batch: Batch, costs: Costs, key: PRNGKeyArray
    ) -> tuple[Array, Metrics]:
        """The losses of the fallback, and of Q_F where it is learned."""
        loss = self.fallback_loss(networks["fallback"], batch, costs, key)
        metrics = {"policy/fallback_loss": loss}
        if "fallback_critic" in networks:
            critic_loss = self.fallback_critic_loss(networks, targets, batch, jax.random.fold_in(key, 1))
            metrics["policy/fallback_critic_loss"] = critic_loss
            loss = loss + critic_loss
        return loss, metrics

    def fallback_critic_loss(
        self, networks: Networks, targets: Networks, batch: Batch, key: PRNGKeyArray
    ) -> Float[Array, ""]:
        """E[‖Q_F(s, a) − (c + γ_C Q_F(s′, a′))‖²], a′ the fallback's as it is executed.

        V_C is the least cost of the log's best stretches together; Q_F is what the fallback can keep.
        """

        def cost(actions: Array) -> Array:
            rows = jnp.broadcast_to(batch.next_features, (*actions.shape[:-1], batch.next_features.shape[1]))
            pairs = jnp.concatenate([rows, actions], axis=-1)
            return jnp.max(apply_each(targets["fallback_critic"], pairs), axis=0)

        action, log_std = networks["fallback"](batch.next_features)
        if self.fallback_draws:
            actions = drawn(action, log_std, key, self.fallback_draws)
            omega = cost_weighting(self.cost_weights, batch.cost.shape[1])
            action = weighed(actions, cost(actions) @ omega, self.fallback_beta)
        next_cost = stop_gradient(self.floor(cost(action)))
        return self.cost_critic_loss(networks["fallback_critic"], batch, next_cost)

    def fallback_loss(
        self, fallback: PolicyNetwork, batch: Batch, costs: Costs, key: PRNGKeyArray
    ) -> Float[Array, ""]:
        """−E[w(Σ ω_i (V_C,i − Q_C,i)) log π_fallback(a|s)]: the least-cost policy, cloned the same way."""
        omega = cost_weighting(self.cost_weights, costs.value.shape[-1])
        weight = self.cost_rule.weight(jnp.sum(omega * (costs.value - costs.critic), axis=-1))
        return -jnp.mean(weight * fallback.log_density(batch.features, key, batch.action))

    # ---- small helpers -----------------------------------------------------------------------------

    def cost_discount(self, batch: Batch) -> Float[Array, "b 1"] | float:
        """γ_C from s to s′, for every cost."""
        discount = batch.discount(self.discount_cost)
        return discount[:, None] if isinstance(discount, Array) else discount

    def value(self, network: MLP, features: Array, budget: Array) -> Float[Array, " b"]:
        """V_R(s, δ)."""
        return network(jnp.concatenate([features, self.encode(budget)], axis=1))[:, 0]

    def repeat(self, rows: Any) -> Any:
        """Each row n times, for n budgets per transition."""
        return jax.tree.map(lambda x: jnp.repeat(x, self.budget_samples, axis=0), rows)
