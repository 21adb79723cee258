"""Whatever a message is made of, it is one printable line of bounded length."""

import pytest

from bcrl.errors import BCRLError, brief_repr


@pytest.mark.parametrize("text", ["a\x1b[31m", "a\nb", "\x00", "\u202e", "\udcff", "x" * 10_000])
def test_an_error_is_one_printable_line(text):
    line = str(BCRLError(f"file: {text}"))
    assert line.startswith("file: ")
    assert line.isprintable()
    assert len(line) < 2_100


def test_a_deep_value_has_a_repr():
    deep: list = []
    for _ in range(100_000):
        deep = [deep]
    assert brief_repr({"a": deep}) == "a dict that is nested too deeply"


def test_a_huge_integer_has_a_repr():
    assert brief_repr([10**5_000]) == "a list with an integer of thousands of digits"
