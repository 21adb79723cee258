"""Ships in a report: the table and pictures of results, and maps in a page with other things."""

import base64
import hashlib
import re
from dataclasses import replace

import numpy as np
import pytest
from chromium_pipe import browser, chromium
from map_reader import EVIL, SHIPS, SOUTH, data_of, voyages
from page_reader import Reader
from ship_maker import sea

from bcrl.assess import Result, write_results
from bcrl.cli import main
from bcrl.errors import BCRLError
from bcrl.files import write_text
from bcrl.learn.baselines.bc import BCAll
from bcrl.learn.protocol import Spec, blank_actor
from bcrl.policy import Policy
from bcrl.report.ship import map_section, ship_report_page, typical_scenario
from bcrl.ship import ShipResult, make_ship_world, save_scenarios, table_lines


@pytest.fixture(scope="module")
def scenarios():
    return replace(sea(*SHIPS), expert_cost=np.array([4, 4], np.int32))


def episodes(run, method="bc-all", budgets=(0.25, 0.5, 1.0), close=0.2):
    """Results of two seeds of ten scenarios, spread around `close`."""
    random = np.random.default_rng(5)
    rows = []
    for seed in (0, 1):
        for budget in budgets:
            for scenario in range(10):
                share = close * random.uniform(0.5, 1.5)
                rows.append(
                    ShipResult(
                        method, "", "", "soft", "ship", "log.npz", seed, 16 * budget, scenario, return_=100.0,
                        cost=50 * share, normalised_reward=1.0, normalised_cost=share,
                        length=50, fallback_share=0.1, run=run, budget=budget, scenario=scenario,
                        ade=250 * share, gc_ade=30 * share, close_quarters=share, acceleration=0.01,
                        speed=5.0, success=float(scenario > 1),
                    )
                )  # fmt: skip
    return rows


def results():
    experts = [
        replace(row, threshold=np.inf, success=1.0)
        for row in episodes("expert", "expert", budgets=(np.nan,), close=0.4)
    ]
    return episodes("mine") + episodes("other", close=0.1) + experts


def ids(read):
    return [attributes["id"] for _, attributes in read.elements if "id" in attributes]


@pytest.fixture(scope="module")
def section(scenarios):
    """Maps of both scenarios; `other` sails the first of them at two budgets."""
    sailed = {"other": voyages(SOUTH, 2.0, 4.0), EVIL: voyages(SOUTH[:9], 2.0)}
    return map_section(scenarios, [0, 1], sailed, policies=["mine", "other"], note=EVIL)


def test_the_table_holds_the_numbers_of_the_evaluation():
    read = Reader(ship_report_page(results()))
    head, *rows = read.rows
    assert head[:3] == ["", "budget", "ADE m"]
    assert head[4:8] == ["close quarters", "accel. m/s²", "speed m/s", "success"]
    assert head[8:] == ["cost", "off water", "kept?"]
    lines = table_lines(results())
    rows = rows[: len(lines)]
    assert [row[0] for row in rows] == ["expert"] + 3 * ["mine"] + 3 * ["other"]
    assert [row[1] for row in rows[:3]] == ["", "0.25 cost 4", "0.5 cost 8"]
    for row, line in zip(rows, lines, strict=True):
        found = line.measures["close_quarters"]
        assert row[4] == f"{found.mean:.3f} {found.low:.3f} to {found.high:.3f}"
        found = line.measures["cost"]
        assert row[8] == f"{found.mean:.1f} {found.low:.1f} to {found.high:.1f}"


def test_the_words_say_what_was_kept():
    text = " ".join(Reader(ship_report_page(results())).texts["p"].split())  # without no-break spaces
    middle = [line for line in table_lines(results()) if line.run == "mine"][1].measures
    assert "2 runs in 10 congested test scenarios" in text
    assert f"in close quarters on {100 * middle['close_quarters'].mean:.0f} % of its steps" in text
    # About 10 steps of `mine` and 5 of `other` are close; allowed are 4, 8 and 16.
    assert "Budgets kept: 1; open: none; broken: 0.25 and 0.5." in text
    assert "Budgets kept: 0.5 and 1; open: 0.25; broken: none." in text


def test_one_budget_that_allows_nothing_is_drawn_too():
    rows = [replace(row, close_quarters=0.0, cost=0.0) for row in episodes("mine", budgets=(0.0,))]
    text = " ".join(Reader(ship_report_page(rows)).texts["p"].split())
    assert "1 run in 10 congested test scenarios" in text
    assert "Budgets kept: 0; open: none; broken: none." in text


def test_experts_alone_have_a_table():
    read = Reader(ship_report_page(results()[-20:]))
    assert len(read.rows) == 2
    assert read.find("figure") == []
    with pytest.raises(BCRLError, match="hold no episode"):
        ship_report_page([])


def test_the_typical_scenario_is_of_the_congested_test_and_in_the_middle(small_sea):
    chosen = typical_scenario(small_sea)
    assert chosen in small_sea.evaluation
    cost = small_sea.expert_cost[small_sea.evaluation]
    nearest = np.abs(cost - np.median(cost)).min()
    assert abs(small_sea.expert_cost[chosen] - np.median(cost)) == nearest


def test_two_maps_share_a_page(section):
    page = ship_report_page(results(), more=[section])
    read = Reader(page)
    assert len(ids(read)) == len(set(ids(read)))
    assert [a["id"] for a in read.find("div", **{"class": "ship-map"})] == ["map-1", "map-2"]
    assert read.find("label", **{"for": "map-2-time"})
    first, second = data_of(page, 0), data_of(page, 1)
    assert [route["name"] for route in first["routes"]] == [
        "expert", "other, threshold 2", "other, threshold 4", EVIL
    ]  # fmt: skip
    assert [route["name"] for route in second["routes"]] == ["expert"]
    # The colour of a run is the same in the pictures and on the map; others follow.
    assert [route["look"].split()[0][-1] for route in first["routes"]] == ["t", "2", "2", "3"]
    assert "var(--series-2)" in page.partition("</ul>")[0]


def test_a_map_in_a_report_lets_nothing_out(section):
    page = ship_report_page(results(), more=[section])
    read = Reader(page)
    scripts = re.findall(r"<script>(.*?)</script>", page, re.S)
    assert len(scripts) == 1
    digest = base64.b64encode(hashlib.sha256(scripts[0].encode()).digest()).decode()
    (policy,) = (a["content"] for a in read.find("meta", **{"http-equiv": "Content-Security-Policy"}))
    assert policy.startswith("default-src 'none';")
    assert f"script-src 'sha256-{digest}';" in policy
    assert set(re.findall(r"\w+://[^\"'\s)]*", page)) == {"http://www.w3.org/2000/svg"}  # a name
    assert read.find("img") == []
    assert EVIL in read.texts["label"]


def test_the_measures_of_the_scenario_are_told(section):
    rows = Reader(section.body).rows
    expert, two, *_ = rows[[row[1] for row in rows].index("allowed") + 1 :]
    assert expert[:3] == ["expert", "", "0"]
    assert expert[7:9] == ["yes", "5"]
    away = np.hypot(*(SOUTH[1:] - SHIPS[0][2][1:21, :2]).T).mean()
    assert two[:3] == ["other, threshold 2", "2", f"{away:.0f}"]


# The command line.


@pytest.fixture
def folder(scenarios, tmp_path):
    """A scenario file, results of both kinds, and a run whose policy is blank."""
    save_scenarios(scenarios, tmp_path / "sea.npz")
    write_results(results(), tmp_path / "ships.csv")
    row = Result(
        method="bc-all", tracking="", criterion="", execution="soft", world="ships", data="log.npz", seed=0,
        threshold=5.0, episode=0, return_=1.0, cost=2.0, normalised_reward=0.5, normalised_cost=0.4, length=9,
        fallback_share=0.0,
    )  # fmt: skip
    write_results([replace(row, episode=i, cost=2.0 + i) for i in range(3)], tmp_path / "results.csv")
    world = make_ship_world(scenarios)
    method = BCAll(hidden=(8,))
    spec = Spec(world.observation_size, world.action_size, 1, horizon=60, max_cost=(1.0,), steps=1)
    for name in ("other", "expert"):
        (tmp_path / name).mkdir()
        Policy(blank_actor(method, spec), method, spec, {}).save(tmp_path / name / "policy-0.bcrl")
    return tmp_path


def report(folder, *words):
    words = [word.format(folder=folder) for word in words]
    main(["report", *words, "--out", str(folder / "page.html"), "--overwrite"])
    return (folder / "page.html").read_text(encoding="utf-8")


def test_ship_results_and_a_map_in_one_page(folder, capsys):
    page = report(
        folder, "{folder}/ships.csv", "--policies", "{folder}/other", "--scenarios", "{folder}/sea.npz",
        "--scenario", "0", "1", "--budgets", "0,1", "--figure", "{folder}/picture.png",
    )  # fmt: skip
    assert "140 episodes" in capsys.readouterr().out
    assert [route["name"] for route in data_of(page, 1)["routes"]] == [
        "expert", "other, threshold 0", "other, threshold 4"
    ]  # fmt: skip
    assert "--scenarios sea.npz --scenario 0 1 --budgets 0,1" in page
    assert str(folder) not in page
    assert (folder / "picture.png").read_bytes().startswith(b"\x89PNG")


def test_other_results_may_have_a_map_too(folder):
    page = report(folder, "{folder}/results.csv", "--scenarios", "{folder}/sea.npz")
    assert "What it earns" in page
    assert [route["name"] for route in data_of(page)["routes"]] == ["expert"]
    assert "Scenario 1<" in page  # the only one of the test


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ("{folder}/ships.csv --scenario 0", "give --scenarios"),
        ("{folder}/ships.csv --scenarios {folder}/sea.npz --scenario 7", "there is no scenario 7"),
        ("{folder}/ships.csv --scenarios {folder}/sea.npz --budgets x", "--budgets is 'x'"),
        (
            "{folder}/ships.csv --scenarios {folder}/sea.npz --policies {folder}/expert",
            "is called 'expert' already",
        ),
        ("{folder}/none.csv", "none.csv"),
    ],
)
def test_mistakes_with_a_map_end_in_one_line(words, wanted, folder, capsys):
    with pytest.raises(SystemExit) as stop:
        report(folder, *words.split())
    assert stop.value.code == 2
    assert wanted in capsys.readouterr().err.strip().splitlines()[-1]
    assert not (folder / "page.html").exists()


# In a browser.


@pytest.fixture(scope="module")
def page(section, tmp_path_factory):
    if browser() is None:
        pytest.skip(
            "no Chromium on this machine: install the package chromium to test the report in a browser"
        )
    folder = tmp_path_factory.mktemp("chromium")
    write_text(folder / "report.html", ship_report_page(results(), more=[section]))
    with chromium(folder / "profile") as tab:
        tab.open((folder / "report.html").as_uri())
        yield tab


def place(page, number, name):
    """Where a ship is drawn on a map, in metres."""
    pose = f"document.querySelector('#map-{number} [data-ship=\"{name}\"]').getAttribute('transform')"
    return page.evaluate(f"{pose}.match(/-?[\\d.]+/g).slice(0, 2).map(Number)")


def focus(page, selector):
    page.evaluate(f"document.querySelector('{selector}').focus()")


def test_each_slider_moves_the_ships_of_its_own_map(page):
    before = place(page, 2, "expert")
    assert place(page, 1, "expert") == [1000, 1000]
    page.evaluate(
        "(() => { const s = document.getElementById('map-1-time'); s.value = 12;"
        " s.dispatchEvent(new Event('input', { bubbles: true })); })()"
    )
    assert place(page, 1, "expert") == [2200, 1000]
    assert place(page, 1, "other, threshold 4") == pytest.approx(SOUTH[12], abs=0.051)
    assert place(page, 2, "expert") == before == [3000, 1400]
    nearest = "document.querySelector('#map-{} [data-nearest=\"0\"]').textContent"
    assert page.evaluate(nearest.format(1)) == "447 m"
    assert page.evaluate(nearest.format(2)) == f"{np.hypot(2000, 400):.0f} m"
    assert page.complaints() == []


def test_keys_and_wheel_are_the_page_s_until_a_map_is_chosen(page):
    clock = "document.querySelector('#map-{} .slider').value"
    page.evaluate("document.activeElement.blur()")
    first = page.evaluate(clock.format(1))
    page.press("ArrowRight")
    assert page.evaluate(clock.format(1)) == first
    focus(page, "#map-2 .picture")
    page.press("Home")
    page.press("ArrowRight")
    assert page.evaluate(clock.format(2)) == "1"
    assert page.evaluate(clock.format(1)) == first

    turn = (
        "(() => { const e = new WheelEvent('wheel', { deltaY: -200, cancelable: true, bubbles: true });"
        " return document.querySelector('#map-%d .picture').dispatchEvent(e); })()"
    )
    assert page.evaluate(turn % 1) is True  # goes on to scroll the page
    assert page.evaluate(turn % 2) is False  # zooms
    assert page.complaints() == []


def test_a_phone_shows_it_without_scrolling_sideways(page):
    page.call("Emulation.setDeviceMetricsOverride", width=400, height=800, deviceScaleFactor=1, mobile=True)
    page.until("innerWidth === 400")
    assert page.evaluate("document.documentElement.scrollWidth") == 400
    assert page.evaluate("document.querySelector('#map-1 .picture').clientWidth") > 340
    page.call("Emulation.clearDeviceMetricsOverride")


def test_nothing_is_requested_by_the_report(page):
    own = page.evaluate("location.href")
    assert [url for url in page.requests() if not url.startswith("data:")] == [own]
    assert page.complaints() == []
