"""What was acknowledged is there after kill -9; what is damaged is refused."""

import signal
from concurrent.futures import ThreadPoolExecutor

import httpx
import numpy as np
import pytest

from bcrl import runtime
from bcrl.assess.cost_file import read_costs
from bcrl.cli import main
from bcrl.serve.journal import decode, encode


@pytest.mark.slow
def test_no_acknowledged_step_is_lost(serving, policy_file):
    """Many clients act until the server is killed; after the restart each goes on where it was told."""
    server, many = serving("--candidates", "4"), 8
    policy = runtime.load(policy_file)
    goals = {}
    for index in range(many):
        goal = {"threshold": 2.0 + index, "horizon": 60, "candidates": 4, "execution": "min", "seed": index}
        goals[server.begin(**goal)] = goal
    said = {episode: [] for episode in goals}  # observation, action and cost, as far as acknowledged

    def drive(index: int, episode: str) -> None:
        random = np.random.default_rng(index)
        for step in range(60):
            if index == 0 and step == 10:
                server.process.kill()
            seen, cost = random.normal(size=6).tolist(), float(random.random())
            try:
                said[episode].append([seen, server.act(episode, step, seen).json()["action"]])
                server.observe(episode, step, cost).raise_for_status()
            except httpx.TransportError:  # it is dead
                return
            said[episode][-1].append(cost)

    with ThreadPoolExecutor(many) as pool:
        list(pool.map(drive, range(many), said))
    assert server.process.wait(30) == -signal.SIGKILL
    again = serving("--candidates", "4")
    for episode, steps in said.items():
        state, local = again.state(episode), policy.start(**goals[episode])
        costs = [cost for *_, cost in steps if isinstance(cost, float)]
        # The server may have done more than it could acknowledge.
        assert len(costs) <= state["step"] <= len(costs) + 1
        assert len(costs) >= 10 or episode != next(iter(said))
        if state["step"] == len(costs):
            assert state["spent"] == sum(costs)
        for step, (seen, action, *_) in enumerate(steps):
            assert local.act(seen).tolist() == action
            if step < len(costs):
                local.observe(costs[step])
        if len(steps) == len(costs) == state["step"] and state["next"] == "act":
            action = again.act(episode, len(steps), [0.5] * 6).json()["action"]
            assert action == local.act([0.5] * 6).tolist()


def test_ended_episodes_and_their_costs_survive(serving):
    server = serving()
    episode = server.begin(threshold=3, horizon=2, key="one")
    for step in range(2):
        server.act(episode, step, [0.1] * 6)
        answer = server.observe(episode, step, 1.25)
    log = server.out / "episodes.csv"
    server.kill()
    whole = log.read_text()
    log.write_text(whole.splitlines()[0] + "\n" + whole.splitlines()[1][:40])  # killed while it wrote this
    again = serving()
    assert log.read_text() == whole
    assert read_costs(log, bound=10, told=3).tolist() == [2.5]
    assert again.observe(episode, 1, 1.25).json() == answer.json()
    assert again.begin(threshold=3, horizon=2, key="one") == episode


@pytest.mark.slow
def test_an_unfinished_last_line_is_dropped_and_other_damage_refused(serving, policy_file, capsys):
    server = serving()
    episode = server.begin(threshold=3)
    server.act(episode, 0, [0.1] * 6)
    server.observe(episode, 0, 1.0)
    server.kill()
    journal = server.out / "journal.jsonl"
    whole = journal.read_bytes()
    journal.write_bytes(whole[:-20])
    again = serving()
    assert again.state(episode)["next"] == "observe"  # the cut line was the observe
    assert "line 4" in again.kill()

    def refused(content: bytes, words: str, policy=policy_file) -> None:
        journal.write_bytes(content)
        with pytest.raises(SystemExit):
            main(["serve", str(policy), "--out", str(server.out), "--port", "0"])
        said = capsys.readouterr().err.splitlines()[-1]
        assert words in said
        assert str(journal) in said

    lines = whole.splitlines(keepends=True)
    refused(b"".join([*lines[:2], lines[2].replace(b"0.1", b"0.2", 1), lines[3]]), "line 3 is damaged")
    refused(b"", "has no readable beginning")
    create, act, observe = (decode(line) for line in lines[1:])
    for record, words in (
        (create, "does not fit"),
        (act | {"step": 1}, "waits for its cost"),
        (observe | {"cost": -1}, "cost is -1"),
        (observe | {"observe": "x"}, "is damaged"),
        ({"create": "x"}, "is damaged"),
    ):
        refused(b"".join([*lines[:3], encode(record)]), words)
    refused(encode({"format": "bcrl-journal", "version": 1, "policy": "0" * 64}) + lines[1], "another policy")
