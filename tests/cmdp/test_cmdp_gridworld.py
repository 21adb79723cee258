"""The grid world: as a model, as an environment, on the command line, and the paper's figure."""

import csv
from pathlib import Path

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from bcrl.cli.arguments import parse
from bcrl.cli.paper_synthetic import Command as Synthetic
from bcrl.cli.solve import Command as Solve
from bcrl.cmdp import CMDP, GridWorld, GridWorldEnv, layouts, least_cost, optimum, plan, unconstrained
from bcrl.cmdp.draw import policy_letters, safe_letters
from bcrl.errors import BCRLError


@pytest.mark.parametrize("name", layouts())
def test_every_layout_can_be_solved(name: str) -> None:
    model = GridWorld.load(name, 0.1).cmdp
    budget = [1.0] * len(model.costs)
    assert optimum(model, budget).value > -50
    assert np.all(plan(model, budget, bins=10).evaluate(budget).cost <= 1 + 1e-9)


def test_the_maps_of_the_figures_are_there() -> None:
    assert {"corridor", "blocked"} <= set(layouts())
    assert GridWorld.load("corridor").rows[4] == "S........G"
    assert GridWorld.load("blocked").rows[4] == "S...XX...G"


def test_moves_slip_to_the_other_three_directions_and_walls_stop() -> None:
    world = GridWorld("room", ("S.#", "XG."), slip=0.3, gamma=0.9)
    model = world.cmdp
    assert model.states == 5  # the wall is none
    moves = model.transitions.toarray().reshape(5, 4, 5)
    up, right, down, left = range(4)
    np.testing.assert_allclose(moves[0, right], [0.2, 0.7, 0.1, 0, 0])  # up and left stay, down slips to X
    np.testing.assert_allclose(moves[0, down], [0.2, 0.1, 0.7, 0, 0])
    np.testing.assert_allclose(moves[1, right], [0.1, 0.8, 0, 0.1, 0])  # # and the edge stop
    assert moves[3, up, 3] == 1  # the goal keeps
    np.testing.assert_array_equal(model.costs[0, :, left], [0, 0, 1, 0, 0])
    np.testing.assert_array_equal(model.rewards[:, left], [-1, -1, -1, 0, -1])
    assert model.start[0] == 1


def test_the_known_optima() -> None:
    """Blocked without noise: around costs nothing and takes 14 steps; straight on takes 9."""
    model = GridWorld.load("blocked", 0.0).cmdp
    discounted = (1 - 0.99 ** np.array([9, 15])) / (1 - 0.99)
    assert optimum(model, 100.0).value == pytest.approx(-discounted[0])
    assert optimum(model, 0.0).value == pytest.approx(-discounted[1])
    assert optimum(model, 1.0).value == pytest.approx(-11.1976, abs=1e-4)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (("S.G", ".."), "same length"),
        (("S.G", ".z."), "line 2, column 2: unknown 'z'"),
        (("..G",), "no start S"),
        (("S..",), "no goal G"),
        ((), "same length"),
    ],
)
def test_bad_maps_are_named(rows: tuple[str, ...], message: str) -> None:
    with pytest.raises(BCRLError, match=message):
        GridWorld("mine", rows)


def test_slip_must_be_a_probability() -> None:
    with pytest.raises(BCRLError, match="slip"):
        GridWorld.load("corridor", slip=1.5)


def test_the_users_own_map(tmp_path: Path) -> None:
    path = tmp_path / "mine.txt"
    path.write_text("S.G\n...\n\n")
    assert GridWorld.load(str(path)).cmdp.states == 6
    with pytest.raises(BCRLError, match="corridor"):
        GridWorld.load(str(tmp_path / "none.txt"))


def test_the_environment_behaves_as_the_model() -> None:
    world = GridWorld.load("corridor", 0.2)
    environment = GridWorldEnv(world, horizon=400, render_mode="ansi")
    check_env(environment, skip_render_check=True)
    policy = unconstrained(world.cmdp)
    returns, costs = [], []
    for seed in range(300):
        state, _ = environment.reset(seed=seed)
        earned, paid, discount = 0.0, 0.0, 1.0
        while True:
            state, reward, terminated, truncated, info = environment.step(int(policy[state]))
            earned += discount * reward
            paid += discount * info["cost"]
            discount *= world.gamma
            if terminated or truncated:
                break
        returns.append(earned)
        costs.append(paid)
    exact = optimum(world.cmdp, 100.0)
    assert np.mean(returns) == pytest.approx(exact.value, abs=4 * np.std(returns) / 300**0.5)
    assert np.mean(costs) == pytest.approx(exact.cost[0], abs=4 * np.std(costs) / 300**0.5)
    picture = environment.render()
    assert picture is not None
    assert picture.count("@") == 1


def test_pictures_show_the_safe_set_and_the_way() -> None:
    world = GridWorld.load("blocked", 0.0)
    model = world.cmdp
    safe = least_cost(model).safe_states(0.5)
    assert (safe_letters(world, safe) == "!").sum() == (world.letters == "X").sum()
    letters = world.paint(policy_letters(world, plan(model, 0.0).occupancy(0.0)), "#")
    assert letters[4, 9] == "G"
    assert letters[4, 4] == "·"
    assert set("→") <= set("".join(letters.ravel()))


def run(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    parse(Solve, "bcrl solve", words).run()
    return capsys.readouterr().out


def test_solve_gridworld_prints_values_and_maps(capsys: pytest.CaptureFixture[str]) -> None:
    said = run(["gridworld", "--budget", "1", "--slip", "0.2"], capsys)
    lines = {line.split("  ")[0]: line for line in said.splitlines()}
    assert "-13.0410" in lines["CMDP optimum"]
    assert "-13.04" in lines["BCRL (slack)"]
    assert "over the budget" in lines["unconstrained"]
    for title in ("safe set", "policy", "visits"):
        assert title in said
    assert "\x1b" not in said  # piped: no colours
    assert "!" in said
    assert "→" in said
    assert "█" in said


def test_solve_says_when_no_policy_keeps_the_budget(capsys: pytest.CaptureFixture[str]) -> None:
    said = run(["gridworld", "--budget", "0.01", "--slip", "0.4"], capsys)
    assert "smallest feasible budget is" in said
    assert "BCRL (fallback)" in said


def test_solve_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "model.npz"
    run(["gridworld", "--map", "two-costs", "--budget", "1,1", "--save", str(path)], capsys)
    assert CMDP.load(path).states == 70
    said = run([str(path), "--budget", "1,1"], capsys)
    assert "70 states, 4 actions, 2 costs" in said
    GridWorld("tiny", ("SXG", "..."), 0.1).cmdp.save(path)
    assert "most frequent action" in run([str(path), "--budget", "0.5"], capsys)
    with pytest.raises(BCRLError, match="neither 'gridworld' nor"):
        run(["somewhere.txt", "--budget", "1"], capsys)
    with pytest.raises(BCRLError, match="1 cost"):
        run([str(path), "--budget", "1,2"], capsys)


@pytest.mark.parametrize("words", [["--mode", "paper", "--bins", "21"], ["--shield"]])
def test_solve_in_other_modes(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    said = run(["gridworld", "--budget", "1", *words], capsys)
    assert ("can exceed its budget" in said) == ("paper" in words)
    assert ("10,000 episodes" in said) == ("--shield" in words)


def test_the_paper_figure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "figures"
    words = ["synthetic", "--points", "3", "--budgets", "0.2,1", "--out", str(out)]
    parse(Synthetic, "bcrl paper run", words).run()
    assert (out / "synthetic.png").read_bytes()[:4] == b"\x89PNG"
    assert "| 0.2    | 0.5  | -" in (out / "synthetic.md").read_text(encoding="utf-8")
    assert "only as pictures" in (out / "synthetic.tex").read_text(encoding="utf-8")
    rows = list(csv.DictReader((out / "synthetic.csv").read_text().splitlines()))
    methods = {(row["budget"], row["p"]): set() for row in rows}
    for row in rows:
        methods[row["budget"], row["p"]].add(row["method"])
    assert methods["0.2", "0.5"] == {"unconstrained"}  # infeasible: missing
    assert len(methods["1", "0.5"]) == 4
    for row in rows:
        if row["method"] in ("BCRL", "CMDP optimum"):
            assert float(row["cost"]) <= float(row["budget"]) + 1e-9
