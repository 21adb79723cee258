"""Compiled value iteration with a slack per cost: as `sweep`, on the product of the costs' levels."""

import numpy as np
from numba import njit


@njit(cache=True)
def backup_many(
    state, indptr, indices, data, rewards, available, advantage, gamma, levels, value, expected, best, choice,
    below, part, digit,
):  # fmt: skip
    """max_a [r + γ E V(s', w')] for every bin of one state, over the actions with A_i ≤ w_i for every i."""
    costs, width = levels.shape
    bins = value.shape[1]
    actions = rewards.shape[1]
    best[:] = -np.inf
    for action in range(actions):
        if not available[state, action]:
            continue
        for i in range(costs):
            extra = advantage[i, state, action]
            for k in range(width):
                if extra > levels[i, k]:
                    below[i, k] = -1  # not safe with this little slack
                    continue
                slack = min((levels[i, k] - extra) / gamma, levels[i, width - 1])
                j = min(np.searchsorted(levels[i], slack, side="right") - 1, width - 2)
                below[i, k] = j
                part[i, k] = (slack - levels[i, j]) / (levels[i, j + 1] - levels[i, j])
        row = state * actions + action
        expected[:] = 0.0
        for entry in range(indptr[row], indptr[row + 1]):
            for k in range(bins):
                expected[k] += data[entry] * value[indices[entry], k]
        for flat in range(bins):
            rest, safe = flat, True
            for i in range(costs - 1, -1, -1):
                digit[i] = rest % width
                rest //= width
                if below[i, digit[i]] < 0:
                    safe = False
            if not safe:
                continue
            later = 0.0
            for corner in range(1 << costs):
                chance, number = 1.0, 0
                for i in range(costs):
                    up = (corner >> i) & 1
                    share = part[i, digit[i]]
                    chance *= share if up else 1.0 - share
                    number = number * width + below[i, digit[i]] + up
                later += chance * expected[number]
            q = rewards[state, action] + gamma * later
            if q > best[flat]:
                best[flat] = q
                choice[flat] = action


@njit(cache=True)
def sweep_many(
    indptr, indices, data, rewards, available, advantage, gamma, levels, value, actions, order,
    before, sources, stale, moved, tolerance,
):  # fmt: skip
    """As `sweep`, without lottery; keeps the greedy `actions`."""
    bins = value.shape[1]
    expected, best, choice = np.empty(bins), np.empty(bins), np.zeros(bins, np.int64)
    below, part = np.empty(levels.shape, np.int64), np.empty(levels.shape)
    digit = np.empty(len(levels), np.int64)
    largest = -1.0
    for state in order:
        if not stale[state]:
            continue
        stale[state] = False
        backup_many(
            state, indptr, indices, data, rewards, available, advantage, gamma, levels, value, expected, best,
            choice, below, part, digit,
        )  # fmt: skip
        change = 0.0
        for k in range(bins):
            change = max(change, abs(best[k] - value[state, k]))
            value[state, k] = best[k]
            actions[state, k] = choice[k]
        largest = max(largest, change)
        moved[state] += change
        if moved[state] > tolerance:
            moved[state] = 0.0
            for entry in range(before[state], before[state + 1]):
                stale[sources[entry]] = True
    return largest
