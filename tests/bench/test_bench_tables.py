"""Tables from stores whose numbers are made by hand."""

import csv

import numpy as np
import pytest
from tiny_bench import tiny_works

from bcrl.assess.results import Result, read_results
from bcrl.bench.cells import Cell, Protocol
from bcrl.bench.formats import latex, markdown
from bcrl.bench.scores import scores
from bcrl.bench.store import FILE, Outcome, Store
from bcrl.bench.tables import beside_paper, by_threshold, over_tasks, paper_form
from bcrl.cli import main


def cell(
    label: str, task: str, seed: int, threshold: float, setting: str = "s", policy: str = "final"
) -> Cell:
    key = f"{label} {task} {seed} {threshold} {setting} {policy}"
    return Cell(
        *(key, f"{setting} {policy}", label, label, "{}", task, "sha", 10, seed, threshold, policy),
        *(2, "finite-horizon", 0, 1),
    )


def outcome(found: Cell, reward: float, cost: float) -> Outcome:
    """Episodes from a tenth below to a tenth above the normalised reward and cost."""
    rows = [
        Result(
            *(found.method, "", "", "finite-horizon", found.task, "d", found.seed, found.threshold, episode),
            *(100 * (reward + off), (cost + off) * found.threshold, reward + off, cost + off, 200, 0.0),
        )
        for episode, off in enumerate(np.linspace(-0.1, 0.1, found.episodes).tolist())
    ]
    return Outcome(found, rows, "{}")


@pytest.fixture
def store(tmp_path):
    with Store(tmp_path / FILE) as store:
        yield store


# (reward, cost) at thresholds 10 and 20, the same for both seeds
GIVEN = {
    ("bcrl", "BallCircle"): ((0.6, 0.5), (0.8, 0.7)),  # safe
    ("lspc", "BallCircle"): ((0.9, 1.6), (0.9, 0.2)),  # safe on average: 0.9; but not at 10
    ("cdt", "BallCircle"): ((1.0, 1.9), (1.0, 1.9)),  # unsafe
    ("bcrl", "CarRun"): ((0.4, 0.5), (0.4, 0.5)),
    ("lspc", "CarRun"): ((0.2, 0.9), (0.2, 0.9)),
    ("bcrl", "point-run"): ((0.1, 0.5), (0.1, 0.5)),
}


@pytest.fixture
def full(store):
    for (label, task), pairs in GIVEN.items():
        for seed in (0, 10):
            for threshold, (reward, cost) in zip((10.0, 20.0), pairs, strict=True):
                store.add([outcome(cell(label, task, seed, threshold), reward, cost)])
    return store


def lines(table) -> list[list[tuple[str, str, bool]]]:
    return [[(text.text, text.mark, text.hides) for text in row] for row in table]


def test_the_papers_form(full):
    found = lines(paper_form(scores(full)))
    assert [text for text, *_ in found[0]] == [
        "",
        *("CDT reward ↑", "CDT cost ↓", "LSPC reward ↑", "LSPC cost ↓", "BCRL reward ↑", "BCRL cost ↓"),
    ]
    ball = found[1]
    assert ball[0] == ("BallCircle", "", False)
    # 0.6 and 0.8 ± 0.1: standard deviation √(0.1² + 0.1²)
    assert ball[5:7] == [("0.70 ± 0.14", "safe", False), ("0.60 ± 0.14", "safe", False)]
    assert ball[3:5] == [("0.90 ± 0.10", "best", False), ("0.90 ± 0.71", "best", True)]
    assert ball[1:3] == [("1.00 ± 0.10", "unsafe", False), ("1.90 ± 0.10", "unsafe", False)]
    car = found[2]
    assert car[5][1] == "best"
    assert car[1:3] == [("–", "", False), ("–", "", False)]
    average = found[3]
    assert average[0] == ("BulletGym average (2 tasks)", "average", False)
    # means 0.7 and 0.4; spread √(mean of (0.02, 0.01) + 0.15²)
    assert average[5] == ("0.55 ± 0.19", "best", False)
    assert average[3] == ("0.55 ± 0.36", "best", False)
    assert average[1] == ("1.00 ± 0.10 (1 of 2)", "unsafe", False)
    assert [row[0][0] for row in found[4:]] == ["point-run"], "one task has no average of its own"


def test_each_threshold_has_a_verdict(full):
    found = {
        tuple(text.text for text in row[:4]): [t.text for t in row[4:]] for row in by_threshold(scores(full))
    }
    assert found["BallCircle", "LSPC", "2", "10"][2:4] == ["broken", "100%"]
    assert found["BallCircle", "LSPC", "2", "20"][2:4] == ["kept", "0%"]
    assert found["CarRun", "LSPC", "2", "10"][2] == "kept"  # 0.8 and 1.0: never above 1 on average
    assert found["BallCircle", "BCRL", "2", "10"][0].startswith("0.60 (")


def test_the_setting_that_is_asked_for_is_shown_and_else_the_newest(store, logs):
    first, second = (tiny_works(logs, protocol=Protocol(episodes=count)) for count in (2, 3))
    for works, reward in ((first, 0.2), (second, 0.8)):
        for work in works:
            store.add(
                [outcome(found, reward, 0.5) for seed in work.job.seeds for found in work.reported(seed)]
            )
    for asked, reward in ((first, 0.2), (second, 0.8), ((), 0.8)):
        assert [round(score.reward[0], 6) for score in scores(store, asked)] == [reward, reward]


@pytest.mark.parametrize(
    ("cost", "wanted"), [(0.85, "kept"), (0.99, "open"), (1.02, "open"), (1.2, "broken")]
)
def test_verdicts(cost, wanted, store):
    for seed in (0, 10, 20):
        store.add([outcome(cell("bcrl", "CarRun", seed, 10.0), 0.5, cost)])
    (score,) = scores(store)
    (line,) = score.lines
    assert line.kept == wanted
    assert score.safe == (cost <= 1.0)


def test_over_tasks(full):
    found = {(row[0].text, row[1].text): [text.text for text in row[2:]] for row in over_tasks(scores(full))}
    tasks, reward, iqm, cost, _, kept, still_open, broken = found["BulletGym", "BCRL"]
    assert (tasks, reward, cost) == ("2", "0.55", "0.55")
    assert iqm == "0.55 (0.55 to 0.55)"  # runs 0.7 0.7 0.4 0.4 without the outer two; seeds are equal
    assert (kept, still_open, broken) == ("4/4", "0/4", "0/4")
    assert found["BulletGym", "LSPC"][-3:] == ["3/4", "0/4", "1/4"]
    assert found["BulletGym", "CDT"][0] == "1"


def test_beside_the_paper(full):
    found = {
        (row[0].text, row[1].text): [text.text for text in row[2:]] for row in beside_paper(scores(full))
    }
    assert found["BallCircle", "BCRL"] == ["0.69 / 0.70", "0.97 / 0.60", "+0.01"]
    assert found["BallCircle", "LSPC"] == ["0.62 / 0.90", "1.17 / 0.90", "+0.28"]
    assert ("point-run", "BCRL") not in found


def test_only_the_newest_setting_of_a_method_is_shown(store):
    for seed in (0, 10):
        store.add([outcome(cell("bcrl", "CarRun", seed, 10.0, "old"), 0.9, 0.5)])
    store.add([outcome(cell("bcrl", "CarRun", 0, 10.0, "new"), 0.1, 0.5)])
    (score,) = scores(store)
    assert (score.seeds, score.reward[0]) == (1, pytest.approx(0.1))


def test_the_best_policy_is_a_column_of_its_own(store):
    store.add([outcome(cell("bcrl", "CarRun", 0, 10.0), 0.5, 0.5)])
    store.add([outcome(cell("bcrl", "CarRun", 0, 10.0, policy="best"), 0.6, 0.5)])
    found = scores(store)
    assert [score.name for score in found] == ["bcrl", "bcrl, best policy"]
    paper = {row[1].text: row[2].text for row in beside_paper(found)}
    assert paper["BCRL, best policy"] == "0.99 / 0.60"


def test_a_seed_under_way_waits(store):
    """The second seed has one threshold so far: shown would be a mean over different thresholds."""
    for seed, threshold in ((0, 10.0), (0, 20.0), (10, 10.0)):
        store.add([outcome(cell("bcrl", "CarRun", seed, threshold), 0.5, 0.5)])
    (score,) = scores(store)
    assert (score.seeds, [line.threshold for line in score.lines]) == (1, [10.0, 20.0])


def test_markdown_and_latex(full):
    text = markdown(scores(full))
    ball = next(line for line in text.splitlines() if line.startswith("| BallCircle"))
    assert [word.strip() for word in ball.split("|")[1:-1]] == [
        *("BallCircle", "1.00 ± 0.10", "1.90 ± 0.10", "**0.90 ± 0.10** ★", "**0.90 ± 0.71** ★ †"),
        *("**0.70 ± 0.14**", "**0.60 ± 0.14**"),
    ]
    table = text.split("\n\n")[0].splitlines()
    assert len({line.count("|") for line in table}) == 1
    assert "## Beside the paper" in text
    tex = latex(scores(full)).splitlines()
    assert tex[0] == "\\begin{tabular}{lllllll}"
    assert tex[2] == (
        " & \\multicolumn{2}{c}{CDT} & \\multicolumn{2}{c}{LSPC} & \\multicolumn{2}{c}{BCRL} \\\\"
    )
    assert (
        "BallCircle & \\textcolor{gray}{1.00$_{\\pm 0.10}$} & \\textcolor{gray}{1.90$_{\\pm 0.10}$} & "
        "\\textbf{\\textcolor{blue}{0.90$_{\\pm 0.10}$}} & "
        "\\textbf{\\textcolor{blue}{0.90$_{\\pm 0.71}$$^\\dagger$}} & "
        "\\textbf{0.70$_{\\pm 0.14}$} & \\textbf{0.60$_{\\pm 0.14}$} \\\\"
    ) in tex
    assert all(line.count("&") in (0, 6) for line in tex if not line.startswith(" & \\multi"))


def test_a_caveat_of_a_task_is_said(store):
    store.add([outcome(cell("bcrl", "hardmean", 0, 10.0), 0.5, 0.5)])
    assert "hardmean: an approximation" in markdown(scores(store))
    assert "% hardmean: an approximation" in latex(scores(store))


def test_the_verb_writes_all_files(full, tmp_path, capsys):
    main(["bench", "table", str(tmp_path)])
    said = capsys.readouterr().out
    assert "| BallCircle" in said
    assert "48 episodes" in said
    rows = read_results(tmp_path / "results.csv")
    assert len(rows) == 48
    with open(tmp_path / "results.csv", newline="") as file:
        assert {row["method"] for row in csv.DictReader(file)} == {"bcrl", "lspc", "cdt"}
    assert (tmp_path / "table.md").read_text(encoding="utf-8").startswith("| ")
    assert (tmp_path / "table.tex").read_text(encoding="utf-8").startswith("\\begin{tabular}")


def test_tables_of_nothing_are_refused(store, tmp_path, logs):
    with pytest.raises(SystemExit):
        main(["bench", "table", str(tmp_path / "none")])
    with pytest.raises(SystemExit):
        main(["bench", "table", str(tmp_path)])
    trial = tiny_works(logs)[0].cells(0, "final", reported=False)
    store.add([outcome(trial[0], 0.5, 0.5)])
    assert scores(store) == [], "a trial is not reported"
