"""The server under load as JSON: many episodes at once, then requests made up from its schema.

Each client acts on random observations, sends costs that it remembers, repeats some requests, and compares
what the server says was spent, step by step and at the end in episodes.csv. The policy is an untrained
network of the paper's size: speed does not depend on what it says. All traffic stays on 127.0.0.1.

    python benchmarks/serve.py [--episodes 200] [--seconds 60] [--fuzz 1000]
"""

import argparse
import asyncio
import csv
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import quantiles
from typing import Any

import httpx
import numpy as np

HORIZON, OBSERVATIONS = 50, 17


def make_policy(path: Path) -> None:
    """Random weights in the shape of a trained policy, [512, 512]."""
    import jax

    from bcrl.learn.bcrl import BCRL
    from bcrl.learn.protocol import Spec, blank_actor
    from bcrl.policy import Policy

    method, spec = BCRL(), Spec(OBSERVATIONS, 6, 1, HORIZON, (1.0,), 1000)
    jax.config.update("jax_platforms", "cpu")
    Policy(blank_actor(method, spec), method, spec, {"seed": 0}).save(path)


class Load:
    """The clients, and what they found."""

    def __init__(self, url: str, seconds: float):
        self.url, self.stop = url, time.monotonic() + seconds
        self.latencies: list[float] = []
        self.faults: list[str] = []
        self.spent: dict[str, float] = {}
        self.steps = 0

    async def run(self, episodes: int) -> None:
        limits = httpx.Limits(max_connections=episodes, max_keepalive_connections=episodes)
        async with httpx.AsyncClient(base_url=self.url, limits=limits, timeout=60, trust_env=False) as client:
            await asyncio.gather(*(self._client(client, index) for index in range(episodes)))

    async def _client(self, client: httpx.AsyncClient, index: int) -> None:
        random = np.random.default_rng(index)
        while time.monotonic() < self.stop:
            threshold = float(random.uniform(1, 40))
            begun = await self._post(client, "/episodes", {"threshold": threshold, "seed": index})
            name, spent = begun["episode"], 0.0
            for step in range(HORIZON):
                seen, cost = random.normal(size=OBSERVATIONS).tolist(), float(random.random())
                for _ in range(1 + (random.random() < 0.05)):  # some requests are repeated
                    await self._post(client, f"/episodes/{name}/act", {"step": step, "observation": seen})
                spent, said = spent + cost, {}
                for _ in range(1 + (random.random() < 0.05)):
                    said = await self._post(client, f"/episodes/{name}/observe", {"step": step, "cost": cost})
                    if said.get("spent") != spent:
                        self.faults.append(f"{name} spent {spent}, but {said}")
                self.steps += 1
                if time.monotonic() > self.stop:
                    if said.get("ended") is None:
                        await self._post(client, f"/episodes/{name}/end", {"step": step + 1})
                    break
            self.spent[name] = spent

    async def _post(self, client: httpx.AsyncClient, path: str, body: dict[str, Any]) -> dict[str, Any]:
        begun = time.perf_counter()
        answer = await client.post(path, json=body)
        self.latencies.append(time.perf_counter() - begun)
        if answer.status_code not in (200, 201):
            self.faults.append(f"{path}: {answer.status_code} {answer.text[:200]}")
        return answer.json()


def memory_mb(process: int) -> float:
    """Resident memory."""
    text = Path(f"/proc/{process}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+)", text)[1]) / 1024  # type: ignore[index]


def fuzz(url: str, requests: int, folder: Path) -> dict[str, Any]:
    """Statuses of at least so many requests made up from the schema."""
    program = Path(sys.executable).with_name("schemathesis")
    before = statuses(url)
    seed = 0
    found = 0
    while sum(count for status, count in _more(statuses(url), before).items()) < requests:
        seed += 1
        words = [
            "--checks",
            "all",
            "--max-examples",
            "60",
            "--seed",
            str(seed),
            "--generation-database",
            "none",
        ]
        done = subprocess.run(
            [program, "run", f"{url}/openapi.json", *words, "--no-color"],
            cwd=folder, timeout=300, capture_output=True, text=True, check=False,
        )  # fmt: skip
        found += done.returncode
        if done.returncode:
            print(done.stdout, file=sys.stderr)
    return {"runs_with_findings": found, "statuses": _more(statuses(url), before)}


def statuses(url: str) -> dict[str, int]:
    """How many requests had which status so far, from the server's own metrics."""
    text = httpx.get(f"{url}/metrics", trust_env=False).text
    found: dict[str, int] = {}
    for status, count in re.findall(r'bcrl_requests_total\{.*status="(\d+)"\} ([\d.e+]+)', text):
        found[status] = found.get(status, 0) + int(float(count))
    return found


def _more(now: dict[str, int], before: dict[str, int]) -> dict[str, int]:
    return {
        status: now[status] - before.get(status, 0)
        for status in sorted(now)
        if now[status] > before.get(status, 0)
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--episodes", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--fuzz", type=int, default=1000)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_policy(folder / "policy.bcrl")
        words = ["serve", "policy.bcrl", "--port", "0", "--out", "out"]
        server = subprocess.Popen(
            [sys.executable, "-m", "bcrl", *words], cwd=folder, stdout=subprocess.PIPE, text=True
        )
        try:
            assert server.stdout is not None
            url = re.search(r"http://[\d.]+:\d+", server.stdout.readline())[0]  # type: ignore[index]
            found = measure(given, url, server.pid, folder)
        finally:
            server.terminate()
            server.wait(30)
    print(json.dumps(found, indent=2))


def measure(given: argparse.Namespace, url: str, process: int, folder: Path) -> dict[str, Any]:
    """Everything, in order."""
    warm = Load(url, given.seconds / 6)
    asyncio.run(warm.run(given.episodes))
    start = memory_mb(process)
    load = Load(url, given.seconds)
    asyncio.run(load.run(given.episodes))
    end = memory_mb(process)
    with open(folder / "out" / "episodes.csv", newline="") as file:
        logged = {row["episode"]: float(row["cost"]) for row in csv.DictReader(file)}
    known = warm.spent | load.spent
    mixed = [name for name, spent in known.items() if logged.get(name) != spent]
    cuts = quantiles(load.latencies, n=100)
    return {
        "cores": os.cpu_count(),
        "episodes_at_once": given.episodes,
        "seconds": given.seconds,
        "requests": len(load.latencies),
        "requests_a_second": len(load.latencies) / given.seconds,
        "steps": load.steps,
        "episodes": len(load.spent),
        "milliseconds_median": 1e3 * cuts[49],
        "milliseconds_99": 1e3 * cuts[98],
        "faults": warm.faults[:5] + load.faults[:5],
        "episodes_with_another_cost_in_the_log": len(mixed),
        "logged_episodes": len(logged),
        "memory_mb_after_warm_up": start,
        "memory_mb_after_load": end,
        "fuzz": fuzz(url, given.fuzz, folder),
        "memory_mb_at_the_end": memory_mb(process),
    }


if __name__ == "__main__":
    main()
