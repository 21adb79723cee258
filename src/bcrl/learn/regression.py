"""How an instance of BCRL regresses V on Q and weights actions: IQL, XQL or SparseQL."""

from dataclasses import dataclass
from typing import Literal

import jax.numpy as jnp
from jaxtyping import Array, Float

from bcrl.learn.losses import (
    Regression,
    SparseWeight,
    advantage_weight,
    gumbel_weight,
    joint_expectile_loss,
    joint_loss,
    sparse_advantage_weight,
    sparse_weight,
    spread,
)

# In root mean squares of Q − V; docs/instances.md says what they mean for V.
TEMPERATURES: dict[Regression, float] = {"gumbel": 1.0, "sparse": 0.5}


@dataclass(frozen=True)
class InSample:
    """One of the three regressions, for cost (towards the least Q) or for reward (towards the largest)."""

    of: Literal["cost", "reward"]
    regression: Regression
    tau: float
    temperature: float | None
    temperature_unit: Literal["spread", "raw"]
    exponent_limit: float | None
    beta: float
    weight_limit: float
    sparse_extraction: SparseWeight

    def value_loss(self, gap: Float[Array, "b k"], omega: Float[Array, " k"]) -> Float[Array, ""]:
        """The paper's L*(Q − V), summed over costs; one weight a row, decided by Σ ω_i (Q_i − V_i)."""
        if self.regression == "expectile":
            return joint_expectile_loss(gap, self.tau, omega)
        better = -gap @ omega if self.of == "cost" else gap @ omega
        scale = self._scale(better)
        if self.regression == "gumbel":
            return joint_loss(gap, gumbel_weight(better, scale, self.exponent_limit))
        return joint_loss(gap, sparse_weight(better, scale))

    def weight(self, advantage: Float[Array, " b"]) -> Float[Array, " b"]:
        """The weight of each action in policy extraction (Eq. loss_pi), by the rule of the regression."""
        if self.regression != "sparse":
            return advantage_weight(advantage, self.beta, self.weight_limit)
        scale = self._scale(advantage)
        return sparse_advantage_weight(advantage, scale, self.weight_limit, self.sparse_extraction)

    def _scale(self, difference: Array) -> Array:
        """The temperature in units of cost or reward."""
        number = TEMPERATURES[self.regression] if self.temperature is None else self.temperature
        return number * spread(difference) if self.temperature_unit == "spread" else jnp.asarray(number)
