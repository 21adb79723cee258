"""The ship world: one ship sails by policy, the others as they did. Pure functions of one episode.

The traffic of the whole log is one table (moments, slots, 5) on a clock of 10 s. An episode is a place in it
and the ship's own past, so thousands run at once under `vmap`: a step gathers a row and chooses the nearest.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from bcrl.errors import BCRLError
from bcrl.learn.protocol import Spec
from bcrl.ship._rule import MAX_SPEED, SECONDS
from bcrl.ship._scenarios import CLOSE_METRES, GOAL_METRES, Scenarios
from bcrl.ship._scene import HISTORY, make_scene
from bcrl.ship._water import cell_of, cell_size
from bcrl.worlds import JaxWorld, Step
from bcrl.worlds.protocol import check_sizes

Frame = Literal["ego", "world"]
NEIGHBOURS = 10
KM = 1000.0
FAST = 10.0  # m/s, the unit of speed in observations
MOST_STEPS = 100_000  # of an episode: eleven days
BUDGETS = (0.25, 0.5, 1.0)
"""Shares of the median expert's cost at which a policy is evaluated by default."""


@dataclass(frozen=True)
class Quirks:
    """Where the original simulator differs. ORIGINAL has its behaviour, to check figures against it."""

    padding: Literal["mask", "zeros"] = "mask"
    """Rows of absent ships and of the unseen past are marked absent, or only zeros."""
    alone: Literal["far", "close"] = "far"
    """With no other ship in sight the nearest is infinitely far away, or at 0 m, which is close quarters."""
    cost_timing: Literal["after", "before"] = "after"
    """The cost of a step looks at the distances after it, or before it."""
    first_twice: bool = False
    """The first observation shows the first state twice, as if the ship had lain still for a step."""
    reward: Literal["goal", "repository"] = "goal"
    """100 at the goal; or, as published, 1 at the goal and -100 when cut short."""
    limits: Literal["speed", "box"] = "speed"
    """A full action is 200 m and half a turn, which every logged ship keeps; or a twentieth of the box and a
    quarter turn, which some do not."""


ORIGINAL = Quirks(
    padding="zeros",
    alone="close",
    cost_timing="before",
    first_twice=True,
    reward="repository",
    limits="box",
)


class ShipState(NamedTuple):
    """An episode: which scenario, how many steps are done, and the ship's own samples, oldest first."""

    scenario: jax.Array  # ()
    step: jax.Array  # ()
    past: jax.Array  # (HISTORY, 5): x, y, speed to the east, speed to the north, heading


class Traffic(NamedTuple):
    """The nearest other ships now, nearest first."""

    metres: jax.Array  # (NEIGHBOURS,), infinite where there is none
    rows: jax.Array  # (NEIGHBOURS, HISTORY, 4), oldest first; as the scene, zeros where not seen
    seen: jax.Array  # (NEIGHBOURS, HISTORY)


class ShipWorld(JaxWorld):
    """Sail from a ship's first logged place to its last; within 555 m of another ship a step costs 1.

    With `water` there is a second cost: 1 for a step that ends off it.

    An action is how far to go in the next 10 s along both axes, and by how much to turn, each in [-1, 1]. The
    heading does not influence the motion, as in the original. An episode ends within 200 m of the goal (with
    reward 100), outside the box, and at the scenario's own time limit: unlike other worlds this one applies
    it itself, since `horizon` is only the longest of them.
    """

    name = "ship"
    family = "ship"
    action_size = 3
    reference_returns = (0.0, 100.0)

    scene: jax.Array = eqx.field(kw_only=True)
    """(moments, slots, 5): x, y, two numbers of motion, ship. The motion is what the observation shows: speed
    to the east and north in the frame "ego", speed and heading in "world"."""
    start: jax.Array = eqx.field(kw_only=True)
    """(scenarios, 5) the ship's first sample, as in `ShipState.past`."""
    goal: jax.Array = eqx.field(kw_only=True)
    """(scenarios, 2)."""
    moment: jax.Array = eqx.field(kw_only=True)
    """(scenarios,) the first row of the scene."""
    ship: jax.Array = eqx.field(kw_only=True)
    """(scenarios,) the ship that the policy replaces: it is not its own neighbour."""
    limit: jax.Array = eqx.field(kw_only=True)
    """(scenarios,) steps after which an episode ends."""
    among: jax.Array = eqx.field(kw_only=True)
    """(n,) the scenarios `reset` draws from."""
    water: jax.Array | None = eqx.field(kw_only=True)
    """(rows, columns) bool: cells from the south-west in which a step has no second cost."""
    cell: float = eqx.field(kw_only=True, static=True)
    """Metres of a cell of `water`."""
    size: tuple[float, float] = eqx.field(kw_only=True, static=True)
    """Of the box, in metres."""
    frame: Frame = eqx.field(kw_only=True, static=True)
    quirks: Quirks = eqx.field(kw_only=True, static=True)
    horizon: int = eqx.field(kw_only=True, static=True)
    thresholds: tuple[float, ...] = eqx.field(kw_only=True, static=True)

    @property
    def observation_size(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        ships = (1 + NEIGHBOURS) * HISTORY
        if self.frame == "ego":
            return 5 * ships + 6
        return (4 if self.quirks.padding == "zeros" else 5) * ships + 2

    @property
    def cost_count(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return 1 if self.water is None else 2

    @property
    def observation_bound(self) -> float:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Nothing is farther away than the diagonal of the box and one step; headings are below 2 pi."""
        return max(float(np.hypot(*self.size)) / KM + 1.0, 7.0)

    @property
    def reach(self) -> tuple[float, float, float]:
        """A full action: metres, metres, radians."""
        if self.quirks.limits == "box":
            return self.size[0] / 20, self.size[1] / 20, np.pi / 2
        return MAX_SPEED * SECONDS, MAX_SPEED * SECONDS, np.pi

    def reset(self, key: jax.Array) -> ShipState:
        return self.begin(self.among[jax.random.randint(key, (), 0, len(self.among))])

    def begin(self, scenario: jax.Array) -> ShipState:
        """The first state of a chosen scenario."""
        past = jnp.zeros((HISTORY, 5)).at[-1].set(self.start[scenario])
        if self.quirks.first_twice:
            past = past.at[-2].set(past[-1])
        return ShipState(jnp.asarray(scenario, jnp.int32), jnp.zeros((), jnp.int32), past)

    def move(self, state: ShipState, action: jax.Array, key: jax.Array) -> Step:
        del key  # the log determines all else
        metres = action[:2] * jnp.array(self.reach[:2])
        way = turned(metres, self.axes(state).T)
        now = state.past[-1]
        place = now[:2] + way
        heading = jnp.mod(now[4:] + action[2:] * self.reach[2], 2 * jnp.pi)
        past = jnp.concatenate([state.past[1:], jnp.concatenate([place, way / SECONDS, heading])[None]])
        after = ShipState(state.scenario, state.step + 1, past)
        reached = self.to_goal(after) < GOAL_METRES
        outside = jnp.any((place < 0) | (place > jnp.array(self.size)))
        late = after.step >= self.limit[state.scenario]
        if self.quirks.reward == "goal":
            reward = 100.0 * reached
        else:
            reward = jnp.where(reached, 1.0, jnp.where(outside | late, -100.0, 0.0))
        watched = after if self.quirks.cost_timing == "after" else state
        cost = (self.nearest(watched) < CLOSE_METRES).astype(jnp.float32)
        if self.water is not None:
            off = ~self.water[cell_of(place, self.cell, self.water.shape)]
            cost = jnp.stack([cost, off.astype(jnp.float32)])
        return after, reward, cost, reached | outside | late

    def trace(self, state: ShipState) -> tuple[jax.Array, jax.Array]:
        """The ship's own last sample, and whether the goal is reached."""
        return state.past[-1], self.to_goal(state) < GOAL_METRES

    def check(self, spec: Spec) -> None:
        """Refuses a policy of other sizes."""
        hint = "train on a log from bcrl ship log, and use the frame of that log"
        check_sizes(self, spec, f"it shows the frame {self.frame!r}; {hint}")

    def action_between(self, state: ShipState, place: jax.Array, heading: jax.Array) -> jax.Array:
        """The action that leads to this place and heading in one step; outside [-1, 1] if none does."""
        now = state.past[-1]
        metres = turned(place - now[:2], self.axes(state))
        turn = jnp.mod(heading - now[4] + jnp.pi, 2 * jnp.pi) - jnp.pi
        return jnp.append(metres, turn) / jnp.array(self.reach)

    def to_goal(self, state: ShipState) -> jax.Array:
        """Metres."""
        return jnp.linalg.norm(self.goal[state.scenario] - state.past[-1, :2])

    def nearest(self, state: ShipState) -> jax.Array:
        """Metres to the nearest other ship; infinite when alone."""
        metres = jnp.sqrt(jnp.min(self._squares(state, self.scene[self._moment(state)])))
        return metres if self.quirks.alone == "far" else jnp.where(jnp.isinf(metres), 0.0, metres)

    def traffic(self, state: ShipState) -> Traffic:
        """The nearest ships with as much of their past as is in the scene."""
        moment = self._moment(state)
        now = self.scene[moment]
        squares, slot = jax.lax.top_k(-self._squares(state, now), NEIGHBOURS)
        metres = jnp.sqrt(-squares)
        moments = moment - jnp.arange(HISTORY - 1, -1, -1)
        rows = self.scene[moments[None, :], slot[:, None]]
        seen = (rows[..., 4] == now[slot, 4][:, None]) & jnp.isfinite(metres)[:, None]
        return Traffic(metres, jnp.where(seen[..., None], rows[..., :4], 0.0), seen)

    def own_past(self, state: ShipState) -> jax.Array:
        """(HISTORY,) which of the ship's own samples there are."""
        known = state.step + (2 if self.quirks.first_twice else 1)
        return jnp.arange(HISTORY - 1, -1, -1) < known

    def axes(self, state: ShipState) -> jax.Array:
        """(2, 2) rows are the directions of the observation's and the action's axes.

        In the frame "ego" the first points to the goal, and the second to the left of it.
        """
        if self.frame == "world":
            return jnp.eye(2)
        ahead = self.goal[state.scenario] - state.past[-1, :2]
        x, y = ahead / jnp.maximum(jnp.linalg.norm(ahead), 1e-3)
        return jnp.array([[x, y], [-y, x]])

    def observe(self, state: ShipState) -> jax.Array:
        return self._observe_ego(state) if self.frame == "ego" else self._observe_world(state)

    def _observe_ego(self, state: ShipState) -> jax.Array:
        """Everything relative to the ship, in kilometres and tens of m/s, the goal straight ahead.

        Own past and each neighbour: (x, y, velocity, present) for 5 samples; the distance to the goal and its
        nearness; where in the box the ship is and where the axes point, since the log has no shores.
        """
        axes, here, traffic = self.axes(state), state.past[-1, :2], self.traffic(state)
        own = self.own_past(state)
        rows = jnp.concatenate([state.past[None, :, :4], traffic.rows])
        seen = jnp.concatenate([own[None], traffic.seen])
        place = turned(rows[..., :2] - here, axes) / KM
        motion = turned(rows[..., 2:], axes) / FAST
        ships = jnp.concatenate([place, motion, jnp.ones_like(place[..., :1])], axis=-1) * seen[..., None]
        metres = self.to_goal(state)
        whole = jnp.stack([metres / KM, jnp.exp(-metres / KM)])
        return jnp.concatenate([ships.ravel(), whole, here / KM, axes[0]])

    def _observe_world(self, state: ShipState) -> jax.Array:
        """The original's: x, y, speed, heading of own past and of each neighbour, and the goal, in the box.

        In kilometres, tens of m/s and radians. Each row also has a flag for present, except with the quirk of
        padding with zeros.
        """
        traffic, own = self.traffic(state), self.own_past(state)
        speed = jnp.linalg.norm(state.past[:, 2:4], axis=-1, keepdims=True)
        mine = jnp.concatenate([state.past[:, :2], speed, state.past[:, 4:]], axis=-1) * own[:, None]
        rows = jnp.concatenate([mine[None], traffic.rows]) / jnp.array([KM, KM, FAST, 1.0])
        if self.quirks.padding == "mask":
            seen = jnp.concatenate([own[None], traffic.seen])
            rows = jnp.concatenate([rows, seen[..., None]], axis=-1)
        return jnp.concatenate([rows.ravel(), self.goal[state.scenario] / KM])

    def _moment(self, state: ShipState) -> jax.Array:
        return self.moment[state.scenario] + state.step

    def _squares(self, state: ShipState, now: jax.Array) -> jax.Array:
        """(slots,) squared metres to every other ship, infinite for empty slots and for itself."""
        x, y = now[:, 0] - state.past[-1, 0], now[:, 1] - state.past[-1, 1]
        other = (now[:, 4] >= 0) & (now[:, 4] != self.ship[state.scenario])
        return jnp.where(other, x * x + y * y, jnp.inf)


def make_ship_world(
    scenarios: Scenarios,
    *,
    among: np.ndarray | None = None,
    frame: Frame = "ego",
    limit: int | None = None,
    water: np.ndarray | None = None,
    quirks: Quirks = Quirks(),
    noise: float = 0.0,
) -> ShipWorld:
    """The world of a scenario file. `reset` draws from `among`, by default the congested fifth of the test.

    `limit` is the number of steps after which every episode ends, by default twice those of its expert.
    `water`, such as `known_water(scenarios)`, makes leaving it a second cost.
    """
    among = scenarios.evaluation if among is None else np.asarray(among)
    if not len(among) or among.min() < 0 or among.max() >= len(scenarios):
        raise BCRLError(f"the scenarios are numbered 0 to {len(scenarios) - 1}; name at least one of them")
    if limit is not None and not 1 <= limit <= MOST_STEPS:
        raise BCRLError(f"the limit is {limit} steps, but must be 1 to {MOST_STEPS:,}")
    limits = 2 * scenarios.steps if limit is None else np.full(len(scenarios), limit)
    after = np.zeros(len(scenarios.first), np.int64)
    np.maximum.at(after, scenarios.track, limits - scenarios.steps)
    scene, first = make_scene(scenarios, after=after, at_least=NEIGHBOURS)
    own = np.stack([scenarios.expert(i)[0] for i in range(len(scenarios))])
    if frame == "ego":
        scene[..., 2:4] = velocity(scene[..., 2], scene[..., 3])
    expert_cost = float(np.median(scenarios.expert_cost[among]))
    return ShipWorld(
        noise=noise,
        scene=jnp.asarray(scene),
        start=jnp.asarray(np.column_stack([own[:, :2], velocity(own[:, 2], own[:, 3]), own[:, 3]])),
        goal=jnp.asarray(np.stack([scenarios.expert(i)[-1, :2] for i in range(len(scenarios))])),
        moment=jnp.asarray(first[scenarios.track], jnp.int32),
        ship=jnp.asarray(scenarios.ship[scenarios.track], jnp.float32),
        limit=jnp.asarray(limits, jnp.int32),
        among=jnp.asarray(among, jnp.int32),
        water=None if water is None else jnp.asarray(water),
        cell=cell_size(scenarios.box),
        size=scenarios.box.size,
        frame=frame,
        quirks=quirks,
        horizon=int(limits[among].max()),
        thresholds=tuple(dict.fromkeys(share * expert_cost for share in BUDGETS)),
    )


def turned(vectors: jax.Array, axes: jax.Array) -> jax.Array:
    """(..., 2) the same vectors along these axes, in full precision: GPUs round products' factors to TF32."""
    return jnp.matmul(vectors, axes.T, precision=jax.lax.Precision.HIGHEST)


def velocity(speed: np.ndarray, heading: np.ndarray) -> np.ndarray:
    """(..., 2) to the east and to the north."""
    return np.stack([speed * np.cos(heading), speed * np.sin(heading)], axis=-1)
