"""Cost critics taken over from another policy."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from bcrl.errors import BCRLError
from bcrl.learn.bcrl import BCRL
from bcrl.learn.protocol import Method, Normaliser, Spec
from bcrl.policy import Policy


def adopted_normaliser(method: Method, spec: Spec, donor: Policy) -> Normaliser:
    """The normaliser the donor's cost critics were trained with, after checking that they fit."""
    if not isinstance(method, BCRL) or not isinstance(donor.method, BCRL):
        raise BCRLError("cost critics can be taken over from BCRL to BCRL only")
    for name in ("hidden", "criterion", "gamma_cost", "nonnegative_values", "n_step"):
        if getattr(method, name) != getattr(donor.method, name):
            raise BCRLError(
                f"{name} is {getattr(method, name)}, but the cost critics were trained with "
                f"{getattr(donor.method, name)}: use the same"
            )
    for name in ("observation_size", "action_size", "discrete", "cost_count", "horizon"):
        if name == "horizon" and method.criterion == "discounted":
            continue  # only episodic critics know the time
        ours, theirs = getattr(spec, name), getattr(donor.spec, name)
        if ours != theirs:
            raise BCRLError(f"{name} of the log is {ours}, but the cost critics were trained with {theirs}")
    actor: Any = donor.learned
    return actor.normaliser


def with_cost_critics(state: Any, donor: Policy, seeds: int) -> Any:
    """The state of so many seeds with the donor's cost critics."""
    actor: Any = donor.learned
    # Copies: buffers are donated to the train step, so no two leaves may share one.
    value, critic, target = jax.tree.map(
        lambda x: jnp.repeat(x[None], seeds, axis=0), (actor.cost_value, actor.cost_critic, actor.cost_critic)
    )
    return eqx.tree_at(
        lambda s: (s.networks["cost_value"], s.networks["cost_critic"], s.targets["cost_critic"]),
        state,
        (value, critic, target),
    )
