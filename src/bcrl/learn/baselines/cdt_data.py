"""CDT's view of a log: target returns, relabelled episodes, and the odds by which they are sampled."""

from typing import NamedTuple

import numpy as np

from bcrl.data import Dataset
from bcrl.errors import BCRLError

FRONTIER_SIZE = 128
COST_BINS, RETURN_BINS = 10, 50
BULLET, SAFETY_GYM = (10.0, 20.0, 40.0), (20.0, 40.0, 80.0)


class Settings(NamedTuple):
    """Settings of a task, from the released code or from the log itself."""

    targets: tuple[float, ...]
    """Target returns at the family's three thresholds, or one for all."""
    degree: int
    """Of the polynomial through the best episodes."""
    max_return: float
    """Largest return of a relabelled episode."""
    max_decrease: float
    """How much less a relabelled episode may return than the one it replaces."""
    thresholds: tuple[float, ...] = BULLET


# As released. (There CarCircle's third target goes with a cost of 50; mediumdense has CarCircle's numbers
# because its own are missing.)
PUBLISHED: dict[str, Settings] = {
    "CarCircle": Settings((450, 500, 550), 4, 600, 100),
    "AntRun": Settings((700, 750, 800), 3, 1000, 150),
    "DroneRun": Settings((400, 500, 600), 1, 700, 100),
    "DroneCircle": Settings((700, 750, 800), 1, 1000, 100),
    "CarRun": Settings((575,), 0, 600, 100),
    "AntCircle": Settings((300, 350, 400), 2, 500, 100),
    "BallRun": Settings((500, 500, 700), 2, 1400, 200),
    "BallCircle": Settings((700, 750, 800), 2, 1000, 200),
    "CarButton1": Settings((35,), 0, 45, 10, SAFETY_GYM),
    "CarButton2": Settings((40,), 0, 50, 10, SAFETY_GYM),
    "CarCircle1": Settings((20, 22.5, 25), 1, 30, 10, SAFETY_GYM),
    "CarCircle2": Settings((20, 21, 22), 1, 30, 10, SAFETY_GYM),
    "CarGoal1": Settings((40,), 1, 50, 5, SAFETY_GYM),
    "CarGoal2": Settings((30,), 1, 35, 5, SAFETY_GYM),
    "CarPush1": Settings((15,), 0, 20, 5, SAFETY_GYM),
    "CarPush2": Settings((12,), 0, 15, 3, SAFETY_GYM),
    "PointButton1": Settings((40,), 0, 45, 5, SAFETY_GYM),
    "PointButton2": Settings((40,), 0, 50, 10, SAFETY_GYM),
    "PointCircle1": Settings((50, 52.5, 55), 1, 65, 5, SAFETY_GYM),
    "PointCircle2": Settings((45, 47.5, 50), 1, 55, 5, SAFETY_GYM),
    "PointGoal1": Settings((30,), 0, 35, 5, SAFETY_GYM),
    "PointGoal2": Settings((30,), 1, 35, 5, SAFETY_GYM),
    "PointPush1": Settings((15,), 0, 20, 5, SAFETY_GYM),
    "PointPush2": Settings((12,), 0, 15, 3, SAFETY_GYM),
    "AntVelocity": Settings((2800,), 1, 3000, 500, SAFETY_GYM),
    "HalfCheetahVelocity": Settings((3000,), 1, 3000, 500, SAFETY_GYM),
    "HopperVelocity": Settings((1750,), 1, 2000, 300, SAFETY_GYM),
    "SwimmerVelocity": Settings((160,), 1, 250, 50, SAFETY_GYM),
    "Walker2dVelocity": Settings((2800,), 1, 3600, 800, SAFETY_GYM),
    "easysparse": Settings((300, 350, 400), 2, 500, 100),
    "easymean": Settings((300, 350, 400), 2, 500, 100),
    "easydense": Settings((300, 350, 400), 2, 500, 100),
    "mediumsparse": Settings((300,), 0, 300, 100),
    "mediummean": Settings((300,), 0, 300, 100),
    "mediumdense": Settings((450, 500, 550), 4, 600, 100),
    "hardsparse": Settings((300, 350, 400), 1, 500, 100),
    "hardmean": Settings((300, 350, 400), 1, 500, 100),
    "harddense": Settings((300, 350, 400), 1, 500, 100),
}


class Labels(NamedTuple):
    """The episodes to learn from: those of the log, and relabelled ones that claim other sums than theirs."""

    episode: np.ndarray
    """(m,) which of the log."""
    more_return: np.ndarray
    """(m,) added to every return to go."""
    more_cost: np.ndarray
    """(m,) added to every cost to go."""


def published(task: str) -> Settings:
    """The released settings of a task."""
    by_name = {name.lower(): settings for name, settings in PUBLISHED.items()}
    if task.lower() not in by_name:
        raise BCRLError(f"task is {task!r}, but must be empty or one of {', '.join(PUBLISHED)}")
    return by_name[task.lower()]


def from_log(data: Dataset) -> Settings:
    """For a task without a table: about what the published numbers are in units of the returns' range."""
    low, high = float(data.episode_returns.min()), float(data.episode_returns.max())
    return Settings((), 2, high + 0.1 * (high - low), 0.2 * (high - low))


def pareto_front(costs: np.ndarray, returns: np.ndarray) -> np.ndarray:
    """(m,) the episodes that return more than every other of at most their cost, cheapest first."""
    order = np.lexsort((-returns, costs))
    best_before = np.maximum.accumulate(np.concatenate([[-np.inf], returns[order][:-1]]))
    return order[returns[order] > best_before]


def target_returns(data: Dataset, settings: Settings, given: float | None) -> np.ndarray:
    """(FRONTIER_SIZE, 2) rows of cost and return: the target is that of the last row whose cost is allowed.

    A given return counts for every cost; else the task's published ones; else the best of the log.
    """
    if given is not None:
        rows = np.array([[0.0, given]])
    elif settings.targets:
        rows = np.array(list(zip(settings.thresholds, settings.targets, strict=False)))
    else:
        costs = data.episode_costs.ravel()
        front = pareto_front(costs, data.episode_returns)
        rows = np.stack([costs[front], data.episode_returns[front]], axis=1)
    if len(rows) > FRONTIER_SIZE:  # with fewer steps the targets between them are a little less
        rows = rows[np.linspace(0, len(rows) - 1, FRONTIER_SIZE).round().astype(int)]
    return np.pad(rows, ((0, FRONTIER_SIZE - len(rows)), (0, 0)), mode="edge").astype(np.float32)


def labels(data: Dataset, settings: Settings, share: float, seed: int, faithful: bool) -> Labels:
    """Every episode as it is, and some again (`share` of the thinned log), relabelled with larger returns.

    Targets (c, r) above the log's best returns each relabel the nearest episode of cost ≤ c (where that was
    taken before, another that is about as good), so that a policy conditioned on too large a return imitates
    these. As released, the episodes are sorted before they are paired with targets, and so paired with
    others than they were chosen for: `faithful` keeps that.
    """
    random = np.random.default_rng(seed)
    costs, returns = data.episode_costs.ravel(), data.episode_returns
    kept = thinned(costs, returns, random)
    goals = promises(costs[kept], returns[kept], settings, int(share * len(kept)), faithful, random)
    chosen = kept[matched(costs[kept], returns[kept], goals, settings.max_decrease, faithful, random)]
    rest = np.zeros(data.episode_count)
    return Labels(
        np.concatenate([np.arange(data.episode_count), chosen]),
        np.concatenate([rest, goals[:, 1] - returns[chosen]]),
        np.concatenate([rest, goals[:, 0] - costs[chosen]]),
    )


def thinned(costs: np.ndarray, returns: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """(m,) of a 10 × 50 grid of cost and return: up to 10 episodes of a cell, none of cells with 1 or 2."""

    def cell(x: np.ndarray, bins: int) -> np.ndarray:
        width = (x.max() - x.min()) / bins
        return np.minimum((x - x.min()) / (width if width > 0 else 1.0), bins - 1).astype(int)

    where = cell(costs, COST_BINS) * RETURN_BINS + cell(returns, RETURN_BINS)
    groups = [np.flatnonzero(where == number) for number in np.unique(where)]
    kept = [random.choice(group, min(len(group), 10), replace=False) for group in groups if len(group) > 2]
    return np.sort(np.concatenate(kept)) if kept else np.arange(len(costs))


def promises(
    costs: np.ndarray,
    returns: np.ndarray,
    settings: Settings,
    count: int,
    faithful: bool,
    random: np.random.Generator,
) -> np.ndarray:
    """(count, 2) rows of cost and return: even costs, and returns between the log's best and the largest.

    The best is a polynomial through the Pareto front, of no higher degree than its points can bear. As
    released, it runs on beyond the front, and the return between goes down where it is above the largest.
    """
    front = pareto_front(costs, returns)
    degree = min(settings.degree, len(front) - 1)
    best = np.polynomial.Polynomial.fit(costs[front], returns[front], degree)
    cost = np.linspace(costs.min(), costs.max(), count)
    if faithful:
        low = best(cost) + 1.0
    else:
        low = np.minimum(best(np.minimum(cost, costs[front[-1]])), settings.max_return)
    return np.stack([cost, low + (settings.max_return - low) * random.random(count)], axis=1)


def matched(
    costs: np.ndarray,
    returns: np.ndarray,
    goals: np.ndarray,
    max_decrease: float,
    faithful: bool,
    random: np.random.Generator,
) -> np.ndarray:
    """(count,) the episode that is relabelled with each goal."""
    points = np.stack([costs, returns], axis=1)
    nearest, chosen = np.zeros((2, len(goals)), int)
    for number, goal in enumerate(goals):
        distance = np.linalg.norm(points - goal, axis=1)
        near = nearest[number] = chosen[number] = np.argmin(np.where(costs <= goal[0], distance, np.inf))
        if near in nearest[:number]:
            similar = np.flatnonzero((costs <= costs[near]) & (returns >= returns[near] - max_decrease))
            weight = 1.0 / (np.linalg.norm(points[similar] - points[near], axis=1) + 1.0)
            chosen[number] = random.choice(similar, p=weight / weight.sum())
    return chosen[np.argsort(nearest, kind="stable")] if faithful else chosen


def odds(data: Dataset, labels: Labels, faithful: bool) -> np.ndarray:
    """(m,) the probability of sampling each episode: the less it costs, the larger.

    As released, ∝ max(70 − cost, 0) whatever the task: expensive episodes are never sampled. Fixed takes
    1.1 times the largest cost instead of 70.
    """
    costs = data.episode_costs.ravel()[labels.episode] + labels.more_cost
    weight = np.maximum((70.0 if faithful else 1.1 * costs.max()) - costs, 0.0)
    if not weight.sum() > 0:
        raise BCRLError(
            f"{data.source}: every episode costs 70 or more, and the released code samples none of them: "
            "use variant fixed"
        )
    return weight / weight.sum()
