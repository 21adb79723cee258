"""Servers of a tiny policy, each in its own process at 127.0.0.1."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest


class Served:
    """A server and a client for it."""

    def __init__(self, policy: Path, out: Path, *words: str, token: str | None = None):
        command = [
            sys.executable,
            "-m",
            "bcrl",
            "serve",
            str(policy),
            "--out",
            str(out),
            "--port",
            "0",
            *words,
        ]
        surroundings = {name: value for name, value in os.environ.items() if name != "BCRL_TOKEN"}
        surroundings |= {} if token is None else {"BCRL_TOKEN": token}
        self.out = out
        self.said: str | None = None
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=surroundings
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        found = re.search(r"at http://[\d.]+:(\d+),", line)
        if found is None:
            raise AssertionError(f"{line}{self.process.communicate(timeout=30)[1]}")
        self.url = f"http://127.0.0.1:{found[1]}"
        headers = {} if token is None else {"authorization": f"Bearer {token}"}
        self.client = httpx.Client(base_url=self.url, headers=headers, timeout=60, trust_env=False)

    def post(self, path: str, **body) -> httpx.Response:
        return self.client.post(path, json=body)

    def begin(self, **goal) -> str:
        answer = self.post("/episodes", **goal)
        assert answer.status_code == 201, answer.text
        return answer.json()["episode"]

    def act(self, episode: str, step: int, observation) -> httpx.Response:
        return self.post(f"/episodes/{episode}/act", step=step, observation=list(observation))

    def observe(self, episode: str, step: int, cost: float, **more) -> httpx.Response:
        return self.post(f"/episodes/{episode}/observe", step=step, cost=cost, **more)

    def end(self, episode: str, step: int) -> httpx.Response:
        return self.post(f"/episodes/{episode}/end", step=step)

    def state(self, episode: str) -> dict:
        return self.client.get(f"/episodes/{episode}").json()

    def kill(self, number: int = signal.SIGKILL) -> str:
        """What it said on stderr."""
        self.client.close()
        if self.process.poll() is None:
            self.process.send_signal(number)
        if self.said is None:
            self.said = self.process.communicate(timeout=60)[1]
        return self.said


@pytest.fixture(scope="session")
def policy_file(tiny_policy, tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("served") / "policy.bcrl"
    tiny_policy.save(path)
    return path


@pytest.fixture
def serving(policy_file, tmp_path) -> Iterator[Callable[..., Served]]:
    """Starts servers; all of them are stopped at the end of the test."""
    started = []

    def start(
        *words: str, policy: Path = policy_file, out: Path = tmp_path / "out", token: str | None = None
    ):
        started.append(Served(policy, out, *words, token=token))
        return started[-1]

    yield start
    for one in started:
        one.kill()


@pytest.fixture(scope="module")
def server(policy_file, tmp_path_factory) -> Iterator[Served]:
    """One server for the tests of a module that leave it as it was."""
    one = Served(policy_file, tmp_path_factory.mktemp("server") / "out", "--candidates", "4")
    yield one
    said = one.kill(signal.SIGTERM)
    assert "Traceback" not in said
