"""Saved tabular policies: what is loaded acts and evaluates as what was saved; damage is refused."""

import json
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import bcrl
from bcrl.cli.arguments import parse
from bcrl.cli.evaluate import Command as Evaluate
from bcrl.cli.solve import Command as Solve
from bcrl.cmdp import BudgetWarning, GridWorld, SlackPolicy, TabularPolicy, plan, simulate
from bcrl.errors import BCRLError
from bcrl.tensors import file_digest, read_header

MODELS = {
    "one cost": (GridWorld("one", ("S.X.G", "....."), 0.2).cmdp, 0.5),
    "two costs": (GridWorld("two", ("SXYG", "...."), 0.1).cmdp, [0.4, 0.3]),
}
PLANS = {
    "slack": ("one cost", {"bins": 12}),
    "shield": ("one cost", {"bins": 12, "shield": True}),
    "two costs": ("two costs", {"bins": 5}),
    "paper": ("one cost", {"mode": "paper", "bins": 21}),
    "paper, direct": ("one cost", {"mode": "paper", "bins": 21, "update": "direct"}),
}


def planned(name: str) -> tuple[TabularPolicy, np.ndarray]:
    model_name, options = PLANS[name]
    model, budget = MODELS[model_name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BudgetWarning)
        return plan(model, budget, **options), np.asarray(budget)


def deeds(policy: TabularPolicy, budget: np.ndarray) -> list:
    """All that an episode decides."""
    episode, rng, said, state = policy.start(budget, seed=3), np.random.default_rng(4), [], 0
    for _ in range(30):
        action = episode.act(state)
        said += [action, np.asarray(episode.slack).tobytes(), episode.fallback]
        episode.observe(policy.model.costs[:, state, action])
        row = policy.model.transitions[[state * 4 + action]]
        state = int(rng.choice(row.indices, p=row.data))
    return said


@pytest.mark.parametrize("name", PLANS)
def test_a_loaded_policy_acts_and_evaluates_identically(name: str, tmp_path: Path) -> None:
    policy, budget = planned(name)
    policy.save(tmp_path / "plan.bcrl")  # type: ignore[attr-defined]
    loaded = bcrl.load(tmp_path / "plan.bcrl")
    assert type(loaded) is type(policy)
    for factor in (0.0, 0.3, 1.0, 4.0):  # fallback, a mixture, the plan's budget, above it
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", BudgetWarning)
            assert deeds(loaded, factor * budget) == deeds(policy, factor * budget)
            if name == "shield":
                seen, again = (simulate(one, factor * budget, 50) for one in (policy, loaded))
                assert seen.total_return == again.total_return
            else:
                exact, again = policy.evaluate(factor * budget), loaded.evaluate(factor * budget)
                assert exact.total_return == again.total_return
                np.testing.assert_array_equal(exact.cost, again.cost)
    if name in ("slack", "two costs"):
        assert loaded.excess() <= 1e-9
    loaded.save(tmp_path / "again.bcrl")
    assert (tmp_path / "again.bcrl").read_bytes() == (tmp_path / "plan.bcrl").read_bytes()


def test_deeds_tell_policies_apart() -> None:
    policy, budget = planned("slack")
    assert deeds(policy, budget) != deeds(policy, 4 * budget)


Damage = Callable[[dict, dict[str, np.ndarray]], object]


def put(name: str, place: tuple | int, value: float) -> Damage:
    def damage(_: dict, tensors: dict[str, np.ndarray]) -> None:
        tensors[f"['{name}']"][place] = value

    return damage


def swap_bins(_: dict, tensors: dict[str, np.ndarray]) -> None:
    """What is bought with much slack, at slack 0."""
    tensors["['actions']"] = tensors["['actions']"][:, ::-1].copy()


DAMAGE: dict[str, tuple[str, Damage, str]] = {
    "kind": ("slack", lambda h, _: h.update(kind=["slack"]), "kind"),
    "version": ("slack", lambda h, _: h.update(version=2), "version is 2"),
    "no sizes": ("slack", lambda h, _: h.pop("sizes"), "sizes"),
    "sizes of a word": ("slack", lambda h, _: h["sizes"].update(states="ten"), "size states"),
    "sizes beyond the file": ("slack", lambda h, _: h["sizes"].update(levels=2**31 - 1), "more than"),
    "sizes beyond counting": ("slack", lambda h, _: h["sizes"].update(costs=10**9), "size costs"),
    "true is no size": ("slack", lambda h, _: h["sizes"].update(costs=True), "size costs"),
    "shield of a word": ("slack", lambda h, _: h.update(shield="no"), "shield"),
    "update of a word": ("paper", lambda h, _: h.update(update="hard"), "update"),
    "paper for slack": ("slack", lambda h, _: h.update(kind="paper"), "sizes"),
    "missing array": ("slack", lambda _, t: t.pop("['levels']"), "levels'] is missing"),
    "unknown array": ("slack", lambda _, t: t.update(extra=np.zeros(1)), "extra is unknown"),
    "probabilities": ("slack", put("probabilities", 0, 0.5), "the probabilities sum to"),
    "NaN": ("slack", put("rewards", (0, 0), np.nan), "NaN or infinity"),
    "negative cost": ("slack", put("costs", (0, 0, 0), -1.0), "cost 0 is -1"),
    "gamma 1": ("slack", put("gamma", (), 1.0), "gamma"),
    "start": ("slack", put("start", 0, 0.5), "start probabilities"),
    "rows": ("slack", put("indptr", 1, -5), "do not fit"),
    "next state": ("slack", put("indices", 0, 10**12), "do not fit"),
    "levels": ("slack", put("levels", (0, 1), 1e9), "levels"),
    "action": ("slack", put("actions", (0, 0), 4), "actions"),
    "negative action": ("slack", put("actions", (0, 0), -1), "actions"),
    "unsafe actions": ("slack", swap_bins, "safe at the slack"),
    "base value": ("slack", put("base_value", (0, 0), 9.0), "base_value"),
    "advantage": ("slack", put("advantage", (0, 0, 0), -9.0), "advantage"),
    "value of a column": ("slack", put("values", (0, 1, 0), 9.0), "values"),
    "total of a column": ("slack", put("totals", (0, 1), 0.0), "totals"),
    "policy of a column": ("slack", put("policies", (0, 0), 7), "policies"),
    "fallback": ("slack", put("fallback", 0, 4), "fallback"),
    "lower": ("slack", put("lower", (0, 0), 1), "lower and upper"),
    "upper": ("slack", put("upper", (0, 0), 12), "lower and upper"),
    "budgets": ("paper", put("budgets", 3, 0.1), "budgets"),
    "budgets of 0": ("paper", put("budgets", slice(None), 0.0), "budgets"),
    "critic": ("paper", put("base_critic", (0, 0), 0.5), "base_critic"),
    "paper action": ("paper", put("actions", (0, 0), 9), "actions"),
    "unsafe paper actions": ("paper", swap_bins, "safe at the budget"),
    "two costs and a lottery": ("two costs", put("lower", (0, 1), 0), "lower and upper"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_is_refused_in_one_line(name: str, tmp_path: Path) -> None:
    kind, damage, words = DAMAGE[name]
    path = tmp_path / "plan.bcrl"
    planned(kind)[0].save(path)  # type: ignore[attr-defined]
    header, tensors = read_header(path, "tabular"), load_file(path)
    damage(header, tensors)
    save_file(tensors, path, {"bcrl": json.dumps(header | {"sha256": file_digest(header, tensors)})})
    with pytest.raises(BCRLError) as refused:
        bcrl.load(path)
    line = str(refused.value)
    assert line.startswith(f"{path}: ")
    assert words in line
    assert line.isprintable()


def test_a_file_without_a_digest_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "plan.bcrl"
    planned("slack")[0].save(path)  # type: ignore[attr-defined]
    header = read_header(path, "tabular")
    del header["sha256"]
    save_file(load_file(path), path, {"bcrl": json.dumps(header)})
    with pytest.raises(BCRLError, match="has no digest"):
        bcrl.load(path)


def test_every_flipped_bit_is_noticed(tmp_path: Path) -> None:
    policy, budget = planned("slack")
    policy.save(tmp_path / "plan.bcrl")  # type: ignore[attr-defined]
    content, random = (tmp_path / "plan.bcrl").read_bytes(), np.random.default_rng(0)
    wanted, noticed = deeds(policy, budget), 0
    for place in random.integers(0, 8 * len(content), 200):
        flipped = bytearray(content)
        flipped[place // 8] ^= 1 << (place % 8)
        (tmp_path / "flipped.bcrl").write_bytes(flipped)
        try:
            loaded = bcrl.load(tmp_path / "flipped.bcrl")
        except BCRLError:
            noticed += 1
            continue
        assert deeds(loaded, budget) == wanted
    assert noticed > 190


def test_solve_writes_the_policy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "plan.bcrl"
    words = ["gridworld", "--budget", "1", "--bins", "10", "--out", str(path)]
    parse(Solve, "bcrl solve", words).run()
    assert f"wrote {path}" in capsys.readouterr().out
    loaded = bcrl.load(path)
    assert isinstance(loaded, SlackPolicy)
    assert loaded.evaluate(1.0).cost[0] <= 1.0
    with pytest.raises(BCRLError, match="exists; choose another name or give --overwrite"):
        parse(Solve, "bcrl solve", words).run()
    with pytest.raises(BCRLError, match="unknown suffix"):
        parse(Solve, "bcrl solve", [*words[:-1], "plan.npz"]).run()


def test_verbs_for_learned_policies_refuse_it_in_one_line(tmp_path: Path) -> None:
    planned("slack")[0].save(tmp_path / "plan.bcrl")  # type: ignore[attr-defined]
    words = [str(tmp_path / "plan.bcrl"), "--world", "point-run", "--thresholds", "5"]
    with pytest.raises(BCRLError, match=r"plan\.bcrl: is a tabular policy"):
        parse(Evaluate, "bcrl evaluate", words).run()


def test_start_takes_a_budget_and_says_what_a_threshold_is() -> None:
    policy, _ = planned("slack")
    for asked in ({}, {"threshold": 20.0}, {"threshold": 20.0, "horizon": 10}, {"budget": 1.0, "horizon": 9}):
        with pytest.raises(BCRLError, match=r"bounds the discounted cost .* give budget=δ"):
            policy.start(**asked)
    with pytest.raises(BCRLError, match="the budget must be numbers"):
        policy.start(budget="much")  # type: ignore[arg-type]


def test_misuse_of_an_episode_is_an_error_and_changes_nothing() -> None:
    policy, budget = planned("slack")
    episode, proper = policy.start(budget, seed=0), policy.start(budget, seed=0)
    with pytest.raises(BCRLError, match="observe comes after act"):
        episode.observe(0.0)
    for wrong in (1.5, "0", None, -1, 99, np.array([0])):
        with pytest.raises(BCRLError, match="state"):
            episode.act(wrong)  # type: ignore[arg-type]
        with pytest.raises(BCRLError, match="state"):
            policy.act(wrong, budget)  # type: ignore[arg-type]
    assert episode.act(0) == proper.act(0)
    slack = episode.slack
    with pytest.raises(BCRLError, match="act was called twice"):
        episode.act(0)
    for cost in (np.nan, -1.0, [1.0, 2.0], "much"):
        with pytest.raises(BCRLError, match="cost"):
            episode.observe(cost)  # type: ignore[arg-type]
    assert episode.slack == slack
    episode.observe(0.0, reward=1.0)
    proper.observe([0.0])
    assert episode.act(np.int64(1)) == proper.act(1)
