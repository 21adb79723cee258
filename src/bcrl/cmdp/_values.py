"""Values of policies and exact optima of a tabular model: policy iteration and value iteration."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import splu

from bcrl.cmdp._checks import ShortRepr, Sparse
from bcrl.cmdp._model import CMDP

# Advantages below this fraction of the largest value are ties; sparse solves are a little more accurate.
TIE = 1e-12
# Backups after each exact evaluation. Together they take about as long as one more evaluation.
AHEAD = 20


def q_values(model: CMDP, signal: np.ndarray, value: np.ndarray) -> np.ndarray:
    """Q(s,a) = signal(s,a) + γ Σ T(s'|s,a) V(s'), the Bellman identity before Definition 6."""
    return signal + model.gamma * (model.transitions @ value).reshape(model.states, model.actions)


def policy_matrix(model: CMDP, policy: np.ndarray) -> Sparse:
    """T_π(s'|s) of a deterministic policy (S,) of actions, or a stochastic one (S, A)."""
    if policy.ndim == 1:
        return sparse.csr_array(model.transitions[np.arange(model.states) * model.actions + policy])
    rows = np.repeat(np.arange(model.states), model.actions)
    weights = (policy.ravel(), (rows, np.arange(policy.size)))
    return sparse.csr_array(weights, shape=(model.states, policy.size)) @ model.transitions


def under(policy: np.ndarray, signal: np.ndarray) -> np.ndarray:
    """The signal (S, A) that `policy` receives in each state."""
    if policy.ndim == 1:
        return np.take_along_axis(signal, policy[:, None], 1)[:, 0]
    return (policy * signal).sum(1)


def solve_discounted(matrix: Sparse, gamma: float, right: np.ndarray) -> np.ndarray:
    """x = (I − γ matrix)⁻¹ right, by sparse LU; `right` may have several columns."""
    system = sparse.csc_array(sparse.eye_array(matrix.shape[0]) - gamma * matrix)
    # Transitions mostly run both ways, so the symmetric ordering fills in least; I − γ matrix is diagonally
    # dominant, so no pivoting is needed, and pivoting would undo the ordering.
    options = {"SymmetricMode": True, "DiagPivotThresh": 0.0}
    return splu(system, permc_spec="MMD_AT_PLUS_A", options=options).solve(right)


def evaluate(model: CMDP, policy: np.ndarray, *signals: np.ndarray) -> np.ndarray:
    """V^π of each signal (S, A), exactly; shape (signals, S). Eq. (1) from every start."""
    right = np.stack([under(policy, signal) for signal in signals], axis=1)
    return np.ascontiguousarray(solve_discounted(policy_matrix(model, policy), model.gamma, right).T)


def occupancy(model: CMDP, policy: np.ndarray) -> np.ndarray:
    """Discounted occupancy Σ γᵗ P(s_t = s, a_t = a) from the start distribution, (S, A)."""
    visits = solve_discounted(
        sparse.csr_array(policy_matrix(model, policy).T), model.gamma, model.start.copy()
    )
    if policy.ndim == 2:
        return visits[:, None] * policy
    return visits[:, None] * (policy[:, None] == np.arange(model.actions))


def value_iteration(
    model: CMDP,
    signal: np.ndarray,
    allowed: np.ndarray | None = None,
    tolerance: float = 1e-10,
    sweeps: int | None = None,
) -> np.ndarray:
    """V* of `signal` to within `tolerance` (or after `sweeps`), over the allowed actions."""
    allowed = model.available if allowed is None else allowed
    value = np.zeros(model.states)
    # A last change of d leaves an error of at most d γ / (1 − γ).
    enough = tolerance * (1 - model.gamma) / max(model.gamma, 1e-12)
    closed = np.where(allowed, 0.0, -np.inf)
    sweep = 0
    while sweeps is None or sweep < sweeps:
        following = _best(q_values(model, signal, value) + closed)
        change = np.abs(following - value).max()
        value = following
        sweep += 1
        # Large values never stop changing in their last digits.
        if change <= max(enough, 4 * np.spacing(np.abs(value).max())):
            break
    return value


def policy_iteration(
    model: CMDP, signal: np.ndarray, allowed: np.ndarray | None = None, initial: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """A deterministic policy that maximises `signal` (S, A) from every state, and its value.

    `initial` is the policy to start from; by default value iteration finds one, because policy iteration
    from an arbitrary policy needs about as many solves as the model's diameter.
    """
    policy, values = policy_iteration_also(model, signal, (), allowed, initial)
    return policy, values[0]


def policy_iteration_also(
    model: CMDP,
    signal: np.ndarray,
    also: Sequence[np.ndarray],
    allowed: np.ndarray | None = None,
    initial: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """As `policy_iteration`; the values are those of `signal` and of the signals in `also`."""
    allowed = model.available if allowed is None else allowed
    closed = np.where(allowed, 0.0, -np.inf)
    policy = initial
    if policy is None:
        rough = value_iteration(model, signal, allowed, sweeps=max(50, int(2 / (1 - model.gamma))))
        policy = np.asarray((q_values(model, signal, rough) + closed).argmax(1))
    before = np.full(model.states, -np.inf)
    while True:
        values = evaluate(model, policy, signal, *also)
        value = values[0]
        critic = q_values(model, signal, value) + closed
        tie = TIE * max(np.abs(value).max(), np.abs(signal).max())
        better = _best(critic) > under(policy, critic) + tie
        # In exact arithmetic values rise with every iteration; if none does, only rounding is left.
        if not better.any() or np.all(value <= before):
            return policy, values
        before = value
        # Improving on a value that is a few backups ahead saves about half of the solves.
        for _ in range(AHEAD):
            critic = q_values(model, signal, _best(critic)) + closed
        better = _best(critic) > under(policy, critic) + tie
        policy = np.where(better, critic.argmax(1), policy)


def _best(critic: np.ndarray) -> np.ndarray:
    """max over actions, on the transpose, where numpy is several times faster."""
    return np.ascontiguousarray(critic.T).max(0)


def lexicographic(model: CMDP, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """The policy that maximises `first` and, among the policies that do, `second`.

    Ties matter: a least-cost policy without a second objective may never move, and a policy with the highest
    return may have cost that brings no reward.
    """
    policy, value = policy_iteration(model, first)
    critic = q_values(model, first, value)
    tie = 10 * TIE * max(np.abs(value).max(), np.abs(first).max())
    best = model.available & (critic >= value[:, None] - tie)
    # The policy's own action always stays, so that every state keeps one despite rounding.
    best[np.arange(model.states), policy] = True
    return policy_iteration(model, second, best, policy)[0]


@dataclass(frozen=True, repr=False)
class CostCritic(ShortRepr):
    """V_C and Q_C of a base policy: with the least-cost one, Eqs. (def_vcs) and (def_qcs)."""

    policy: np.ndarray
    """(S,) actions, or (S, A) probabilities."""
    value: np.ndarray
    critic: np.ndarray

    @property
    def advantage(self) -> np.ndarray:
        """A(s,a) = Q_C(s,a) − V_C(s), exactly 0 where a deterministic base policy acts.

        A stochastic one has an action with A ≤ 0 in every state, which rounding must not remove: otherwise
        no action would be safe at slack 0.
        """
        advantage = self.critic - self.value[:, None]
        states = np.arange(len(advantage))
        if self.policy.ndim == 1:
            advantage[states, self.policy] = 0.0
        else:
            lowest = np.where(self.policy > 0, advantage, np.inf).argmin(1)
            advantage[states, lowest] = np.minimum(advantage[states, lowest], 0.0)
        return advantage

    def safe_states(self, budget: float) -> np.ndarray:
        """S_P(δ) = {s : V_C(s) ≤ δ}, Eq. (def_sp)."""
        return self.value <= budget

    def safe_actions(self, budget: float) -> np.ndarray:
        """A_P(s, δ) = {a : Q_C(s,a) ≤ δ}, Eq. (def_ap)."""
        return self.value[:, None] + self.advantage <= budget


def cost_critic(model: CMDP, policy: np.ndarray, cost: int = 0) -> CostCritic:
    """V_C^b and Q_C^b of any base policy b; Theorem 1 holds with them in the place of V_C*, Q_C*."""
    signal = model.costs[cost]
    value = evaluate(model, policy, signal)[0]
    return CostCritic(policy, value, q_values(model, signal, value))


def least_cost(model: CMDP, cost: int = 0) -> CostCritic:
    """V_C* and Q_C* with the least-cost policy that earns the most, Eqs. (def_vcs) and (def_qcs)."""
    policy = lexicographic(model, -model.costs[cost], model.rewards)
    return cost_critic(model, policy, cost)


def unconstrained(model: CMDP) -> np.ndarray:
    """The policy with the highest return, and among those the one with the least total cost."""
    return lexicographic(model, model.rewards, -model.costs.sum(0))
