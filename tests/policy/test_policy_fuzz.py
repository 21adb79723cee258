"""Fuzzing of policy files, learned and tabular.

Whatever is in a file, loading it gives one printable line that begins with its path, or a policy that acts:
no other exception, no hang, no memory beyond a limit.
"""

import copy
import dataclasses
import functools
import json
import math
import operator
import resource
import string
import struct
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from policy_bytes import parts, split, write

import bcrl
from bcrl import runtime
from bcrl.cmdp import GridWorld, TabularPolicy, plan
from bcrl.errors import BCRLError
from bcrl.learn.registry import METHODS

LONGEST = 600  # characters of a message, besides the path
MEMORY = 500  # MB

KINDS = ("learned", "tabular")
NAMES = (
    "format",
    "version",
    "kind",
    "method",
    "options",
    "spec",
    "sizes",
    "hidden",
    "__metadata__",
    "sha256",
)
TYPES = ("F32", "F64", "F16", "BF16", "F8_E4M3", "I8", "U8", "I16", "I32", "I64", "BOOL", "C64", "X", "")

words = st.one_of(
    st.text(st.characters(codec="utf-8"), max_size=12),
    st.text(string.whitespace + "\x00\x1b\x07\u202e\u2028[]{}%'\"\\", max_size=8),
    st.sampled_from(["x" * 5_000, "bcrl", "cdt", "bc-all", "soft", "slack", "paper", *NAMES]),
)
numbers = st.one_of(
    st.integers(-3, 70),
    st.sampled_from([2**31 - 1, 2**31, 2**63, 2**64, 10**30, 10**400, 10**4000, -(10**400)]),
    st.floats(),
    st.sampled_from([math.nan, math.inf, -math.inf, 1e300, 5e-324, 0.0, -0.0, 1.0]),
)
leaves = st.one_of(st.none(), st.booleans(), numbers, words)
values = st.one_of(
    leaves,
    st.recursive(
        leaves,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(words, inner, max_size=3),
        max_leaves=8,
    ),
    st.sampled_from([[8] * 100_000, [[]], {}, [], [True], json.loads("[" * 300 + "]" * 300)]),
)
fuzzed = settings(
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture], database=None
)


@pytest.fixture(scope="module")
def files(tiny_policy, tmp_path_factory) -> dict[str, bytes]:
    """A small file of each kind."""
    place = tmp_path_factory.mktemp("fuzz") / "policy.bcrl"
    made = {}
    model = GridWorld("tiny", ("SXG", "..."), 0.1).cmdp
    for kind, policy in zip(KINDS, (tiny_policy, plan(model, 0.3, bins=5)), strict=True):
        policy.save(place)
        made[kind] = place.read_bytes()
    return made


@pytest.fixture(scope="module", autouse=True)
def _memory(files):
    """The peak of the process may not rise by more than `MEMORY` in all tests of this file."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    yield
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < MEMORY * 1024


def check(path: Path) -> str:
    """What comes of loading a file and acting with it, by JAX and by numpy: the line of a refusal, or ""."""
    outcome(path, runtime.load)
    return outcome(path, bcrl.load)


def outcome(path: Path, load: Callable[[Path], Any]) -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            policy = load(path)
        except BCRLError as error:
            line = str(error)
            assert line.startswith(f"{path}: ")
            assert line.isprintable()
            assert len(line) < LONGEST + len(str(path))
            return line
        try:
            act(policy)
        except BCRLError as error:  # finite weights can still be too large to act with
            if "no finite action" not in str(error):
                raise
    return ""


def act(policy: Any) -> None:
    if isinstance(policy, TabularPolicy):
        episode = policy.start(budget=[1.0] * len(policy.model.costs), seed=0)
        assert 0 <= episode.act(0) < policy.model.actions
        episode.observe(np.zeros(len(policy.model.costs)))
        return
    costs = policy.spec.cost_count
    episode = policy.start(threshold=1.0 if costs == 1 else np.ones(costs), horizon=2, seed=0)
    action = episode.act(np.zeros(policy.spec.observation_size))
    assert np.isfinite(action).all()
    assert np.abs(action).max() <= 1


def places(tree: Any, here: tuple = ()) -> list[tuple]:
    """The paths of all values in a JSON tree."""
    inside = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    return [place for key, value in inside for place in ((*here, key), *places(value, (*here, key)))]


def change(data: st.DataObject, tree: Any) -> None:
    """Replaces, removes or adds one value, or two."""
    known = places(tree)
    for *way, last in data.draw(st.lists(st.sampled_from(known), min_size=1, max_size=2)):
        deed = data.draw(st.sampled_from(["put", "put", "put", "drop", "add"]))
        name, value = data.draw(words), copy.deepcopy(data.draw(values))
        with suppress(KeyError, IndexError, TypeError):  # the first change took the second one's place away
            section = functools.reduce(operator.getitem, way, tree)
            if deed == "drop":
                del section[last]
            else:
                section[last if deed == "put" else name] = value


@pytest.mark.parametrize("kind", KINDS)
@settings(fuzzed, max_examples=150)
@given(data=st.data())
def test_headers(kind: str, files: dict[str, bytes], tmp_path: Path, data: st.DataObject) -> None:
    header, tensors = split(files[kind])
    change(data, header)
    write(tmp_path / "policy.bcrl", header, tensors)
    check(tmp_path / "policy.bcrl")


@settings(fuzzed, max_examples=150)
@given(data=st.data())
def test_headers_of_every_method(files: dict[str, bytes], tmp_path: Path, data: st.DataObject) -> None:
    """Options of each method, some changed: the networks that they describe are never made."""
    header, tensors = split(files["learned"])
    header["method"] = data.draw(st.sampled_from(sorted(METHODS)))
    options = {field.name: field.default for field in dataclasses.fields(METHODS[header["method"]].kind)}
    options |= {"threshold": 1.0} if "threshold" in options else {}  # has no default
    header["options"] = json.loads(json.dumps(options))
    sections = {name: header[name] for name in ("options", "spec")}
    change(data, sections)
    write(tmp_path / "policy.bcrl", header | sections, tensors)
    assert check(tmp_path / "policy.bcrl")


def cast(array: np.ndarray, kind: Any) -> np.ndarray:
    """As `astype`, whatever is lost."""
    with np.errstate(all="ignore"):
        return array.astype(kind)


@pytest.mark.parametrize("kind", KINDS)
@settings(fuzzed, max_examples=150)
@given(data=st.data())
def test_tensors(kind: str, files: dict[str, bytes], tmp_path: Path, data: st.DataObject) -> None:
    """Dropped, renamed, doubled, of other types and shapes and values; the digest is right."""
    header, tensors = split(files[kind])
    names = st.sampled_from(sorted(tensors))
    for _ in range(data.draw(st.integers(1, 2))):
        name = data.draw(names.filter(lambda name: name in tensors))
        deed = data.draw(st.sampled_from(["drop", "rename", "double", "type", "shape", "value", "value"]))
        array = tensors[name]
        if deed in ("drop", "rename"):
            del tensors[name]
        if deed in ("rename", "double"):
            tensors[data.draw(words | names)] = array.copy()
        elif deed == "type":
            kinds = [np.float16, np.float32, np.float64, np.int8, np.int32, np.int64, np.uint64, np.bool_]
            tensors[name] = cast(array, data.draw(st.sampled_from(kinds)))
        elif deed == "shape":
            shapes = [array.ravel(), array[None], array.reshape(-1)[:0], array[..., None], array.ravel()[:1]]
            tensors[name] = data.draw(st.sampled_from(shapes)).copy()
        elif deed == "value" and array.size:
            tensors[name] = array = array.copy()
            numbers = [0, 1, -1, 7, -(10**9), 3e38, -3e38, 1e-38, math.nan, math.inf]
            number = cast(np.array(data.draw(st.sampled_from(numbers))), array.dtype)
            array.reshape(-1)[
                data.draw(st.integers(0, array.size - 1)) if data.draw(st.booleans()) else ...
            ] = number
    write(tmp_path / "policy.bcrl", header, tensors)
    check(tmp_path / "policy.bcrl")


@pytest.mark.parametrize("kind", KINDS)
@settings(fuzzed, max_examples=150)
@given(data=st.data())
def test_tables(kind: str, files: dict[str, bytes], tmp_path: Path, data: st.DataObject) -> None:
    """The table of the safetensors file: types, shapes and offsets that do not belong to its numbers."""
    table, body = parts(files[kind])
    change(data, table)
    if data.draw(st.booleans()):
        name = data.draw(st.sampled_from(sorted(table)))
        if isinstance(table[name], dict):
            table[name]["dtype"] = data.draw(st.sampled_from(TYPES))
    text = json.dumps(table).encode()
    (tmp_path / "policy.bcrl").write_bytes(struct.pack("<Q", len(text)) + text + body)
    check(tmp_path / "policy.bcrl")


@pytest.mark.parametrize("kind", KINDS)
@settings(fuzzed, max_examples=150)
@given(data=st.data())
def test_bytes(kind: str, files: dict[str, bytes], tmp_path: Path, data: st.DataObject) -> None:
    """Bytes changed anywhere, a piece removed or put in, the end cut off: always refused, or harmless."""
    content = bytearray(files[kind])
    # The header is a small part of the file, and the part where damage is most varied.
    place = st.integers(0, 300) | st.integers(0, len(content) - 1)
    for _ in range(data.draw(st.integers(1, 4))):
        start, length = data.draw(place), data.draw(st.integers(0, 20))
        content[start : start + length] = data.draw(st.binary(max_size=20))
    if data.draw(st.booleans()):
        del content[data.draw(place) :]
    (tmp_path / "policy.bcrl").write_bytes(content)
    check(tmp_path / "policy.bcrl")


@pytest.mark.parametrize("kind", KINDS)
def test_the_files_that_are_changed_load(kind: str, files: dict[str, bytes], tmp_path: Path) -> None:
    """Or the tests above would see nothing but refusals."""
    write(tmp_path / "policy.bcrl", *split(files[kind]))
    assert check(tmp_path / "policy.bcrl") == ""
