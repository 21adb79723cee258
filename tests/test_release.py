"""What is said of the package in several places agrees."""

import re
import tomllib
from pathlib import Path

import bcrl

ROOT = Path(__file__).parents[1]


def test_the_citation_has_the_version_of_the_package():
    said = re.search(r"^version: (.*)$", (ROOT / "CITATION.cff").read_text(encoding="utf-8"), re.MULTILINE)
    assert said
    assert said[1] == bcrl.__version__


def test_pre_commit_runs_what_make_test_checks():
    """All that stands before pytest in the Makefile, in the same words."""
    recipe = (ROOT / "Makefile").read_text(encoding="utf-8").partition("\ntest:")[2].partition("\n\n")[0]
    checks = [line.strip().removeprefix("$(BIN)/") for line in recipe.splitlines()[1:]]
    hooks = re.findall(r"entry: \.venv/bin/(.*)", (ROOT / ".pre-commit-config.yaml").read_text())
    assert [h.removesuffix(" --force-exclude") for h in hooks] == [c.removesuffix(" .") for c in checks[:-1]]


def test_an_extra_that_the_readme_names_exists_and_none_is_left_out():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    table = (
        (ROOT / "README.md")
        .read_text(encoding="utf-8")
        .partition("| extra | gives |")[2]
        .partition("\n\n")[0]
    )
    assert set(re.findall(r"^\| `([\w-]+)`", table, re.MULTILINE)) == set(project["optional-dependencies"])
