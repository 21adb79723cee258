"""Policies with two costs, with labels, without budgets and with a need for rewards, in one process."""

import asyncio
import csv

import pytest

import bcrl
from bcrl.errors import BCRLError
from bcrl.learn.baselines.bc import BCAll
from bcrl.learn.baselines.cdt import CDT
from bcrl.learn.bcrl import BCRL
from bcrl.learn.protocol import Spec, blank_actor
from bcrl.serve.engine import load_engine
from bcrl.serve.journal import held
from bcrl.serve.schema import openapi
from bcrl.serve.store import Limits, Store

SEEN = [0.1, 0.2, 0.3]
KINDS = {
    "two costs": (BCRL(hidden=(8,)), {"cost_count": 2, "max_cost": (1.0, 1.0)}),
    "labels": (BCRL(hidden=(8,)), {"discrete": True}),
    "no budget": (BCAll(hidden=(8,)), {}),
    "needs reward": (CDT(width=8, layers=1, heads=1, context=3), {}),
}


@pytest.mark.parametrize("kind", KINDS)
def test_an_episode_and_its_return_after_a_restart(kind, tmp_path):
    method, changes = KINDS[kind]
    sizes = {"cost_count": 1, "max_cost": (1.0,), "discrete": False} | changes
    spec = Spec(observation_size=3, action_size=2, horizon=4, steps=10, **sizes)
    bcrl.Policy(blank_actor(method, spec), method, spec, {}).save(tmp_path / "policy.bcrl")
    engine = load_engine(tmp_path / "policy.bcrl", ())
    two = kind == "two costs"
    cost, more = ([0.5, 1.0], {}) if two else (0.5, {})
    threshold = [3.0, 4.0] if two else 3.0
    if kind == "needs reward":
        more = {"reward": 1.0}
    local = engine.policy.start(threshold=threshold, seed=1)

    async def go() -> tuple[str, dict]:
        with held(tmp_path / "out") as journal:
            store = Store(engine, journal, Limits())
            store.open()
            episode = store.create({"threshold": threshold, "seed": 1})
            for step in range(2):
                _, said = store.act(episode.id, {"step": step, "observation": SEEN})
                assert said["action"] == local.act(SEEN).tolist()
                store.observe(episode.id, {"step": step, "cost": cost, **more})
                local.observe(cost, more.get("reward"))
            if kind == "needs reward":
                with pytest.raises(BCRLError, match="reward is missing"):
                    store.observe(episode.id, {"step": 2, "cost": cost})
            if kind in ("no budget", "needs reward"):
                with pytest.raises(BCRLError, match="tracks no budget"):
                    store.create({"budget": 1.0})
            state = episode.state()
            await store.close()
        return episode.id, state

    async def again(name: str) -> None:
        with held(tmp_path / "out") as journal:
            store = Store(engine, journal, Limits())
            assert store.find(name).state() == state
            store.open()
            _, said = store.act(name, {"step": 2, "observation": SEEN})
            assert said["action"] == local.act(SEEN).tolist()
            store.observe(name, {"step": 2, "cost": cost, **more})
            store.end(name, {"step": 3})
            await store.close()

    name, state = asyncio.run(go())
    asyncio.run(again(name))
    files = sorted((tmp_path / "out").glob("*.csv"))
    assert [file.name for file in files] == (
        ["episodes-1.csv", "episodes-2.csv"] if two else ["episodes.csv"]
    )
    for file, paid, told in zip(
        files, cost if two else [cost], threshold if two else [threshold], strict=True
    ):
        with open(file, newline="") as lines:
            (row,) = csv.DictReader(lines)
        assert (float(row["cost"]), float(row["threshold"])) == (3 * paid, told)
        assert row["return"] == ("3.0" if kind == "needs reward" else "")
    assert openapi(engine, token=False)["components"]["schemas"]["Goal"]["oneOf"]
