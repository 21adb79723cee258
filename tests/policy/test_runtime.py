"""The numpy runtime: acts as JAX does, refuses what JAX refuses, needs numpy alone."""

import dataclasses
import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from policy_bytes import split, write
from test_policy_file import DAMAGE

import bcrl
from bcrl import runtime
from bcrl.calibration import Calibration
from bcrl.data import Schema
from bcrl.errors import BCRLError, brief_repr
from bcrl.learn.registry import METHODS, OLD_VALUES
from bcrl.learn.units import Units

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))
from runtime_agreement import (  # noqa: E402
    CASES,
    RULES,
    TOLERANCE,
    adopt_numpy,
    compare,
    make_policy,
    noise_of,
)


@pytest.fixture(scope="module")
def path(tmp_path_factory) -> Path:
    place = tmp_path_factory.mktemp("runtime") / "policy.bcrl"
    make_policy(CASES[0], (8,)).save(place)
    return place


# Each compiles a program in JAX, so not every rule of every case: benchmarks/runtime_agreement.py has those.
@pytest.mark.parametrize(
    ("name", "rule", "out_of_range"),
    [
        ("bcrl, candidates", "soft", "ignore"),
        ("td3, direct, episodic", "min", "ignore"),
        ("bcrl-gradient", "soft", "ignore"),
        ("two weighted costs", "direct", "fallback"),
        ("two costs, ramped", "finite-horizon", "fallback"),
        ("fallback critic, candidates", "min", "fallback"),
        ("mixtures, candidates", "finite-horizon", "fallback"),
        ("units and bounds", "finite-horizon", "fallback"),
        ("labels, direct", "min", "fallback"),
        ("bc-all, labels", "finite-horizon", "ignore"),
        ("caps, five heads", "finite-horizon", "ignore"),
    ],
)
def test_numpy_acts_as_jax_does(name, rule, out_of_range, tmp_path):
    case = next(case for case in CASES if case.name == name)
    policy = make_policy(case, (8,))
    policy.save(tmp_path / "p.bcrl")
    start = runtime.load(tmp_path / "p.bcrl").start
    found = compare(case, rule, policy, start, 50, 10, adopt_numpy, out_of_range)
    assert found.ties == 0
    assert found.worst < TOLERANCE
    assert 0 < found.fallback < found.compared or name == "bc-all, labels"


@pytest.mark.parametrize("rule", RULES)
def test_the_cases_let_both_policy_and_fallback_act(rule, path):
    episode = runtime.load(path).start(
        threshold=np.linspace(0, 12, 50), execution=rule, out_of_range="ignore"
    )
    rng, seen = np.random.default_rng(0), []
    for _ in range(10):
        episode.act(rng.normal(size=(50, 5)))
        seen += episode.fallback.tolist()
        episode.observe(rng.random(50))
    assert len(set(seen)) == 2


@pytest.mark.parametrize(("rule", "candidates"), [("min", 5), ("direct", 0)])
def test_a_batch_is_its_episodes_one_by_one(rule, candidates, path):
    policy, rng = runtime.load(path), np.random.default_rng(0)
    thresholds, steps = [0.0, 4.0, 9.0, 50.0], [5, 40, 20, 7]
    drawn = {}

    def noise(kind, shape):
        return drawn.setdefault(
            (kind, len(seen_rows)), np.random.default_rng(7).normal(size=(4, *shape[-2:]))
        )

    seen_rows: list = []
    told = {"execution": rule, "candidates": candidates}
    batch = policy.start(threshold=thresholds, horizon=steps, noise=noise, **told)
    singles = [
        policy.start(threshold=t, horizon=n, noise=lambda kind, shape, i=i: noise(kind, shape)[i], **told)
        for i, (t, n) in enumerate(zip(thresholds, steps, strict=True))
    ]
    for _ in range(5):
        seen, cost = rng.uniform(-1, 1, size=(4, 5)), rng.random(4)
        seen_rows.append(seen)
        action = batch.act(seen)
        for i, single in enumerate(singles):
            np.testing.assert_allclose(single.act(seen[i]), action[i], atol=1e-5)
            np.testing.assert_allclose(single.slack, batch.slack[i], atol=1e-5)
            assert single.fallback == batch.fallback[i]
            single.observe(cost[i])
        batch.observe(cost)
    with pytest.raises(BCRLError, match="restart those that ended"):
        batch.act(seen)
    batch.restart([True, False, False, False])
    batch.act(seen)
    first = policy.start(threshold=0.0, horizon=5, noise=lambda kind, shape: noise(kind, shape)[0], **told)
    first.act(seen[0])
    np.testing.assert_allclose(batch.slack[0], first.slack, atol=1e-6)


def test_draws_agree_in_distribution(path):
    """The fallback's weighted mean of eight draws, 1,000 times in one state."""
    from scipy.stats import ks_2samp

    found = []
    for load in (bcrl.load, runtime.load):
        episode = load(path).start(threshold=0.0, horizon=10_000, batch=4, seed=3)
        acted = []
        for _ in range(250):
            acted.append(episode.act(np.full((4, 5), 0.3)))
            assert episode.fallback.all()
            episode.observe(np.zeros(4))
        found.append(np.concatenate(acted))
    for ours, theirs in zip(found[0].T, found[1].T, strict=True):
        assert ks_2samp(ours, theirs).pvalue > 1e-4
        assert ours.std() > 0.01


@pytest.mark.parametrize("rows", [1, 3, 8, 9, 16, 40])
def test_products_by_columns_are_products(rows):
    rng = np.random.default_rng(0)
    x, weight = rng.normal(size=(rows, 300)).astype(np.float32), rng.normal(size=(2, 300, 700))
    for w in (weight.astype(np.float32), weight[0].astype(np.float32)):
        np.testing.assert_allclose(runtime._product(x, w), x @ w, rtol=1e-4, atol=1e-4)


def test_seeds_decide_the_draws(path):
    policy = runtime.load(path)
    first, same, other = (policy.start(threshold=0.0, seed=s).act(np.zeros(5)) for s in (1, 1, 2))
    assert np.array_equal(first, same)
    assert not np.array_equal(first, other)


def misuses(load, path):
    """(what was done, what it said) of everything a caller can do wrong."""
    policy = load(path)
    odd = [
        {},
        {"threshold": 1, "budget": 1},
        {"threshold": "x"},
        {"threshold": -1},
        {"threshold": np.nan},
        {"threshold": [[1.0, 2.0]]},
        {"threshold": []},
        {"threshold": 1, "execution": "hard"},
        {"budget": 1, "execution": "min"},
        {"threshold": 1, "candidates": -1},
        {"threshold": 1, "candidates": 10**9},
        {"threshold": 10**5_000},
        {"threshold": 1, "horizon": 10**5_000},
        {"threshold": 1, "batch": 10**12},
        {"threshold": 1, "batch": 10**5_000},
        {"threshold": 1, "horizon": 0},
        {"threshold": 1, "horizon": 2.5},
        {"threshold": [1, 2], "horizon": [1, 2, 3]},
        {"threshold": 1, "batch": 0},
        {"threshold": 1, "calibrated": True},
        {"threshold": 1, "calibrated": 1},
        {"threshold": 1, "seed": "x"},
        {"threshold": 1, "seed": 2**70},
        {"threshold": 1, "out_of_range": "stop"},
    ]
    steps = {
        "observe first": lambda e: e.observe(1),
        "slack first": lambda e: e.slack,
        "act twice": lambda e: (e.act(np.zeros(5)), e.act(np.zeros(5))),
        "observe twice": lambda e: (e.act(np.zeros(5)), e.observe(1), e.observe(1)),
        "too long": lambda e: [(e.act(np.zeros(5)), e.observe(0)) for _ in range(4)],
        "wrong shape": lambda e: e.act(np.zeros(4)),
        "text": lambda e: e.act("x"),
        "NaN": lambda e: e.act(np.full(5, np.nan)),
        "too large": lambda e: e.act(np.full(5, 3e38)),
        "bad cost": lambda e: (e.act(np.zeros(5)), e.observe(-1)),
        "two costs": lambda e: (e.act(np.zeros(5)), e.observe([1, 2])),
        "bad reward": lambda e: (e.act(np.zeros(5)), e.observe(1, np.inf)),
        "restart": lambda e: e.restart([True]),
    }
    for arguments in odd:
        yield brief_repr(arguments), lambda arguments=arguments: policy.start(**arguments)
    for name, step in steps.items():
        yield name, lambda step=step: step(policy.start(threshold=9, horizon=3))
    for marks in ([True], [[1], [1, 2]], ["x", "y"]):
        yield f"marks {marks}", lambda marks=marks: policy.start(threshold=[1, 2]).restart(marks)


def test_misuse_is_the_same_error_in_both(path):
    for (name, ours), (_, theirs) in zip(misuses(bcrl.load, path), misuses(runtime.load, path), strict=True):
        said = []
        for wrong in (ours, theirs):
            with pytest.raises(BCRLError) as refused:
                wrong()
            said.append(str(refused.value))
        assert said[0] == said[1], name


# Damage to options that acting does not need: the digest agrees, so the runtime has no reason to look.
OF_TRAINING = {
    "option out of range",
    "option of another type",
    "option beyond all floats",
    "option null",
}


@pytest.mark.parametrize("name", DAMAGE)
def test_a_damaged_policy_file_is_refused_in_one_line(name, tmp_path):
    whole, broken = tmp_path / "whole.bcrl", tmp_path / "broken.bcrl"
    make_policy(CASES[0], (8,), observations=6, actions=2).save(whole)
    DAMAGE[name][0](whole.read_bytes(), broken)
    if name in OF_TRAINING:
        runtime.load(broken)
        return
    with pytest.raises(BCRLError) as refused:
        runtime.load(broken)
    line = str(refused.value)
    assert line.startswith(f"{broken}: ")
    assert line.isprintable()


def test_every_flipped_bit_is_noticed(path, tmp_path):
    content, random = path.read_bytes(), np.random.default_rng(0)
    wanted, loaded = runtime.load(path), 0
    for place in random.integers(0, 8 * len(content), 300):
        flipped = bytearray(content)
        flipped[place // 8] ^= 1 << (place % 8)
        (tmp_path / "f.bcrl").write_bytes(flipped)
        try:
            policy = runtime.load(tmp_path / "f.bcrl")
        except BCRLError:
            continue
        loaded += 1  # white space of the JSON, say
        assert policy.header == wanted.header
    assert loaded < 10


def test_an_older_file_has_no_digest_and_no_range(path, tmp_path):
    from safetensors.numpy import save_file

    header, tensors = split(path.read_bytes())
    for name in ("sha256", "units", "schema", "observation_range"):
        del header[name]
    save_file(tensors, tmp_path / "old.bcrl", metadata={"bcrl": json.dumps(header)})
    for load in (bcrl.load, runtime.load):
        with pytest.warns(UserWarning, match="has no digest"):
            old = load(tmp_path / "old.bcrl")
        episode = old.start(threshold=9)
        episode.act(np.full(5, 100.0))
        assert episode.outside == 0
        with pytest.raises(BCRLError, match="no range of observations"):
            old.start(threshold=9, out_of_range="fallback")


@pytest.mark.parametrize("method", ["cpq", "cdt", "lspc"])
def test_other_methods_are_refused(method, path, tmp_path):
    header, tensors = split(path.read_bytes())
    write(tmp_path / "p.bcrl", header | {"method": method}, tensors)
    with pytest.raises(BCRLError, match=f"the method is '{method}', but this runtime knows bcrl, "):
        runtime.load(tmp_path / "p.bcrl")


def test_tabular_policies_are_refused(path, tmp_path):
    header, tensors = split(path.read_bytes())
    write(tmp_path / "t.bcrl", header | {"format": "bcrl-tabular"}, tensors)
    with pytest.raises(BCRLError, match="is a tabular policy"):
        runtime.load(tmp_path / "t.bcrl")


@pytest.mark.parametrize("load", [bcrl.load, runtime.load])
def test_the_folder_of_a_run_is_no_policy(load, tmp_path):
    with pytest.raises(BCRLError, match=r"is a folder; give the file of a policy$"):
        load(tmp_path)
    for name in ("policy-10.bcrl", "policy-0.bcrl", "config.json"):
        (tmp_path / name).touch()
    with pytest.raises(BCRLError) as refused:
        load(tmp_path)
    assert str(refused.value) == f"{tmp_path}: is the folder of a run; give {tmp_path / 'policy-0.bcrl'}"


@pytest.mark.parametrize("name", runtime.METHODS)
def test_every_option_is_known_as_one_of_acting_or_of_training(name):
    """A new option of a method goes into one of the runtime's two lists."""
    acting, training = runtime.METHODS[name]
    fields = {field.name: field.default for field in dataclasses.fields(METHODS[name].kind)}
    assert {*acting, *training.split()} == set(fields)
    older = {option: value for option, value in OLD_VALUES.items() if option in acting}
    assert {option: fields[option] for option in acting} | older == acting


def test_observations_outside_the_log_are_a_warning_or_the_fallbacks(path):
    seen = np.zeros((4, 5))
    seen[1, 3] = 7.0  # the range is −2 to 2
    for load in (bcrl.load, runtime.load):
        policy = load(path)
        told = {"threshold": 500.0, "batch": 4}
        warned = policy.start(**told)
        with pytest.warns(
            UserWarning, match=r"^25.0% of the observations .* number 3 is 7, the log's -2 to 2"
        ):
            plain = warned.act(seen)
        warned.observe(np.zeros(4))
        warned.act(np.zeros((4, 5)))
        assert warned.outside == 1 / 8
        assert not warned.fallback.any()
        leaving = policy.start(**told, out_of_range="fallback")
        action = leaving.act(seen)
        assert leaving.fallback.tolist() == [False, True, False, False]
        np.testing.assert_array_equal(leaving.slack, policy_slack(policy, seen, told))
        np.testing.assert_array_equal(action[0], plain[0])
        assert not np.array_equal(action[1], plain[1])
        assert leaving.outside == 1 / 4


@pytest.mark.parametrize("declared", [True, False])
def test_a_cost_above_the_largest_is_one_warning_and_is_charged(declared, tmp_path):
    policy = make_policy(CASES[0], (8,))
    count, unit = policy.spec.cost_count, 0.1
    policy.spec = dataclasses.replace(policy.spec, max_cost=(1.0,) * count)
    policy.units = Units((unit,) * count)
    names = tuple(f"heat{i}" for i in range(count))
    policy.schema = Schema(
        cost_names=names, units={names[0]: "min"}, max_cost=(unit,) * count if declared else ()
    )
    policy.save(tmp_path / "p.bcrl")
    known = "declared largest cost of a step" if declared else "largest cost of the log"
    for load in (bcrl.load, runtime.load):
        episode = load(tmp_path / "p.bcrl").start(threshold=np.full((2, count), 9.0))
        usual, dear = np.full((2, count), np.float32(unit)), np.full((2, count), unit)
        dear[1, 0] = 7.5
        episode.act(np.zeros((2, 5)))
        episode.observe(usual)
        before = episode.act(np.zeros((2, 5))), episode.slack
        with pytest.warns(UserWarning, match=f"^cost heat0 is 7.5 min, above the {known}, 0.1 min: it is"):
            episode.observe(dear)
        episode.act(np.zeros((2, 5)))
        assert np.all(before[1][1] - episode.slack[1] > before[1][0] - episode.slack[0] + 5)
        episode.observe(dear)  # told once


def test_errors_and_warnings_name_the_observations(tmp_path):
    policy = make_policy(CASES[0], (8,))
    policy.schema = Schema(observation_names=("temp", "b", "c", "d", "e"), units={"temp": "°C"})
    policy.save(tmp_path / "p.bcrl")
    for load in (bcrl.load, runtime.load):
        episode = load(tmp_path / "p.bcrl").start(threshold=9)
        with pytest.raises(
            BCRLError, match=r"shape \(4,\), but this episode expects \(5,\): temp, b, c, d, e$"
        ):
            episode.act(np.zeros(4))
        with pytest.raises(BCRLError, match=r"^observation: number 3 \(d\) is nan: mend the reading"):
            episode.act(np.array([0.0, 0, 0, np.nan, np.inf]))
        with pytest.warns(UserWarning, match=r"number 0 \(temp\) is 7 °C, the log's -2 to 2"):
            episode.act(np.array([7.0, 0, 0, 0, 0]))


def policy_slack(policy, seen, told):
    episode = policy.start(**told, out_of_range="ignore")
    episode.act(seen)
    return episode.slack


def test_cloned_policies_have_no_fallback(tmp_path):
    case = next(case for case in CASES if case.name == "bc-all")
    policy = make_policy(case, (8,))
    policy.save(tmp_path / "p.bcrl")
    for one in (policy, runtime.load(tmp_path / "p.bcrl")):
        with pytest.raises(BCRLError, match="bc-all has no fallback"):
            one.start(threshold=1, out_of_range="fallback")


def test_calibrated_thresholds(path, tmp_path):
    policy = make_policy(CASES[0], (8,))
    policy.calibration = Calibration(((5.0, 3.25), (10.0, 9.0)), "x", "finite-horizon", 0, 40)
    policy.save(tmp_path / "c.bcrl")
    calibrated = runtime.load(tmp_path / "c.bcrl")
    seen = np.zeros((2, 5))
    told, plain = calibrated.start(threshold=[5, 10], calibrated=True), policy.start(threshold=[3.25, 9.0])
    told.act(seen)
    plain.act(seen)
    np.testing.assert_allclose(told.slack, plain.slack, atol=1e-5)
    for wrong in ({"threshold": 6}, {"threshold": 5, "horizon": 9}, {"threshold": 5, "execution": "soft"}):
        said = []
        for one in (policy, calibrated):
            with pytest.raises(BCRLError) as refused:
                one.start(**wrong, calibrated=True)
            said.append(str(refused.value))
        assert said[0] == said[1]


def test_training_writes_the_range_of_the_log(tiny_log, tiny_run, tmp_path):
    tiny_run.policy().save(tmp_path / "p.bcrl")
    for load in (bcrl.load, runtime.load):
        low, high = load(tmp_path / "p.bcrl").observed
        np.testing.assert_array_equal(low, tiny_log.observations.min(0))
        np.testing.assert_array_equal(high, tiny_log.observations.max(0))


def test_the_module_alone_needs_numpy_alone(path, tmp_path):
    shutil.copy(runtime.__file__, tmp_path / "bcrl_runtime.py")
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); import bcrl_runtime as rt\n"
        "e = rt.load(sys.argv[2]).start(threshold=0, candidates=3)\n"
        "e.act([0.1] * 5); e.observe(1)\n"
        "try: e.observe(1)\n"
        "except rt.BCRLError as error: print(error)\n"
        "loaded = {n.partition('.')[0] for n in sys.modules} - {'cython_runtime'}\n"
        "outside = loaded - set(sys.stdlib_module_names)\n"
        "print(sorted(n for n in outside if not n.startswith('_')))\n"
    )
    words = [sys.executable, "-I", "-c", code, str(tmp_path), str(path)]
    said = subprocess.run(words, capture_output=True, text=True, check=True).stdout.splitlines()
    assert said == [
        "observe comes after act: no action is waiting for its cost",
        "['bcrl_runtime', 'numpy']",
    ]


def test_the_module_in_the_package_imports_no_jax(path):
    code = (
        "import sys, bcrl.runtime as rt; rt.load(sys.argv[1]).start(threshold=3).act([0.0] * 5)\n"
        "assert not {'jax', 'equinox', 'scipy'} & set(sys.modules); print(rt.BCRLError.__module__)"
    )
    words = [sys.executable, "-c", code, str(path)]
    assert subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip() == "bcrl.errors"


def test_noise_of_the_wrong_size_is_refused(path):
    policy = runtime.load(path)
    episode = policy.start(threshold=0, noise=lambda kind, shape: np.zeros(3))
    with pytest.raises(BCRLError, match="noise has shape"):
        episode.act(np.zeros(5))
    with pytest.raises(BCRLError, match="noise is 5, but must be a function"):
        policy.start(threshold=0, noise=5)  # type: ignore[arg-type]


def test_given_noise_is_what_jax_drew(path):
    """In a single episode too."""
    ours = bcrl.load(path).start(threshold=0.0, candidates=3, seed=5)
    theirs = runtime.load(path).start(threshold=0.0, candidates=3, noise=noise_of(ours))
    np.testing.assert_allclose(ours.act(np.zeros(5)), theirs.act(np.zeros(5)), atol=TOLERANCE)
