"""The page about estimates: it tells them as they are, and its slider works in a browser."""

import base64
import dataclasses
import hashlib
import json
import re

import numpy as np
import pytest
from chromium_pipe import browser, chromium
from page_reader import Reader

import bcrl
from bcrl.assess.results import write_results
from bcrl.assess.statistics import summarise
from bcrl.calibration import Calibration
from bcrl.cli import main
from bcrl.data import Schema
from bcrl.errors import BCRLError
from bcrl.estimates import Estimates, ThresholdEstimate
from bcrl.learn.bcrl import BCRL
from bcrl.learn.protocol import Spec, blank_actor
from bcrl.learn.units import Units
from bcrl.policy import Policy
from bcrl.report import estimate_curves, estimate_page, learning_section
from bcrl.report.estimate_figure import best_logged

FEW = "no logged episode costs less than 10: thresholds under 10 are extrapolation"


def row(threshold, light="green", reasons="", *, cost=None, seed=0, **more) -> ThresholdEstimate:
    cost = 0.9 * threshold if cost is None else cost
    given = {"cost_low": cost - 1, "cost_high": cost + 1, "return_": 100 + threshold}
    given |= {
        "return_low": 90 + threshold,
        "return_high": 110 + threshold,
        "fallback_share": 0.125,
        "over_share": 0.375,
    }
    who = {"method": "bcrl", "execution": "soft", "data": "log.npz", "seed": seed}
    return ThresholdEstimate(
        **(who | {"threshold": float(threshold), "cost": cost} | given | more), light=light, reasons=reasons
    )


ROWS = [
    row(5, "red", f"the fallback decides 52% of the steps; {FEW}"),
    row(8, "amber", f"the fallback decides 21% of the steps; {FEW}"),
    row(20),
    row(40),
]


def untrained(**provenance) -> Policy:
    method, spec = BCRL(hidden=(4,)), Spec(3, 2, 1, 5, (1.0,), 10)
    return Policy(blank_actor(method, spec), method, spec, {"data": "log.npz", "seed": 0} | provenance)


@pytest.fixture
def calibrated(dataset) -> Policy:
    policy = untrained(data_sha256=dataset.fingerprint())
    policy.calibration = Calibration(((20.0, 18.5), (30.0, 27.0)), dataset.fingerprint(), "soft", 0, 200)
    return policy


def text_of(page: str) -> str:
    return " ".join(Reader(page).text.split())


def cells(page: str) -> list[list[str]]:
    return [[" ".join(cell.split()) for cell in line] for line in Reader(page).rows]


def test_the_page_is_whole_and_only_its_own_script_may_run(dataset):
    page = estimate_page(Estimates(ROWS), dataset=dataset)
    read = Reader(page)
    assert not re.search(r"https?://|src\s*=|@import|url\((?!#)", page)
    scripts = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    digests = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in scripts]
    assert len(digests) == 1
    assert f"script-src 'sha256-{digests[0]}';" in page
    ids = [attributes["id"] for _, attributes in read.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert len(read.find("svg")) == 3
    (control,) = read.find("input", type="range")
    assert read.find("label", **{"for": control["id"]})
    (box,) = read.find("div", **{"class": "estimate-slider"})
    assert "hidden" in box  # until the script runs
    pictures = "".join(re.findall(r"<svg.*?</svg>", page, re.DOTALL))
    assert not re.search(r"#[0-9a-f]{6}\b", pictures)
    assert page == estimate_page(Estimates(ROWS), dataset=dataset)


def test_the_table_holds_the_rows_with_light_and_best_logged_episode(dataset):
    head, *lines = cells(estimate_page(Estimates(ROWS), dataset=dataset))
    assert head == ["threshold", "light", "cost", "over", "return", "fallback", "best logged return"]
    best = dataset.episode_returns.max()  # no episode costs more than 5
    assert lines[0] == ["5", "■ red", "4.5 3.5 to 5.5", "38 %", "105 95 to 115", "12 %", f"{best:.0f}"]
    assert [line[1] for line in lines] == ["■ red", "▲ amber", "● green", "● green"]


def test_units_stand_where_the_schema_knows_them():
    policy = untrained()
    policy.schema = Schema(cost_names=("overheat",), units={"overheat": "min", "reward": "EUR"})
    page = estimate_page(Estimates(ROWS), policies=[policy])
    head = cells(page)[0]
    assert head == ["threshold [min]", "light", "cost [min]", "over", "return [EUR]", "fallback"]
    for words in ("threshold it is told [min]", "cost of an episode [min]", "return of an episode [EUR]"):
        assert words in page
    assert "cost 18.0 (17.0 to 19.0) min an episode and to earn 120 (110 to 130) EUR" in text_of(page)
    assert "[" not in " ".join(cells(estimate_page(Estimates(ROWS)))[0])


def test_the_best_logged_episode_is_within_the_threshold(dataset):
    costs, returns = dataset.episode_costs.ravel(), dataset.episode_returns
    found = best_logged(dataset, np.array([-1.0, 0.0, 2.0, 2.5, 99.0]))
    assert np.isnan(found[0])
    expected = [
        returns[costs <= limit].max() if (costs <= limit).any() else np.nan for limit in (0, 2, 2.5, 99)
    ]
    np.testing.assert_array_equal(found[1:], expected)


def test_each_warning_is_said_once_with_its_thresholds():
    text = text_of(estimate_page(Estimates(ROWS)))
    assert text.count("are extrapolation") == 1
    assert f"N{FEW[1:]} (at thresholds 5 and 8)" in text
    assert "The fallback decides 21% to 52% of the steps (at thresholds 5 and 8)" in text
    assert "red at threshold 5: do not use these numbers." in text
    assert "green at thresholds 20 and 40: no check found anything." in text
    assert "never a guarantee" in text
    assert "LARGEST stands for a cost that no episode can exceed." in text
    assert "bcrl certify costs.csv --threshold 20 --largest LARGEST" in text


@pytest.mark.parametrize("declared", [(), (7.5,)])
def test_the_command_that_certifies_has_the_largest_cost(declared):
    """In the user's unit, from the policy; it is a bound only where it is declared."""
    policy = untrained()
    policy.units, policy.schema = Units((7.5,)), Schema(max_cost=declared)
    text = text_of(estimate_page(Estimates(ROWS), policies=[policy]))
    assert "bcrl certify costs.csv --threshold 20 --largest 37.5" in text
    assert ("give more if an episode can cost more" in text) == (not declared)


def test_several_policies_are_told_apart_where_they_differ():
    other = [dataclasses.replace(one, seed=1, light="amber", reasons=FEW) for one in ROWS]
    page = estimate_page(Estimates(ROWS + other))
    text = text_of(page)
    assert "2 policies, estimated at 4 thresholds." in text
    assert "(at thresholds 5 and 8 of bcrl, seed 0; at thresholds 5, 8, 20 and 40 of bcrl, seed 1)" in text
    assert len(Reader(page).find("table")) == 2


def test_calibrated_thresholds_are_shown(dataset, calibrated):
    page = estimate_page(Estimates(ROWS), policies=[calibrated], policy_file="calibrated.bcrl")
    head, *lines = cells(page)
    at = head.index("told (calibrated)")
    assert [line[at] for line in lines] == ["–", "–", "18.5", "–"]
    text = text_of(page)
    assert "Calibrated too: to keep 30, tell it 27." in text
    assert 'start(threshold=20, horizon=200, calibrated=True, execution="soft")' in text
    with pytest.raises(BCRLError, match=r"seed 0.*but the estimates are of .*seed 1"):
        estimate_page(Estimates([row(5, seed=1)]), policies=[calibrated])
    calibrated.calibration = dataclasses.replace(calibrated.calibration, data_sha256="0" * 64)
    with pytest.raises(BCRLError, match="calibrated with another log"):
        estimate_page(Estimates(ROWS), dataset=dataset, policies=[calibrated])


def test_truth_stands_beside_the_estimates(make_results):
    truth = make_results(thresholds=(5.0, 20.0, 40.0), seeds=(0,))
    estimates = [row(5), row(8), row(20), row(40, cost=50.0)]
    page = estimate_page(Estimates(estimates), truth=truth)
    head, *lines = cells(page)
    assert head[-3:] == ["simulated cost", "simulated over", "simulated return"]
    summary = summarise(truth)[1]
    known = summary.episode_cost
    assert lines[2][-3] == f"{known.mean:.1f} {known.low:.1f} to {known.high:.1f}"
    assert lines[2][-2] == f"{100 * summary.violation_rate:.0f} %"
    assert lines[1][-3:] == ["–", "–", "–"]
    covered = (
        "Of 3 thresholds, the interval holds the simulated mean cost at 2 and the simulated mean return at "
    )
    within = [abs(s.episode_return.mean - 100 - (s.threshold or 0)) <= 10 for s in summarise(truth)[:-1]]
    assert f"{covered}{sum(within)}." in text_of(page)
    with pytest.raises(BCRLError, match="the truth is of method bc-all"):
        estimate_page(Estimates(ROWS), truth=make_results(method="bc-all", seeds=(0,)))
    worlds = truth + [dataclasses.replace(one, world="another") for one in truth]
    with pytest.raises(BCRLError, match="several worlds"):
        estimate_page(Estimates(ROWS), truth=worlds)


def test_what_files_say_is_escaped():
    nasty = '</script><script>alert("1")</script>&\x08\x1b\u202e'
    rows = [dataclasses.replace(one, data=nasty, reasons=nasty) for one in ROWS]
    rows += [dataclasses.replace(one, execution=nasty) for one in rows]
    page = estimate_page(Estimates(rows), command=nasty, policy_file=nasty)
    Reader(page)
    assert page.count("<script") == 2  # the slider and its data
    assert page.count("alert(") >= 4
    assert not set("\x08\x1b\u202e") & set(page)


def test_estimates_that_cannot_be_drawn_are_refused(dataset):
    for rows, words in (
        ([], "hold no row"),
        ([row(5), row(5)], "one threshold is there twice"),
        ([row(5, cost=float("nan"))], "cost at threshold 5 is nan"),
        ([row(5, fallback_share=float("inf"))], "fallback_share at threshold 5 is inf"),
    ):
        with pytest.raises(BCRLError, match=words):
            estimate_page(Estimates(rows))
    with pytest.raises(BCRLError, match="truth is for estimates"):
        bcrl.write_report([], "unused.html", truth=[object()])  # type: ignore[list-item]


def test_one_threshold_needs_no_slider():
    page = estimate_page(Estimates([row(20, cost_low=18.0, cost_high=18.0)]))
    assert "<script" not in page
    assert "Told 20, the policy is estimated to cost 18.00 (18.00 to 18.00)" in text_of(page)


def test_learning_curves_are_of_critics():
    names = ("cost/critic_loss", "cost/value", "cost/value_loss", "reward/value", "policy/loss")
    rows = [
        {"step": step, "seed": seed} | dict.fromkeys(names, step / 7 + seed)
        for step in range(0, 1000, 100)
        for seed in (0.0, 10.0)
    ]
    part = learning_section({"mine": rows, "empty": []})
    assert part is not None
    titles = re.findall(r"<title[^>]*>([^<]*)</title>", part.body)
    assert [title.partition(":")[0] for title in titles] == ["cost/critic_loss", "cost/value", "reward/value"]
    assert "mine, seed 10: from 10 to 139" in titles[0]
    assert learning_section({"empty": []}) is None


def test_the_verb_tells_estimates_from_results(make_results, dataset, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Estimates(ROWS).save("estimates.csv")
    write_results(make_results(seeds=(0,)), "results.csv")
    dataset.save("log.npz")
    (tmp_path / "run").mkdir()
    untrained().save("run/policy-0.bcrl")
    (tmp_path / "run" / "metrics.csv").write_text("step,seed,cost/value\n10,0,1.5\n20,0,2.5\n")
    given = ["--data", "log.npz", "--policies", "run", "--truth", "results.csv", "--figure", "picture.png"]
    main(["report", "estimates.csv", "--out", "page.html", *given])
    assert "4 estimates: page.html, picture.png" in capsys.readouterr().out
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "How it was learned" in page
    assert "--truth results.csv" in page
    assert str(tmp_path) not in page
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")
    for wrong in (["results.csv", "--truth", "results.csv"], ["estimates.csv", "--scenarios", "sea.npz"]):
        with pytest.raises(SystemExit, match="2"):
            main(["report", *wrong, "--out", "page.html", "--overwrite"])
    for words in ("page.html", "another.html --figure picture.png"):
        with pytest.raises(SystemExit, match="2"):
            main(["report", "estimates.csv", "--out", *words.split()])
    messages = capsys.readouterr().err
    assert "--out page.html exists; choose another name or give --overwrite" in messages
    assert "--figure picture.png exists" in messages
    assert "--truth is for estimates, but results.csv holds results" in messages
    assert "--scenarios is for results of ships, but estimates.csv holds estimates" in messages


def test_curves_are_sorted_by_threshold():
    (line,) = estimate_curves(ROWS[::-1])
    assert line.thresholds.tolist() == [5, 8, 20, 40]


# In a browser.


@pytest.fixture(scope="module")
def tab(tmp_path_factory):
    if browser() is None:
        pytest.skip("no Chromium on this machine: install the package chromium to test reports in a browser")
    folder = tmp_path_factory.mktemp("chromium")
    bcrl.write_report(Estimates([*ROWS, row(10, seed=1), row(20, seed=1)]), folder / "page.html")
    with chromium(folder / "profile") as tab:
        tab.open((folder / "page.html").as_uri())
        yield tab


def said(tab, place=None) -> list[str]:
    """What the slider says of both policies, after a move to `place` (0 to 400)."""
    if place is not None:
        move = f"i.value = {json.dumps(place)}; i.dispatchEvent(new Event('input'))"
        tab.evaluate(f"{{const i = document.querySelector('#told'); {move}}}")
    lines = tab.evaluate("[...document.querySelectorAll('.answer')].map((p) => p.innerText)")
    return [" ".join(line.split()) for line in lines]


def test_the_slider_interpolates_and_shows_the_worse_light(tab):
    def guide():
        return tab.evaluate(
            "[...document.querySelectorAll('.guide')].map((l) => l.getBoundingClientRect().x)"
        )

    assert tab.evaluate("document.querySelector('.estimate-slider').offsetHeight") > 0
    first, second = said(tab)  # 10, the middle one
    assert second == "bcrl, seed 1 cost 9.0 (8.0 to 10.0) return 110 (100 to 120) ● green estimated"
    assert first.startswith("bcrl, seed 0 cost 9.0")
    before = guide()
    assert len(before) == 2
    first, second = said(tab, round(400 * (14 - 5) / 35))  # 14: halfway from 8 to 20
    assert "cost 12.6 (11.6 to 13.6) return 114 (104 to 124) ▲ amber interpolated between 8 and 20" in first
    assert "cost 12.6 (11.6 to 13.6)" in second
    assert all(now > then for now, then in zip(guide(), before, strict=True))
    first, second = said(tab, 0)
    assert "■ red estimated" in first
    assert "not estimated" in second
    assert tab.complaints() == []
    assert all(url.startswith(("file:", "data:")) for url in tab.requests())
