"""The documentation site: every page has its place, it builds strictly, it loads nothing from a network."""

import os
import re
import subprocess
import sys

import pytest
from doc_pages import PAGES, ROOT, name


def test_every_document_has_a_place_in_the_site():
    nav = re.findall(r"- (?:.*: )?([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    documents = [name(page).removeprefix("docs/") for page in PAGES if name(page).startswith("docs/")]
    assert sorted(set(documents) - set(nav)) == [], "add these to nav in mkdocs.yml"
    assert len(nav) == len(set(nav))


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    pytest.importorskip("material", reason="the site needs pip install 'bcrl[docs]'")
    pytest.importorskip("mkdocstrings", reason="the site needs pip install 'bcrl[docs]'")
    folder = tmp_path_factory.mktemp("site")
    told = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
    )
    assert told.returncode == 0, told.stderr
    return folder


@pytest.mark.slow
def test_the_strict_build_has_every_page(site):
    expected = {name(page).removeprefix("docs/") for page in PAGES if name(page).startswith("docs/")}
    expected |= {"index.md", "api.md", "commands.md", "contributing.md", "changelog.md"}
    assert not [page for page in expected if not (site / page).with_suffix(".html").is_file()]
    for page, words in {
        "index.html": "make demo",  # the README
        "api.html": 'id="bcrl.Policy.start"',
        "commands.html": "usage: bcrl train",
        "method.html": "V<sub>C</sub>(s′) + (δ − Q<sub>C</sub>(s, a))/γ<sub>C</sub>",
    }.items():
        assert words in (site / page).read_text(encoding="utf-8"), f"{page}: {words}"


@pytest.mark.slow
def test_the_site_loads_nothing_from_a_network(site):
    for path in [*site.rglob("*.html"), *site.rglob("*.css")]:
        text = path.read_text(encoding="utf-8")
        loaded = re.findall(r"<(?:script|img|link|iframe)\b[^>]*(?:src|href)=\"?(?:https?:)?//[^>]*>", text)
        loaded += re.findall(r"(?:@import|url\()[\s\"']*(?:https?:)?//[^)\s]*", text)
        assert not loaded, f"{path.relative_to(site)}: {loaded[0]}"
