"""The words of a command line: lists in both forms, whole numbers, suggestions, and help."""

import re
import shlex
from dataclasses import fields
from importlib import import_module
from typing import Any

import pytest

from bcrl.cli import VERBS, main
from bcrl.cli.arguments import parse
from bcrl.cli.options import options_of
from bcrl.cli.train import command_for
from bcrl.errors import BCRLError
from bcrl.learn.bcrl import BCRL
from bcrl.learn.options import range_of


def command_of(verb: str, words: list[str]) -> tuple[Any, Any]:
    module = import_module(VERBS[verb][0])
    return module.command_for(words) if hasattr(module, "command_for") else (module.Command, None)


def read(line: str) -> Any:
    """What a command line says, without running it."""
    words = shlex.split(line)
    verb = next(" ".join(words[:n]) for n in (2, 1) if " ".join(words[:n]) in VERBS)
    rest = words[len(verb.split()) :]
    command, default = command_of(verb, rest)
    return parse(command, f"bcrl {verb}", rest, default)


TRAIN = "train --data log.npz --out run"


@pytest.mark.parametrize(
    ("one", "other", "name", "value"),
    [
        (f"{TRAIN} --seeds 0,10,20", f"{TRAIN} --seeds 0 10 20", "seeds", (0, 10, 20)),
        (f"{TRAIN} --seeds=0,10", f"{TRAIN} --seeds 0, 10", "seeds", (0, 10)),
        (
            "evaluate run --world w --thresholds 1,2.5",
            "evaluate --thresholds 1 2.5 run --world w",
            "thresholds",
            (1.0, 2.5),
        ),
        (
            "evaluate --thresholds 1,2 run --world w",
            "evaluate --thresholds 1 2 -- run --world w",
            "thresholds",
            (1.0, 2.0),
        ),
        (
            "bench --out b --methods bcrl,caps",
            "bench --out b --methods bcrl caps",
            "methods",
            ("bcrl", "caps"),
        ),
        (
            "bench --out b --tasks bullet,CarRun",
            "bench --out b --tasks bullet CarRun",
            "tasks",
            ("bullet", "CarRun"),
        ),
        ("demo --thresholds 5,10", "demo --thresholds 5 10", "thresholds", (5.0, 10.0)),
        ("solve m.npz --budget 1,0.5", "solve --budget 1 0.5 m.npz", "budget", (1.0, 0.5)),
        (
            "paper run synthetic --budgets 1,2",
            "paper run --budgets 1 2 synthetic",
            "budgets",
            (1.0, 2.0),
        ),
        (
            "data filter l.npz --out n --inpaint 0,1,0,1",
            "data filter l.npz --out n --inpaint 0 1 0 1",
            "inpaint",
            (0.0, 1.0, 0.0, 1.0),
        ),
    ],
)
def test_lists_have_two_forms(one, other, name, value):
    assert getattr(read(one), name) == getattr(read(other.replace(" -- ", " ")), name) == value


def test_options_of_methods_are_lists_too():
    for words in ("--hidden 64,32", "--hidden 64 32", "--hidden=64,32"):
        assert read(f"{TRAIN} {words}").options.hidden == (64, 32)
    for words in ("--cost-weights 1,2", "--cost-weights 1 2", "--cost_weights 1,2"):
        assert read(f"{TRAIN} {words}").options.cost_weights == (1.0, 2.0)


def test_every_list_of_every_verb_is_a_list_by_its_type():
    """An option whose description speaks of commas but is one word would take one form alone."""
    for verb in VERBS:
        command, default = command_of(verb, [])
        for option in options_of(command, default):
            assert "with commas" not in option.about or option.many, f"{verb} {option.flag}"


@pytest.mark.parametrize("word", ["1e5", "100_000", "100000", "1E5", "1.0e5"])
def test_whole_numbers_may_be_short(word):
    assert read(f"{TRAIN} --steps {word}").steps == 100_000
    assert isinstance(read(f"{TRAIN} --steps {word}").steps, int)
    assert read(f"{TRAIN} --seeds 1,{word}").seeds == (1, 100_000)


@pytest.mark.parametrize("word", ["1.5", "1e-3", "inf", "nan", "1e400", "many", "", "1,2"])
def test_what_is_no_whole_number_is_refused(word):
    with pytest.raises(BCRLError, match=r"--steps is .*, but must be a whole number"):
        read(f"{TRAIN} --steps {word!r}")


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("trian --data log.npz", "did you mean train?"),
        ("data inof log.npz", "did you mean data info?"),
        (f"{TRAIN} --seed 1", "there is no --seed here; did you mean --seeds?"),
        (f"{TRAIN} --tau_x 0.2", "did you mean --tau-"),
        (f"{TRAIN} --method capss", "did you mean caps?"),
        (f"{TRAIN} --preset papr", "did you mean paper?"),
        (f"{TRAIN} --tracking sofd", "did you mean soft?"),
        (f"{TRAIN} --world BallRum", "did you mean BallRun"),
        ("evaluate run --world point-circel", "did you mean point-circle"),
        ("evaluate run --world BallCirlce", "did you mean BallCircle"),
        ("evaluate run --world point-run --executon soft", "did you mean --execution?"),
        ("bench --out b --methods bcrl --taks CarRun", "did you mean --tasks?"),
    ],
)
def test_a_typo_is_answered_with_the_nearest(line, hint, capsys):
    with pytest.raises(SystemExit) as stop:
        main(shlex.split(line))
    assert stop.value.code == 2
    (said,) = capsys.readouterr().err.splitlines()
    assert hint in said


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        (
            "train --data log.npz",
            "Missing --out: Folder of the run: config, metrics, checkpoint, policies. (see",
        ),
        (
            "evaluate run",
            "Missing --world: A built-in world (point-circle, point-run, point-goal), a DSRL task",
        ),
        (f"{TRAIN} --seeds", "--seeds needs a value: Seeds, such as 0,10,20, trained as one program."),
        ("evaluate run more --world point-run", "there is no place for 'more' here"),
        (f"{TRAIN} --method bc-safe", "Missing --threshold: "),
    ],
)
def test_what_is_missing_is_told_in_whole_sentences(line, wanted, capsys):
    with pytest.raises(SystemExit):
        main(shlex.split(line))
    (said,) = capsys.readouterr().err.splitlines()
    assert wanted in said
    assert said.endswith("--help)")


def help_of(line: str, capsys) -> str:
    with pytest.raises(SystemExit) as stop:
        main([*line.split(), "--help"])
    assert stop.value.code == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("verb", [*VERBS, "train --method caps", "train --method bcrl-td3bc"])
def test_help_is_plain_and_fits(verb, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    said = help_of(verb, capsys)
    for ugly in ("{None}", "None|", "(default: )", "Default: None", " INT", " FLOAT", "TypeVar"):
        assert ugly not in said, ugly
    assert max(map(len, said.splitlines())) <= 80
    for entry in re.split(r"\n  (?=[-A-Z])", said)[1:]:
        assert len(re.findall("default", entry, re.IGNORECASE)) <= 1, entry
        assert "\n        " in entry, f"no description: {entry}"


def test_help_of_train_is_in_groups_and_begins_with_what_matters(capsys):
    said = help_of("train", capsys)
    flags = re.findall(r"^  (--[\w-]+)", said, re.MULTILINE)
    first = ["--data", "--out", "--method", "--preset", "--family", "--world", "--seeds", "--steps"]
    assert flags[: len(first)] == first
    groups = re.findall(r"^(\S.*):$", said, re.MULTILINE)
    assert groups[:4] == [
        "what to train, and on what",
        "the run",
        "units",
        "the safe set: least-cost critics V_C and Q_C",
    ]
    assert "policy extraction" in groups
    assert "acting" in groups
    command, _ = command_for([])
    wanted = {option.flag for option in options_of(command, command_for([])[1])}
    assert set(flags) == wanted


def test_help_shows_ranges_and_units_from_their_declaration(capsys):
    said = " ".join(help_of("train", capsys).split())
    assert "Above 0 to 0.5. Default: 0.2." in said
    for flag, name, default in (("--hidden N,...", "hidden", "512,512"), ("--beta X", "beta", "3")):
        entry = said[said.index(f"{flag} ") :]
        limits = str(range_of(BCRL, name))
        assert f"{limits[0].upper()}{limits[1:]}. Default: {default}." in entry[:300]


def test_all_fields_of_all_verbs_are_described():
    for verb in VERBS:
        command, default = command_of(verb, [])
        found = options_of(command, default)
        assert len({option.name for option in found}) == len(found)
        for option in found:
            assert option.about, f"{verb}: {option.name}"
        if default is None:
            assert [option.name for option in found] == [field.name for field in fields(command)]
