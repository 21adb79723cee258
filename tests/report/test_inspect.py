"""`bcrl inspect`: the facts of a policy file on the screen, as JSON and as a card."""

import json

import pytest

import bcrl
from bcrl.assess import Results
from bcrl.assess.results import Result
from bcrl.calibration import Calibration
from bcrl.cli import main
from bcrl.errors import BCRLError
from bcrl.learn.baselines.bc import BCAll
from bcrl.learn.protocol import blank_actor
from bcrl.report.card import card
from bcrl.report.inspection import evaluation_rows


@pytest.fixture(scope="module")
def path(tiny_policy, tmp_path_factory):
    table = Calibration(((1.0, 2.0), (3.0, 2.5)), "0" * 64, "min", 4, tiny_policy.spec.horizon)
    parts = (tiny_policy.learned, tiny_policy.method, tiny_policy.spec, tiny_policy.provenance)
    place = tmp_path_factory.mktemp("inspected") / "policy.bcrl"
    bcrl.Policy(*parts, tiny_policy.units, tiny_policy.schema, table).save(place)
    return place


def test_the_screen_says_what_matters_in_80_columns(path, capsys):
    main(["inspect", str(path)])
    said = capsys.readouterr().out
    assert max(map(len, said.splitlines()[1:])) <= 80
    for words in ("method", "hidden 8, batch_size 16", "for 1 (told 2), 3 (told 2.5); min", "ms an action"):
        assert words in said
    assert said.index("batch_size 16") < said.index("tau_c")  # what differs from the default comes first


def test_the_summary_of_the_log_is_in_the_file(path, tiny_log):
    log = bcrl.load(path).provenance["log"]
    assert (log["episodes"], log["transitions"]) == (tiny_log.episode_count, len(tiny_log))
    assert log["episode_cost"][0]["max"] == tiny_log.episode_costs.max()


def test_json_is_the_dataclass(path, capsys):
    main(["inspect", str(path), "--json"])
    said = json.loads(capsys.readouterr().out)
    facts = bcrl.inspect(path, speed=False)
    assert said["sha256"] == facts.sha256
    assert said["parameters"] == facts.parameters
    assert said["changed"] == {"hidden": [8], "batch_size": 16, "learning_rate": 0.01}
    assert facts.action_ms is None
    assert said["action_ms"] > 0


@pytest.mark.parametrize("log", [None, "x", {}, {"episodes": 1, "transitions": 2, "episode_return": 1}])
def test_a_file_without_a_summary_says_so(log, tiny_policy, tmp_path, capsys):
    known = {name: value for name, value in tiny_policy.provenance.items() if name != "log"}
    known |= {} if log is None else {"log": log}
    bcrl.Policy(tiny_policy.learned, tiny_policy.method, tiny_policy.spec, known).save(tmp_path / "old.bcrl")
    main(["inspect", str(tmp_path / "old.bcrl"), "--card", str(tmp_path / "card.md")])
    assert "none in this file" in capsys.readouterr().out
    assert "none in this file" in (tmp_path / "card.md").read_text()


def made_up(seed: int) -> Results:
    """Two episodes at each of two thresholds."""
    who = ("bcrl", "soft", "discounted", "finite-horizon", "point-circle", "tiny", seed)
    return Results(
        Result(*who, threshold, episode, 5.0, threshold / 2, 0.5, 0.5, 20, 0.1)
        for threshold in (1.0, 3.0)
        for episode in range(2)
    )


def test_the_card_has_the_evaluation(path, tmp_path, capsys):
    results, out = tmp_path / "results.csv", tmp_path / "card.md"
    made_up(seed=10).save(results)
    main(["inspect", str(path), "--card", str(out), "--evaluation", str(results)])
    text = out.read_text()
    for words in ("## Intended use", "## What the budget means", "## Training data", "| 3 |"):
        assert words in text
    assert "2 episodes in point-circle" in text
    with pytest.raises(SystemExit):
        main(["inspect", str(path), "--card", str(out), "--evaluation", str(results)])
    assert "exists" in capsys.readouterr().err


def test_an_evaluation_of_another_policy_is_refused(path, tmp_path):
    made_up(seed=0).save(tmp_path / "other.csv")
    with pytest.raises(BCRLError, match="has no row of bcrl with seed 10"):
        evaluation_rows(bcrl.inspect(path, speed=False), tmp_path / "other.csv")


def test_a_method_without_a_budget_says_what_its_threshold_means(tiny_policy, tmp_path):
    method, spec = BCAll(hidden=(8,)), tiny_policy.spec
    bcrl.Policy(blank_actor(method, spec), method, spec, {}).save(tmp_path / "bc.bcrl")
    text = card(bcrl.inspect(tmp_path / "bc.bcrl", speed=False))
    assert "knows no threshold" in text


def test_a_tabular_policy_is_shown_too(tmp_path, capsys):
    from bcrl.cmdp import GridWorld, plan

    with pytest.warns(match="rounds budgets"):
        policy = plan(GridWorld.load("corridor", slip=0.2).cmdp, budget=1.0, mode="paper", bins=5)
    policy.save(tmp_path / "grid.bcrl")
    main(["inspect", str(tmp_path / "grid.bcrl"), "--card", str(tmp_path / "card.md")])
    assert "states" in capsys.readouterr().out
    assert "known model" in (tmp_path / "card.md").read_text()
