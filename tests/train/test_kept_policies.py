"""Policies of the way: which steps are kept, and that a stop changes nothing."""

from pathlib import Path

import pytest

import bcrl
from bcrl.errors import BCRLError
from bcrl.learn.baselines.bc import BCAll
from bcrl.train.folder import RunFolder, clear_run, policy_files
from bcrl.train.run import fit

METHOD = BCAll(hidden=(8,), batch_size=8)


def train(log, out: Path, **changes):
    given = {
        "seeds": (0, 3),
        "steps": 40,
        "log_every": 10,
        "checkpoint_every": 20,
        "keep_every": 20,
        **changes,
    }
    return fit(log, METHOD, out=out, **given)


def kept(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*.bcrl")}


@pytest.fixture(scope="module")
def whole(tiny_log, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("kept") / "run"
    train(tiny_log, out)
    return out


def test_they_lie_in_folders_of_their_own(whole):
    """The last policy is the run's own and not kept twice; whoever asks for the run's finds its own."""
    assert sorted(kept(whole)) == [
        "policy-0.bcrl",
        "policy-3.bcrl",
        "steps/20/policy-0.bcrl",
        "steps/20/policy-3.bcrl",
    ]
    assert [path.name for path in policy_files(whole)] == ["policy-0.bcrl", "policy-3.bcrl"]
    assert bcrl.load(whole / "steps/20/policy-3.bcrl").provenance["step"] == 20
    assert "step" not in bcrl.load(whole / "policy-3.bcrl").provenance


def test_a_stop_between_keeping_and_checkpoint_changes_nothing(whole, tiny_log, tmp_path, monkeypatch):
    def stop(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "checkpoint", stop)
        with pytest.raises(KeyboardInterrupt):
            train(tiny_log, tmp_path)
    assert sorted(kept(tmp_path)) == ["steps/20/policy-0.bcrl", "steps/20/policy-3.bcrl"]
    half = tmp_path / "steps/20/.policy-0.4711-0.bcrl"
    half.write_bytes(b"half")  # as a killed process leaves it
    train(tiny_log, tmp_path, resume=True)
    assert kept(tmp_path) == kept(whole)
    assert not half.exists()


def test_clearing_a_run_clears_them(tiny_log, tmp_path):
    train(tiny_log, tmp_path)
    clear_run(tmp_path)
    assert kept(tmp_path) == {}


def test_keeping_needs_a_folder_and_a_count(tiny_log, tmp_path):
    with pytest.raises(BCRLError, match="keep_every needs the folder"):
        fit(tiny_log, METHOD, steps=10, log_every=5, keep_every=5)
    with pytest.raises(BCRLError, match="keep_every is -1"):
        train(tiny_log, tmp_path, keep_every=-1)
    with pytest.raises(BCRLError, match=r"keep_every is 5, but must be .* at least log_every 10"):
        train(tiny_log, tmp_path, keep_every=5)
