"""The demo with a log and a training far too small to be good, but made the same way."""

import functools

import pytest

from bcrl.assess.results import read_results
from bcrl.cli.demo import Command
from bcrl.errors import BCRLError
from bcrl.policy import load
from bcrl.worlds import collect as recording


@pytest.fixture
def little(monkeypatch):
    """The agent that records practises for two rounds only."""
    monkeypatch.setattr(
        recording, "collect", functools.partial(recording.collect, steps=6_400, episodes=16, cost_cap=200.0)
    )


def demo(folder, **options) -> Command:
    return Command(**{"out": folder, "steps": 20, "transitions": 2_000, "thresholds": (5.0, 20.0)} | options)


@pytest.mark.slow
def test_it_writes_everything_and_can_be_run_again(little, tmp_path, monkeypatch, capsys):
    folder = tmp_path / "new" / "demo"
    with monkeypatch.context() as patch:
        patch.setattr(recording, "collect", stopped)
        with pytest.raises(KeyboardInterrupt):
            demo(folder).run()

    demo(folder).run()
    said = capsys.readouterr().out
    assert [f"[{n}/4]" in said for n in (1, 2, 3, 4)] == [True] * 4
    assert "recording a log" in said
    results = read_results(folder / "results.csv")
    assert len(results) == 100
    assert load(folder / "policy.bcrl").provenance["data"] == "log.npz"
    first = (folder / "report.html").read_text(encoding="utf-8")
    assert "bcrl demo --steps 20 --transitions 2000 --thresholds 5,20" in first

    # As a kill would leave it: a run that is not finished, one of another seed, and a temporary file.
    (folder / "run" / "checkpoint.safetensors").unlink()
    (folder / "run" / "policy-0.bcrl").rename(folder / "run" / "policy-7.bcrl")
    (folder / ".report.1.html").write_text("half a page")
    demo(folder).run()
    assert "keeping the log of an earlier demo" in capsys.readouterr().out
    assert read_results(folder / "results.csv") == results
    assert (folder / "report.html").read_text(encoding="utf-8") == first
    assert [file.name for file in (folder / "run").glob("policy-*")] == ["policy-0.bcrl"]


def stopped(*_, **__):
    raise KeyboardInterrupt


def test_a_log_is_kept_only_if_it_is_whole_and_made_the_same_way(tmp_path, dataset, tiny_log, monkeypatch):
    """Demos that stop before the training: does the next one record a log again?"""
    log, mark = tmp_path / "log.npz", tmp_path / "demo.json"
    recorded = []
    monkeypatch.setattr(recording, "collect", lambda world, *_: recorded.append(world) or dataset)
    monkeypatch.setattr("bcrl.train.run.fit", stopped)

    def records_again(**options) -> bool:
        recorded.clear()
        with pytest.raises(KeyboardInterrupt):
            demo(tmp_path, **options).run()
        return bool(recorded)

    assert records_again()
    whole, said = log.read_bytes(), mark.read_text()
    assert not records_again()
    assert records_again(seed=1)
    assert records_again()  # the log there is now that of seed 1
    assert mark.read_text() == said
    log.write_bytes(whole[:1000])
    assert records_again()
    tiny_log.save(log)  # another log
    assert records_again()
    mark.write_text(said[:5])
    assert records_again()
    assert not records_again()
    with monkeypatch.context() as patch:
        patch.setattr(recording, "collect", stopped)
        records_again(seed=1)
    assert records_again(seed=1), "a log of which the recording was stopped"
    assert not records_again(seed=1)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"world": "moon"}, "there is no world 'moon'"),
        ({"thresholds": (5.0, -1.0)}, "numbers from 0 up"),
        ({"thresholds": (5.0, 5.0)}, "twice"),
        ({"thresholds": ()}, "numbers from 0 up"),
        ({"transitions": 3}, "less than one episode"),
        ({"seed": -1}, "negative"),
        ({"steps": 0}, "at least 1"),
    ],
)
def test_mistakes_are_told_before_any_work(tmp_path, options, words):
    with pytest.raises(BCRLError, match=words):
        demo(tmp_path / "demo", **options).run()
    assert not (tmp_path / "demo").exists()


def test_a_folder_with_other_files_is_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("all my work")
    with pytest.raises(BCRLError, match=r"holds other files, such as thesis\.tex"):
        demo(tmp_path).run()
    assert [file.name for file in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_file_in_the_way_is_told(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(BCRLError, match="cannot be used"):
        demo(tmp_path / "file").run()
