"""Other options of acting for a trained policy: the policy that training with these options makes."""

import jax
import numpy as np
import pytest
from test_acting import untrained

import bcrl
from bcrl import runtime
from bcrl.calibration import Calibration
from bcrl.cli import main
from bcrl.errors import BCRLError
from bcrl.learn.bcrl import BCRL
from bcrl.learn.registry import METHODS, make_method
from bcrl.policy import Policy
from bcrl.report.card import option_pairs
from bcrl.report.inspection import inspect

OTHER = {
    "safety_factor": 1.7,
    "fallback_below": 0.9,
    "fallback_draws": 3,
    "fallback_beta": 2.0,
    "fallback_ramp": 4.0,
    "fallback_mixtures": 5,
    "check_action": False,
    "support": 0.2,
}


def deeds(policy, draw=None) -> np.ndarray:
    """What it does in three episodes of a batch."""
    rng = np.random.default_rng(5)
    episode = policy.start(threshold=[2.0, 5.0, 20.0], horizon=12, **({} if draw is None else {"draw": draw}))
    said = []
    for _ in range(6):
        said += [episode.act(rng.normal(size=(3, policy.spec.observation_size))), episode.slack]
        episode.observe(rng.random(3))
    return np.concatenate([np.ravel(x) for x in said])


def test_every_option_of_acting_is_tried_here():
    assert set(OTHER) == set(make_method("bcrl").acting)


def test_an_adjusted_policy_is_the_one_trained_with_these_options(tiny_log):
    """No option of acting takes part in the training of continuous actions without Q_F."""
    small = {"hidden": (8,), "batch_size": 16}
    made = bcrl.fit(tiny_log, BCRL(**small), steps=5).policy().adjusted(**OTHER)
    trained = bcrl.fit(tiny_log, BCRL(**small, **OTHER), steps=5).policy()
    assert made.method == trained.method
    for one, other in zip(jax.tree.leaves(made.learned), jax.tree.leaves(trained.learned), strict=True):
        assert np.array_equal(one, other)


@pytest.mark.parametrize("name", [name for name in OTHER if name != "support"])
def test_an_adjusted_policy_acts_as_one_made_with_that_option(name):
    made = untrained(fallback_draws=8).adjusted(**{name: OTHER[name]})
    assert np.array_equal(deeds(made), deeds(untrained(**{"fallback_draws": 8, name: OTHER[name]})))
    assert not np.array_equal(deeds(made), deeds(untrained(fallback_draws=8)))


def test_its_file_holds_the_option(tmp_path, tiny_policy):
    made = tiny_policy.adjusted(safety_factor=2.5, fallback_draws=0)
    made.save(tmp_path / "adjusted.bcrl")
    loaded = bcrl.load(tmp_path / "adjusted.bcrl")
    assert (loaded.method.safety_factor, loaded.method.fallback_draws) == (2.5, 0)
    assert np.array_equal(deeds(loaded), deeds(made))
    near = {"rtol": 1e-4, "atol": 1e-4}
    assert np.allclose(deeds(runtime.load(tmp_path / "adjusted.bcrl")), deeds(made), **near)


def test_its_file_says_what_the_training_had(tmp_path, tiny_policy):
    """Also adjusted twice; nothing is said once all is as it was."""
    twice = tiny_policy.adjusted(safety_factor=2.5).adjusted(safety_factor=3.0, fallback_draws=0)
    assert twice.provenance["adjusted"] == {"safety_factor": 1.3, "fallback_draws": 8}
    twice.save(tmp_path / "p.bcrl")
    pairs = dict(option_pairs(inspect(tmp_path / "p.bcrl", speed=False)))
    assert "safety_factor 1.3" in pairs["in training"]
    assert twice.adjusted(safety_factor=1.3, fallback_draws=8).provenance == tiny_policy.provenance


@pytest.mark.parametrize("said", [3, ["safety_factor"], {"hidden": 1, "x\x1b[2J": {}}])
def test_nonsense_in_a_file_about_its_training_does_no_harm(said, tmp_path, tiny_policy):
    policy = tiny_policy.adjusted()  # a copy
    policy.provenance["adjusted"] = said
    policy.save(tmp_path / "p.bcrl")
    assert "\x1b" not in str(option_pairs(inspect(tmp_path / "p.bcrl", speed=False)))
    assert bcrl.load(tmp_path / "p.bcrl").adjusted(safety_factor=2.5).provenance["adjusted"] == {
        "safety_factor": 1.3
    }


def test_options_are_in_the_users_unit(tiny_policy):
    """`fallback_below` is in c_max: what acts is in the same unit whether it was trained or adjusted."""
    assert tiny_policy.adjusted(fallback_below=0.3).learned.fallback_below == pytest.approx(
        tiny_policy.units.inside(make_method("bcrl", fallback_below=0.3)).fallback_below
    )


def test_what_training_uses_is_refused(tiny_policy):
    for name in ("tau_c", "hidden", "gamma_cost", "nonnegative_values"):
        with pytest.raises(BCRLError, match=f"no option of acting '{name}'"):
            tiny_policy.adjusted(**{name: 0.1})
    with pytest.raises(BCRLError, match=r"safety_factor is 0\.5, but must be a number from 1"):
        tiny_policy.adjusted(safety_factor=0.5)


def test_methods_without_such_options_have_none():
    assert {name for name, record in METHODS.items() if record.kind.acting} == {
        name for name, record in METHODS.items() if record.budgets
    }


def calibrated(policy: Policy) -> Policy:
    table = Calibration(((5.0, 6.0),), "0" * 64, "finite-horizon", 0, policy.spec.horizon)
    parts = (policy.learned, policy.method, policy.spec, policy.provenance, policy.units, policy.schema)
    return Policy(*parts, table)


def test_a_calibration_is_left_out(tmp_path, tiny_policy, capsys):
    calibrated(tiny_policy).save(tmp_path / "old.bcrl")
    main(f"adjust {tmp_path}/old.bcrl --set safety_factor=1 --out {tmp_path}/new.bcrl".split())
    assert "the calibration is left out" in capsys.readouterr().out
    assert bcrl.load(tmp_path / "old.bcrl").calibration
    assert bcrl.load(tmp_path / "new.bcrl").calibration is None


def test_the_verb_adjusts_every_seed_of_a_run(tiny_run, tmp_path, capsys):
    words = ["adjust", str(tiny_run.folder), "--set", "safety_factor=1,fallback_draws=4,check_action=false"]
    main([*words, "--out", str(tmp_path / "other")])
    said = capsys.readouterr().out
    assert "the adjusted policies:" in said
    assert "next: bcrl estimate" in said
    made = sorted((tmp_path / "other").iterdir())
    assert [file.name for file in made] == [
        file.name for file in sorted(tiny_run.folder.glob("policy*.bcrl"))
    ]
    for file in made:
        method = bcrl.load(file).method
        assert (method.safety_factor, method.fallback_draws, method.check_action) == (1.0, 4, False)
    with pytest.raises(SystemExit):
        main([*words, "--out", str(tmp_path / "other")])
    assert "give --overwrite" in capsys.readouterr().err
    main([*words, "--out", str(tmp_path / "other"), "--overwrite"])
    made[0].rename(tmp_path / "other" / "policy-77.bcrl")
    with pytest.raises(SystemExit):
        main([*words, "--out", str(tmp_path / "other"), "--overwrite"])
    assert "holds policy-77.bcrl of another run: name another folder" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("safety_factor=1,2", "--set: safety_factor has 2 values, but a policy has one"),
        ("safty_factor=1", "--set: bcrl has no option 'safty_factor'; did you mean safety_factor?"),
        ("tau_c=0.1", "bcrl has no option of acting 'tau_c'; it has safety_factor, "),
        ("safety_factor=x", "--set: safety_factor is 'x', but must be a number"),
        ("1", "--set is '1', but must begin with an option"),
    ],
)
def test_mistakes_are_told_and_nothing_is_written(value, said, tiny_run, tmp_path, capsys):
    with pytest.raises(SystemExit):
        main(["adjust", str(tiny_run.folder), "--set", value, "--out", str(tmp_path / "other")])
    assert said in capsys.readouterr().err
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize("inside", ["", "policy-5.bcrl"])
def test_the_folder_of_a_run_is_not_written_to(inside, tiny_run, capsys):
    out = tiny_run.folder / inside
    given = next(tiny_run.folder.glob("policy-*.bcrl")) if inside else tiny_run.folder
    with pytest.raises(SystemExit):
        main(["adjust", str(given), "--set", "support=0.1", "--out", str(out)])
    assert "holds a run: name another folder" in capsys.readouterr().err
