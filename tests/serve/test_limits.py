"""Limits, the token, and a disk that refuses."""

import shutil
import socket
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from bcrl.cli import main
from bcrl.serve.app import Bucket

SEEN = [0.1] * 6
TOKEN = "a token of this test"


def wait_until(true) -> None:
    for _ in range(600):
        if true():
            return
        time.sleep(0.05)
    raise AssertionError("it never came true")


def test_number_age_and_size_are_limited(serving):
    server = serving("--max-episodes", "2", "--max-age", "4", "--max-body", "1024")
    first, waiting = (server.begin(threshold=3) for _ in range(2))
    server.act(waiting, 0, SEEN)
    full = server.post("/episodes", threshold=3)
    assert full.status_code == 429
    assert full.headers["retry-after"] == "1"
    large = server.post("/episodes", threshold=3, key="x" * 2_000)
    assert large.status_code == 413
    log = server.out / "episodes.csv"
    wait_until(lambda: len(log.read_text().splitlines()) == 3)
    ends = {line.split(",")[0]: line.split(",")[-3] for line in log.read_text().splitlines()[1:]}
    assert ends == {first: "idle", waiting: "unobserved"}
    server.begin(threshold=3)  # there is room again
    wait_until(lambda: server.client.get(f"/episodes/{first}").status_code == 404)


def test_rates_are_limited(serving):
    server = serving("--rate", "2", "--new-rate", "1")
    with ThreadPoolExecutor(10) as pool:
        answers = list(pool.map(lambda _: server.post("/episodes", threshold=3), range(40)))
    assert {answer.status_code for answer in answers} == {201, 429}
    said = " ".join(answer.json().get("error", "") for answer in answers)
    assert "more than 2 requests a second" in said
    assert "more than 1 new episodes a second" in said
    assert server.client.get("/health").status_code == 200  # for whoever watches, at any rate


def test_a_bucket_fills_at_its_rate(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr("bcrl.serve.app.time.monotonic", lambda: clock[0])
    bucket = Bucket(3.0)
    assert [bucket.take() for _ in range(5)] == [True, True, True, False, False]
    clock[0] = 0.5
    assert [bucket.take() for _ in range(2)] == [True, False]
    clock[0] = 60.0
    assert sum(bucket.take() for _ in range(10)) == 3


def test_a_token_is_asked_for(serving):
    server = serving("--host", "0.0.0.0", token=TOKEN)
    begun = server.begin(threshold=3)
    for header in ("", "Bearer", f"Bearer {TOKEN}x", f"Basic {TOKEN}", "Bearer \xff"):
        answer = server.client.get(f"/episodes/{begun}", headers={"authorization": header.encode("latin-1")})
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"] == "Bearer"
    assert server.client.get("/health", headers={"authorization": ""}).status_code == 200
    assert "securitySchemes" in server.client.get("/openapi.json").json()["components"]


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (["--host", "0.0.0.0"], "--host is 0.0.0.0, which other machines can reach"),
        (["--port", "70000"], "--port is 70000"),
        (["--max-episodes", "0"], "--max-episodes is 0"),
        (["--max-body", "9" * 4_000], "--max-body is 9999"),
        (["--max-age", "nan"], "--max-age is nan"),
        (["--candidates", "0,-1"], "--candidates has -1"),
        (["--token-file", "short"], "at least 16"),
    ],
)
def test_what_cannot_be_served_is_one_line(words, wanted, policy_file, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "short").write_text("secret\n")
    with pytest.raises(SystemExit) as stop:
        main(["serve", str(policy_file), *words])
    assert stop.value.code == 2
    assert wanted in capsys.readouterr().err
    assert not (tmp_path / "served").exists()


def test_a_taken_port_or_folder_is_one_line(policy_file, serving, tmp_path, capsys):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(SystemExit):
            main(["serve", str(policy_file), "--out", str(tmp_path), "--port", str(taken.getsockname()[1])])
    assert "cannot be used" in capsys.readouterr().err
    server = serving()
    with pytest.raises(SystemExit):
        main(["serve", str(policy_file), "--out", str(server.out), "--port", "0"])
    assert "another server is writing there" in capsys.readouterr().err


def test_a_disk_that_refuses_stops_every_promise(serving, tmp_path):
    """Nothing is acknowledged that is not saved; after the restart only what was acknowledged is there."""
    server = serving()
    episode = server.begin(threshold=3)
    shutil.rmtree(server.out)  # the journal is open, the costs' file not yet
    assert server.end(episode, 0).status_code == 503
    assert server.client.get("/health").status_code == 503
    assert server.act(episode, 0, SEEN).status_code == 503
    assert server.post("/episodes", threshold=3).status_code == 503
