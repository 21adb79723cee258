"""Links, anchors, named files and the map of equations in the documents are true; no table stands twice."""

import re
from pathlib import Path

import pytest
from doc_pages import PAGES, ROOT, anchors, code_spans, links, name, prose

FILES = [
    path.relative_to(ROOT).as_posix()
    for folder in ("benchmarks", "docs", "src", "tests")
    for path in (ROOT / folder).rglob("*.*")
]


def target(page: Path, link: str) -> tuple[Path, str]:
    """The file and the anchor a relative link stands for."""
    file, _, anchor = link.partition("#")
    return (page.parent / file).resolve() if file else page, anchor


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_relative_link_and_anchor_exists(page):
    for link in links(page):
        if link.startswith(("http://", "https://")):
            continue
        file, anchor = target(page, link)
        assert file.exists(), f"{name(page)}: {link}: there is no such file"
        if anchor:
            assert anchor in anchors(file), f"{name(page)}: {link}: there is no such heading"


def test_every_document_is_linked_from_the_readme_or_a_page_below_it():
    reached, todo = set(), [ROOT / "README.md"]
    while todo:
        page = todo.pop()
        if page in reached:
            continue
        reached.add(page)
        found = [target(page, link)[0] for link in links(page) if "://" not in link]
        todo += [file for file in found if file in PAGES]
    assert sorted(map(name, set(PAGES) - reached)) == []


def test_no_table_stands_in_two_places():
    """A row with three numbers or more stands once in all documents; the changelog has no tables."""
    seen: dict[str, str] = {}
    for page in PAGES:
        for line in page.read_text(encoding="utf-8").splitlines():
            row = line.strip()
            numbers = sum(any(c.isdigit() for c in cell) for cell in row.split("|"))
            if not row.startswith("|") or numbers < 3:
                continue
            assert row not in seen, f"{name(page)} repeats a row of {seen[row]}: {row}"
            seen[row] = name(page)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_source_files_named_in_the_text_exist(page):
    for span in code_spans(page):
        if re.fullmatch(r"[\w./-]+\.py", span):
            assert any(f"/{file}".endswith(f"/{span}") for file in FILES), f"{name(page)}: there is no {span}"
        elif re.match(r"(src|tests|benchmarks|docs)/[\w./-]+$", span):
            assert (ROOT / span).exists(), f"{name(page)}: there is no {span}"


def test_the_map_from_equation_to_function_is_true():
    from bcrl import budget
    from bcrl.learn.bcrl import BCRL
    from bcrl.learn.tracking import TrackingActor

    owners = {"BCRL": BCRL, "TrackingActor": TrackingActor}
    text = prose(ROOT / "docs/method.md")
    rows = text.partition("## From equation to function")[2].partition("\n\nAlgorithm 1 with")[0]
    spans = [span for span in re.findall(r"`([^`]+)`", rows) if not span.endswith(".py")]
    assert len(spans) > 10
    for span in spans:
        owner, _, function = span.rpartition(".")
        assert callable(getattr(owners[owner] if owner else budget, function, None)), f"there is no {span}"
