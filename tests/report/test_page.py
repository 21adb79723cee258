import base64
import dataclasses
import hashlib
import re

import numpy as np
import pytest
from page_reader import Reader

from bcrl.assess.results import write_results
from bcrl.assess.statistics import summarise
from bcrl.cli.report import Command
from bcrl.data import Dataset, Schema
from bcrl.errors import BCRLError
from bcrl.learn.bcrl import BCRL
from bcrl.learn.protocol import Spec, blank_actor
from bcrl.policy import Policy
from bcrl.report import report_page, write_report
from bcrl.report.document import Part
from bcrl.report.markup import HTML


def policy(dataset, **provenance) -> Policy:
    spec = Spec(3, 2, 1, 5, (1.0,), 10)
    known = {
        "bcrl": "0.1.0",
        "data": "log.npz",
        "data_sha256": dataset.fingerprint(),
        "steps": 12_345,
        "seed": 4,
    }
    method = BCRL(tau_c=0.3, hidden=(8, 8))
    return Policy(blank_actor(method, spec), method, spec, known | provenance)


@pytest.fixture
def page(make_results, dataset) -> str:
    return report_page(make_results(), dataset=dataset, policies=[policy(dataset)], command="bcrl demo")


def test_it_is_well_formed_and_accessible(page):
    read = Reader(page)
    names = [tag for tag, _ in read.elements]
    assert page.startswith("<!DOCTYPE html>")
    assert [names.count(name) for name in ("html", "title", "h1", "main", "table")] == [1, 4, 1, 1, 1]
    assert names.count("svg") == 3
    for tag, attributes in read.elements:
        if tag == "th":
            assert attributes["scope"] in ("col", "row")
        if tag == "svg":
            assert attributes["role"] == "img"
            assert attributes["aria-labelledby"]
    ids = [attributes["id"] for _, attributes in read.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    inside = re.findall(r"[\"(]#([\w.-]+)[\")]", page)
    assert inside
    assert set(inside) <= set(ids)


def test_units_stand_where_the_log_knows_them(make_results, dataset):
    units = {"a": "°C", "heat": "min", "reward": "EUR"}
    schema = Schema(observation_names=("a", "b", "c"), cost_names=("heat",), units=units)
    known = Dataset.from_arrays(dataset.arrays(), "log.npz", consecutive=False, schema=schema)
    read = Reader(report_page(make_results(), dataset=known))
    assert [" ".join(name.split()) for name in read.rows[0][:3]] == [
        "threshold [min]",
        "reward",
        "episode cost [min]",
    ]
    for words in ("cost of an episode [min]", "return of an episode [EUR]", "3 numbers: a [°C], b, c"):
        assert words in read.text
    assert "normalised reward [" not in read.text


def test_nothing_is_fetched(page):
    assert not re.search(r"https?://|src\s*=|@import|<script|url\((?!#)", page)
    addresses = [
        value
        for _, attributes in Reader(page).elements
        for name, value in attributes.items()
        if name.endswith("href") and value is not None
    ]
    assert [value for value in addresses if not value.startswith("#")] == ["data:,"]  # no icon is asked for
    (policy,) = [tag["content"] for _, tag in Reader(page).elements if "http-equiv" in tag]
    assert policy is not None
    assert policy.startswith("default-src 'none'; style-src 'unsafe-inline'; script-src 'none';")


def test_a_part_brings_what_it_needs_once(make_results):
    parts = [
        Part(HTML(f"<p>{word}</p>"), ("p { margin: 0; }",), ("let shared;", f"let {word};")) for word in "ab"
    ]
    page = report_page(make_results(), more=parts)
    Reader(page)
    assert page.count("p { margin: 0; }") == 1
    scripts = re.findall(r"<script>(.*?)</script>", page)
    assert scripts == ["let shared;", "let a;", "let b;"]
    digests = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in scripts]
    allowed = " ".join(f"'sha256-{digest}'" for digest in digests)
    assert f"script-src {allowed};" in page


def test_no_colour_is_fixed_in_the_pictures(page):
    pictures = "".join(re.findall(r"<svg.*?</svg>", page, re.DOTALL))
    assert "f00d" not in page
    assert not re.search(r"#[0-9a-f]{6}\b", pictures)


def test_what_files_say_is_escaped(make_results, dataset):
    nasty = '<script>alert("1")</script>&\x08\x1b\u202e'
    rows = [dataclasses.replace(row, world=nasty, method="bcrl") for row in make_results()]
    rows += [dataclasses.replace(row, execution=nasty, world=nasty) for row in make_results()]
    page = report_page(
        rows,
        dataset=dataset,
        policies=[policy(dataset, data=nasty)],
        policy_file=nasty,
        command=nasty,
    )
    assert "<script" not in page
    assert page.count("&lt;script&gt;") >= 6
    assert not set("\x08\x1b\u202e") & set(page)
    Reader(page)


def test_the_table_holds_the_numbers_of_the_statistics(page, make_results):
    summaries = summarise(make_results())
    head, *rows = Reader(page).rows
    assert [cell.strip() for cell in head][:3] == ["threshold", "reward", "episode cost"]
    assert len(rows) == len(summaries)
    for cells, summary in zip(rows, summaries, strict=True):
        name = "all" if summary.threshold is None else f"{summary.threshold:g}"
        expected = [name]
        for value, digits in ((summary.reward, 2), (summary.episode_cost, 1), (summary.cost, 2)):
            numbers = (value.mean, value.low, value.high)
            expected.append("{} {} to {}".format(*(f"{number:.{digits}f}" for number in numbers)))
        expected += [
            str(summary.kept),
            f"{100 * summary.violation_rate:.0f} %",
            f"{100 * summary.fallback_share:.0f} %",
        ]
        assert [" ".join(cell.split()) for cell in cells] == expected


def test_the_words_tell_the_middle_threshold_and_the_training(page, make_results, dataset):
    text = " ".join(Reader(page).text.split())
    middle = summarise(make_results())[1]
    assert f"at a threshold of 10 they spend {middle.episode_cost.mean:.1f} on average" in text
    assert f"a normalised reward of {middle.reward.mean:.2f}" in text
    assert "tau_c 0.3, hidden 8 × 8" in text
    assert "12,345" in text
    assert text.count(dataset.fingerprint()) == 2
    assert 'episode = bcrl.load("policy.bcrl").start(threshold=10, horizon=5)' in text


def test_who_is_told_of_thresholds(make_results):
    for method, told in (("bcrl", True), ("caps", True), ("bc-all", False), ("lspc", False)):
        text = Reader(report_page(make_results(method=method))).text
        assert ("told at run time how much an episode may cost" in text) == told


def test_a_broken_promise_is_said(make_results):
    text = Reader(report_page(make_results(spend=1.2))).text
    assert "Thresholds kept: none; open: none; broken: 5, 10 and 20." in text
    text = Reader(report_page(make_results(spend=0.9))).text
    assert "Thresholds kept: 5, 10 and 20; open: none; broken: none. None of the 36 single" in text
    uncertain = make_results(spend=1.0, thresholds=(10.0,))
    assert summarise(uncertain)[0].kept == "open"
    assert "Thresholds kept: none; open: 10; broken: none." in Reader(report_page(uncertain)).text


def test_worlds_without_reference_returns_show_the_return(make_results):
    rows = [dataclasses.replace(row, normalised_reward=np.nan) for row in make_results()]
    page = report_page(rows)
    text = " ".join(Reader(page).text.split())
    assert Reader(page).rows[0][1].strip() == "return"
    assert f"earn a return of {summarise(rows)[1].episode_return.mean:.2f}." in text
    assert "What it earns is the return." in text
    assert "normalised" not in text
    mixed = Reader(report_page(rows + make_results(execution="direct"))).text
    assert "What it earns is the return." in mixed


def test_results_alone_are_enough_and_the_page_is_always_the_same(make_results):
    first, second = (report_page(make_results()) for _ in range(2))
    assert first == second
    assert "Use the policy" not in first


def test_several_curves_have_a_table_each(make_results):
    page = report_page(make_results() + make_results(method="bc-all", spend=2.0))
    assert [tag for tag, _ in Reader(page).elements].count("table") == 2


def test_two_evaluations_that_look_alike_are_not_pooled(make_results, tmp_path):
    write_results(make_results() + make_results(spend=0.5), tmp_path / "both.csv")
    with pytest.raises(BCRLError, match=r"both\.csv: line 38 is of the same episode as line 2"):
        Command(results=tmp_path / "both.csv", out=tmp_path / "page.html").run()


def test_another_log_or_method_is_refused(make_results, dataset):
    other = policy(dataset, data_sha256="0" * 64)
    with pytest.raises(BCRLError, match="give the log the policy was trained on"):
        report_page(make_results(), dataset=dataset, policies=[other])
    with pytest.raises(BCRLError, match="give the policy that was evaluated"):
        report_page(make_results(method="bc-all"), policies=[policy(dataset)])


def test_a_number_that_is_none_is_refused(make_results):
    rows = make_results()
    rows[3] = dataclasses.replace(rows[3], cost=np.nan)  # only the normalised reward may be missing
    with pytest.raises(BCRLError, match="cost of episode 3 at threshold 5 is nan"):
        report_page(rows)


def test_the_verb_writes_page_and_picture(make_results, dataset, tmp_path, capsys):
    write_results(make_results(), tmp_path / "results.csv")
    dataset.save(tmp_path / "log.npz")
    Command(
        tmp_path / "results.csv",
        tmp_path / "report.html",
        data=tmp_path / "log.npz",
        figure=tmp_path / "picture.png",
    ).run()
    assert "36 episodes" in capsys.readouterr().out
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert str(tmp_path) not in page
    write_report(make_results(), tmp_path / "again.html")
