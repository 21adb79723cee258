"""`bcrl paper run maritime`: the paper's numbers beside those of results of ships."""

import csv

import pytest

from bcrl.assess import write_results
from bcrl.cli import main
from bcrl.paper.ships import ship_rows
from bcrl.ship import ShipResult


def episode(run, method, budget, success, gc_ade=10.0, scenario=0):
    threshold = 15 * budget if budget == budget else float("inf")  # experts have none
    return ShipResult(
        *(method, "", "", "soft", "ship", "log.npz", 0, threshold, scenario, 100.0, 3.0, 1.0, 0.2, 60, 0.0),
        *(run, budget, scenario, 80.0, gc_ade, 0.25, 0.001, 5.0, success),
    )


RESULTS = [
    *(episode("mine", "bcrl", 1.0, success, 20.0, i) for i, success in enumerate((1.0, 0.0))),
    *(episode("mine", "bcrl", 0.5, 1.0, 30.0, i) for i in range(2)),
    *(episode("cloned", "bc-all", 0.5, 1.0, 12.0, i) for i in range(2)),
    *(episode("expert", "expert", float("nan"), 1.0, 0.0, i) for i in range(2)),
]


def test_the_papers_numbers_stand_before_ours():
    head, *rows = ship_rows(RESULTS)
    assert head[2] == "GC-ADE m ↓"
    named = {(row[0], row[1]): row for row in rows}
    assert list(named) == [
        ("expert", ""),
        ("BCRL", "0.5"),
        ("BCRL", "1"),
        ("BC-All", "0.5"),
        ("CAPS", ""),
        ("CCAC", ""),
        ("LSPC", ""),
    ]
    assert named["expert", ""][2] == "0.00 / 0.00 ± 0.00"
    assert named["BCRL", "0.5"][2] == "52.08 ± 10.64 / 30.00 ± 0.00"
    assert named["BCRL", "1"][6].startswith("0.88 ± 0.03 / 0.50 ± 0.3")
    assert named["BC-All", "0.5"][3] == "– / 0.25 ± 0.00"
    assert named["CAPS", ""][2:] == [
        "87.30 ± 19.82 / –",
        "0.23 ± 0.05 / –",
        "0.0034 ± 0.0006 / –",
        "5.67 ± 0.07 / –",
        "0.73 ± 0.16 / –",
        "",
    ]


def test_two_runs_of_a_method_keep_their_names():
    twin = [episode("other", "bcrl", 0.5, 1.0, scenario=i) for i in range(2)]
    names = [row[0] for row in ship_rows([*RESULTS, *twin])]
    assert "BCRL, mine" in names
    assert "BCRL, other" in names


def test_the_page_of_a_results_file(tmp_path, capsys):
    write_results(RESULTS, tmp_path / "ships.csv")
    main(["paper", "run", "maritime", "--results", str(tmp_path / "ships.csv"), "--out", str(tmp_path)])
    lines = capsys.readouterr().out.splitlines()
    table = [line for line in lines if line.startswith("|")]
    assert len(table) == 2 + 7
    assert len({len(line) for line in table}) == 1
    for suffix in (".md", ".tex"):
        assert "Singapore" in (tmp_path / f"maritime{suffix}").read_text(encoding="utf-8")
    assert (tmp_path / "maritime.png").read_bytes()[:4] == b"\x89PNG"
    rows = list(csv.DictReader((tmp_path / "maritime.csv").read_text(encoding="utf-8").splitlines()))
    assert [(row["run"], row["budget"]) for row in rows] == [
        ("expert", ""),
        ("mine", "0.5"),
        ("mine", "1"),
        ("cloned", "0.5"),
    ]
    assert (rows[1]["gc_ade"], rows[1]["paper_gc_ade"], rows[3]["paper_gc_ade"]) == ("30", "52.08", "")


def test_a_results_file_without_episodes_is_refused(tmp_path, capsys):
    write_results([], tmp_path / "empty.csv", ShipResult)
    with pytest.raises(SystemExit) as stop:
        main(["paper", "run", "maritime", "--results", str(tmp_path / "empty.csv"), "--out", str(tmp_path)])
    assert stop.value.code == 2
    assert "has no episode" in capsys.readouterr().err
