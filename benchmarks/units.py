"""Whether units matter: the demo's world with its costs and rewards in other units, one table for each.

The same log is trained on three times, with costs (and thresholds) times 1, 0.01 and 60 and rewards times 1,
1,000 and 0.003. The policies are evaluated in the world itself, so equal rows mean that units do not matter.

    python benchmarks/units.py [--world point-circle] [--steps 10000] [--transitions 40000]
"""

import argparse
import json

import bcrl
from bcrl.data import Dataset
from bcrl.learn.units import Units
from bcrl.worlds import built_in_world
from bcrl.worlds.collect import collect

THRESHOLDS = (5.0, 10.0, 20.0, 40.0)
FACTORS = ((1.0, 1.0), (0.01, 1000.0), (60.0, 0.003))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--world", default="point-circle")
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--transitions", type=int, default=40_000)
    words = parser.parse_args()
    world = built_in_world(words.world)
    log = collect(world, transitions=words.transitions, seed=0)
    method = bcrl.make_method("bcrl", preset="cpu", tau_r=0.7)
    for cost, reward in FACTORS:
        data = Dataset.from_arrays(
            log.arrays() | {"costs": log.costs * cost, "rewards": log.rewards * reward}
        )
        policy = bcrl.fit(data, method, steps=words.steps).policy()
        # The same policy for costs and rewards as the world gives them.
        units = Units(tuple(unit / cost for unit in policy.units.cost), policy.units.reward / reward)
        policy = bcrl.Policy(policy.learned, method, policy.spec, policy.provenance, units)
        results = bcrl.evaluate(policy, world, THRESHOLDS, episodes=20)
        row: dict[str, object] = {"costs_times": cost, "rewards_times": reward}
        for threshold in THRESHOLDS:
            episodes = [result for result in results if result.threshold == threshold]
            mean_cost = sum(result.cost for result in episodes) / len(episodes)
            mean_reward = sum(result.normalised_reward for result in episodes) / len(episodes)
            row[f"{threshold:g}"] = f"reward {mean_reward:.3f} cost {mean_cost:.2f}"
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
