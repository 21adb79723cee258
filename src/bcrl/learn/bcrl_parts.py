"""What the steps of Algorithm 1 hand to each other."""

import equinox as eqx
from jaxtyping import Array, Float


class Costs(eqx.Module):
    """What the cost critics say of a batch, without gradient."""

    critic: Float[Array, "b k"]  # Q_C(s, a)
    value: Float[Array, "b k"]  # V_C(s)
    next_value: Float[Array, "b k"]  # V_C(s′)


class Budgets(eqx.Module):
    """The budget as each network sees it: V_R and π at s, Q_R at (s, a), V_R at s′."""

    state: Float[Array, "b k"]
    action: Float[Array, "b k"]
    next_state: Float[Array, "b k"]
