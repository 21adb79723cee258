"""The policy file: what was saved is what is loaded, bit for bit, and what is damaged is refused."""

import dataclasses
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import jax
import numpy as np
import pytest
from policy_bytes import Header, Tensors, split, write

import bcrl
from bcrl import runtime
from bcrl.errors import BCRLError
from bcrl.learn.baselines.bc import BCAll
from bcrl.policy import Policy
from bcrl.train.run import fit


@pytest.fixture(scope="module")
def path(tiny_policy, tmp_path_factory) -> Path:
    place = tmp_path_factory.mktemp("policy") / "policy.bcrl"
    tiny_policy.save(place)
    return place


def deeds(policy, execution: str = "min", candidates: int = 4) -> list[bytes]:
    """Everything two short episodes decide, as bytes: one alone and a batch."""
    rng = np.random.default_rng(5)
    alone = policy.start(threshold=6.0, horizon=12, execution=execution, candidates=candidates)
    batch = policy.start(threshold=[0.0, 3.0, 20.0], execution=execution, candidates=candidates, seed=3)
    said = []
    for _ in range(6):
        seen = rng.normal(size=(3, policy.spec.observation_size))
        said += [alone.act(seen[0]), alone.slack, alone.fallback]
        said += [batch.act(seen), batch.slack, batch.fallback]
        alone.observe(float(rng.random()))
        batch.observe(rng.random(3))
    return [np.ascontiguousarray(x).tobytes() for x in said]


@pytest.mark.parametrize(("execution", "candidates"), [("min", 4), ("finite-horizon", 0), ("direct", 0)])
def test_a_loaded_policy_acts_identically(execution, candidates, tiny_policy, path):
    assert deeds(bcrl.load(path), execution, candidates) == deeds(tiny_policy, execution, candidates)


def test_a_loaded_policy_acts_identically_in_another_process(tiny_policy, path):
    code = (
        "import sys, bcrl; sys.path.insert(0, sys.argv[1]); from test_policy_file import deeds\n"
        "print(b''.join(deeds(bcrl.load(sys.argv[2]))).hex())"
    )
    words = [sys.executable, "-c", code, str(Path(__file__).parent), str(path)]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == b"".join(deeds(tiny_policy)).hex()


def test_deeds_tell_policies_apart(tiny_run, tiny_policy):
    """Or the two tests above would say nothing."""
    assert deeds(tiny_run.policy(0)) != deeds(tiny_policy)


def test_loading_and_saving_again_gives_the_same_file(path, tmp_path):
    bcrl.load(path).save(tmp_path / "again.bcrl")
    assert (tmp_path / "again.bcrl").read_bytes() == path.read_bytes()


def test_the_file_tells_where_it_comes_from(tiny_log, tiny_run, path):
    policy = bcrl.load(path)
    assert (
        policy.provenance.items()
        >= {
            "bcrl": bcrl.__version__,
            "data": "tiny.npz",
            "data_sha256": tiny_log.fingerprint(),
            "steps": 40,
            "seed": 10,
        }.items()
    )
    assert policy.method == tiny_run.method
    assert policy.spec == tiny_run.spec


def test_the_file_carries_the_cost_critics_and_their_mean_at_the_start(tiny_log, path):
    header, tensors = split(path.read_bytes())
    assert header["format"] == "bcrl-policy"
    assert header["version"] == 1
    assert any("cost_value" in name for name in tensors)
    assert any("cost_critic" in name for name in tensors)
    actor = bcrl.load(path).learned
    values = np.asarray(actor.least_cost(actor.normaliser(tiny_log.initial_observations)))
    assert values.shape == (8, 1)
    stored = tensors[next(name for name in tensors if "mean_start_value" in name)]
    np.testing.assert_allclose(stored, values.mean(0), rtol=1e-5)


def test_a_cloned_policy_goes_through_a_file_too(tiny_log, tmp_path):
    method = BCAll(hidden=(8,), batch_size=16)
    policy = fit(tiny_log, method, steps=2, log_every=2).policy()
    policy.save(tmp_path / "clone.bcrl")
    loaded = bcrl.load(tmp_path / "clone.bcrl")
    assert deeds(loaded, "finite-horizon", 0) == deeds(policy, "finite-horizon", 0)
    assert loaded.method == method


@pytest.mark.parametrize("asked", [{"candidates": 4}, {"execution": "soft"}, {"budget": 3.0}])
def test_rules_for_budgets_are_refused_where_none_is_tracked(asked, tiny_log, tiny_policy):
    policy = fit(tiny_log, BCAll(hidden=(8,), batch_size=16), steps=2, log_every=2).policy()
    if "budget" not in asked:
        asked = {"threshold": 3.0, **asked}
    with pytest.raises(BCRLError, match="bc-all tracks no budget: give threshold"):
        policy.start(**asked)
    tiny_policy.start(**asked)


def test_there_is_no_pickle_in_the_file(path):
    _, tensors = split(path.read_bytes())
    found, wanted = sum(x.nbytes for x in tensors.values()), jax.tree.leaves(bcrl.load(path).learned)
    assert found == sum(np.asarray(x).nbytes for x in wanted)  # numbers, and nothing besides


def edited(change: Callable[[Header, Tensors], object]) -> Callable[[bytes, Path], None]:
    """Damage that needs a well-formed file."""

    def damage(content: bytes, path: Path) -> None:
        header, tensors = split(content)
        change(header, tensors)
        write(path, header, tensors)

    return damage


def put(**values: object) -> Callable[[bytes, Path], None]:
    return edited(lambda header, _: header.update(values))


def put_in(section: str, **values: object) -> Callable[[bytes, Path], None]:
    return edited(lambda header, _: header[section].update(values))


def first(tensors: Tensors) -> str:
    return min(tensors)


def spoil(tensors: Tensors, value: float) -> None:
    tensors[first(tensors)] = np.full_like(tensors[first(tensors)], value)


def no_metadata(content: bytes, path: Path) -> None:
    from safetensors.numpy import save_file

    save_file(split(content)[1], path)


DAMAGE: dict[str, tuple[Callable[[bytes, Path], object], str]] = {
    "no file": (lambda content, path: None, "there is no such file"),
    "folder": (lambda content, path: path.mkdir(), "is a folder; give the file of a policy"),
    "empty": (lambda content, path: path.write_bytes(b""), "not a readable bcrl policy"),
    "text": (lambda content, path: path.write_text("hello\n" * 50), "not a readable bcrl policy"),
    "cut in the header": (lambda content, path: path.write_bytes(content[:100]), "cut short"),
    "cut in the numbers": (lambda content, path: path.write_bytes(content[:-1]), "cut short"),
    "no header of ours": (no_metadata, "not a bcrl policy"),
    "another format": (put(format="bcrl-checkpoint"), "not a bcrl policy"),
    "version 2": (put(version=2), "version is 2, this bcrl reads 1"),
    "no version": (edited(lambda header, _: header.pop("version")), "version is None"),
    "unknown method": (put(method="cpo"), "'cpo'"),
    "method of no name": (put(method=["bcrl"]), "method"),
    "unknown option": (put_in("options", colour="red"), "option 'colour' is unknown"),
    "option out of range": (put_in("options", tau_c=3.0), "tau_c"),
    "option of another type": (put_in("options", tau_c="high"), "damaged"),
    "option that is no choice": (put_in("options", tracking="hard"), "tracking"),
    "options are a list": (put(options=[1, 2]), "damaged"),
    "no spec": (edited(lambda header, _: header.pop("spec")), "spec is damaged"),
    "spec without costs": (edited(lambda header, _: header["spec"].pop("max_cost")), "spec is damaged"),
    "spec with a word": (put_in("spec", observation_size="six"), "spec"),
    "spec below zero": (put_in("spec", action_size=-1), "spec"),
    "spec beyond int32": (put_in("spec", horizon=2**31), "spec"),
    "option of a million layers": (put_in("options", hidden=[8] * 1_000_000), "hidden"),
    "option of a giant layer": (put_in("options", hidden=[10**9]), "hidden"),
    "option beyond all floats": (put_in("options", beta=10**400), "beta"),
    "whole option beyond int32": (put_in("options", fallback_beta=10**30), "fallback_beta"),
    "whole cost beyond int32": (put_in("spec", max_cost=[10**30]), "max_cost"),
    "option null": (put_in("options", batch_size=None), "batch_size"),
    "draws beyond memory": (put_in("options", fallback_draws=10**9), "fallback_draws"),
    "deep header": (put(provenance=json.loads("[" * 400 + "]" * 400)), "provenance is damaged"),
    "std 0": (
        edited(lambda _, t: t.update({".normaliser.std": np.zeros(6, np.float32)})),
        "standard deviation is not positive",
    ),
    "missing tensor": (edited(lambda _, t: t.pop(first(t))), "is missing"),
    "unknown tensor": (
        edited(lambda _, t: t.update(extra=np.zeros(1, np.float32))),
        "tensor extra is unknown",
    ),
    "wrong shape": (
        edited(lambda _, t: t.update({first(t): np.zeros((3, 3), np.float32)})),
        "expected float32",
    ),
    "wrong type": (
        edited(lambda _, t: t.update({first(t): t[first(t)].astype(np.int32)})),
        "expected float32",
    ),
    "NaN": (edited(lambda _, t: spoil(t, np.nan)), "NaN or infinity"),
    "infinity": (edited(lambda _, t: spoil(t, -np.inf)), "NaN or infinity"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_a_damaged_policy_file_is_refused_in_one_line(name, path, tmp_path):
    damage, words = DAMAGE[name]
    broken = tmp_path / "broken.bcrl"
    damage(path.read_bytes(), broken)
    with pytest.raises(BCRLError) as refused:
        bcrl.load(broken)
    line = str(refused.value)
    assert line.startswith(f"{broken}: ")
    assert words in line
    assert "\n" not in line


def test_every_flipped_bit_is_noticed(path, tmp_path):
    """In the header and in the numbers alike: a file that loads is the file that was saved."""
    content, random = bytearray(path.read_bytes()), np.random.default_rng(0)
    wanted = deeds(bcrl.load(path))
    for place in random.integers(0, 8 * len(content), 200):
        flipped = bytearray(content)
        flipped[place // 8] ^= 1 << (place % 8)
        file = tmp_path / "flipped.bcrl"
        file.write_bytes(flipped)
        try:
            policy = bcrl.load(file)
        except BCRLError:
            continue
        assert deeds(policy) == wanted  # white space of the JSON, say


def test_a_file_without_a_digest_loads_with_a_warning(path, tmp_path):
    from safetensors.numpy import save_file

    header, tensors = split(path.read_bytes())
    for name in ("sha256", "units", "schema"):  # what older versions did not write
        del header[name]
    save_file(tensors, tmp_path / "old.bcrl", metadata={"bcrl": json.dumps(header)})
    with pytest.warns(UserWarning, match="has no digest"):
        old = bcrl.load(tmp_path / "old.bcrl")
    new = bcrl.load(path)
    assert deeds(old) == deeds(Policy(new.learned, new.method, new.spec, new.provenance))  # in no unit


def test_rewriting_alone_is_no_damage(path, tmp_path):
    """Or the table above could refuse files for how this test writes them."""
    edited(lambda *_: None)(path.read_bytes(), tmp_path / "same.bcrl")
    assert deeds(bcrl.load(tmp_path / "same.bcrl")) == deeds(bcrl.load(path))


def test_others_may_read_the_file(path, tmp_path):
    """As any file the user makes: the permissions follow the umask."""
    plain = tmp_path / "plain"
    plain.touch()
    assert path.stat().st_mode == plain.stat().st_mode


def test_options_of_the_file_are_all_of_the_method(path):
    header, _ = split(path.read_bytes())
    assert set(header["options"]) == {field.name for field in dataclasses.fields(bcrl.BCRL)}


@pytest.mark.parametrize("odd", [None, 5, [], b"p.bcrl"])
def test_a_file_is_named_by_its_path(odd):
    for read in (bcrl.load, bcrl.load_data):
        with pytest.raises(BCRLError, match="is named by its path"):
            read(odd)


@pytest.mark.parametrize("name", ["x" * 300, "a\x1b[31m", "a\nb", "x\x00"])
def test_an_odd_name_is_one_printable_line(name, tmp_path):
    for read, suffix in ((bcrl.load, ".bcrl"), (bcrl.load_data, ".npz")):
        with pytest.raises(BCRLError, match="there is no such file") as refused:
            read(tmp_path / (name + suffix))
        assert str(refused.value).isprintable()


@pytest.mark.parametrize(
    "odd", [{"seed": "x"}, {"seed": -1}, {"seed": 10**400}, {"seed": True}, {"data": [1]}]
)
def test_odd_provenance_is_refused(odd, tiny_policy, tmp_path):
    tiny_policy.save(tmp_path / "p.bcrl")
    header, tensors = split((tmp_path / "p.bcrl").read_bytes())
    write(tmp_path / "p.bcrl", header | {"provenance": header["provenance"] | odd}, tensors)
    with pytest.raises(BCRLError, match="provenance is damaged"):
        bcrl.load(tmp_path / "p.bcrl")


def test_a_digest_with_a_damaged_name_is_no_older_file(tiny_policy, tmp_path):
    tiny_policy.save(tmp_path / "p.bcrl")
    content = (tmp_path / "p.bcrl").read_bytes()
    (tmp_path / "p.bcrl").write_bytes(content.replace(b'\\"sha256\\"', b'\\"sha257\\"'))
    with pytest.raises(BCRLError, match="is damaged"):
        bcrl.load(tmp_path / "p.bcrl")


def test_a_file_from_before_actions_were_checked_and_critics_scaled_acts_as_it_did(tiny_policy, tmp_path):
    tiny_policy.save(tmp_path / "new.bcrl")
    header, tensors = split((tmp_path / "new.bcrl").read_bytes())
    assert header["options"].pop("check_action")
    assert header["options"].pop("safety_factor") > 1.0
    write(tmp_path / "old.bcrl", header, tensors)
    assert bcrl.load(tmp_path / "new.bcrl").actor.inside.guarded
    old = bcrl.load(tmp_path / "old.bcrl")
    assert not old.method.check_action
    assert not old.actor.inside.guarded
    assert old.method.safety_factor == old.actor.inside.safety_factor == 1.0
    assert runtime.load(tmp_path / "new.bcrl").actor.guarded
    assert not runtime.load(tmp_path / "old.bcrl").actor.guarded
    assert runtime.load(tmp_path / "old.bcrl").actor.factor == 1.0
