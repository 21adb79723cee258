"""The map of a scenario: what is in the page and the picture, and that it works in a browser."""

import base64
import hashlib
import json
import re
from dataclasses import replace
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import numpy as np
import pytest
from chromium_pipe import browser, chromium
from map_reader import EVIL, SHIPS, SOUTH, data_of, voyages
from page_reader import Reader
from ship_maker import BOX, sea

from bcrl.cli import main
from bcrl.errors import BCRLError
from bcrl.learn.baselines.bc import BCAll
from bcrl.learn.protocol import Spec, blank_actor
from bcrl.policy import Policy
from bcrl.report.ship import describe_routes, make_map, map_page, read_coastline, write_map
from bcrl.report.ship._map import headings, route_looks
from bcrl.ship import make_ship_world, save_scenarios
from bcrl.ship._water import CELL, sailed_water


@pytest.fixture(scope="module")
def small():
    """A known sea and a map of its first scenario, with a roll-out that keeps south of the other ship."""
    scenarios = sea(*SHIPS)
    return scenarios, make_map(scenarios, 0, {"mine": voyages(SOUTH, 7.5), EVIL: voyages(SOUTH[:9], 7.5)})


def test_the_page_is_whole_and_labelled(small):
    page = map_page(*small, note="A note.")
    read = Reader(page)
    assert len(read.find("script")) == 2
    (slider,) = read.find("input", type="range")
    assert (slider["min"], slider["max"], slider["step"]) == ("0", "30", "1")
    assert read.find("label", **{"for": slider["id"]})
    assert len(read.find("input", type="checkbox")) == 3 + 2  # ships, layers
    assert [a["role"] for a in read.find("svg", **{"class": "picture"})] == ["img"]
    assert "A note." in read.texts["p"]
    assert "2 others" in read.texts["p"]
    ids = [a["id"] for _, a in read.elements if "id" in a]
    assert len(ids) == len(set(ids))


def test_nothing_can_leave_the_page(small):
    page = map_page(*small)
    read = Reader(page)
    assert set(re.findall(r"\w+://[^\"'\s)]*", page)) == {
        "http://www.w3.org/2000/svg"
    }  # a name, never fetched
    assert [a["href"] for a in read.find("link")] == ["data:,"]
    assert not any("src" in a for _, a in read.elements)
    policy = read.find("meta", **{"http-equiv": "Content-Security-Policy"})[0]["content"]
    script = re.findall(r"<script>(.*?)</script>", page, re.S)
    digest = base64.b64encode(hashlib.sha256(script[0].encode()).digest()).decode()
    assert policy.startswith("default-src 'none';")
    assert f"script-src 'sha256-{digest}';" in policy
    assert re.findall(r"(\S+-src) ", policy) == ["default-src", "style-src", "script-src", "img-src"]


def test_names_never_become_markup(small):
    scenarios, drawn = small
    page = map_page(scenarios, drawn, note=EVIL)
    read = Reader(page)
    assert read.find("img") == []
    assert EVIL in read.texts["label"]
    assert EVIL in read.texts["p"]
    assert [route["name"] for route in data_of(page)["routes"]] == ["expert", "mine", EVIL]
    assert "<" not in page.partition('class="data">')[2].partition("</script>")[0]


def test_the_data_are_the_tracks(small):
    scenarios, drawn = small
    data = data_of(map_page(scenarios, drawn))
    expert, mine, _ = data["routes"]
    np.testing.assert_allclose(expert["place"], scenarios.expert(0)[:, :2], atol=0.051)
    np.testing.assert_allclose(mine["place"], drawn.routes["mine"].place[:21], atol=0.051)
    assert data["goal"] == [4000.0, 1000.0]
    assert datetime.fromtimestamp(data["start"], UTC) == datetime(1970, 1, 1, 0, 16, 40, tzinfo=UTC)
    assert data["moments"] == 31
    assert set(expert["heading"]) == {90}
    # The other ship is 400 m to the north and its distance along the track shrinks by 150 m each step.
    away = np.hypot(2000 - 150 * np.arange(31), 400)
    assert expert["close"] == (away < 555).astype(int).tolist()
    first, second = data["neighbours"]
    np.testing.assert_allclose(first["place"], SHIPS[1][2][:31, :2], atol=0.051)
    assert set(first["heading"]) == {270}
    np.testing.assert_allclose(second["place"][:13], SHIPS[2][2][:, :2], atol=0.051)
    assert second["place"][13:] == [None] * 18
    assert set(second["heading"][:13]) == {180}
    # Every sample lies in water that is shown.
    water = {(row, first + i) for row, first, count in data["water"] for i in range(count)}
    samples = (scenarios.samples[:, :2] // CELL).astype(int)
    assert water == {(row, column) for column, row in samples.tolist()}
    assert sailed_water(scenarios).sum() == len(water)


def test_what_is_told_stops_at_the_goal(small):
    _, drawn = small
    expert, mine, short = describe_routes(drawn)
    assert (expert.steps, expert.reached) == (29, True)  # 100 m a step; at step 28 it is still 200 m away
    assert expert.close == int(drawn.expert.close[1:30].sum()) == 5
    assert (mine.steps, mine.reached) == (19, True)
    assert (short.steps, short.reached) == (8, False)


def test_a_policy_has_a_colour_and_a_budget_a_dash(small):
    scenarios, _ = small
    sailed = {"a": voyages(SOUTH, 1.0, 5.0), "b": voyages(SOUTH, 1.0), "c": voyages(SOUTH, 1.0, 5.0)}
    drawn = make_map(scenarios, 0, sailed)
    assert route_looks(drawn) == [
        "route-expert", "route-series-0 dash-0", "route-series-0 dash-1", "route-series-2 dash-0",
        "route-series-3 dash-0", "route-series-3 dash-1",
    ]  # fmt: skip
    # A page that has given colours already, also to one that does not sail here.
    looks = route_looks(drawn, ["b", "elsewhere", "c"])
    assert [look.split()[0] for look in looks[1:]] == [
        "route-series-5", "route-series-5", "route-series-0", "route-series-3", "route-series-3"
    ]  # fmt: skip
    assert [route["look"] for route in data_of(map_page(scenarios, drawn))["routes"]] == route_looks(drawn)


def test_headings_follow_the_way_made():
    place = np.array([[0, 0], [0, 50], [50, 50], [50, 50.4], [9, 9], [9, 9], [0, 0]], float)
    present = np.array([True, True, True, True, False, True, True])
    np.testing.assert_allclose(headings(place, present)[present], [0, 0, 90, 90, 225, 225])


# Coastline.


def geojson(*geometries):
    features = [{"type": "Feature", "properties": {}, "geometry": geometry} for geometry in geometries]
    return {"type": "FeatureCollection", "features": features}


def degrees(*places):
    return [[float(value) for value in BOX.to_degrees(np.array(x), np.array(y))] for x, y in places]


def test_a_coastline_is_cut_at_the_box(tmp_path, small):
    _, height = BOX.size
    line = degrees((-500, 1000), (500, 1000), (500, height + 400), (1500, height + 400), (1500, 2000))
    island = [degrees((-1000, -1000), (1000, -1000), (1000, 1000), (-1000, 1000), (-1000, -1000))]
    far = [degrees((-9000, 0), (-8000, 0), (-8000, 500), (-9000, 0))]
    content = geojson(
        {"type": "LineString", "coordinates": line},
        {"type": "MultiPolygon", "coordinates": [island, far]},
        {"type": "GeometryCollection", "geometries": [{"type": "Point", "coordinates": [10, 0]}]},
        None,
    )
    (tmp_path / "coast.json").write_text(json.dumps(content))
    coast = read_coastline(tmp_path / "coast.json", BOX)
    west, east = coast.lines
    np.testing.assert_allclose(west, [(0, 1000), (500, 1000), (500, height)], atol=1e-6)
    np.testing.assert_allclose(east, [(1500, height), (1500, 2000)], atol=1e-6)
    ((ring,),) = coast.land
    assert {(round(x), round(y)) for x, y in ring} == {(0, 0), (1000, 0), (1000, 1000), (0, 1000)}
    data = data_of(map_page(*small, coastline=coast))
    assert len(data["coast"]) == 2
    assert len(data["land"]) == 1


@pytest.mark.parametrize(
    "text",
    [
        "no",
        "[]",
        "{}",
        '{"type": "Circle"}',
        '{"type": "Polygon", "coordinates": [[1, 2], [3, 4]]}',
        '{"type": "LineString", "coordinates": [["a", "b"]]}',
        '{"type": "LineString", "coordinates": [[1]]}',
        '{"type": "LineString", "coordinates": [[NaN, 1], [1, 2]]}',
        f'{{"type": "LineString", "coordinates": [[{10**400}, 1], [1, 2]]}}',
        '{"type": "LineString", "coordinates": [[1e300, 1], [1, 2]]}',
        '{"type": "FeatureCollection"}',
    ],
    ids=lambda text: text[:60],
)
def test_what_is_no_coastline_is_refused(text, tmp_path):
    (tmp_path / "coast.json").write_text(text)
    with pytest.raises(BCRLError, match="not GeoJSON"):
        read_coastline(tmp_path / "coast.json", BOX)


# The command line.


def test_show_writes_the_map_and_the_picture(small, tmp_path, capsys):
    scenarios = replace(small[0], expert_cost=np.array([4, 4], np.int32))
    save_scenarios(scenarios, tmp_path / "sea.npz")
    world = make_ship_world(scenarios)
    method = BCAll(hidden=(8,))
    spec = Spec(world.observation_size, world.action_size, 1, horizon=60, max_cost=(1.0,), steps=1)
    (tmp_path / "cloned").mkdir()
    Policy(blank_actor(method, spec), method, spec, {}).save(tmp_path / "cloned" / "policy-0.bcrl")
    (tmp_path / "coast.json").write_text(
        json.dumps({"type": "Polygon", "coordinates": [degrees((0, 0), (900, 0), (0, 900))]})
    )
    files = ["--out", str(tmp_path / "map.html"), "--png", str(tmp_path / "map.png")]
    more = ["--policies", str(tmp_path / "cloned"), "--coastline", str(tmp_path / "coast.json")]
    main(["ship", "show", "0", "--scenarios", str(tmp_path / "sea.npz"), *files, *more, "--budgets", "0,1"])
    said = capsys.readouterr().out
    assert "expert: 5 of 29 steps in close quarters, reaches the goal" in said
    data = data_of((tmp_path / "map.html").read_text())
    names = [route["name"] for route in data["routes"]]
    assert names == ["expert", "cloned, threshold 0", "cloned, threshold 4"]
    assert len(data["land"]) == 1
    picture = (tmp_path / "map.png").read_bytes()
    assert picture.startswith(b"\x89PNG")
    assert len(picture) > 10_000


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ("5 --out {folder}/m.html", "there is no scenario 5; they are 0 to 1"),
        ("-1 --out {folder}/m.html", "there is no scenario -1"),
        ("0 --out {folder}/m.png", "unknown suffix '.png'"),
        ("0 --out {folder}/m.html --png {folder}/m.jpg", "--png is"),
        ("0 --out {folder}/m.html --budgets 1,1", "budgets are (1.0, 1.0)"),
        ("0 --out {folder}/m.html --budgets=-1", "budgets are (-1.0,)"),
        ("0 --out {folder}/m.html --policies {folder}", "no policy in this folder"),
        ("0 --out {folder}/m.html --coastline {folder}/none", "no such file"),
        ("x --out {folder}/m.html", "bcrl ship show --help"),
    ],
)
def test_mistakes_with_show_end_in_one_line(words, wanted, small, tmp_path, capsys):
    save_scenarios(small[0], tmp_path / "sea.npz")
    (tmp_path / "folder").mkdir()
    filled = [word.format(folder=tmp_path / "folder") for word in words.split()]
    with pytest.raises(SystemExit) as stop:
        main(["ship", "show", "--scenarios", str(tmp_path / "sea.npz"), *filled])
    assert stop.value.code == 2
    assert wanted in capsys.readouterr().err.strip().splitlines()[-1]
    assert list((tmp_path / "folder").iterdir()) == []


# In a browser.


@pytest.fixture(scope="module")
def page(small, tmp_path_factory):
    if browser() is None:
        pytest.skip("no Chromium on this machine: install the package chromium to test the map in a browser")
    folder = tmp_path_factory.mktemp("chromium")
    write_map(folder / "map.html", *small)
    with chromium(folder / "profile") as tab:
        tab.open((folder / "map.html").as_uri())
        yield tab


def place(page, name):
    """Where a ship is drawn, in metres."""
    pose = f"document.querySelector('[data-ship=\"{name}\"]').getAttribute('transform')"
    return page.evaluate(f"{pose}.match(/-?[\\d.]+/g).slice(0, 2).map(Number)")


def visible(page, selector):
    found = f"[...document.querySelectorAll('{selector}')]"
    return page.evaluate(f"{found}.map((e) => getComputedStyle(e).visibility === 'visible')")


def slide(page, moment):
    """The slider moved as a pointer or a key moves it: its value, then its event."""
    page.evaluate(f"(() => {{ const s = document.querySelector('.slider'); s.value = {moment};"
                  " s.dispatchEvent(new Event('input', { bubbles: true })); })()")  # fmt: skip


def test_the_slider_moves_the_ships(page, small):
    scenarios, drawn = small
    page.press("Home")
    assert place(page, "expert") == [1000, 1000]
    slide(page, 12)
    assert place(page, "expert") == pytest.approx(scenarios.expert(0)[12, :2])
    assert place(page, "mine") == pytest.approx(drawn.routes["mine"].place[12], abs=0.051)
    assert page.evaluate("document.querySelector('.clock').textContent").startswith("00:18:40 UTC, 2:00 min")
    # The other ship is 447 m from the expert at this moment; the roll-out keeps clear.
    assert visible(page, ".ring") == [True, False, False]
    assert page.evaluate("document.querySelectorAll('.other.inside').length") == 1
    nearest = page.evaluate("document.querySelector('[data-nearest=\"0\"]').textContent")
    assert nearest == f"{np.hypot(200, 400):.0f} m"
    assert "in close quarters: expert" in page.evaluate(
        "document.querySelector('.slider').getAttribute('aria-valuetext')"
    )
    # A ship that has left is not drawn, one that has arrived stays.
    assert visible(page, ".other") == [True, True]
    page.press("End")
    assert visible(page, ".other") == [True, False]
    assert place(page, "mine") == pytest.approx([4000, 1000])
    assert page.complaints() == []


def test_keys_play_and_toggles(page):
    page.press("Home")
    page.press("ArrowRight")
    page.press("ArrowRight")
    page.press("ArrowLeft")
    assert place(page, "expert") == [1100, 1000]
    page.evaluate("location.hash = '#t=7'")
    page.until("document.querySelector('.slider').value === '7'")
    assert place(page, "expert") == [1700, 1000]
    page.press("Home")
    page.press(" ")
    page.until("Number(document.querySelector('.slider').value) > 2")
    assert page.evaluate("document.querySelector('.play').textContent") == "Pause"
    page.press(" ")
    assert page.evaluate("document.querySelector('.play').textContent") == "Play"
    page.evaluate("document.querySelector('[data-route=\"1\"]').click()")
    assert visible(page, '[data-ship="mine"]') == [False]
    page.evaluate("document.querySelector('[data-layer=\"neighbours\"]').click()")
    assert not any(visible(page, ".other"))
    page.evaluate(
        'document.querySelectorAll(\'[data-route="1"], [data-layer="neighbours"]\').forEach((e) => e.click())'
    )
    assert visible(page, '[data-ship="mine"]') == [True]
    assert page.complaints() == []


def test_the_view_zooms_and_moves(page):
    matrix = "document.querySelector('.scaled').getAttribute('transform').match(/-?[\\d.e-]+/g).map(Number)"
    middle = page.evaluate(
        "(() => { const b = document.querySelector('.picture').getBoundingClientRect();"
        " return [b.left + b.width / 2, b.top + b.height / 2]; })()"
    )
    before = page.evaluate(matrix)
    page.mouse("mouseWheel", *middle, deltaX=0, deltaY=-200)
    page.until(f"{matrix}[0] !== {before[0]}")
    after = page.evaluate(matrix)
    assert after[0] == pytest.approx(before[0] * np.exp(0.3))
    assert after[3] == -after[0]
    page.mouse("mousePressed", *middle, button="left", clickCount=1)
    page.mouse("mouseMoved", middle[0] + 40, middle[1] - 25, button="left", buttons=1)
    page.mouse("mouseReleased", middle[0] + 40, middle[1] - 25, button="left")
    dragged = page.evaluate(matrix)
    assert dragged[4] - after[4] == pytest.approx(40)
    assert dragged[5] - after[5] == pytest.approx(-25)
    page.evaluate("document.querySelector('.routes').click()")
    assert page.evaluate(matrix) == pytest.approx(before)
    assert page.complaints() == []


def test_nothing_is_requested_and_nothing_can_be(page):
    """Last, since what the page is made to try is refused aloud."""
    own = page.evaluate("location.href.split('#')[0]")
    assert [url for url in page.requests() if not url.startswith("data:")] == [own]
    asked = []

    class Listener(BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            self.send_error(404)

        def log_message(self, format, *args):
            pass

    with HTTPServer(("127.0.0.1", 0), Listener) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        where = f"http://127.0.0.1:{server.server_port}"
        page.evaluate(f"""(async () => {{
            await fetch('{where}/fetch', {{ mode: 'no-cors' }}).catch(() => 0);
            const image = new Image();
            const failed = new Promise((done) => (image.onload = image.onerror = done));
            image.src = '{where}/image';
            await failed;
            const script = document.createElement('script');
            script.textContent = 'window.injected = true';
            document.body.append(script);
        }})()""")
        assert page.evaluate("window.injected === undefined")
        server.shutdown()
    assert asked == []
    refused = [text for text in page.complaints() if "Content Security Policy" in text]
    for what in (f"{where}/fetch", f"{where}/image", "inline script"):
        assert any(what in text for text in refused), what
