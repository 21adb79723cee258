"""Compiled value iteration for the budget-augmented MDP in slack coordinates.

No augmented transition table is built: for each (s, a) the expected next value is computed once for all bins,
then interpolated at w' = (w − A(s,a))/γ. Linear interpolation between two bins plans for stochastic rounding.
"""

import numpy as np
from numba import njit


@njit(cache=True)
def concave_hull(levels: np.ndarray, values: np.ndarray, corners: np.ndarray) -> int:
    """Raises `values` to their least concave majorant over `levels`; returns its number of `corners`.

    The points between two corners are reached by a lottery over those two.
    """
    count = 0
    for k in range(len(levels)):
        while count >= 2:
            i, j = corners[count - 2], corners[count - 1]
            if (values[j] - values[i]) * (levels[k] - levels[i]) <= (values[k] - values[i]) * (
                levels[j] - levels[i]
            ):
                count -= 1
            else:
                break
        corners[count] = k
        count += 1
    for c in range(count - 1):
        i, j = corners[c], corners[c + 1]
        slope = (values[j] - values[i]) / (levels[j] - levels[i])
        for k in range(i + 1, j):
            values[k] = values[i] + slope * (levels[k] - levels[i])
    return count


@njit(cache=True)
def backup(
    state, indptr, indices, data, rewards, available, advantage, gamma, levels, value, expected, best,
    choice, tie,
):  # fmt: skip
    """max_a [r + γ E V(s', w')] for every bin of one state, over the actions with A(s,a) ≤ w.

    Among actions whose values differ by at most `tie` the one with the least A is chosen, which saves slack.
    """
    bins = len(levels)
    actions = rewards.shape[1]
    top = levels[bins - 1]
    best[:] = -np.inf
    for action in range(actions):
        if not available[state, action] or advantage[state, action] > top:
            continue
        row = state * actions + action
        expected[:] = 0.0
        for entry in range(indptr[row], indptr[row + 1]):
            probability = data[entry]
            following = indices[entry]
            for k in range(bins):
                expected[k] += probability * value[following, k]
        extra = advantage[state, action]
        reward = rewards[state, action]
        below = 0
        for k in range(bins):
            if extra > levels[k]:
                continue
            slack = (levels[k] - extra) / gamma
            if slack >= top:  # clipping slack down is safe
                later = expected[bins - 1]
            else:
                while levels[below + 1] <= slack:
                    below += 1
                part = (slack - levels[below]) / (levels[below + 1] - levels[below])
                later = expected[below] + part * (expected[below + 1] - expected[below])
            q = reward + gamma * later
            if q > best[k] + tie or (q > best[k] - tie and extra < advantage[state, choice[k]]):
                choice[k] = action
                best[k] = max(q, best[k])


@njit(cache=True)
def sweep(
    indptr, indices, data, rewards, available, advantage, gamma, levels, value, lottery, order,
    before, sources, stale, moved, tolerance,
):  # fmt: skip
    """One Gauss-Seidel pass over the stale states in `order`; the largest change, −1 if none was stale.

    A state is stale if the value of a next state has changed by more than `tolerance` since the last backup;
    `moved` sums the changes not yet passed on. `sources[before[s]:before[s + 1]]` are the predecessors of s.
    """
    bins = len(levels)
    expected, best = np.empty(bins), np.empty(bins)
    choice, corners = np.zeros(bins, np.int64), np.empty(bins, np.int64)
    largest = -1.0
    for state in order:
        if not stale[state]:
            continue
        stale[state] = False
        backup(
            state, indptr, indices, data, rewards, available, advantage, gamma, levels, value, expected, best,
            choice, 0.0,
        )  # fmt: skip
        if lottery:
            concave_hull(levels, best, corners)
        change = 0.0
        for k in range(bins):
            change = max(change, abs(best[k] - value[state, k]))
            value[state, k] = best[k]
        largest = max(largest, change)
        moved[state] += change
        if moved[state] > tolerance:
            moved[state] = 0.0
            for entry in range(before[state], before[state + 1]):
                stale[sources[entry]] = True
    return largest


@njit(cache=True)
def extract(indptr, indices, data, rewards, available, advantage, gamma, levels, value, lottery, tie):
    """The greedy action of every (state, bin) and, for the lottery, the hull corner at or below each bin."""
    states, bins = value.shape
    expected, best = np.empty(bins), np.empty(bins)
    chosen, corners = np.zeros(bins, np.int64), np.empty(bins, np.int64)
    actions = np.empty((states, bins), np.int64)
    lower, upper = np.empty((states, bins), np.int64), np.empty((states, bins), np.int64)
    for state in range(states):
        chosen[:] = 0
        backup(
            state, indptr, indices, data, rewards, available, advantage, gamma, levels, value, expected, best,
            chosen, tie,
        )  # fmt: skip
        actions[state] = chosen
        if lottery:
            count = concave_hull(levels, best, corners)
            for c in range(count):
                lower[state, corners[c]] = upper[state, corners[c]] = corners[c]
                if c + 1 < count:
                    for k in range(corners[c] + 1, corners[c + 1]):
                        lower[state, k], upper[state, k] = corners[c], corners[c + 1]
        else:
            for k in range(bins):
                lower[state, k] = upper[state, k] = k
    return actions, lower, upper
