"""What the documentation site adds to the Markdown files: called by MkDocs (mkdocs.yml, `make docs`).

- The README and other pages of the root become pages of the site, their links too.
- The pages of the command line and of the Python names are made from the code.
- V_C, γ_C^t and the like are set with subscripts and superscripts, without any script in the browser.
"""

import io
import os
import posixpath
import re
from contextlib import redirect_stdout, suppress
from importlib import import_module
from inspect import getdoc, getmembers, getmodule
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

import bcrl
from bcrl import budget
from bcrl.cli import VERBS, main

ROOT = Path(__file__).parents[1]
ROOT_PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "RELEASING.md": "releasing.md",
    "CHANGELOG.md": "changelog.md",
}

LINK = re.compile(r"(!?)\[([^]]*)\]\(([^)\s]+)\)")
FENCE = re.compile(r"^( *)(```)(\w+)[^\n]*\n.*?^\1```$", re.MULTILINE | re.DOTALL)
# A symbol of one letter with an index: V_C, S_P, c_max, Σ_{u≥t}. Powers: γ_C^t, γ^(H−t).
INDEX = re.compile(r"(?<!\w)([A-Za-zΑ-Ωα-ω])_(?:([A-Za-z]|max|init)(?![A-Za-z0-9_])|\{([^}<]+)\})")
POWER = re.compile(r"(?<=[\w)>])\^(\w+|\*|\([^)<]*\))")
NOT_PROSE = re.compile(r"(<pre\b.*?</pre>|<code\b.*?</code>|<[^>]*>)", re.DOTALL)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    pages = {site: (ROOT / source).read_text(encoding="utf-8") for source, site in ROOT_PAGES.items()}
    for name, text in {**pages, "commands.md": commands(), "api.md": api()}.items():
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links for the site; fences without the words that tell the tests what to check."""
    source = next((name for name, site in ROOT_PAGES.items() if site == page.file.src_uri), None)
    folder = posixpath.dirname(source or f"docs/{page.file.src_uri}")
    here = posixpath.dirname(page.file.src_uri)

    def relink(found: re.Match[str]) -> str:
        mark, text, link = found.groups()
        file, _, anchor = link.partition("#")
        if not file or "://" in file or file.startswith("mailto:"):
            return found[0]
        path = posixpath.normpath(posixpath.join(folder, file))
        goal = ROOT_PAGES.get(path) or (path.removeprefix("docs/") if path.startswith("docs/") else None)
        if goal is None or (ROOT / path).is_dir():  # no page and no picture: its name must do
            return text
        return f"{mark}[{text}]({posixpath.relpath(goal, here or '.')}{'#' if anchor else ''}{anchor})"

    parts, end = [], 0
    for fence in FENCE.finditer(markdown):
        rest = fence[0].partition("\n")[2]
        parts += [LINK.sub(relink, markdown[end : fence.start()]), f"{fence[1]}```{fence[3]}\n{rest}"]
        end = fence.end()
    return "".join([*parts, LINK.sub(relink, markdown[end:])])


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """The symbols of the paper, outside code, with their indices set below and powers above."""
    parts = NOT_PROSE.split(html)
    return "".join(part if index % 2 else typeset(part) for index, part in enumerate(parts))


def typeset(text: str) -> str:
    """The text with HTML for indices and powers."""
    text = INDEX.sub(lambda found: f"{found[1]}<sub>{found[2] or found[3]}</sub>", text)
    return POWER.sub(r"<sup>\1</sup>", text)


def commands() -> str:
    """The page of all verbs: what `--help` prints of each."""
    os.environ["COLUMNS"] = "90"
    parts = [
        "# Command line\n\nWhat `bcrl VERB --help` prints. The options of another [method](baselines.md): "
        "`bcrl train --method METHOD --help`."
    ]
    for verb, (_, line) in VERBS.items():
        said = io.StringIO()
        with redirect_stdout(said), suppress(SystemExit):
            main([*verb.split(), "--help"])
        parts.append(
            f"## bcrl {verb}\n\n{line[0].upper()}{line[1:]}.\n\n```text\n{said.getvalue().strip()}\n```"
        )
    return "\n\n".join(parts)


def api() -> str:
    """The page of the public names: of `bcrl` by package, of `bcrl.cmdp` and of `bcrl.budget`."""
    parts = ["# Python\n\nThe public names. Each is imported on first use: `import bcrl` alone is quick."]
    packages: dict[str, list[str]] = {}
    for name, home in bcrl._HOMES.items():
        packages.setdefault(".".join(home.split(".")[:2]), []).append(f"bcrl.{name}")
    packages["bcrl.cmdp"] = [f"bcrl.cmdp.{name}" for name in import_module("bcrl.cmdp").__all__]
    made_here = getmembers(budget, lambda thing: getmodule(thing) is budget)
    packages["bcrl.budget"] = [f"bcrl.budget.{name}" for name, _ in made_here if not name.startswith("_")]
    for package in sorted(packages):
        about = (getdoc(import_module(package)) or "").partition("\n\n")[0]
        parts.append(f"## {package}\n\n{about}")
        parts += [f"::: {name}" for name in packages[package]]
    return "\n\n".join(parts)
