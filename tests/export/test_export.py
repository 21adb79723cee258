"""`bcrl export`: a folder that runs on numpy alone, graphs that onnxruntime runs as JAX acts, and from C."""

import dataclasses
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from bcrl import runtime
from bcrl.calibration import Calibration
from bcrl.cli import main
from bcrl.errors import BCRLError
from bcrl.export import export_numpy, export_onnx

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))
from runtime_agreement import CASES, TOLERANCE, Case, OnnxEpisode, make_policy, rules_of  # noqa: E402

NAMES = {case.name: case for case in CASES}


def saved(case: Case, folder: Path) -> Path:
    make_policy(case, (8,)).save(folder / "p.bcrl")
    return folder / "p.bcrl"


@pytest.mark.parametrize("number", range(len(CASES)), ids=lambda i: CASES[i].name)
def test_onnx_acts_as_numpy_does(number, tmp_path):
    """And numpy as JAX: test_runtime.py. benchmarks/runtime_agreement.py compares all three at length."""
    case = CASES[number]
    path = saved(case, tmp_path)
    policy = runtime.load(path)
    rules = rules_of(case)
    rule = rules[number % len(rules)]
    how = {"execution": rule, "candidates": case.candidates} if policy.tracks_budgets else {}
    leave = "fallback" if policy.tracks_budgets and number % 2 else "warn"
    files = export_onnx(path, tmp_path / "p.onnx", out_of_range=leave, **how)
    rng, rows, k = np.random.default_rng(number), 40, case.costs
    drawn: dict[str, np.ndarray] = {}

    def noise(kind, shape):
        return drawn.setdefault(kind, rng.normal(size=shape).astype(np.float32))

    unit = policy.units
    threshold, horizon = rng.uniform(0, 30, (rows, k)) * unit, rng.integers(10, 41, rows)
    ours = policy.start(
        threshold=threshold,
        horizon=horizon,
        noise=noise,
        out_of_range="fallback" if leave == "fallback" else "ignore",
        **how,
    )
    theirs = OnnxEpisode(files, noise)
    theirs.start(threshold, horizon)
    width = np.float32(1.0)
    if case.schema.action_low:
        width = np.subtract(case.schema.action_high, case.schema.action_low) / 2
    for _ in range(8):
        drawn.clear()
        seen = rng.normal(size=(rows, 5)).astype(np.float32)
        np.testing.assert_allclose(theirs.act(seen) / width, ours.act(seen) / width, rtol=0, atol=TOLERANCE)
        np.testing.assert_allclose(theirs.slack / unit, ours.slack / unit, rtol=TOLERANCE, atol=3 * TOLERANCE)
        np.testing.assert_array_equal(theirs.fallback, ours.fallback)
        np.testing.assert_array_equal(theirs.outside, (np.abs(seen) > 2).any(-1))
        cost = (rng.random((rows, k)) * unit).astype(np.float32)
        ours.observe(cost)
        theirs.observe(cost)


def test_a_bare_budget_is_a_threshold_without_horizon(tmp_path):
    path = saved(NAMES["mean fallback"], tmp_path)
    policy = runtime.load(path)
    files = export_onnx(path, tmp_path / "p.onnx", execution="soft")
    ours, theirs = policy.start(budget=[3.0, 8.0]), OnnxEpisode(files, lambda kind, shape: np.zeros(shape))
    theirs.start(np.array([[3.0], [8.0]]), np.zeros(2))
    seen = np.zeros((2, 5), np.float32)
    np.testing.assert_allclose(theirs.act(seen), ours.act(seen), atol=TOLERANCE)
    np.testing.assert_allclose(theirs.slack, ours.slack, atol=TOLERANCE)


def test_the_graphs_say_what_they_are(tmp_path):
    import onnx

    path = saved(NAMES["bcrl"], tmp_path)
    files = export_onnx(path, tmp_path / "p.onnx", execution="min", candidates=4)
    for part, file in files.items():
        model = onnx.load(file)
        onnx.checker.check_model(model, full_check=True)
        assert [(entry.domain, entry.version) for entry in model.opset_import] == [("", 18)]
        about = json.loads({entry.key: entry.value for entry in model.metadata_props}["bcrl"])
        assert (about["part"], about["execution"], about["candidates"]) == (part, "min", 4)
        assert about["policy_sha256"] == runtime.load(path).header["sha256"]
        assert list(about["state"]) == ["horizon", "step", "threshold", "spent", "slack", "charge"]


@pytest.mark.parametrize(
    ("name", "how", "words"),
    [
        ("bc-all", {"candidates": 3}, "bc-all tracks no budget"),
        ("bc-all", {"out_of_range": "fallback"}, "has no fallback"),
        ("bcrl", {"execution": "hard"}, "execution is 'hard'"),
        ("bcrl", {"candidates": 20_000}, "up to 10,000"),
    ],
)
def test_what_no_graph_can_do_is_refused(name, how, words, tmp_path):
    path = saved(NAMES[name], tmp_path)
    with pytest.raises(BCRLError, match=words):
        export_onnx(path, tmp_path / "p.onnx", **how)
    assert not list(tmp_path.glob("*.onnx"))


def test_without_onnx_the_extra_is_named(tmp_path, monkeypatch):
    import bcrl.errors

    monkeypatch.setattr(bcrl.errors, "find_spec", lambda name: None)
    path = saved(NAMES["bcrl"], tmp_path)
    with pytest.raises(BCRLError, match=r"needs onnx: pip install 'bcrl\[onnx\]'"):
        export_onnx(path, tmp_path / "p.onnx")


@pytest.mark.parametrize("name", ["units and bounds", "labels, direct", "caps"])
def test_the_numpy_folder_runs_with_numpy_alone(name, tmp_path, capsys):
    path, out = saved(NAMES[name], tmp_path), tmp_path / "out"
    main(["export", str(path), "--to", "numpy", "--out", str(out)])
    assert sorted(file.name for file in out.iterdir()) == [
        "README.md",
        "bcrl_runtime.py",
        "example.py",
        "p.bcrl",
    ]
    code = (  # runs the example as a program, in a Python that finds neither bcrl nor JAX
        "import runpy, sys; sys.path[:0] = [sys.argv[1]]\n"
        "for name in ('bcrl', 'jax', 'safetensors', 'scipy'): sys.modules[name] = None\n"
        "runpy.run_path(sys.argv[1] + '/example.py')"
    )
    words = [sys.executable, "-I", "-W", "error", "-c", code, str(out)]
    said = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    assert "last action" in said
    with pytest.raises(SystemExit):
        main(["export", str(path), "--to", "numpy", "--out", str(out)])
    assert "exists; choose another name or give --overwrite" in capsys.readouterr().err
    main(["export", str(path), "--to", "numpy", "--out", str(out), "--overwrite"])


def test_the_numpy_example_is_about_this_policy(tmp_path):
    """Its horizon, an observation as in the log, a threshold of its table; columns in the README."""
    policy = make_policy(NAMES["units and bounds"], (8,))
    names = ("temp", "kind=a", "kind=b", "kind=c", "on")
    policy.schema = dataclasses.replace(
        policy.schema,
        observation_names=names,
        action_names=("heat", "fan", "flow"),
        cost_names=("co2",),
        max_cost=(7.5,),
        units={"temp": "°C", "heat": "kW", "co2": "g"},
    )
    low, high = np.array([[10, 0, 0, 0, 0], [30, 0, 1, 1, 1]], np.float32)
    policy.observed = runtime.ObservedRange(low, high)
    policy.save(tmp_path / "p.bcrl")
    text = export_numpy(tmp_path / "p.bcrl", tmp_path / "plain")["example.py"].read_text()
    assert "start(threshold=30.0, horizon=40)" in text
    assert "np.array([20.0, 0.0, 1.0, 0.0, 0.0], np.float32)" in text
    policy.calibration = Calibration(((5.0, 3.25),), "x", "soft", 2, 17)
    policy.save(tmp_path / "p.bcrl")
    files = export_numpy(tmp_path / "p.bcrl", tmp_path / "calibrated")
    start = "start(threshold=5.0, horizon=17, execution='soft', candidates=2, calibrated=True)"
    assert start in files["example.py"].read_text()
    readme = files["README.md"].read_text()
    assert f"calibrated for the thresholds 5: `policy.{start}`" in readme
    for line in ("temp [°C]: 10 to 30 in the log", "heat [kW]: -30 to 30", "co2 [g]: at most 7.5"):
        assert f"\n- {line}\n" in readme
    run = [sys.executable, "-W", "error", str(files["example.py"])]
    assert "last action" in subprocess.run(run, capture_output=True, text=True, check=True).stdout


def test_the_verb_writes_three_graphs(tmp_path, capsys):
    path = saved(NAMES["bcrl"], tmp_path)
    out = tmp_path / "graphs" / "policy.onnx"
    main(["export", str(path), "--to", "onnx", "--out", str(out), "--execution", "soft"])
    names = ["policy-observe.onnx", "policy-start.onnx", "policy.onnx"]
    assert sorted(file.name for file in out.parent.iterdir()) == names
    for words in (["--to", "onnx", "--out", str(out)], ["--to", "numpy", "--candidates", "3", "--out", "x"]):
        with pytest.raises(SystemExit):
            main(["export", str(path), *words])
    said = capsys.readouterr().err
    assert "exists; choose another name or give --overwrite" in said
    assert "numpy takes them at start" in said


@pytest.fixture(scope="module")
def program(tmp_path_factory) -> Path:
    """examples/c/act.c, compiled against the header of the system and the library of the wheel."""
    folder = tmp_path_factory.mktemp("c")
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("examples/c/act.c: there is no C compiler (cc)")
    libraries = sorted(
        (Path(pytest.importorskip("onnxruntime").__file__).parent / "capi").glob("libonnxruntime.so.*")
    )
    if not libraries:
        pytest.skip("examples/c/act.c: the package onnxruntime has no shared library here")
    include = [f"-I{root}/include/onnxruntime" for root in ("/usr", "/usr/local")]
    source = folder / "try.c"
    source.write_text("#include <onnxruntime_c_api.h>\nint main(void) { return 0; }\n")
    tried = [compiler, *include, "-c", str(source), "-o", str(folder / "try.o")]
    if subprocess.run(tried, capture_output=True).returncode != 0:
        pytest.skip("examples/c/act.c: onnxruntime_c_api.h is not found (Debian: libonnxruntime-dev)")
    for name in ("libonnxruntime.so", "libonnxruntime.so.1"):
        (folder / name).symlink_to(libraries[0])
    words = [
        compiler,
        "-Wall",
        "-Wextra",
        "-Werror",
        "-O2",
        *include,
        str(ROOT / "examples/c/act.c"),
        f"-L{folder}",
    ]
    words += ["-lonnxruntime", f"-Wl,-rpath,{folder}", "-lm", "-o", str(folder / "act")]
    subprocess.run(words, check=True)
    return folder / "act"


@pytest.mark.parametrize("name", ["mean fallback", "units and bounds", "labels"])
def test_a_program_in_c_acts_as_numpy_does(name, program, tmp_path):
    path = saved(NAMES[name], tmp_path)
    policy = runtime.load(path)
    files = export_onnx(path, tmp_path / "p.onnx", execution="min", candidates=NAMES[name].candidates)
    rng, unit, rows = np.random.default_rng(3), float(policy.units[0]), 12
    seen, cost = rng.normal(size=(rows, 5)).astype(np.float32), rng.random(rows).astype(np.float32) * unit
    steps = "\n".join(
        " ".join(f"{x:.9g}" for x in (*row, paid)) for row, paid in zip(seen, cost, strict=True)
    )
    words = [program, files["act"], files["start"], files["observe"], str(12 * unit), "12"]
    done = subprocess.run(
        words, input=steps, capture_output=True, text=True, check=True, env=os.environ | {"LC_ALL": "C"}
    )
    said = np.array([line.split() for line in done.stdout.splitlines()], float)
    assert len(said) == rows
    episode = policy.start(
        threshold=12 * unit, horizon=12, execution="min", candidates=NAMES[name].candidates
    )
    for t in range(rows):
        action = np.atleast_1d(episode.act(seen[t]))
        np.testing.assert_allclose(said[t, -2], episode.slack[0], rtol=1e-4, atol=1e-4 * unit)
        assert said[t, -1] == episode.fallback
        if name == "units and bounds":  # it draws its own random numbers; they change what is spent, too
            assert np.all(
                (said[t, :-2] >= policy.schema["action_low"]) & (said[t, :-2] <= policy.schema["action_high"])
            )
            break
        np.testing.assert_allclose(said[t, :-2], action, atol=1e-4)
        episode.observe(cost[t])
