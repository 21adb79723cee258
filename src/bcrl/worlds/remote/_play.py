"""One round of the recording agent in other processes: columns of steps, episode after episode in each."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from bcrl.worlds._ppo import Agent, Played, with_share
from bcrl.worlds._recorder import Arrays
from bcrl.worlds.remote.pool import Envs, Rows

Floats = NDArray[np.float32]


class Scaling:
    """Brings observations to order one by the mean and spread of all that were seen so far."""

    def __init__(self, size: int):
        self.count = np.zeros((), np.int64)
        self.mean, self.squares = np.zeros(size), np.zeros(size)  # of deviations from the mean

    def __call__(self, observations: Floats) -> Floats:
        spread = np.sqrt(self.squares / self.count) if self.count else np.ones_like(self.mean)
        # An entry that has hardly moved yet is not blown up, and an outlier is cut.
        scaled = (observations - self.mean.astype(np.float32)) / np.maximum(spread, 1e-2).astype(np.float32)
        return np.clip(scaled, -5.0, 5.0)

    def update(self, observations: Floats) -> None:
        """Merges the mean and spread of one more batch into those so far (Chan et al. 1979)."""
        new = len(observations)
        mean = observations.mean(0, dtype=np.float64)
        squares = ((observations - mean) ** 2).sum(0)
        total = self.count + new
        apart = mean - self.mean
        self.squares = self.squares + squares + apart**2 * (self.count * new / total)
        self.mean = self.mean + apart * (new / total)
        self.count = np.asarray(total)


def play(
    pool: Envs,
    agent: Agent,
    scaling: Scaling,
    shares: Floats,
    noise: Floats,
    *,
    seed: tuple[int, int],
    tick: Callable[[int], None],
) -> tuple[Played, Arrays]:
    """What the agent learns from, and the whole episodes in it for a recorder.

    There are as many columns as in `shares` (T, N), each T steps long, the horizon of an episode. After a
    terminal the column goes on with a new episode; the one that is cut off at the end is learnt from but not
    recorded. The observations are added to `scaling` for the next round.
    """
    table = Table(agent, scaling, shares, noise, seed)
    while table.rows.open:
        if filled := table.round(pool):
            tick(filled * len(shares))
    played = table.played()
    scaling.update(table.observations.reshape(-1, table.observations.shape[-1]))
    return played, table.episodes()


class Table:
    """What one round records. The steps of a column follow from the seed and its number alone."""

    def __init__(self, agent: Agent, scaling: Scaling, shares: Floats, noise: Floats, seed: tuple[int, int]):
        self.layers = [(np.asarray(layer.weight).T, np.asarray(layer.bias)) for layer in agent.actor.layers]
        self.scaling, self.shares, self.seed = scaling, shares, seed
        self.noise = noise * np.exp(np.asarray(agent.log_std))
        steps, columns = shares.shape
        width = len(scaling.mean)
        self.observations, self.following = np.zeros((2, steps, columns, width), np.float32)
        self.drawn = np.zeros(noise.shape, np.float32)
        self.rewards, self.costs = np.zeros((2, steps, columns), np.float32)
        self.terminals, self.ends = np.zeros((2, steps, columns), bool)
        self.current = np.zeros((columns, width), np.float32)
        self.times = np.zeros(columns, np.int64)  # steps made in a column
        self.began = np.zeros(columns, np.int64)  # where its present episode begins
        self.rows = Rows(columns)

    def round(self, pool: Envs) -> int:
        """One step of every running episode, and a reset in other slots. The number of columns now full."""
        drawn = self.draw()
        outcome = self.rows.round(pool, np.clip(drawn, -1.0, 1.0), self._episode_seed)
        filled = []
        for column, (reward, cost, terminal, timeout) in outcome.stepped.items():
            at = self.times[column], column
            self.observations[at], self.following[at] = self.current[column], outcome.seen[column]
            self.drawn[at], self.rewards[at], self.costs[at] = drawn[column], reward, cost
            self.terminals[at], self.ends[at] = terminal, terminal or timeout
            self.times[column] += 1
            if self.times[column] == len(self.shares):
                filled.append(column)
            elif terminal or timeout:
                self.began[column] = self.times[column]
                self.rows.fresh.add(column)
        self.rows.end(filled)
        for column, seen in outcome.seen.items():
            self.current[column] = seen
        for column in outcome.lost:  # the episode is begun again
            self.times[column] = self.began[column]
        return len(filled)

    def played(self) -> Played:
        alive = np.ones(self.shares.shape, bool)
        arrays = (self.drawn, self.rewards, self.costs, self.terminals, self.ends, alive, self.shares)
        return Played(self.scaling(self.observations), self.scaling(self.following), *arrays)  # type: ignore[arg-type]

    def episodes(self) -> Arrays:
        """The whole episodes, column by column."""
        steps, columns = self.shares.shape
        parts = []
        for column in range(columns):
            stops = np.flatnonzero(self.ends[:, column]) + 1
            if not len(stops):  # one episode that the clock ended; the world did not say so itself
                stops = np.array([steps])
            for start, stop in zip(np.append(0, stops[:-1]), stops, strict=True):
                parts.append((column, start, stop))
        rows = [(slice(start, stop), column) for column, start, stop in parts]
        seen = [[self.observations[row], self.following[row[0].stop - 1, row[1]][None]] for row in rows]
        return {
            "observations": np.concatenate([piece for pair in seen for piece in pair]),
            "actions": np.clip(np.concatenate([self.drawn[row] for row in rows]), -1.0, 1.0),
            "rewards": np.concatenate([self.rewards[row] for row in rows]),
            "costs": np.concatenate([self.costs[row] for row in rows]),
            "lengths": np.array([stop - start for _, start, stop in parts]),
            "ended": np.array([self.terminals[stop - 1, column] for column, _, stop in parts]),
            "returns": np.array([self.rewards[row].sum(dtype=np.float64) for row in rows]),
            "total_costs": np.array([self.costs[row].sum(dtype=np.float64) for row in rows]),
        }

    def draw(self) -> Floats:
        """Actions before clipping, always of all columns: so a row's sums do not depend on the slots."""
        columns = np.arange(len(self.current))
        times = np.minimum(self.times, len(self.shares) - 1)
        hidden = with_share(self.scaling(self.current), self.shares[times, columns], np.concatenate)
        for weight, bias in self.layers[:-1]:
            hidden = np.tanh(hidden @ weight + bias)
        weight, bias = self.layers[-1]
        return hidden @ weight + bias + self.noise[times, columns]

    def _episode_seed(self, column: int) -> int:
        """Of an episode's environment, below 2³² as old generators want it."""
        words = [*self.seed, column, int(self.began[column])]
        return int(np.random.SeedSequence(words).generate_state(1)[0])
