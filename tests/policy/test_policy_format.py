"""docs/policy-file.md is enough to write a reader: one that follows it agrees with the package."""

import re
import sys
from pathlib import Path

import numpy as np
import pytest
import second_reader
from policy_bytes import split, write

from bcrl import runtime
from bcrl.data import Schema

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))
from runtime_agreement import CASES, Case, make_policy  # noqa: E402


@pytest.mark.parametrize("case", CASES[::3], ids=lambda case: case.name)
def test_the_second_reader_finds_the_same_header_and_tensors(case, tmp_path):
    make_policy(case, (4,)).save(tmp_path / "p.bcrl")
    header, tensors = second_reader.read(tmp_path / "p.bcrl")
    wanted_header, wanted = split((tmp_path / "p.bcrl").read_bytes())
    assert header == wanted_header
    assert tensors.keys() == wanted.keys()
    for name, tensor in tensors.items():
        np.testing.assert_array_equal(np.reshape(tensor["values"], tensor["shape"]), wanted[name])


def test_the_second_reader_notices_damage(tmp_path):
    path = tmp_path / "p.bcrl"
    make_policy(CASES[0], (4,)).save(path)
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(content)
    with pytest.raises(ValueError, match="digest"):
        second_reader.read(path)


@pytest.mark.parametrize("threshold", [0.5, 60.0])
def test_a_forward_pass_by_hand_is_the_policys(threshold, tmp_path):
    bounds = Schema(action_low=(-2.0, 0.0, 5.0), action_high=(2.0, 1.0, 6.0))
    case = Case("by hand", options={"fallback_draws": 0}, units=(2.5,), schema=bounds)
    path = tmp_path / "p.bcrl"
    policy = make_policy(case, (6, 5))
    policy.save(path)
    seen = np.random.default_rng(0).normal(size=5).astype(np.float32)
    action, slack, fallback, charge = second_reader.first_step(path, seen.tolist(), threshold, 30)
    for loaded in (policy, runtime.load(path)):
        episode = loaded.start(threshold=threshold, horizon=30, execution="finite-horizon")
        np.testing.assert_allclose(episode.act(seen), action, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(episode.slack, [slack], rtol=1e-4, atol=1e-4)
        assert bool(episode.fallback) == fallback == (threshold < 1)
    np.testing.assert_allclose(np.ravel(policy.start(threshold=1).memory.charge), [0])
    acted = policy.start(threshold=threshold, horizon=30)
    acted.act(seen)
    np.testing.assert_allclose(acted.memory.charge, [charge], atol=1e-4)


def test_every_field_and_tensor_is_in_the_document(tmp_path):
    text = (ROOT / "docs/policy-file.md").read_text(encoding="utf-8")
    spans = set(re.findall(r"`([^`\n]+)`", text))
    for case in CASES:
        make_policy(case, (4,)).save(tmp_path / "p.bcrl")
        header, tensors = split((tmp_path / "p.bcrl").read_bytes())
        fields = {*header, *header["spec"], *header["units"], *header["schema"]}
        acting = runtime.METHODS[header["method"]][0]
        assert not sorted({*fields, *acting} - spans)
        plain = {re.sub(r"(weights|biases|norms)\[\d+\]", r"\1[i]", tensor) for tensor in tensors}
        assert not sorted(plain - spans)


def test_a_later_version_is_refused(tmp_path):
    path = tmp_path / "p.bcrl"
    make_policy(CASES[0], (4,)).save(path)
    header, tensors = split(path.read_bytes())
    write(path, header | {"version": 2}, tensors)
    with pytest.raises(runtime.BCRLError, match="version is 2, this runtime reads 1"):
        runtime.load(path)
