"""The model: checks that name the state and action, files, and models from tables and logs."""

import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
from cmdp_models import models, random_model
from gymnasium.envs.toy_text import CliffWalkingEnv, FrozenLakeEnv, TaxiEnv
from hypothesis import given, settings
from scipy import sparse

from bcrl.cmdp import (
    CMDP,
    BudgetWarning,
    GridWorld,
    evaluate,
    from_gymnasium,
    from_log,
    frontier,
    least_cost,
    optimum,
    plan,
    simulate,
    solve_lp,
    unconstrained,
)
from bcrl.errors import BCRLError


def parts(states: int = 3, actions: int = 2) -> dict:
    moves = np.zeros((states, actions, states))
    moves[:, :, 0] = 1
    return {
        "transitions": moves,
        "rewards": np.zeros((states, actions)),
        "costs": np.zeros((states, actions)),
        "gamma": 0.9,
    }


def with_value(name: str, index: tuple, value: float) -> dict:
    fields = parts()
    fields[name][index] = value
    return fields


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (with_value("transitions", (1, 1, 0), 0.5), "state 1, action 1: the probabilities sum to 0.5, not 1"),
        (with_value("transitions", (2, 0, 1), -0.5), "state 2, action 0: the probability of state 1 is -0.5"),
        (
            with_value("transitions", (2, 0, 1), np.nan),
            "state 2, action 0: the probability of state 1 is nan",
        ),
        (with_value("rewards", (1, 0), np.inf), "state 1, action 0: the reward is inf"),
        (with_value("costs", (0, 1), -1), "state 0, action 1: the cost 0 is -1"),
        (parts() | {"gamma": 1.0}, r"gamma must lie in \[0, 1\), not 1.0"),
        (parts() | {"rewards": np.zeros(3)}, r"rewards must have shape \(states, actions\)"),
        (parts() | {"costs": np.zeros((2, 2))}, r"costs must have shape \(costs, 3, 2\)"),
        (parts() | {"transitions": np.zeros((3, 2, 2))}, r"transitions must have shape \(3, 2, 3\)"),
        (parts() | {"start": 3}, "the start is state 3, but there are 3 states"),
        (parts() | {"start": [0.5, 0.5, 0.5]}, "the start probabilities sum to 1.5"),
        (parts() | {"start": [2.0, -1.0, 0.0]}, r"start\[1\] is -1"),
        (parts() | {"terminal": [False, True, False]}, "terminal state 1, action 0 leads to another state"),
        (parts() | {"terminal": [True]}, "terminal must have shape"),
        (
            parts() | {"available": np.array([[1, 1], [1, 0], [1, 1]], bool)},
            "state 1, action 1: the probabilities sum to 1, not 0 .*not available",
        ),
        (parts() | {"rewards": "many"}, "rewards must be numbers"),
    ],
)
def test_mistakes_name_the_state_and_the_action(fields: dict, message: str) -> None:
    with pytest.raises(BCRLError, match=message) as caught:
        CMDP(**fields)
    assert "\n" not in str(caught.value)


def test_a_state_without_actions_is_named() -> None:
    fields = parts()
    fields["transitions"][1] = 0
    with pytest.raises(BCRLError, match="state 1 is not terminal and has no available action"):
        CMDP(**fields, available=np.array([[1, 1], [0, 0], [1, 1]], bool))


def test_pay_at_a_terminal_state_is_named() -> None:
    fields = parts()
    fields["transitions"][0] = np.eye(3)[0]
    fields["costs"][0, 1] = 2
    with pytest.raises(BCRLError, match="terminal state 0, action 1: the cost 0 is 2"):
        CMDP(**fields, terminal=[True, False, False])


def test_actions_that_do_not_exist_are_never_taken() -> None:
    fields = parts()
    fields["transitions"][1, 1] = 0
    fields["rewards"][1, 1] = 100
    model = CMDP(**fields, available=np.array([[1, 1], [1, 0], [1, 1]], bool), start=1)
    assert unconstrained(model)[1] == 0
    assert optimum(model, 1.0).value == 0


@settings(max_examples=25)
@given(models(costs=2))
def test_a_saved_model_comes_back(tmp_path_factory: pytest.TempPathFactory, model: CMDP) -> None:
    path = tmp_path_factory.mktemp("models") / "model.npz"
    model.save(path)
    again = CMDP.load(path)
    np.testing.assert_array_equal(again.transitions.toarray(), model.transitions.toarray())
    for name in ("rewards", "costs", "start", "terminal", "available", "gamma"):
        np.testing.assert_array_equal(getattr(again, name), getattr(model, name))
    assert [item.name for item in path.parent.iterdir()] == ["model.npz"]


def test_a_hand_made_file_is_read_and_checked(tmp_path: Path) -> None:
    path = tmp_path / "model.npz"
    np.savez(path, **parts())
    assert CMDP.load(path).states == 3
    np.savez(path, **{name: value for name, value in parts().items() if name != "gamma"})
    with pytest.raises(BCRLError, match=r"model.npz: the array 'gamma' is missing"):
        CMDP.load(path)
    np.savez(path, **with_value("transitions", (1, 1, 0), 0.5))
    with pytest.raises(BCRLError, match=r"model.npz: state 1, action 1"):
        CMDP.load(path)


def test_damaged_files_are_named(tmp_path: Path) -> None:
    path = tmp_path / "model.npz"
    with pytest.raises(BCRLError, match="no such file"):
        CMDP.load(path)
    random_model(0, 4, 2, 0.9, 2).save(path)
    whole = path.read_bytes()
    for text in (whole[:100], whole[:-30], b"", b"not a zip"):
        path.write_bytes(text)
        with pytest.raises(BCRLError, match=r"model.npz"):
            CMDP.load(path)
    np.savez(path, **parts() | {"rewards": np.array([{}])})
    with pytest.raises(BCRLError, match=r"model.npz: rewards holds Python objects, which are never read"):
        CMDP.load(path)
    np.savez(path, **parts() | {"format": "bcrl-cmdp-9"})
    with pytest.raises(BCRLError, match="bcrl-cmdp-9"):
        CMDP.load(path)
    sparse_parts = {"indptr": [0, 1], "indices": [7], "probabilities": [1.0]}
    np.savez(path, **{k: v for k, v in parts().items() if k != "transitions"}, **sparse_parts)
    with pytest.raises(BCRLError, match=r"model.npz: "):
        CMDP.load(path)


@pytest.mark.parametrize("kind", [FrozenLakeEnv, CliffWalkingEnv, TaxiEnv])
def test_toy_text_tables(kind: type) -> None:
    """The model's optimum, run in the environment itself, earns what the model says."""
    environment = kind()

    def cost(state: int, action: int, following: int, reward: float) -> float:
        return float(reward < -1)

    model = from_gymnasium(environment, cost, gamma=0.9)
    table = environment.unwrapped.P  # pyright: ignore
    assert model.states == len(table) + 1
    policy = unconstrained(model)
    expected, expected_cost = evaluate(model, policy, model.rewards, model.costs[0]) @ model.start
    rng = np.random.default_rng(0)
    returns, costs = [], []
    for _ in range(300):
        state = int(rng.choice(len(model.start), p=model.start))
        total, paid, discount = 0.0, 0.0, 1.0
        for _ in range(100):
            outcomes = table[state][int(policy[state])]
            chosen = outcomes[int(rng.choice(len(outcomes), p=[o[0] for o in outcomes]))]
            total += discount * chosen[2]
            paid += discount * cost(state, 0, chosen[1], chosen[2])
            discount *= 0.9
            state = chosen[1]
            if chosen[3]:
                break
        returns.append(total)
        costs.append(paid)
    assert np.mean(returns) == pytest.approx(expected, abs=4 * np.std(returns) / 300**0.5 + 1e-3)
    assert np.mean(costs) == pytest.approx(expected_cost, abs=4 * np.std(costs) / 300**0.5 + 1e-3)


def test_a_bad_table_names_the_state_and_action() -> None:
    table = {0: {0: [(0.5, 0, 0.0, False)], 1: [(1.0, 0, 0.0, False)]}}
    with pytest.raises(BCRLError, match=r"state 0, action 0: the probabilities sum to 0.5"):
        from_gymnasium(table, lambda *_: 0.0, 0.9)
    table = {0: {0: [(1.0, 4, 0.0, False)]}}
    with pytest.raises(BCRLError, match="state 0, action 0 leads to state 4"):
        from_gymnasium(table, lambda *_: 0.0, 0.9)


def tiny_log() -> dict:
    return {
        "states": [0, 0, 0, 1, 2],
        "actions": [0, 0, 1, 0, 1],
        "rewards": [1.0, 3.0, 0.0, 5.0, -2.0],
        "costs": [0.0, 1.0, 0.0, 2.0, 0.0],
        "next_states": [1, 2, 0, 3, 0],
        "terminals": [False, False, False, False, True],
        "start_states": [0, 0, 1],
    }


def test_a_log_is_fitted_by_its_frequencies() -> None:
    model = from_log(**tiny_log(), gamma=0.9)
    assert (model.states, model.actions) == (5, 2)  # 0 to 3 and the end
    moves = model.transitions.toarray().reshape(5, 2, 5)
    np.testing.assert_allclose(moves[0, 0], [0, 0.5, 0.5, 0, 0])
    assert model.rewards[0, 0] == 2
    assert model.costs[0, 0, 0] == 0.5
    assert moves[2, 1, 4] == 1  # ended
    assert model.terminal[4]
    np.testing.assert_allclose(model.start, [2 / 3, 1 / 3, 0, 0, 0])
    np.testing.assert_array_equal(model.counts, [[2, 1], [1, 0], [0, 1], [0, 0], [0, 0]])
    np.testing.assert_array_equal(model.available[:4], [[1, 1], [1, 0], [0, 1], [1, 0]])
    # Entered and never left: the worst reward and cost that the log has, for ever.
    value, cost = evaluate(model, np.zeros(5, int), model.rewards, model.costs[0])[:, 3]
    assert value == pytest.approx(-2 / 0.1)
    assert cost == pytest.approx(2 / 0.1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"actions": [0, 0]}, "actions has 2 entries but states has 5"),
        ({"states": [0, 0, 0, -1, 2]}, r"states\[3\] is -1"),
        ({"states": [0.0, 0, 0, 1, 2]}, "states must be a row of integers"),
        ({"start_states": []}, "start_states must be a row"),
        ({"costs": [0.0, -1.0, 0, 0, 0]}, "state 0, action 0: the cost 0 is -0.5"),
    ],
)
def test_a_bad_log_is_named(change: dict, message: str) -> None:
    with pytest.raises(BCRLError, match=message):
        from_log(**tiny_log() | change, gamma=0.9)


def test_sparse_and_dense_models_are_the_same() -> None:
    model = random_model(5, 6, 3, 0.9, 2)
    rows = sparse.coo_array(model.transitions)
    again = CMDP(rows, model.rewards, model.costs, model.gamma, model.start)
    np.testing.assert_array_equal(least_cost(again).value, least_cost(model).value)


def test_without_the_extra_one_line_says_what_to_install() -> None:
    code = (
        "import sys; sys.modules['numba'] = None\n"
        "import bcrl\nfrom bcrl.errors import BCRLError\n"
        "import importlib.util as u; find = u.find_spec\n"
        "u.find_spec = lambda name, *a: None if name == 'numba' else find(name, *a)\n"
        "try:\n    import bcrl.cmdp\nexcept BCRLError as error:\n    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "this needs numba: pip install 'bcrl[cmdp]'\n"


def test_reprs_are_short() -> None:
    model = GridWorld.load("corridor").cmdp
    policy, best = plan(model, 1.0), optimum(model, 1.0)
    with pytest.warns(BudgetWarning):
        paper = plan(model, 1.0, mode="paper")
    things = (
        model,
        policy,
        paper,
        policy.whole,
        policy.grid,
        policy.start(1.0, seed=0),
        policy.evaluate(1.0),
        best,
        best.columns[0],
        frontier(model),
        least_cost(model),
        solve_lp(model, 1.0),
        simulate(policy, 1.0, episodes=10),
    )
    for thing in things:
        assert repr(thing).startswith(f"{type(thing).__name__}(")
        assert len(repr(thing)) <= 200
        assert "\n" not in repr(thing)
    assert repr(model) == f"CMDP({model.states} states, 4 actions, 1 cost, gamma 0.99)"


def test_models_of_odd_types_and_sizes_are_refused_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "model.npz"
    for odd in ({"gamma": np.array("x")}, {"start": np.array("x")}, {"counts": np.array([["x"]])}):
        np.savez(path, **parts() | odd)
        with pytest.raises(BCRLError, match=r"model\.npz: "):
            CMDP.load(path)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("rewards.npy", b"x" * 100)
    with pytest.raises(BCRLError, match=r"model\.npz: rewards is compressed by method 14"):
        CMDP.load(path)
