"""Every code block of the documents works as printed.

The word after a fence says what is checked:
- `python`: the blocks of one page are run in order, in one namespace, in an empty folder;
- `sh run`: `bcrl` commands, checked as `sh`, then run in that folder too, in their place among the others;
- `sh start`: a `bcrl` command that goes on, such as a server: checked as `sh`, then started in that folder in
  a process of its own, at a free port, and stopped at the end of the page;
- `python no-run`: compiled, and everything it imports from bcrl exists (it needs data that is not here);
- `sh`: whole commands; every `bcrl` line is read by the command line without being run, and every module,
  script, make target and extra that is named exists;
- `toml`: a plan that `bcrl bench --plan` accepts, and `plan.toml` in that folder; `toml map`: a map that
  `bcrl data import` accepts, and `map.toml` there;
- `text`: equations, layouts and output, not checked.
"""

import ast
import importlib.util
import io
import re
import shlex
import socket
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, redirect_stdout, suppress
from dataclasses import replace
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import get_origin

import pytest
from doc_pages import PAGES, ROOT, Block, blocks, code_spans, name
from optimised import optimised

import bcrl
import bcrl.estimates
from bcrl.cli import VERBS, main
from bcrl.learn.registry import METHODS

BLOCKS = [block for page in PAGES for block in blocks(page)]
KINDS = {("python",), ("python", "no-run"), ("sh",), ("sh", "run"), ("sh", "start")}
KINDS |= {("toml",), ("toml", "map"), ("text",)}
PORT = "8000"
"""Of a server on a page; here it is a free one."""
SLOW = (
    "README.md",
    "docs/deploy.md",
    "docs/ships.md",
    "docs/tutorial-own-log.md",
    "docs/tutorial-researcher.md",
)  # these train
LONG = ("README.md", "docs/tutorial-own-log.md")  # for thousands of steps
# Sizes of a page that are smaller in the test, so that it takes seconds; all else is as printed.
SMALLER = {
    "docs/tutorial-own-log.md": {
        "for shift in range(60)": "for shift in range(6)",
        "range(1_000, 1_020)": "range(1_000, 1_003)",
        "--steps 3000": "--steps 1000",
        "--out estimates.csv --model log.model": "--out estimates.csv --model log.model --starts 32",
        "--out calibrated.bcrl --model log.model": "--out calibrated.bcrl --model log.model --starts 16",
    },
    "docs/tutorial-researcher.md": {
        "--transitions 50000 --steps 1e6": "--transitions 2000 --steps 2e4 --cost-cap 1000",
        "thresholds = [10, 20, 40]": "thresholds = [10]\nepisodes = 2",
        "steps = 3_000": "steps = 20",
        "[methods.caps]\n": "",  # three methods less to compile
        "[methods.bc-safe]\n": "",
        '[methods.episodic]          # a column of your own: BCRL with another option\nmethod = "bcrl"\n'
        'options = { criterion = "episodic" }\n': "",
        "episodes=20": "episodes=2",
    },
}
RUNNABLE = [page for page in PAGES if any(block.words == ("python",) for block in blocks(page))]


def of_kind(*words: str) -> list[Block]:
    return [block for block in BLOCKS if block.words == words]


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.place)
def test_every_block_says_what_it_is(block):
    assert block.words in KINDS, f"{block.place}: ```{' '.join(block.words)} is none of {sorted(KINDS)}"


@pytest.mark.parametrize(
    "page",
    [pytest.param(p, id=name(p), marks=[pytest.mark.slow] if name(p) in SLOW else []) for p in RUNNABLE],
)
def test_blocks_run_as_printed(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    # A model of a log takes 40 seconds to learn. Here it is a rough one; all else is as printed.
    monkeypatch.setattr(
        bcrl.estimates, "fit_model", partial(bcrl.fit_model, members=3, hidden=(64, 64), steps=1_000)
    )
    namespace = {"__name__": "__main__"}
    port = str(free_port())
    with ExitStack() as started:
        if name(page) in LONG:
            started.enter_context(optimised())
        for block in map(smaller, blocks(page)):
            if block.words == ("python",):
                # Blank lines before the code: an error then names the line of the document.
                text = block.text.replace(PORT, port)
                exec(compile("\n" * block.line + text, str(page), "exec"), namespace)
            elif block.words[0] == "toml":
                name_of_file = "map.toml" if "map" in block.words else "plan.toml"
                (tmp_path / name_of_file).write_text(block.text, encoding="utf-8")
            elif block.words == ("sh", "run"):
                for words in commands(block):
                    run(words, f"{block.place}: {shlex.join(words)}", capsys)
            elif block.words == ("sh", "start"):
                for words in commands(block):
                    started.enter_context(going_on([port if word == PORT else word for word in words]))


def free_port() -> int:
    with socket.socket() as some:
        some.bind(("127.0.0.1", 0))
        return some.getsockname()[1]


@contextmanager
def going_on(words: list[str]) -> Iterator[None]:
    """A `bcrl` command in a process of its own, from its first line of output on."""
    command = [sys.executable, "-m", "bcrl", *words[1:]]
    with (
        open("said.txt", "w") as errors,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True) as process,
    ):
        try:
            assert process.stdout is not None
            assert process.stdout.readline(), Path("said.txt").read_text()
            yield
        finally:
            process.terminate()


def smaller(block: Block) -> Block:
    for printed, small in SMALLER.get(name(block.page), {}).items():
        block = replace(block, text=block.text.replace(printed, small))
    return block


def test_what_is_made_smaller_is_on_its_page():
    for page, sizes in SMALLER.items():
        text = (ROOT / page).read_text(encoding="utf-8")
        assert [printed for printed in sizes if printed not in text] == []


def run(words: list[str], line: str, capsys: pytest.CaptureFixture) -> None:
    """Runs a `bcrl` command in this process."""
    program, *rest = words
    assert program == "bcrl", f"{line}: only bcrl commands are run"
    if rest[:2] == ["report", "estimates.csv"] and "estimates" not in help_text("report"):
        return  # until bcrl report takes estimates
    try:
        main(rest)
    except SystemExit as end:
        if (rest[0], end.code) != ("certify", 1):  # "not yet" is an answer too
            pytest.fail(f"{line}: {capsys.readouterr().err}")


@pytest.mark.parametrize("block", of_kind("python", "no-run"), ids=lambda block: block.place)
def test_what_other_python_blocks_import_exists(block):
    for node in ast.walk(ast.parse(block.text)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("bcrl"):
            module = import_module(node.module)  # type: ignore[arg-type]
            missing = [alias.name for alias in node.names if not hasattr(module, alias.name)]
            assert not missing, f"{block.place}: {node.module} has no {missing[0]}"
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "bcrl":
            assert hasattr(import_module("bcrl"), node.attr), f"{block.place}: there is no bcrl.{node.attr}"


def commands(block: Block) -> list[list[str]]:
    """The commands of a block, without comments; a line that ends in a backslash goes on."""
    lines = block.text.replace("\\\n", " ").splitlines()
    return [words for line in lines if (words := shlex.split(line, comments=True))]


def verb_of(words: list[str]) -> str | None:
    return next((verb for n in (2, 1) if (verb := " ".join(words[:n])) in VERBS), None)


@pytest.mark.parametrize(
    "block", of_kind("sh") + of_kind("sh", "run") + of_kind("sh", "start"), ids=lambda block: block.place
)
def test_commands_are_understood(block, monkeypatch, capsys):
    for words in commands(block):
        line = f"{block.place}: {shlex.join(words)}"
        match words:
            case ["bcrl", *rest]:
                verb = verb_of(rest)
                assert verb is not None, f"{line}: there is no such verb"
                module = import_module(VERBS[verb][0])
                choose = getattr(module, "command_for", lambda _, module=module: (module.Command, None))
                command = choose(rest[len(verb.split()) :])[0]
                monkeypatch.setattr(get_origin(command) or command, "run", lambda command: None)
                try:
                    main(rest)
                except SystemExit:  # how a mistake of the user ends
                    pytest.fail(f"{line}: {capsys.readouterr().err}")
            case ["python", "-m", module, *_]:
                assert importlib.util.find_spec(module), line
            case ["python", script, *_]:
                assert (ROOT / script).is_file(), line
            case ["make", target]:
                assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE), line
            case ["pip", "install", requirement]:
                named = set(re.findall(r"[\w-]+", requirement.partition("[")[2]))
                assert named <= extras(), line
            case [program, *_]:
                known = ("cd", "chromium", "git", "sqlite3", ".venv/bin/pytest", ".venv/bin/ruff")
                assert program in known, line


@cache
def extras() -> set[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return set(project["optional-dependencies"])


@cache
def help_text(*words: str) -> str:
    said = io.StringIO()
    with redirect_stdout(said), suppress(SystemExit):
        main([*words, "--help"])
    return said.getvalue()


@cache
def all_options() -> set[str]:
    """Every option of every verb, and of every method that `bcrl train` knows."""
    chosen = [("train", "--method", method) for method in METHODS]
    chosen += [("paper", "run", name) for name in ("maritime", "synthetic")]
    pages = [help_text(*words) for words in [*(tuple(verb.split()) for verb in VERBS), *chosen]]
    return {option for page in pages for option in re.findall(r"(?<![\w-])--[a-z][a-z-]*", page)}


@pytest.mark.parametrize("page", [page for page in PAGES if page.name != "CHANGELOG.md"], ids=name)
def test_options_and_verbs_in_the_text_exist(page):
    """Not the changelog, which also names what is gone."""
    elsewhere = {"--set", "--only", "--methods", "--repeats", "--batch", "--headless", "--window-size"}
    for span in code_spans(page):
        words = span.split()
        if words[0] == "bcrl" and len(words) > 1 and words[1] != "VERB":
            assert any(verb.split()[0] == words[1] for verb in VERBS), f"{name(page)}: `{span}`: no such verb"
        if words[0] in ("python", "chromium", "pytest"):
            continue
        unknown = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", span)) - all_options() - elsewhere
        assert not unknown, f"{name(page)}: `{span}`: there is no {sorted(unknown)[0]}"


@pytest.mark.parametrize("block", of_kind("toml", "map"), ids=lambda block: block.place)
def test_maps_are_accepted(block, tmp_path):
    from bcrl.data import TableMap, read_map

    path = tmp_path / "map.toml"
    path.write_text(block.text, encoding="utf-8")
    TableMap(**read_map(path))


@pytest.mark.parametrize("block", of_kind("toml"), ids=lambda block: block.place)
def test_plans_are_accepted(block, tmp_path):
    from bcrl.bench.plan import read_plan

    path = tmp_path / "plan.toml"
    path.write_text(block.text, encoding="utf-8")
    for entry in read_plan(path)["entries"]:
        told = {"threshold": 10.0} if METHODS[entry.method].threshold == "before training" else {}
        bcrl.make_method(entry.method, **told, **entry.options)  # refuses unknown methods and options
