"""`bcrl data import` on the command line: the account, the next command, and mistakes."""

import shlex

import pytest

from bcrl.cli import main
from bcrl.data import load_data

COLUMNS = "--observations 'x1..x2' --actions u1,u2 --reward r --costs c --episode id --time t"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A table of five episodes of six rows; the second has a missing value, the third is unsorted."""
    lines = ["id,t,x1,x2,u1,u2,r,c,mode"]
    for row in range(30):
        episode, step = divmod(row, 6)
        time = 5 - step if episode == 2 else step
        state = "" if row == 8 else f"{row * 0.1:.2f}"
        lines.append(f"{episode},{time},{state},{time},{step % 3},{-step},1,{step % 2},{'ab'[step % 2]}")
    (tmp_path / "my.csv").write_text("\n".join(lines))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(words: str) -> None:
    main(shlex.split(words))


def refuse(words: str, capsys) -> str:
    with pytest.raises(SystemExit) as stop:
        run(words)
    assert stop.value.code == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    return said


def test_the_account_fits_80_columns_and_says_what_is_next(folder, capsys):
    run(f"data import my.csv {COLUMNS} --action-bounds 0:2,-5:0 --max-cost 1 --out log.npz")
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    text = "\n".join(lines)
    for phrase in (
        "30   rows read",
        "5   rows earlier than the row before: sorted by time",
        "1   episodes with missing values left out",
        "4   last rows used only as the next state",
        "20   transitions in 4 episodes of at most 5 steps",
        "20.0% of the episodes are left out for missing observations; --missing forward",
        "All ends of episodes are taken as time limits",
        "4 episodes, 20 transitions: log.npz",
        "next: bcrl data info log.npz",
    ):
        assert phrase in text
    log = load_data("log.npz")
    assert (log.schema.action_low, log.schema.action_high) == ((0, -5), (2, 0))
    assert log.schema.max_cost == (1,)


def test_options_go_before_the_map(folder, capsys):
    (folder / "map.toml").write_text(
        "observations = 'x1..x2'\nactions = 'mode'\ndiscrete = true\nreward = 'r'\ncosts = 'c'\n"
        "episode = 'id'\ntime = 't'\nmissing = 'error'\n[units]\nx1 = 'm'\n"
    )
    assert "column x1, row 9 is None, no value" in refuse(
        "data import my.csv --map map.toml --out log.h5", capsys
    )
    run("data import my.csv --map map.toml --missing forward --out log.h5")
    assert "1   missing values filled with the one before" in capsys.readouterr().out
    run("data info log.h5")
    said = capsys.readouterr().out
    assert "x1 [m], x2" in said
    assert "mode: a, b" in said


@pytest.mark.parametrize(
    ("words", "phrase"),
    [
        ("--action-bounds 0:2", "--action-bounds has 1 entries and --actions is 'u1,u2'"),
        ("--action-bounds 0:2,low", "--action-bounds low is not LOW:HIGH"),
        ("--ends crash", "--ends crash is not known"),
        ("--reward gain", "my.csv: there is no column gain"),
        ("--map none.toml", "none.toml: cannot be read"),
        ("--missing error", "my.csv: column x1, row 9 is None, no value"),
        ("--out log.csv", "unknown suffix '.csv'"),
        ("--separator ab", "separator is 'ab', but must be one character"),
        ("--discrete", "discrete actions are labels in one column"),
    ],
)
def test_mistakes_are_one_line(words, phrase, folder, capsys):
    assert phrase in refuse(f"data import my.csv {COLUMNS} --out log.npz {words}", capsys)
    assert not (folder / "log.npz").exists()


def test_a_log_is_not_replaced_unasked(folder, capsys):
    (folder / "log.npz").write_text("mine")
    assert "exists" in refuse(f"data import my.csv {COLUMNS} --out log.npz", capsys)
    run(f"data import my.csv {COLUMNS} --out log.npz --overwrite")
    assert len(load_data("log.npz")) == 20
