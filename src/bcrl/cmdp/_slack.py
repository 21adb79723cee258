"""Soft tracking in slack coordinates on a finite grid of slack, with rounding that keeps the mean.

w = δ − V_C(s) and A(s,a) = Q_C(s,a) − V_C(s). Soft tracking, Eq. (ms-fg), becomes w' = (w − A(s,a))/γ
whatever s' is, and w₀ is the same for every start. The critics may be those of any base policy: the
induction of Theorem 1 uses only Q = c + γ E V. Rounding w' to a neighbouring level with probabilities that
keep E[w'] leaves the induction exact; rounding to the nearest does not.
"""

from dataclasses import dataclass
from itertools import product

import numpy as np
from scipy import sparse

from bcrl.cmdp._checks import ShortRepr, Sparse
from bcrl.cmdp._model import CMDP
from bcrl.cmdp._values import solve_discounted
from bcrl.progress import progress

# Above this many (state, bin) pairs iteration is faster than sparse LU, which fills in.
DIRECT = 6_000


@dataclass(frozen=True, repr=False)
class SlackGrid(ShortRepr):
    """Levels of slack per cost, (N, K), level 0 first, and the base policy's critics."""

    model: CMDP
    levels: np.ndarray
    base_value: np.ndarray
    """V_C of the base policy, (N, S)."""
    advantage: np.ndarray
    """A(s,a) of the base policy, (N, S, A)."""

    @property
    def bins(self) -> int:
        """The number of slack vectors in the grid: K to the power N."""
        return self.levels.shape[1] ** len(self.levels)

    @property
    def slacks(self) -> np.ndarray:
        """The slack vector of every bin, (bins, N); the last cost varies fastest."""
        return np.stack([axis.ravel() for axis in np.meshgrid(*self.levels, indexing="ij")], 1)

    def initial(self, budget: np.ndarray) -> np.ndarray:
        """w₀ = δ − E[V_C(s₀)], one per cost: f of Eq. (ms-fg) in slack."""
        return budget - self.base_value @ self.model.start

    def after(self, slack: np.ndarray, states: np.ndarray, actions: np.ndarray) -> np.ndarray:
        """w' = (w − A(s,a))/γ, clipped to the highest level (which is safe): g of Eq. (ms-fg) in slack."""
        spent = self.advantage[:, states, actions].T
        # A chosen action has A ≤ w, so anything below 0 is rounding.
        following = np.maximum(slack - spent, 0.0) / max(self.model.gamma, 1e-300)
        return np.minimum(following, self.levels[:, -1])

    def allowed(self) -> np.ndarray:
        """Π_P on the grid: available actions with A(s,a) ≤ w for every cost, (S, bins, A)."""
        fits = self.advantage[:, :, None] <= self.slacks.T[:, None, :, None]
        return fits.all(0) & self.model.available[:, None]

    def neighbours(self, slack: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The bins around slack vectors (n, N) and their probabilities, both (n, 2^N); the mean is kept."""
        levels = self.levels.shape[1]
        below, part = np.empty(slack.shape, np.int64), np.empty(slack.shape)
        for i, axis in enumerate(self.levels):
            below[:, i] = np.clip(np.searchsorted(axis, slack[:, i], side="right") - 1, 0, levels - 2)
            low, high = axis[below[:, i]], axis[below[:, i] + 1]
            part[:, i] = np.clip((slack[:, i] - low) / (high - low), 0.0, 1.0)
        bins, chances = [], []
        for up in product((0, 1), repeat=len(self.levels)):
            number, chance = np.zeros(len(slack), np.int64), np.ones(len(slack))
            for i, one in enumerate(up):
                number = number * levels + below[:, i] + one
                chance = chance * (part[:, i] if one else 1 - part[:, i])
            bins.append(number)
            chances.append(chance)
        return np.stack(bins, 1), np.stack(chances, 1)

    def chain(self, policy: np.ndarray) -> Sparse:
        """Transitions between (state, bin) pairs under policy (S, bins, A), or (S, bins) of actions."""
        model, bins, slacks = self.model, self.bins, self.slacks
        size = model.states * bins
        total = sparse.csr_array((size, size))
        for action in range(model.actions):
            weight = (policy == action if policy.ndim == 2 else policy[..., action]).astype(float).ravel()
            here = np.flatnonzero(weight)
            states = here // bins
            following = self.after(slacks[here % bins], states, np.full(len(here), action))
            bin_after, chance = self.neighbours(following)
            rows = model.transitions[states * model.actions + action]
            width = np.diff(rows.indptr)
            corners = bin_after.shape[1]
            columns = np.repeat(rows.indices.astype(np.int64) * bins, corners)
            columns += np.repeat(bin_after, width, axis=0).ravel()
            probability = np.repeat(rows.data, corners) * np.repeat(chance, width, axis=0).ravel()
            probability *= np.repeat(np.repeat(weight[here], width), corners)
            source = np.repeat(np.repeat(here, width), corners)
            total = total + sparse.csr_array((probability, (source, columns)), shape=(size, size))
        total = sparse.csr_array(total)
        total.eliminate_zeros()
        return total

    def excess(self, matrix: Sparse, signals: np.ndarray) -> float:
        """The largest J_C((s, w)) − (V_C(s) + w) over states, bins and costs; Theorem 1 says it is ≤ 0.

        `matrix` is the chain over (state, bin), `signals` (N, S·bins) what a step costs there.
        """
        costs = solve_chain(matrix, self.model.gamma, signals.T)
        budget = self.base_value[:, :, None] + self.slacks.T[:, None]
        return float((costs.T.reshape(budget.shape) - budget).max())


def solve_chain(matrix: Sparse, gamma: float, right: np.ndarray) -> np.ndarray:
    """(I − γ matrix)⁻¹ right: by LU, or for large chains by iteration to 1e-12 of the result."""
    if matrix.shape[0] <= DIRECT:
        return solve_discounted(matrix, gamma, right)
    result, term = right.copy(), right
    scale = max(float(np.abs(right).max()), 1e-300)
    steps = int(np.ceil(np.log(1e-12 * (1 - gamma)) / np.log(max(gamma, 1e-12))))
    with progress("evaluating", steps) as tick:
        for _ in range(steps):
            term = gamma * (matrix @ term)
            result = result + term
            tick()
            if np.abs(term).max() <= 1e-14 * (1 - gamma) * scale:
                break
    return result
