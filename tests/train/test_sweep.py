"""Many settings as one program: each run is what it would be alone."""

import dataclasses
import json
import os
import signal
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bcrl.cli import main
from bcrl.errors import BCRLError, Stopped
from bcrl.learn.baselines.bc import BCSafe
from bcrl.learn.baselines.coptidice import COptiDICE
from bcrl.learn.protocol import Normaliser, Spec
from bcrl.learn.registry import METHODS, Record
from bcrl.learn.traced import differing, program_key, traced_options, with_traced
from bcrl.tensors import read_header
from bcrl.train.folder import RunFolder
from bcrl.train.run import fit, load_run
from bcrl.train.sweep import read_grid, settings, sweep

PACE = {"seeds": (0, 10), "steps": 40, "log_every": 10, "checkpoint_every": 20}
KEPT = ["checkpoint.safetensors", "config.json", "metrics.csv", "policy-0.bcrl", "policy-10.bcrl"]
SMALL = {"hidden": (8,), "vae_hidden": (8,), "batch_size": 8, "critic_batch": 4, "width": 8, "layers": 1}
SMALL |= {"policy_width": 8, "policy_blocks": 1, "context": 4, "latent": 4, "heads": 2, "threshold": 5.0}
CLONE = {"hidden": (8,), "batch_size": 8, "learning_rate": 1e-2}


def close(one, other) -> None:
    for x, y in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_allclose(np.asarray(x), np.asarray(y), rtol=1e-3, atol=1e-4)


def far(one, other) -> bool:
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    return max(float(np.abs(np.asarray(x) - np.asarray(y)).max()) for x, y in pairs) > 1e-2


def contents(folder: Path) -> dict[str, bytes]:
    files = (file for file in folder.rglob("*") if file.is_file() and not file.name.startswith("."))
    return {str(file.relative_to(folder)): file.read_bytes() for file in files}


# ---- what may be traced -----------------------------------------------------------------------------


@pytest.mark.parametrize("record", METHODS.values(), ids=METHODS)
def test_options_declared_traced_are_numbers_of_a_step(record: Record, tiny_log):
    """Arrays can stand in their place, all at once, and `prepare` does not depend on them."""
    known = {field.name for field in dataclasses.fields(record.kind)}  # type: ignore[arg-type]
    small = {name: value for name, value in SMALL.items() if name in known}
    method = record.kind(**(small | record.options))
    names = traced_options(record.kind)
    given = {name: 0.7 if (x := getattr(method, name)) is None else x for name in names}
    spec, normaliser = Spec.of(tiny_log, 5), Normaliser.of(tiny_log.observations)
    arrays = method.prepare(tiny_log, normaliser)

    def step(values, key):
        own = with_traced(method, values)
        batch = own.sample(arrays, key)
        return own.update(own.init(key, spec), batch, key, spec, own.schedule[-1])

    jax.eval_shape(step, {name: jnp.float32(x) for name, x in given.items()}, jax.random.key(0))
    if not isinstance(method, BCSafe):  # which has a `prepare_together` for that
        close(
            with_traced(method, {n: 0.9 * x for n, x in given.items()}).prepare(tiny_log, normaliser), arrays
        )


def test_methods_of_one_program_have_all_else_in_common():
    method = BCSafe(threshold=5.0)
    one, two = (dataclasses.replace(method, threshold=x, learning_rate=x / 1000) for x in (1.0, 2.0))
    assert program_key(one) == program_key(two)
    assert {name: values.tolist() for name, values in differing([one, two]).items()} == {
        "threshold": [1.0, 2.0],
        "learning_rate": [np.float32(1e-3), np.float32(2e-3)],
    }
    assert program_key(method) != program_key(dataclasses.replace(method, hidden=(4,)))
    assert program_key(method) != program_key(dataclasses.replace(method, dropout=0.2))
    assert not differing([one, one])


# ---- the same runs ----------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_setting_among_others_is_the_run_it_is_alone(tiny_run, tiny_method, tiny_log_file, tmp_path):
    from bcrl.data import load_data

    methods = settings(tiny_method, tau_c=(0.2, 0.4), beta=(3.0,))
    runs = sweep(load_data(tiny_log_file), methods, out=tmp_path, **PACE)
    assert list(runs) == ["tau_c=0.2,beta=3", "tau_c=0.4,beta=3"]
    assert sorted(file.name for file in tmp_path.iterdir()) == sorted(runs)
    for name, run in runs.items():
        assert sorted(contents(tmp_path / name)) == KEPT
        assert load_run(tmp_path / name).method == run.method == methods[name]
    same, other = runs.values()
    config = tmp_path / "tau_c=0.2,beta=3" / "config.json"
    assert config.read_text() == (tiny_run.folder / "config.json").read_text()
    for seed in (0, 10):
        close(same.policy(seed).learned, tiny_run.policy(seed).learned)
        close(load_run(tmp_path / "tau_c=0.2,beta=3").policy(seed).learned, tiny_run.policy(seed).learned)
        assert far(other.policy(seed).learned, tiny_run.policy(seed).learned)
    for row, alone in zip(same.metrics, tiny_run.metrics, strict=True):
        assert row.keys() == alone.keys()
        close(list(row.values()), list(alone.values()))


@pytest.mark.slow
@pytest.mark.parametrize("kind", [BCSafe, COptiDICE])
def test_thresholds_train_at_once(kind, tiny_log):
    """BC-Safe clones other episodes for each threshold; COptiDICE has it in its losses, in units of cost."""
    log = dataclasses.replace(tiny_log, costs=tiny_log.costs * 2.0)
    methods = settings(kind(threshold=20.0, **CLONE), threshold=(16.0, 20.0, 40.0))
    pace = {"seeds": (3, 4), "steps": 10, "log_every": 10}
    runs = sweep(log, methods, **pace)
    assert [run.method.trained_for for run in runs.values()] == [16.0, 20.0, 40.0]
    alone = fit(log, methods["threshold=20"], **pace)
    close(runs["threshold=20"].state, alone.state)
    close(runs["threshold=20"].policy(4).learned, alone.policy(4).learned)
    assert far(runs["threshold=16"].metrics, alone.metrics)


# ---- folders, stops and mistakes --------------------------------------------------------------------


METHOD = BCSafe(threshold=20.0, **CLONE)
GRID = {"threshold": (8.0, 20.0), "dropout": (0.0, 0.1)}  # dropout is no number of a step: two programs


@pytest.fixture(scope="module")
def whole(tiny_log, tmp_path_factory) -> dict[str, bytes]:
    out = tmp_path_factory.mktemp("whole")
    sweep(tiny_log, settings(METHOD, **GRID), out=out, **PACE)
    return contents(out)


def test_each_setting_has_a_folder(whole):
    names = [f"threshold={x},dropout={y}" for x in ("8", "20") for y in ("0", "0.1")]
    assert sorted(whole) == sorted(f"{name}/{file}" for name in names for file in KEPT)
    assert json.loads(whole[f"{names[3]}/config.json"])["options"]["threshold"] == 20.0


class Kill(BaseException):
    """Takes the place of SIGKILL: nothing is cleaned up but the locks."""


@pytest.mark.parametrize("checkpoint", [2, 3, 4])
def test_a_killed_sweep_resumes_to_the_same_bytes(checkpoint, whole, tiny_log, tmp_path, monkeypatch):
    """Also where some runs of a program have a later checkpoint than others."""
    written, write = [], RunFolder.checkpoint

    def killed(folder, *state):
        written.append(folder)
        if len(written) == checkpoint:
            raise Kill
        write(folder, *state)

    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "checkpoint", killed)
        with pytest.raises(Kill):
            sweep(tiny_log, settings(METHOD, **GRID), out=tmp_path, **PACE)
    sweep(tiny_log, settings(METHOD, **GRID), out=tmp_path, resume=True, **PACE)
    after = contents(tmp_path)
    assert after.keys() == whole.keys()
    if checkpoint == 3:  # the runs of the program stand at the same step
        assert after == whole
    for name in (str(Path(file).parent) for file in whole):
        close(load_run(tmp_path / name).policy(10).learned, fit_of(whole, name, tmp_path))


def fit_of(whole: dict[str, bytes], name: str, folder: Path):
    from bcrl.policy import load_learned

    file = folder / "whole.bcrl"
    file.write_bytes(whole[f"{name}/policy-10.bcrl"])
    return load_learned(file).learned


def test_a_stop_writes_every_checkpoint_of_the_program(tiny_log, tmp_path, monkeypatch):
    add = RunFolder.add

    def stopped(folder, rows):
        add(folder, rows)
        if rows[0]["step"] == 10:
            os.kill(os.getpid(), signal.SIGTERM)
            monkeypatch.undo()

    monkeypatch.setattr(RunFolder, "add", stopped)
    methods = settings(METHOD, learning_rate=(1e-2, 1e-3))
    with pytest.raises(Stopped, match="stopped at step 20; go on with --resume") as stop:
        sweep(tiny_log, methods, out=tmp_path, **(PACE | {"checkpoint_every": 40}))
    assert stop.value.status == 143
    for name in methods:
        assert read_header(tmp_path / name / "checkpoint.safetensors", "checkpoint")["step"] == 20


def test_one_setting_may_diverge(tiny_log, tmp_path):
    # Two such steps leave the range of a float32. (With 1e30 a saturated tanh stays finite on some machines.)
    methods = settings(METHOD, learning_rate=(1e-2, 3e38))
    with pytest.warns(UserWarning, match=r"learning_rate=3e\+38: training diverged"):
        runs = sweep(tiny_log, methods, out=tmp_path, **PACE)
    assert list(runs) == ["learning_rate=0.01"]
    assert sorted(contents(tmp_path / "learning_rate=0.01")) == KEPT
    assert "policy-0.bcrl" not in contents(tmp_path / "learning_rate=3e+38")


def test_a_sweep_needs_a_folder_of_its_own(tiny_log, tiny_run):
    with pytest.raises(BCRLError, match="holds a run, but a sweep needs a folder of its own"):
        sweep(tiny_log, {"one": METHOD}, out=tiny_run.folder, **PACE)
    with pytest.raises(BCRLError, match="cannot name a run"):
        sweep(tiny_log, {"../one": METHOD}, **PACE)
    with pytest.raises(BCRLError, match="at least one method"):
        sweep(tiny_log, {}, **PACE)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"betta": (1, 2)}, "bcrl has no option 'betta'.*beta"),
        ({"beta": 3.0}, "needs a list of values"),
        ({"beta": (3, 3.0)}, "beta=3 is there twice"),
        ({"beta": (-1.0,)}, "beta is -1.0, but must be a number above 0"),
    ],
)
def test_settings_are_checked(options, words, tiny_method):
    with pytest.raises(BCRLError, match=words):
        settings(tiny_method, **options)


def test_words_of_a_sweep(tiny_method):
    words = ["tau-c=0.2,3e-1", "hidden=8x4,16", "phases=in-turn", "batch_size=1e3", "temperature_c=None,1"]
    assert read_grid(type(tiny_method), [*words, "nonnegative_values=false"]) == {
        "tau_c": [0.2, 0.3],
        "hidden": [(8, 4), (16,)],
        "phases": ["in-turn"],
        "batch_size": [1000],
        "temperature_c": [None, 1.0],
        "nonnegative_values": [False],
    }
    assert list(settings(tiny_method, hidden=[(8, 4)], tau_c=[0.1 + 0.2])) == [
        "hidden=8x4,tau_c=0.30000000000000004"
    ]
    assert read_grid(type(tiny_method), []) == {}
    for wrong, said in {
        "0.2": "must begin with an option",
        "tau_c=x": "tau_c is 'x', but must be a number",
        "batch_size=1.5": "batch_size is '1.5', but must be a whole number",
        "taub=1": "bcrl has no option 'taub'",
        "tau_c=0.1 tau_c=0.2": "tau_c is there twice",
    }.items():
        with pytest.raises(BCRLError, match=said):
            read_grid(type(tiny_method), wrong.split())


def test_the_verb(tiny_log_file, tmp_path, capsys):
    out = tmp_path / "swept"
    words = f"train --data {tiny_log_file} --out {out} --method bc-safe --steps 10 --batch-size 8"
    more = "--hidden 8 --sweep threshold=10,20 dropout=0.1 --seeds 0,10"
    main([*words.split(), *more.split()])
    said = capsys.readouterr().out
    assert "trained 2 settings of bc-safe for 10 steps" in said
    assert f"next: bcrl choose {out}/* --data {tiny_log_file}" in said
    assert sorted(file.name for file in out.iterdir()) == [f"threshold={x},dropout=0.1" for x in (10, 20)]
    main([*words.split(), *more.split(), "--resume"])
    with pytest.raises(SystemExit):
        main([*words.split(), *more.split()])
    assert "holds a run already: give --resume" in capsys.readouterr().err
