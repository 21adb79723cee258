"""`bcrl train --world`: the defaults of the task the log is from."""

from typing import Any

import pytest

from bcrl.cli.arguments import parse
from bcrl.cli.train import command_for
from bcrl.errors import BCRLError
from bcrl.learn.registry import default_steps, make_method

FILES = ["--data", "log.npz", "--out", "run"]


def read(*words: str) -> Any:
    command, default = command_for([*words, *FILES])
    return parse(command, "bcrl train", [*words, *FILES], default)


@pytest.mark.parametrize(
    ("world", "family"),
    [
        ("BallRun", "bullet"),
        ("carcircle", "bullet"),
        ("PointCircle1", "safety-gym"),
        ("easysparse", "metadrive"),
        ("point-run", "point"),
    ],
)
def test_a_world_brings_its_family(world: str, family: str) -> None:
    asked = read("--world", world)
    assert asked.options == make_method("bcrl", family=family)
    assert (asked.family, asked.steps) == (family, default_steps("bcrl", "paper", family))


def test_what_the_user_gives_wins() -> None:
    assert read("--world=CarCircle", "--tau-c", "0.1").options.tau_c == 0.1
    assert read("--world", "BallRun", "--family", "safety-gym").family == "safety-gym"
    assert read("--world", "BallRun", "--preset", "cpu").options.hidden == (64, 64)


def test_options_of_bcrl_are_not_taken_for_those_of_another_method() -> None:
    asked = read("--world", "CarCircle", "--method", "caps")
    assert asked.options == make_method("caps", family="bullet")


def test_an_unknown_world_is_told() -> None:
    with pytest.raises(BCRLError, match=r"did you mean BallRun.*give --family"):
        read("--world", "BallRum")
