"""Made-up results: the page must tell them as they are."""

from collections.abc import Callable

import numpy as np
import pytest

from bcrl.assess.results import Result, normalised_cost
from bcrl.data import Dataset


@pytest.fixture
def make_results() -> Callable[..., list[Result]]:
    def make(
        thresholds=(5.0, 10.0, 20.0), seeds=(0, 1), episodes=6, method="bcrl", execution="soft", spend=0.9
    ) -> list[Result]:
        random = np.random.default_rng(7)
        rows = []
        for seed in seeds:
            for threshold in thresholds:
                for episode in range(episodes):
                    cost = spend * threshold * random.uniform(0.9, 1.1)
                    earned = 0.3 + threshold / 100 + 0.05 * random.normal()
                    rows.append(
                        Result(
                            method=method,
                            tracking="soft",
                            criterion="discounted",
                            execution=execution,
                            world="point-circle",
                            data="log.npz",
                            seed=seed,
                            threshold=threshold,
                            episode=episode,
                            return_=500 * earned,
                            cost=cost,
                            normalised_reward=earned,
                            normalised_cost=float(normalised_cost(np.array(cost), threshold)),
                            length=200,
                            fallback_share=0.125,
                        )
                    )
        return rows

    return make


@pytest.fixture
def dataset() -> Dataset:
    random = np.random.default_rng(3)
    steps, episodes = 5, 40
    rows = steps * episodes
    observations = random.normal(size=(rows, 3))
    return Dataset.from_arrays(
        {
            "observations": observations,
            "actions": random.uniform(-1, 1, (rows, 2)),
            "rewards": random.normal(size=rows),
            "costs": random.integers(0, 2, rows),
            "next_observations": observations,
            "terminals": np.zeros(rows),
            "timeouts": np.tile([0, 0, 0, 0, 1], episodes),
        },
        source="log.npz",
        consecutive=False,
    )
