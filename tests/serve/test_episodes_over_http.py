"""Episodes over HTTP do what local ones do, once for each step, and misuse is refused."""

import csv

import numpy as np
import pytest

from bcrl import runtime
from bcrl.assess.cost_file import read_costs
from bcrl.errors import BCRLError

SEEN = [0.3, -0.2, 0.1, 0.0, 1.0, -1.0]


@pytest.mark.parametrize(
    "goal",
    [
        {"threshold": 3.0, "horizon": 8},
        {"threshold": 3, "horizon": 8, "execution": "min", "candidates": 4, "seed": 7},
        {"budget": 2.5, "execution": "direct", "candidates": 4, "seed": 3},
    ],
)
def test_an_episode_acts_as_a_local_one(goal, server, policy_file):
    random = np.random.default_rng(3)
    begun = server.post("/episodes", **goal).json()
    local = runtime.load(policy_file).start(**{**goal, "seed": begun["seed"]})
    spent = 0.0
    for step in range(8):
        seen, cost = random.normal(size=6).tolist(), float(random.random())
        said = server.act(begun["episode"], step, seen).json()
        assert said["action"] == local.act(seen).tolist()
        assert said["slack"] == local.slack.tolist()
        assert said["fallback"] == bool(local.fallback)
        local.observe(cost)
        spent += cost
        observed = server.observe(begun["episode"], step, cost).json()
        assert observed["spent"] == spent
        assert observed["above_largest"] is False
    assert observed["ended"] == (None if "budget" in goal else "horizon")


@pytest.mark.filterwarnings("ignore:cost is 7, above the largest cost of the log, 1")
def test_a_cost_above_the_largest_is_charged_and_said(server):
    name = server.post("/episodes", threshold=3.0, horizon=8).json()["episode"]
    server.act(name, 0, SEEN)
    said = [server.observe(name, 0, 7.0).json() for _ in range(2)]
    assert said[0] == said[1]  # a repeated request
    assert (said[0]["spent"], said[0]["above_largest"]) == (7.0, True)


def test_without_a_seed_each_episode_has_its_own(server):
    first, second = (server.post("/episodes", threshold=3).json()["seed"] for _ in range(2))
    assert first != second


def test_a_repeated_request_has_the_same_answer_and_is_counted_once(server):
    episode = server.begin(threshold=3, seed=0)
    acted = [server.act(episode, 0, SEEN) for _ in range(3)]
    observed = [server.observe(episode, 0, 1.5, reward=1.0) for _ in range(3)]
    assert {answer.status_code for answer in acted + observed} == {200}
    assert len({answer.text for answer in acted}) == len({answer.text for answer in observed}) == 1
    assert server.act(episode, 0, SEEN).text == acted[0].text  # the last act is still known
    assert server.state(episode)["spent"] == 1.5
    ended = [server.end(episode, 1).json() for _ in range(2)]
    assert ended[0] == ended[1] == server.state(episode)
    assert server.observe(episode, 0, 1.5, reward=1.0).text == observed[0].text


def test_a_repeated_creation_with_a_key_begins_one_episode(server):
    same = [server.post("/episodes", threshold=3, key="day 1") for _ in range(2)]
    assert same[0].json() == same[1].json()
    other = server.post("/episodes", threshold=4, key="day 1")
    assert other.status_code == 409
    assert "key 'day 1'" in other.json()["error"]


def test_steps_out_of_order_are_conflicts(server):
    episode = server.begin(threshold=3, horizon=2)

    def refused(answer, words: str) -> None:
        assert answer.status_code == 409, answer.text
        assert words in answer.json()["error"]

    refused(server.observe(episode, 0, 1.0), "step 0 has no action yet")
    refused(server.act(episode, 1, SEEN), "the next to act is 0")
    server.act(episode, 0, SEEN)
    refused(server.act(episode, 0, [0.0] * 6), "with another observation")
    refused(server.act(episode, 1, SEEN), "waits for its cost")
    refused(server.end(episode, 0), "waits for its cost")
    server.observe(episode, 0, 1.0)
    refused(server.observe(episode, 0, 2.0), "was observed with cost 1.0")
    refused(server.observe(episode, 0, 1.0, reward=1.0), "counted once")
    refused(server.observe(episode, 1, 1.0), "step 1 has no action yet")
    refused(server.end(episode, 0), "has had 1 steps")
    server.act(episode, 1, SEEN)
    assert server.observe(episode, 1, 1.0).json()["ended"] == "horizon"
    refused(server.act(episode, 2, SEEN), "has ended (horizon) after 2 steps")
    refused(server.observe(episode, 0, 1.0), "has ended")
    assert server.state(episode)["spent"] == 2.0


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ('{"step": 0}', "observation is missing"),
        ('{"step": 0, "observation": [1, 2]}', "observation has 2, but must be a list of 6 numbers"),
        ('{"step": 0, "observation": [1, 2, 3, 4, 5, "6"]}', "observation[5] is '6'"),
        ('{"step": 0, "observation": [1, 2, 3, 4, 5, 1e999]}', "observation[5] is inf"),
        ('{"step": -1, "observation": [1, 2, 3, 4, 5, 6]}', "step is -1"),
        ('{"step": true, "observation": [1, 2, 3, 4, 5, 6]}', "step is True"),
        ('{"stop": 0, "observation": [1, 2, 3, 4, 5, 6]}', "did you mean step?"),
        ('{"step": 0, "observation": "\\ud800"}', "observation is '\\ud800'"),
        ("[]", "the body is [], but must be an object"),
    ],
)
def test_a_wrong_field_is_named(body, words, server):
    episode = server.begin(threshold=3)
    headers = {"content-type": "application/json"}
    answer = server.client.post(f"/episodes/{episode}/act", content=body, headers=headers)
    assert answer.status_code == 422
    assert words in answer.json()["error"]
    assert server.state(episode)["next"] == "act"


@pytest.mark.parametrize(
    "number",
    ["1e400", "-1e400", "9" * 4_000, "[" * 900 + "]" * 900, '"' + "x" * 60_000 + '"', "0." + "9" * 60_000],
)
def test_fields_of_absurd_size_are_refused_in_one_short_line(number, server):
    episode = server.begin(threshold=3)
    for path, body in (
        ("/episodes", f'{{"threshold": {number}, "horizon": {number}}}'),
        ("/episodes", f'{{"threshold": 1, "key": {number}}}'),
        (f"/episodes/{episode}/act", f'{{"step": {number}, "observation": []}}'),
        (f"/episodes/{episode}/act", f'{{"step": 0, "observation": [{number}]}}'),
        (f"/episodes/{episode}/observe", f'{{"step": 0, "cost": {number}, "reward": {number}}}'),
    ):
        answer = server.client.post(path, content=body, headers={"content-type": "application/json"})
        assert answer.status_code in (409, 413, 422)
        assert len(answer.json()["error"]) < 500


@pytest.mark.parametrize(
    "body", ["", "{", '{"step": NaN}', '{"step": -Infinity}', "[" * 60_000, "1" * 5_000, b"\xff\xfe"]
)
def test_what_is_not_json_is_refused(body, server):
    answer = server.client.post("/episodes", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 400
    assert answer.json()["error"].startswith("the body")


@pytest.mark.parametrize(
    ("goal", "words"),
    [
        ({}, "give either threshold"),
        ({"threshold": 1, "budget": 1}, "give either threshold"),
        ({"threshold": -1}, "threshold is -1"),
        ({"threshold": [1]}, "threshold is [1]"),
        ({"threshold": 1, "horizon": 0}, "horizon is 0"),
        ({"threshold": 1, "horizon": 1.5}, "horizon is 1.5"),
        ({"budget": 1, "horizon": 5}, "for any number of steps"),
        ({"budget": 1, "execution": "min"}, "execution is 'min', but must be one of soft, direct"),
        ({"threshold": 1, "candidates": 5}, "candidates is 5, but must be one of 0, 4"),
        ({"threshold": 1, "calibrated": True}, "the policy is not calibrated"),
        ({"threshold": 1, "seed": 2**32}, "seed is 4294967296"),
        ({"threshold": 1, "key": None}, "key is None"),
    ],
)
def test_what_no_episode_can_be_is_refused(goal, words, server):
    answer = server.post("/episodes", **goal)
    assert answer.status_code == 422
    assert words in answer.json()["error"]


def test_other_refusals_are_json_too(server):
    answers = {
        404: server.client.get("/episodes/" + "0" * 32),
        405: server.client.put("/episodes"),
        415: server.client.post("/episodes", content="threshold=1"),
        421: server.client.get("/health", headers={"host": "example.org"}),
    }
    for status, answer in answers.items():
        assert answer.status_code == status
        assert set(answer.json()) == {"error"}


def test_the_costs_are_a_file_that_certify_reads_and_metrics_count(serving):
    server = serving()
    for cost in (0.25, 0.5, 0.75):
        episode = server.begin(threshold=3, horizon=20)
        for step in range(2):
            server.act(episode, step, SEEN)
            server.observe(episode, step, cost)
        server.end(episode, 2)
    other = server.begin(threshold=9)
    server.end(other, 0)
    server.end(other, 0)
    text = server.client.get("/metrics").text
    for line in (
        'bcrl_requests_total{request="end",status="200"} 5.0',
        "bcrl_actions_total 6.0",
        'bcrl_episodes_ended_total{how="client"} 4.0',
        "bcrl_episodes_running 0.0",
    ):
        assert line in text
    file = server.out / "episodes.csv"
    assert read_costs(file, bound=20, told=3).tolist() == [0.5, 1.0, 1.5]
    with open(file, newline="") as lines:
        rows = list(csv.DictReader(lines))
    assert {row["end"] for row in rows} == {"client"}
    server.end(server.begin(threshold=3, execution="soft"), 0)
    with pytest.raises(BCRLError, match="certificate is of one policy; choose with --where execution="):
        read_costs(file, bound=20, told=3)
