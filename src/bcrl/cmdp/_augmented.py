"""The budget-augmented MDP that keeps its guarantee: slack above a base policy, mean-preserving rounding."""

import math
import os
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import sparse

from bcrl.cmdp._checks import Sparse
from bcrl.cmdp._controller import TABLE, Budget, Memory, MixturePolicy, TabularPolicy, joint_least_cost
from bcrl.cmdp._frontier import Column, Optimum, optimum, totals
from bcrl.cmdp._model import CMDP
from bcrl.cmdp._slack import SlackGrid, solve_chain
from bcrl.cmdp._sweep import extract, sweep
from bcrl.cmdp._sweep_many import sweep_many
from bcrl.cmdp._values import cost_critic, occupancy
from bcrl.errors import BCRLError
from bcrl.progress import progress

# The grid reaches this many budgets: slack grows by 1/γ a step while it is not spent.
REACH = 10.0
# The lowest level above 0, as a fraction of the highest.
FINEST = 1e-2


@dataclass(frozen=True, repr=False)
class SlackPolicy(TabularPolicy):
    """The default policy; its memory is a bin of slack. J_C ≤ δ from every state and bin, not only the start.

    An episode whose budget is below the base policy's cost samples one of the optimum's deterministic
    policies and follows it; with several costs also if that has the higher return. With a budget below the
    least cost it takes least-cost actions, as Algorithm 2 does.
    """

    model: CMDP
    grid: SlackGrid
    base: Column
    value: np.ndarray
    """V_R((s, w)) of the plan, (S, bins)."""
    actions: np.ndarray
    """The action of every (state, bin)."""
    lower: np.ndarray
    upper: np.ndarray
    """(S, bins): the two bins that the lottery over slack chooses from; both the bin itself without one."""
    whole: MixturePolicy
    shield: bool

    def __repr__(self) -> str:
        return f"SlackPolicy({self.model!r}, {self.grid.bins} bins of slack{', shield' * self.shield})"

    def save(self, path: str | os.PathLike) -> None:
        """Writes the policy file, all or nothing; `bcrl.load` reads it."""
        from bcrl.cmdp._policy_file import save_slack

        save_slack(self, path)

    def begin(self, budget: Budget, episodes: int, rng: np.random.Generator) -> Memory:
        slack = self._initial_slack(self.model.budget_vector(budget))
        if slack is None:
            return self.whole.begin(budget, episodes, rng)
        return Memory(np.repeat(slack[None], episodes, 0), np.full(episodes, TABLE))

    def begin_at(self, state: int, budget: Budget, rng: np.random.Generator) -> Memory:
        slack = self.model.budget_vector(budget) - self.grid.base_value[:, state]
        if np.any(slack < 0):
            return self.whole.begin_at(state, budget, rng)
        return Memory(slack[None], np.full(1, TABLE))

    def step(self, memory: Memory, states: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Samples the bin (a shield keeps w as it is), acts, and sets w' = (w − A(s,a))/γ."""
        chosen = self.whole.step(memory, states, rng)
        here = np.flatnonzero(memory.column == TABLE)
        where, slack = states[here], np.minimum(memory.slack[here], self.grid.levels[:, -1])
        if self.shield:
            actions = self._best_at(where, slack)
        else:
            bins = self._draw(where, slack, rng)
            slack = self.grid.slacks[bins]
            actions = self.actions[where, bins]
        memory.slack[here] = self.grid.after(slack, where, actions)
        chosen[here] = actions
        return chosen

    def occupancy(self, budget: Budget) -> np.ndarray:
        """Discounted visits (S, A), exact; not for a shielded policy, which has no finite memory."""
        slack = self._initial_slack(self.model.budget_vector(budget))
        if slack is None:
            return self.whole.occupancy(budget)
        if self.shield:
            raise BCRLError(
                "a shielded policy tracks the slack exactly and has no finite memory: use simulate"
            )
        bins, chance = self.grid.neighbours(slack[None])
        first = np.zeros((self.model.states, self.grid.bins))
        for number, share in zip(bins[0], chance[0], strict=True):
            first[:, number] += share * self.model.start
        first = self._lottery.T @ first.ravel()
        visits = solve_chain(sparse.csr_array(self._chain.T), self.model.gamma, first)
        states = np.repeat(np.arange(self.model.states), self.grid.bins)
        flat = states * self.model.actions + self.actions.ravel()
        shape = self.model.rewards.shape
        return np.bincount(flat, visits, math.prod(shape)).reshape(shape)

    def excess(self) -> float:
        """The largest J_C − δ over all states and bins, by an exact linear solve; at most rounding."""
        states = np.repeat(np.arange(self.model.states), self.grid.bins)
        return self.grid.excess(self._chain, self.model.costs[:, states, self.actions.ravel()])

    def _initial_slack(self, budget: np.ndarray) -> np.ndarray | None:
        """The slack at the start, or None if the start samples a whole policy."""
        slack = self.grid.initial(budget)
        # A budget equal to the base policy's cost may be off by rounding.
        if np.any(slack < -1e-12 * np.maximum(1.0, budget)):
            return None
        slack = np.clip(slack, 0.0, self.grid.levels[:, -1])
        if len(budget) > 1:
            # Without a lottery over the slack vector the table may return less than sampling whole policies.
            drawn = self.whole.probabilities(budget)
            bins, chance = self.grid.neighbours(slack[None])
            planned = float(self.model.start @ self.value[:, bins[0]] @ chance[0])
            if drawn is not None and totals(self.whole.columns)[0] @ drawn > planned:
                return None
        return slack

    @cached_property
    def _lottery(self) -> Sparse:
        """The choice between two bins as a matrix over (state, bin)."""
        states, bins = self.actions.shape
        level = self.grid.levels[0]
        own = np.tile(np.arange(bins), states)
        low, high = self.lower.ravel(), self.upper.ravel()
        if len(self.grid.levels) > 1:  # no lottery with several costs: low = high = own
            return sparse.eye_array(states * bins, format="csr")
        width = level[high] - level[low]
        up = np.where(width > 0, (level[own] - level[low]) / np.where(width > 0, width, 1.0), 0.0)
        base = np.repeat(np.arange(states) * bins, bins)
        row = np.arange(states * bins)
        entries = (np.r_[1 - up, up], (np.r_[row, row], np.r_[base + low, base + high]))
        return sparse.csr_array(entries, shape=(states * bins, states * bins))

    @cached_property
    def _chain(self) -> Sparse:
        return sparse.csr_array(self.grid.chain(self.actions) @ self._lottery)

    def _draw(self, states: np.ndarray, slack: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Rounds to a neighbouring bin, then samples between the lottery's ends; both keep the mean."""
        bins, chance = self.grid.neighbours(slack)
        pick = (rng.random(len(states))[:, None] >= np.cumsum(chance, 1)[:, :-1]).sum(1)
        drawn = bins[np.arange(len(states)), pick]
        if len(self.grid.levels) > 1:
            return drawn
        level = self.grid.levels[0]
        low, high = self.lower[states, drawn], self.upper[states, drawn]
        width = level[high] - level[low]
        up = rng.random(len(states)) * width < level[drawn] - level[low]
        return np.where(up, high, low)

    @cached_property
    def _expected(self) -> np.ndarray:
        """E[V_R((s', bin))] after (s, a), (S, A, bins)."""
        shape = (self.model.states, self.model.actions, self.grid.bins)
        return (self.model.transitions @ self.value).reshape(shape)

    def _best_at(self, states: np.ndarray, slack: np.ndarray) -> np.ndarray:
        """Greedy one-step lookahead at the exact slack, over the actions with A(s,a) ≤ w."""
        q = np.full((len(states), self.model.actions), -np.inf)
        for action in range(self.model.actions):
            chosen = np.full(len(states), action)
            bins, chance = self.grid.neighbours(self.grid.after(slack, states, chosen))
            later = (self._expected[states[:, None], action, bins] * chance).sum(1)
            safe = (slack >= self.grid.advantage[:, states, action].T).all(1)
            usable = safe & self.model.available[states, action]
            earned = self.model.rewards[states, action] + self.model.gamma * later
            q[:, action] = np.where(usable, earned, -np.inf)
        return q.argmax(1)


def plan_slack(
    model: CMDP, budget: Budget, bins: int = 50, shield: bool = False, tolerance: float = 1e-5
) -> SlackPolicy:
    """Solves the augmented MDP around `budget`; the policy keeps any budget that it is started with.

    `bins` is per cost. Value iteration stops when no value changes by more than `tolerance`; the guarantee
    does not depend on it. `shield` tracks the slack exactly at run time, without bins and without a lottery.
    """
    if bins < 3:
        raise BCRLError(f"bins must be at least 3, not {bins}")
    limit = model.budget_vector(budget)
    try:
        solved = optimum(model, limit)
    except BCRLError:  # outside the safe set: the base is the fallback, and every start warns
        column = Column.of(model, joint_least_cost(model))
        solved = Optimum(column.total_return, column.cost, np.ones(1), (column,), np.zeros(len(limit)), 0)
    base = joint_base(model, limit, solved)
    critics = [cost_critic(model, base.policy, i) for i in range(len(limit))]
    advantage = np.stack([critic.advantage for critic in critics])
    levels = np.stack([_levels(model, limit[i], advantage[i], base, solved, bins) for i in range(len(limit))])
    grid = SlackGrid(model, levels, base.cost_value, advantage)
    lottery = len(limit) == 1 and not shield
    value, actions, lower, upper = iterate(grid, base, lottery, tolerance)
    whole = MixturePolicy(model, solved)
    return SlackPolicy(model, grid, base, value, actions, lower, upper, whole, shield)


def joint_base(model: CMDP, budget: np.ndarray, solved: Optimum) -> Column:
    """The deterministic base policy with the highest return found that keeps every budget from the start.

    With one cost it is the cheaper end of the optimum's lottery. With several, multipliers just large enough
    are tried as well. If none keeps them jointly it is the safest one, and starts draw from the optimum.
    """
    limit = budget + 1e-12 * np.maximum(1.0, budget)
    candidates = list(solved.columns)
    if len(budget) > 1:
        candidates.append(Column.of(model, joint_least_cost(model)))
        low, high = 1.0, None
        for _ in range(24):
            factor = 2 * low if high is None else (low * high) ** 0.5
            column = Column.best(model, factor * solved.multipliers, candidates[-1].policy)
            candidates.append(column)
            low, high = (low, factor) if np.all(column.cost <= limit) else (factor, high)
    within = [column for column in candidates if np.all(column.cost <= limit)]
    if within:
        return max(within, key=lambda column: (column.total_return, -column.cost.sum()))
    return min(candidates, key=lambda column: float((column.cost - budget).max()))


def _levels(
    model: CMDP, budget: float, advantage: np.ndarray, base: Column, solved: Optimum, bins: int
) -> np.ndarray:
    """Levels of slack: 0, a geometric series, and what the optimum's other policies spend beyond the base.

    The lottery can then hold exactly the slack that such a step needs.
    """
    amounts, worth = [np.empty(0)], [np.empty(0)]
    for chance, column in zip(solved.probabilities, solved.columns, strict=True):
        if chance > 0 and column is not base:
            extra = advantage[np.arange(model.states), column.policy]
            spent = chance * extra * occupancy(model, column.policy).sum(1)
            amounts.append(extra[spent > 1e-9])
            worth.append(spent[spent > 1e-9])
    extra, spent = np.concatenate(amounts), np.concatenate(worth)
    # Amounts that differ by rounding become one level, the highest of them, so that all may be spent.
    _, group = np.unique(np.round(extra, 9), return_inverse=True)
    total = np.bincount(group, spent)
    highest = np.zeros(len(total))
    np.maximum.at(highest, group, extra)
    often = highest[np.argsort(-total, kind="stable")[: (bins - 2) // 4]]
    top = max([REACH * budget, *often])
    if top < max(1e-9 * model.costs.max(), 1e-12):  # budget 0: any levels will do
        top = max(float(model.costs.max()), 1.0)
    levels = np.unique(np.r_[0.0, often, np.geomspace(FINEST * top, top, bins - 1 - len(often))])
    while len(levels) < bins:  # some coincided; every cost needs the same number of levels
        gap = int(np.diff(levels).argmax())
        levels = np.insert(levels, gap + 1, levels[gap : gap + 2].mean())
    return levels


def iterate(
    grid: SlackGrid, base: Column, lottery: bool, tolerance: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Value iteration from the base policy's return, which every bin reaches: values, actions, lottery."""
    model = grid.model
    value = np.repeat(base.value[:, None], grid.bins, 1)
    actions = np.repeat(base.policy[:, None].astype(np.int64), grid.bins, 1)
    # Values spread from where the base policy earns most; passes there and back carry them both ways.
    there = np.argsort(-base.value, kind="stable")
    several = len(grid.levels) > 1
    moves = model.transitions
    table = (moves.indptr, moves.indices, moves.data, model.rewards, model.available)
    gamma = max(model.gamma, 1e-300)
    # Only states with news from a next state are visited again; who leads where is the transpose.
    origin = np.repeat(np.arange(model.states), np.diff(moves.indptr[:: model.actions]))
    leads = sparse.csr_array((np.ones(moves.nnz), (moves.indices, origin)), shape=(model.states,) * 2)
    leads.sum_duplicates()
    stale, moved = np.ones(model.states, bool), np.zeros(model.states)
    news = (leads.indptr, leads.indices, stale, moved, tolerance)
    first, done, turn = tolerance, 0, 0
    # The bar counts thousandths of the way from the first change to `tolerance`, on a log scale.
    with progress("value iteration", 1000, "‰") as tick:
        while True:
            order = there if turn % 2 == 0 else there[::-1]
            if several:
                levels = grid.levels
                change = sweep_many(*table, grid.advantage, gamma, levels, value, actions, order, *news)
            else:
                levels = grid.levels[0]
                change = sweep(*table, grid.advantage[0], gamma, levels, value, lottery, order, *news)
            if change < 0:
                break
            turn += 1
            first = max(first, change)
            share = math.log(first / max(change, tolerance)) / max(math.log(first / tolerance), 1e-9)
            tick(max(0, int(999 * share) - done), f"change {change:.1e}")
            done = max(done, int(999 * share))
        tick(1000 - done)
    if several:
        own = np.broadcast_to(np.arange(grid.bins), value.shape)
        return value, actions, own, own
    scale = max(float(np.abs(value).max()), 1.0)
    ends = extract(*table, grid.advantage[0], gamma, grid.levels[0], value, lottery, 1e-9 * scale)
    return value, *ends
