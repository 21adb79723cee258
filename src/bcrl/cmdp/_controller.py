"""Tabular policies: episodes, exact evaluation, and mixtures of deterministic policies."""

import warnings
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bcrl.cmdp._checks import ShortRepr, as_floats, show
from bcrl.cmdp._frontier import Column, Frontier, Optimum, lottery, totals
from bcrl.cmdp._model import CMDP
from bcrl.cmdp._values import lexicographic, occupancy
from bcrl.errors import BCRLError

Budget = float | Sequence[float] | np.ndarray
TABLE, FALLBACK = -1, -2


class BudgetWarning(UserWarning):
    """A budget that cannot be kept, or a mode that may not keep it."""


@dataclass
class Memory:
    """The state of a batch of n running episodes."""

    slack: np.ndarray
    """Slack per cost, (n, N)."""
    column: np.ndarray
    """(n,): the deterministic policy sampled at the start, or TABLE, or FALLBACK."""

    @property
    def fallback(self) -> np.ndarray:
        return self.column == FALLBACK


@dataclass(frozen=True, repr=False)
class Evaluation(ShortRepr):
    """J_R and J_C of Eq. (1) for one budget, exact."""

    total_return: float
    cost: np.ndarray


class TabularPolicy(ABC):
    """A policy conditioned on a budget that is given at run time."""

    model: CMDP

    @abstractmethod
    def begin(self, budget: Budget, episodes: int, rng: np.random.Generator) -> Memory:
        """The memory of `episodes` new episodes with discounted budget δ from the start distribution."""

    @abstractmethod
    def begin_at(self, state: int, budget: Budget, rng: np.random.Generator) -> Memory:
        """The memory of one episode that is in `state` with `budget` left."""

    @abstractmethod
    def step(self, memory: Memory, states: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Actions for the states the episodes are in now; updates the memory."""

    @abstractmethod
    def occupancy(self, budget: Budget) -> np.ndarray:
        """Discounted visits (S, A) from the start distribution, by an exact linear solve."""

    def evaluate(self, budget: Budget) -> Evaluation:
        """J_R and J_C by an exact linear solve, memory included."""
        visits = self.occupancy(budget)
        return Evaluation(float((visits * self.model.rewards).sum()), (visits * self.model.costs).sum((1, 2)))

    def start(
        self,
        budget: Budget | None = None,
        seed: int | None = None,
        *,
        threshold: Budget | None = None,
        horizon: int | None = None,
    ) -> "Episode":
        """Starts one episode with discounted budget δ; learned policies alone take threshold and horizon."""
        if budget is None or threshold is not None or horizon is not None:
            raise BCRLError(
                "a tabular policy bounds the discounted cost of an episode of any length: give budget=δ, not "
                "threshold=κ or horizon=T; κ spread evenly over T steps is δ = κ (1 − γᵀ) / (T (1 − γ)) "
                f"with γ = {self.model.gamma:g}"
            )
        rng = np.random.default_rng(seed)
        return Episode(self, self.begin(budget, 1, rng), rng)

    def act(self, state: int, budget: Budget, seed: int | None = None) -> int:
        """One action in `state` with `budget` left, without an episode."""
        rng = np.random.default_rng(seed)
        state = self.model.check_state(state)
        memory = self.begin_at(state, budget, rng)
        return int(self.step(memory, np.array([state]), rng)[0])


class Episode:
    """One running episode: `act` with each state, `observe` the cost after each action.

    An action changes the slack when it is chosen, so two actions for one step are an error.
    """

    def __init__(self, policy: TabularPolicy, memory: Memory, rng: np.random.Generator):
        self._policy, self._memory, self._rng = policy, memory, rng
        self._acted = False  # an action waits for its cost

    def __repr__(self) -> str:
        return f"Episode({self._policy!r}, slack {show(self._memory.slack[0])})"

    def act(self, state: int) -> int:
        """The action for `state`; the slack has been updated for the step that led here."""
        if self._acted:
            raise BCRLError(
                "act was called twice, which would charge the slack twice: tell the episode what its last "
                "action cost, observe(cost)"
            )
        state = self._policy.model.check_state(state)
        action = int(self._policy.step(self._memory, np.array([state]), self._rng)[0])
        self._acted = True
        return action

    def observe(self, cost: Budget, reward: float | None = None) -> None:
        """Ends the step: accepts its cost and reward, as the episodes of learned policies do.

        They do not change the slack. Soft tracking subtracts the expected cost A(s,a) when the action is
        chosen; the direct update subtracts the model's c(s,a), which is the observed cost.
        """
        if not self._acted:
            raise BCRLError("observe comes after act: no action is waiting for its cost")
        costs = as_floats("cost", cost)
        shape = (len(self._policy.model.costs),)
        if costs.shape != shape and (shape != (1,) or costs.shape):
            raise BCRLError(f"cost has shape {costs.shape}, but this episode expects {shape}")
        if not np.all(np.isfinite(costs)) or np.any(costs < 0):
            raise BCRLError(f"cost is {show(costs)}, but must be finite and not negative")
        self._acted = False

    @property
    def slack(self) -> float | np.ndarray:
        """The budget above the base policy's own cost; an array with several costs."""
        slack = self._memory.slack[0]
        return float(slack[0]) if len(slack) == 1 else slack.copy()

    @property
    def fallback(self) -> bool:
        """Whether the last action was the least-cost fallback."""
        return bool(self._memory.fallback[0])


class MixturePolicy(TabularPolicy):
    """Samples one deterministic policy at the start of an episode; the budget is kept in expectation.

    With the columns of `optimum` it is the CMDP optimum for that budget, with a `Frontier` for every budget.
    """

    def __init__(
        self,
        model: CMDP,
        solved: Optimum | Frontier | Sequence[Column],
        fallback_policy: np.ndarray | None = None,
    ):
        self.model = model
        self.columns = tuple(solved) if isinstance(solved, Sequence) else solved.columns
        self.fallback_policy = joint_least_cost(model) if fallback_policy is None else fallback_policy

    def __repr__(self) -> str:
        return f"MixturePolicy({self.model!r}, {len(self.columns)} deterministic policies)"

    def probabilities(self, budget: Budget) -> np.ndarray | None:
        """Probabilities of the columns for a start with `budget`; None if no mixture keeps it."""
        return self._draw(*totals(self.columns), self.model.budget_vector(budget))

    def begin(self, budget: Budget, episodes: int, rng: np.random.Generator) -> Memory:
        return self._memory(self.probabilities(budget), budget, episodes, rng)

    def begin_at(self, state: int, budget: Budget, rng: np.random.Generator) -> Memory:
        returns = np.array([column.value[state] for column in self.columns])
        costs = np.stack([column.cost_value[:, state] for column in self.columns], 1)
        probabilities = self._draw(returns, costs, self.model.budget_vector(budget))
        return self._memory(probabilities, budget, 1, rng)

    def step(self, memory: Memory, states: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        actions = self.fallback_policy[states]
        for number in np.unique(memory.column[memory.column >= 0]):
            chosen = memory.column == number
            actions[chosen] = self.columns[number].policy[states[chosen]]
        return actions

    def occupancy(self, budget: Budget) -> np.ndarray:
        probabilities = self.probabilities(budget)
        if probabilities is None:
            return occupancy(self.model, self.fallback_policy)
        drawn = np.flatnonzero(probabilities)
        visits = (probabilities[i] * occupancy(self.model, self.columns[i].policy) for i in drawn)
        return np.sum(list(visits), axis=0)

    @staticmethod
    def _draw(returns: np.ndarray, costs: np.ndarray, budget: np.ndarray) -> np.ndarray | None:
        try:
            return lottery(returns, costs, budget)[0]
        except BCRLError:
            return None

    def _memory(
        self, probabilities: np.ndarray | None, budget: Budget, episodes: int, rng: np.random.Generator
    ) -> Memory:
        # A sampled policy uses the whole budget, so no slack is left.
        slack = np.zeros((episodes, len(self.model.costs)))
        if probabilities is None:
            warn_fallback(self.model.budget_vector(budget))
            return Memory(slack, np.full(episodes, FALLBACK))
        return Memory(slack, rng.choice(len(probabilities), episodes, p=probabilities))


class StationaryPolicy(TabularPolicy):
    """A fixed stochastic policy (S, A), such as that of the linear program; it ignores the budget."""

    def __init__(self, model: CMDP, probabilities: np.ndarray):
        self.model, self.policy = model, probabilities
        self._cumulative = np.cumsum(probabilities, 1)

    def __repr__(self) -> str:
        return f"StationaryPolicy({self.model!r})"

    def begin(self, budget: Budget, episodes: int, rng: np.random.Generator) -> Memory:
        return Memory(np.zeros((episodes, len(self.model.costs))), np.full(episodes, TABLE))

    def begin_at(self, state: int, budget: Budget, rng: np.random.Generator) -> Memory:
        return self.begin(budget, 1, rng)

    def step(self, memory: Memory, states: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        cumulative = self._cumulative[states]
        # Scaled by the last entry, which is 1 only up to rounding.
        return (rng.random(len(states))[:, None] * cumulative[:, -1:] >= cumulative).sum(1)

    def occupancy(self, budget: Budget) -> np.ndarray:
        return occupancy(self.model, self.policy)


def joint_least_cost(model: CMDP) -> np.ndarray:
    """The fallback of Algorithm 2: the least-cost policy, for several costs the least of their sum."""
    return lexicographic(model, -model.costs.sum(0), model.rewards)


def warn_fallback(budget: np.ndarray) -> None:
    warnings.warn(
        f"the budget {show(budget)} is outside the safe set: taking least-cost actions", BudgetWarning, 3
    )
