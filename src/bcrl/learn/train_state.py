"""What training changes: networks by name, their target networks, and the state of their optimisers."""

from collections.abc import Iterable, Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

from bcrl.learn.stages import stage

Networks = dict[str, Any]
Optimisers = Mapping[str, optax.GradientTransformation]


class TrainState(eqx.Module):
    """The state of one training seed. Only networks that have an optimiser are trained."""

    networks: Networks
    targets: Networks
    """Slowly moving copies θ_T, by the name of the network that they follow."""
    moments: dict[str, Any]
    """The optimisers' states."""
    extra: Any = None
    """What a method keeps besides, such as a Lagrange multiplier."""

    @classmethod
    def start(
        cls, networks: Networks, optimisers: Optimisers, targets: Iterable[str] = (), extra: Any = None
    ) -> "TrainState":
        """The state before the first step; targets begin as copies."""
        moments = {name: optimiser.init(networks[name]) for name, optimiser in optimisers.items()}
        copies = {name: jax.tree.map(jnp.copy, networks[name]) for name in targets}
        return cls(networks, copies, moments, extra)

    @stage("optimiser")
    def step(self, gradients: Networks, optimisers: Optimisers) -> "TrainState":
        """One optimiser step on every network that `optimisers` names; the others stay."""
        networks, moments = dict(self.networks), dict(self.moments)
        for name, optimiser in optimisers.items():
            change, moments[name] = optimiser.update(gradients[name], moments[name], networks[name])
            networks[name] = optax.apply_updates(networks[name], change)
        return TrainState(networks, self.targets, moments, self.extra)

    @stage("targets")
    def follow(self, rate: float, names: Iterable[str] | None = None) -> "TrainState":
        """θ_T ← (1 − α) θ_T + α θ for the targets of these networks (by default all)."""
        moving = set(self.targets if names is None else names)
        targets = {
            name: jax.tree.map(lambda t, n: t + rate * (n - t), target, self.networks[name])
            if name in moving
            else target
            for name, target in self.targets.items()
        }
        return TrainState(self.networks, targets, self.moments, self.extra)

    def with_extra(self, extra: Any) -> "TrainState":
        """The same with another `extra`."""
        return TrainState(self.networks, self.targets, self.moments, extra)


def adam(rates: Mapping[str, Any]) -> Optimisers:
    """Adam for each network, by its step size or schedule."""
    return {name: optax.adam(rate) for name, rate in rates.items()}


@stage("optimiser")
def clip(gradient: Any, limit: float) -> Any:
    """The gradient of one network, its norm at most `limit`."""
    norm = jnp.sqrt(sum(jnp.sum(g**2) for g in jax.tree.leaves(gradient)))
    scale = jnp.minimum(1.0, limit / (norm + 1e-12))
    return jax.tree.map(lambda g: g * scale, gradient)
