"""Charging as a world: a session is an episode. One car does not move the grid, so a replay is the truth."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from bcrl.examples.ev_rules import LOGGED
from bcrl.examples.ev_sessions import HOURS, OBSERVATIONS, POWER, Sessions
from bcrl.worlds import JaxWorld, Step


class Parked(NamedTuple):
    """A car at its station."""

    session: Int[Array, ""]
    step: Int[Array, ""]
    wanted: Float[Array, ""]
    """kWh."""


class ChargingWorld(JaxWorld):
    """The sessions of one period. An action is a power in kW; the car being full or gone ends an episode."""

    name = "ev-charging"
    family = "own"
    observation_size = len(OBSERVATIONS)
    action_size = 1
    thresholds = (0.5, 1.0, 1.5, 2.0, 3.0)
    caveat = LOGGED

    period: str = eqx.field(static=True, kw_only=True)
    horizon: int = eqx.field(static=True, kw_only=True)
    first: Int[Array, " n"] = eqx.field(kw_only=True)
    steps: Int[Array, " n"] = eqx.field(kw_only=True)
    wanted: Float[Array, " n"] = eqx.field(kw_only=True)
    signals: Float[Array, "t 8"] = eqx.field(kw_only=True)

    @property
    def label(self) -> str:
        return f"{self.name} {self.period}"

    def reset(self, key: Array) -> Parked:
        """A session of the period, drawn."""
        return self.begin(jax.random.randint(key, (), 0, len(self.first)))

    def begin(self, session: Array) -> Parked:
        return Parked(jnp.asarray(session, jnp.int32), jnp.int32(0), self.wanted[session])

    def observe(self, state: Parked) -> Array:
        left = (self.steps[state.session] - state.step) * HOURS
        at = jnp.minimum(self.first[state.session] + state.step, len(self.signals) - 1)
        return jnp.concatenate([jnp.stack([left, state.wanted]), self.signals[at]])

    def step(self, state: Parked, action: Array, key: Array) -> Step:
        rate = self.observe(state)[OBSERVATIONS.index("co2_now")]
        energy = jnp.minimum(jnp.clip(action[0], 0.0, POWER) * HOURS, state.wanted)
        wanted = jnp.where(state.wanted - energy < 1e-6, 0.0, state.wanted - energy)
        after = Parked(state.session, state.step + 1, wanted)
        return after, energy, rate * energy, (wanted <= 0) | (after.step >= self.steps[state.session])

    def move(self, state: Parked, action: Array, key: Array) -> Step:
        return self.step(state, action, key)


def charging_world(sessions: Sessions, horizon: int) -> ChargingWorld:
    """The world of these sessions; `horizon` is that of the log."""
    return ChargingWorld(
        period=sessions.period,
        horizon=horizon,
        first=jnp.asarray(sessions.first, jnp.int32),
        steps=jnp.asarray(sessions.steps, jnp.int32),
        wanted=jnp.asarray(sessions.wanted, jnp.float32),
        signals=jnp.asarray(np.nan_to_num(sessions.signals), jnp.float32),
    )
