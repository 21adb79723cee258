"""The augmented MDP of the paper's appendix: budgets rounded to the nearest bin. It can exceed them."""

import os
import warnings
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import numpy as np
from scipy import sparse

from bcrl.cmdp._controller import FALLBACK, TABLE, Budget, BudgetWarning, Memory, TabularPolicy
from bcrl.cmdp._lp import solve_lp
from bcrl.cmdp._model import CMDP
from bcrl.cmdp._values import CostCritic, evaluate, least_cost, occupancy, q_values, value_iteration
from bcrl.errors import BCRLError

Update = Literal["soft", "direct"]
Solver = Literal["value iteration", "lp"]


@dataclass
class PaperMemory(Memory):
    pending: np.ndarray = field(default_factory=lambda: np.empty(0))
    """(n,): the next state's budget, or with soft tracking its slack."""


@dataclass(frozen=True, repr=False)
class PaperPolicy(TabularPolicy):
    """A policy whose memory is a budget bin; least-cost actions outside the safe set (Algorithm 2)."""

    model: CMDP
    budgets: np.ndarray
    """The bins B, evenly spaced from 0 to δ_max."""
    critic: CostCritic
    actions: np.ndarray
    """(S, K)."""
    update: Update

    def __repr__(self) -> str:
        return f"PaperPolicy({self.model!r}, {len(self.budgets)} bins of budget, {self.update} update)"

    @cached_property
    def augmented(self) -> CMDP:
        """The extended MDP over (state, bin), safe actions only; state s and bin k are state s·K + k."""
        return _extended(self.model, self.critic, self.budgets, self.update)

    def save(self, path: str | os.PathLike) -> None:
        """Writes the policy file, all or nothing; `bcrl.load` reads it."""
        from bcrl.cmdp._policy_file import save_paper

        save_paper(self, path)

    def begin(self, budget: Budget, episodes: int, rng: np.random.Generator) -> PaperMemory:
        pending = float(self.model.budget_vector(budget)[0])
        if self.update == "soft":
            pending -= float(self.critic.value @ self.model.start)
        return self._new(np.full(episodes, pending))

    def begin_at(self, state: int, budget: Budget, rng: np.random.Generator) -> PaperMemory:
        pending = float(self.model.budget_vector(budget)[0])
        if self.update == "soft":
            pending -= float(self.critic.value[state])
        return self._new(np.array([pending]))

    def step(self, memory: Memory, states: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        assert isinstance(memory, PaperMemory)
        bins = self._bins(memory.pending, states)
        actions = self.actions[states, bins]
        memory.slack = (self.budgets[bins] - self.critic.value[states])[:, None]
        memory.column = np.where(self.safe[states, bins], TABLE, FALLBACK)
        memory.pending = _pending(self.model, self.critic, self.update, self.budgets[bins], states, actions)
        return actions

    def occupancy(self, budget: Budget) -> np.ndarray:
        start = _start(
            self.model, self.critic, self.budgets, self.update, float(self.model.budget_vector(budget)[0])
        )
        visits = occupancy(self.augmented.with_start(start), self.actions.ravel())
        return visits.reshape(self.model.states, len(self.budgets), -1).sum(1)

    def excess(self) -> float:
        """The largest J_C((s, δ)) − δ over safe states and bins, by an exact linear solve; often large."""
        costs = evaluate(self.augmented, self.actions.ravel(), self.augmented.costs[0])[0]
        return float((costs.reshape(self.actions.shape) - self.budgets)[self.safe].max())

    @property
    def safe(self) -> np.ndarray:
        """Whether each (state, bin) is in the safe set, (S, K)."""
        return _safe(self.critic.value, self.budgets)

    def _new(self, pending: np.ndarray) -> PaperMemory:
        unknown = np.full((len(pending), 1), np.nan)  # no state yet, so no slack
        return PaperMemory(unknown, np.full(len(pending), TABLE), pending)

    def _bins(self, pending: np.ndarray, states: np.ndarray) -> np.ndarray:
        return _nearest(self.budgets, _budget(self.critic, self.update, pending, states))


def plan_paper(
    model: CMDP,
    budget: Budget,
    bins: int = 101,
    update: Update = "soft",
    solver: Solver = "value iteration",
    budget_max: float | None = None,
) -> PaperPolicy:
    """Algorithm 2 (appendix "Implementation Details CMDP"), for reproduction.

    Bins are even on [0, budget_max], by default δ_max = c_max/(1 − γ). With `solver="lp"` the plan is for
    starts with `budget`; value iteration plans for every budget.
    """
    if len(model.costs) != 1:
        raise BCRLError(f'mode="paper" is for one cost; the model has {len(model.costs)}')
    if bins < 2:
        raise BCRLError(f"bins must be at least 2, not {bins}")
    warnings.warn(
        'mode="paper" rounds budgets to the nearest bin: the policy can exceed its budget', BudgetWarning, 3
    )
    highest = float(model.costs.max()) / (1 - model.gamma) if budget_max is None else budget_max
    budgets = np.linspace(0.0, highest if highest > 0 else 1.0, bins)
    critic = least_cost(model)
    # Its actions are filled in below, once the extended MDP is solved.
    policy = PaperPolicy(model, budgets, critic, np.zeros((model.states, bins), np.int64), update)
    augmented = policy.augmented
    start = _start(model, critic, budgets, update, float(model.budget_vector(budget)[0]))
    if solver == "lp":
        # The extended MDP has no constraint, so its budget is larger than any cost.
        solved = solve_lp(augmented.with_start(start), float(model.costs.max()) / (1 - model.gamma) + 1.0)
        actions = solved.policy.argmax(1)
    else:
        value = value_iteration(augmented, augmented.rewards, tolerance=1e-7)
        critic_r = np.where(augmented.available, q_values(augmented, augmented.rewards, value), -np.inf)
        actions = critic_r.argmax(1)
    policy.actions[:] = actions.reshape(model.states, bins)
    return policy


def _extended(model: CMDP, critic: CostCritic, budgets: np.ndarray, update: Update) -> CMDP:
    """The extended transition function of Algorithm 2, with bins and safe actions, as an explicit model."""
    states, actions, bins = model.states, model.actions, len(budgets)
    safe = _safe(critic.value, budgets)
    allowed = np.stack([critic.safe_actions(budget + 1e-12) for budget in budgets])  # (K, S, A)
    allowed = allowed.transpose(1, 0, 2) & model.available[:, None] & safe[..., None]
    fallback = critic.policy[:, None, None] == np.arange(actions)
    allowed = np.where(safe[..., None], allowed, fallback & model.available[:, None])
    allowed[model.terminal] = True
    state, bin_, action = np.nonzero(allowed & ~model.terminal[:, None, None])
    moves = model.transitions[state * actions + action]
    width = np.diff(moves.indptr)
    pending = np.repeat(_pending(model, critic, update, budgets[bin_], state, action), width)
    landing = _nearest(budgets, _budget(critic, update, pending, moves.indices))
    rows = np.repeat((state * bins + bin_) * actions + action, width)
    columns = moves.indices.astype(np.int64) * bins + landing
    shape = (states * bins * actions, states * bins)
    return CMDP(
        sparse.csr_array((moves.data, (rows, columns)), shape=shape),
        np.repeat(model.rewards, bins, 0),
        np.repeat(model.costs, bins, 1),
        model.gamma,
        0,
        np.repeat(model.terminal, bins),
        allowed.reshape(states * bins, actions),
    )


def _start(model: CMDP, critic: CostCritic, budgets: np.ndarray, update: Update, budget: float) -> np.ndarray:
    """The start distribution over (state, bin), with f of the chosen update."""
    pending = budget - (critic.value @ model.start if update == "soft" else 0.0)
    states = np.arange(model.states)
    bins = _nearest(budgets, _budget(critic, update, np.full(model.states, pending), states))
    start = np.zeros(model.states * len(budgets))
    start[states * len(budgets) + bins] = model.start
    return start


def _pending(
    model: CMDP,
    critic: CostCritic,
    update: Update,
    budget: np.ndarray,
    states: np.ndarray,
    actions: np.ndarray,
) -> np.ndarray:
    """(δ − c)/γ for the direct update; (δ − Q_C*)/γ for the soft one, with V_C*(s') added on arrival."""
    charged = model.costs[0] if update == "direct" else critic.critic
    return (budget - charged[states, actions]) / max(model.gamma, 1e-300)


def _budget(critic: CostCritic, update: Update, pending: np.ndarray, states: np.ndarray) -> np.ndarray:
    """g of the direct or the soft update once s' is known."""
    return pending if update == "direct" else critic.value[states] + pending


def _nearest(budgets: np.ndarray, budget: np.ndarray) -> np.ndarray:
    last = len(budgets) - 1
    return np.rint(np.clip(budget / budgets[-1], 0.0, 1.0) * last).astype(np.int64)


def _safe(value: np.ndarray, budgets: np.ndarray) -> np.ndarray:
    """S_P on the bins, (S, K)."""
    return value[:, None] <= budgets + 1e-12
