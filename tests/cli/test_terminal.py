"""What reaches the screen: whole numbers at 80 columns and in a pipe, no control characters, any encoding."""

import io
import os
import re
import subprocess
import sys
from contextlib import contextmanager, nullcontext

import numpy as np
import pytest

from bcrl.assess.results import Result
from bcrl.assess.statistics import summarise
from bcrl.cli import main
from bcrl.cli.terminal import print_summary
from bcrl.data import Dataset
from bcrl.errors import BCRLError, printable
from bcrl.progress import Speed, bar


def program(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "bcrl", *words],
        capture_output=True, text=True, check=False, env=os.environ | variables, errors="replace",
    )  # fmt: skip


def rows(scale: float) -> list[Result]:
    random = np.random.default_rng(0)
    return [
        Result(
            *("bcrl", "soft", "discounted", "finite-horizon", "gym:Tank-v0", "d", seed, threshold, episode),
            *(scale * (1 + random.random()), threshold * (0.4 + random.random()), float("nan")),
            *(0.4 + random.random(), 200, 0.25),
        )
        for seed in (0, 1)
        for threshold in (10.0, 12345.678)
        for episode in range(4)
    ]


@pytest.mark.parametrize("scale", [1.0, 123456.0])
@pytest.mark.parametrize("columns", ["80", "40", ""])
def test_the_table_of_an_evaluation_loses_no_digit(scale, columns, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", columns)
    found = summarise(rows(scale))
    print_summary(found, "a title")
    said = capsys.readouterr().out
    assert "…" not in said
    for line in found:
        for value in (line.earned.mean, line.earned.low, line.earned.high, line.cost.mean, line.cost.high):
            assert f"{value:.2f}" in said
        assert f"{line.episode_cost.mean:.1f}" in said
        assert f"± {line.episode_cost.error:.1f}" in said


@pytest.mark.parametrize("scale", [1.0, 123456.0])
def test_the_table_fits_into_80_columns(scale, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    print_summary(summarise(rows(scale)), "a title")
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 80


def test_the_table_of_a_log_loses_no_digit(tmp_path, capsys, monkeypatch):
    """Twelve costs: the widest names a log can bring."""
    monkeypatch.setenv("COLUMNS", "80")
    random = np.random.default_rng(0)
    ends = np.arange(40) % 10 == 9
    states = random.normal(size=(41, 2)) * 1e6
    after = states[1:] + 1e6 * ends[:, None]
    log = Dataset(
        observations=states[:-1], actions=random.uniform(-1, 1, (40, 1)), rewards=-98765.4 * np.ones(40),
        costs=random.random((40, 12)) * 98765, next_observations=after, terminals=np.zeros(40),
        timeouts=ends, source="wide",
    )  # fmt: skip
    log.save(tmp_path / "log.npz")
    main(["data", "info", str(tmp_path / "log.npz")])
    said = capsys.readouterr().out
    assert "…" not in said
    assert "episode cost 12" in said
    assert "-98,765" in said


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize("label", ["training", "evaluating in point-circle", "[/b] $x$"])
def test_progress_shows_whole_numbers(label, width):
    from rich.console import Console

    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=width)
    with bar(label, 123_456, "steps", 0, console) as tick:
        tick(1_280, "a note that says a great deal about what is going on, with the number 0.123456")
    for line in re.split(r"[\r\n]", re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", screen.getvalue())):
        assert len(line) <= width
        assert "…" not in line
    assert "1,280/123,456" in screen.getvalue()
    assert label in screen.getvalue()


@pytest.mark.parametrize("verb", [["--help"], ["train", "--help"], ["bench", "--help"], ["worlds"]])
@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_a_terminal_without_utf8_is_no_reason_to_fail(verb, encoding, monkeypatch):
    streams = [io.TextIOWrapper(io.BytesIO(), encoding=encoding) for _ in range(2)]
    monkeypatch.setattr("sys.stdout", streams[0])
    monkeypatch.setattr("sys.stderr", streams[1])
    with pytest.raises(SystemExit) if verb[-1] == "--help" and verb[1:] else nullcontext() as end:
        main(verb)
    assert end is None or not end.value.code
    for stream in streams:
        stream.flush()
    assert streams[0].buffer.getvalue()
    assert streams[1].buffer.getvalue() == b""


def test_signs_become_plain_ones():
    """In a process of its own: the encoding is Python's, from the environment."""
    done = program("train", "--help", PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stderr) == (0, "")
    assert "tau_C" in done.stdout
    assert "gamma_C" in done.stdout
    assert done.stdout.isascii()


def test_errors_have_no_control_characters(tmp_path):
    name = "log\x1b[31m\nsecond\u202eline.npz"
    done = program("data", "info", str(tmp_path / name))
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert printable(done.stderr.rstrip("\n")) == done.stderr.rstrip("\n")
    assert r"\x1b[31m" in done.stderr


def test_names_of_logs_have_no_control_characters(tiny_log_file, tmp_path, capsys):
    log = tmp_path / "a\x1b[31m\r\u202e.npz"
    log.write_bytes(tiny_log_file.read_bytes())
    main(["data", "info", str(log)])
    said = capsys.readouterr().out
    assert "next: " in said
    assert all(line.isprintable() for line in said.splitlines())


def test_file_names_are_not_markup(tiny_run, tmp_path, capsys):
    odd = tmp_path / "[" / "b][red].bcrl"
    odd.parent.mkdir()
    odd.write_bytes((tiny_run.folder / "policy-0.bcrl").read_bytes())
    main(["evaluate", str(odd), "--world", "point-circle", "--thresholds", "5", "--episodes", "1"])
    assert "[/b][red].bcrl" in capsys.readouterr().out.replace("\n", "")


def test_a_model_may_have_any_name(tmp_path, capsys):
    from bcrl.cmdp import GridWorld

    path = tmp_path / "[" / "b].npz"
    path.parent.mkdir()
    GridWorld.load("corridor", 0.2, 0.99).cmdp.save(path)
    main(["solve", str(path), "--budget", "1"])
    assert "[/b].npz" in capsys.readouterr().out


def evaluate(policy, out, *words: str) -> list[str]:
    short = ["--thresholds", "5", "--episodes", "1"]
    return ["evaluate", str(policy), "--world", "point-circle", *(words or short), "--out", str(out)]


def test_an_out_that_cannot_be_written_is_told_before_the_episodes(tiny_run, tmp_path, monkeypatch, capsys):
    ran = []
    monkeypatch.setattr("bcrl.assess.evaluate", lambda *_, **__: ran.append(1))
    (tmp_path / "file").write_text("")
    for out in (tmp_path / "file" / "results.csv", "/proc/nowhere/results.csv", tmp_path):
        with pytest.raises(SystemExit) as stop:
            main(evaluate(tiny_run.folder, out))
        assert stop.value.code == 2
        assert f"--out {out}" in capsys.readouterr().err
    assert not ran


def test_the_table_is_printed_whatever_happens_to_the_file(tiny_run, tmp_path, monkeypatch, capsys):
    def full(*_):
        raise OSError(28, "No space left on device", "results.csv")

    monkeypatch.setattr("bcrl.assess.results.Results.save", full)
    with pytest.raises(SystemExit) as stop:
        main(evaluate(tiny_run.folder, tmp_path / "results.csv"))
    said = capsys.readouterr()
    assert stop.value.code == 2
    assert "threshold" in said.out
    assert said.err.endswith("bcrl: results.csv: No space left on device; choose another place\n")


def test_thresholds_are_different(tiny_run, tmp_path, capsys):
    with pytest.raises(SystemExit):
        main(evaluate(tiny_run.folder, tmp_path / "r.csv", "--thresholds", "5,10,5"))
    assert "thresholds are (5.0, 10.0, 5.0), but one is there twice" in capsys.readouterr().err


def test_every_step_says_what_comes_next(tiny_log_file, tmp_path, capsys):
    run = tmp_path / "run"
    # As `tiny_run`, whose programs are there.
    words = "--hidden 8 --batch-size 16 --learning-rate 0.01 --seeds 0,10 --steps 40 --log-every 10"
    main(["train", "--data", str(tiny_log_file), "--out", str(run), *words.split()])
    main(["data", "info", str(tiny_log_file)])
    main(evaluate(run, tmp_path / "results.csv"))
    nexts = [line for line in capsys.readouterr().out.splitlines() if line.startswith("next: ")]
    assert nexts == [
        f"next: bcrl evaluate {run} --world WORLD --out results.csv",  # rows that do not follow one another
        f"next: bcrl train --data {tiny_log_file} --out runs/tiny --preset cpu",
        f"next: bcrl report {tmp_path / 'results.csv'} --out {tmp_path / 'results.html'}",
    ]


def test_the_bar_of_a_training_shows_what_falls(tiny_log, tiny_method, monkeypatch):
    """The losses rise with the values; the TD errors as shares of the values do not."""
    from bcrl.learn.baselines.bc import BCAll
    from bcrl.train import run

    notes = []

    @contextmanager
    def progress(label, *_, **__):
        yield lambda advance=1, note="": notes.append(note) if label == "training" else None

    monkeypatch.setattr(run, "progress", progress)
    for method in (tiny_method, BCAll(hidden=(8,), batch_size=8)):
        run.fit(tiny_log, method, seeds=(0, 10), steps=40, log_every=10)  # as `tiny_run`
    assert re.fullmatch(r"TD error: r [\d.]+ %, c [\d.]+ %", notes[3])
    assert notes[-1].startswith("policy/loss ")


def test_a_short_recording_says_why(tmp_path, capsys, monkeypatch, tiny_log):
    from bcrl.worlds import collect as recording

    monkeypatch.setattr(recording, "collect", lambda *_, **__: tiny_log)
    out = tmp_path / "log.npz"
    main(["collect", "point-circle", "--out", str(out), "--transitions", "40_000"])
    said = capsys.readouterr().out
    assert (
        "fewer than the 40,000 asked for: no more steps were recorded in episodes within the cost cap" in said
    )
    assert f"next: bcrl train --data {out} --out runs/log --family point --preset cpu" in said


def test_bench_asks_before_it_records(tmp_path, monkeypatch, capsys):
    from bcrl.cli.bench import Command

    bench = Command(out=tmp_path / "bench", methods=("bc-all",), tasks=("point-run",), logs=tmp_path / "data")
    with pytest.raises(
        BCRLError, match=r"no log of point-run: recording plays 6,000,000 steps .* give --yes"
    ):
        bench.run()
    assert not (tmp_path / "bench").exists()
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setattr("builtins.input", lambda question: print(question) or "n")
    with pytest.raises(BCRLError, match="nothing was recorded"):
        bench.run()
    assert "Record? [y/N]" in capsys.readouterr().out


def test_the_time_before_the_first_tick_does_not_count(monkeypatch):
    """A minute of compilation, then ten steps a second: the rate is ten and not two."""
    clock = iter([0.0, 60.0, 70.0, 80.0])
    monkeypatch.setattr("bcrl.progress.time.monotonic", lambda: next(clock))
    speed = Speed(5)
    assert speed(105) == pytest.approx(100 / 60)
    assert speed(205) == pytest.approx(10)
    assert speed(305) == pytest.approx(10)
