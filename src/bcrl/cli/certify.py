"""`bcrl certify COSTS... --threshold 20 --abort-at 60`: is the mean cost below a threshold?"""

import dataclasses
import hashlib
import json
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from bcrl.errors import BCRLError

if TYPE_CHECKING:
    import numpy as np

    from bcrl.assess.certificate import Certificate

FORMAT, VERSION = "bcrl-certificate", 1


@dataclass
class Command:
    """Test whether a policy's mean cost is below a threshold, from monitored episodes (docs/certify.md).

    Valid for any number of episodes, also if you look after each and stop when it suits. Several files or
    thresholds are tested in the order given, the safest first, until one is not certified.

    Exit status: 0 all certified, 1 not (yet), 2 a mistake in what was given.
    """

    files: Annotated[
        tyro.conf.Positional[tuple[Path, ...]],
        tyro.conf.arg(metavar="COSTS [COSTS ...]", help_behavior_hint="(one or more)"),
    ]
    """CSV files with a column cost, one row per episode, such as what bcrl evaluate --out wrote."""
    threshold: tuple[float, ...]
    """What the mean cost is to stay below; several, such as 10,20,40, one for each test."""
    abort_at: tuple[float, ...] | None = None
    """Cost at which an episode is stopped, in deployment too. It keeps the number of episodes small."""
    largest: tuple[float, ...] | None = None
    """A cost that no episode can exceed (default: --abort-at). One of the two is needed."""
    confidence: float = 0.95
    """Probability that a false certificate is never given, over all tests together."""
    told: tuple[float, ...] | None = None
    """The threshold the policy was told, to choose rows by the column threshold (default: --threshold)."""
    where: str | None = None
    """Take the rows with these values, such as seed=0 or seed=0,method=bcrl."""
    out: Path | None = None
    """File for all numbers, certificate.json."""
    overwrite: tyro.conf.FlagCreatePairsOff[bool] = False
    """Replace the file if it exists."""

    def run(self) -> None:
        from bcrl.assess.certificate import certify_sequence
        from bcrl.cli.out import check_file
        from bcrl.files import write_text

        if not self.files:
            raise BCRLError("no file was given; name a CSV file with a column cost")
        for file in self.files:
            if not file.is_file():
                raise BCRLError(f"{file}: there is no such file")
        if self.out is not None:
            check_file(self.out, (".json",), self.overwrite)
        tests = self._tests()
        where = _pairs(self.where)
        costs = [_costs(test, where) for test in tests]
        found = certify_sequence(
            costs,
            [test["threshold"] for test in tests],
            abort_at=None if self.abort_at is None else [test["abort_at"] for test in tests],
            largest=None if self.largest is None else [test["largest"] for test in tests],
            confidence=self.confidence,
        )
        print(_shown([test["file"] for test in tests], [test["told"] for test in tests], found))
        if self.out is not None:
            write_text(self.out, _json(tests, where, found))
            print(f"all numbers: {self.out}")
        if not all(one.certified for one in found):
            raise SystemExit(1)

    def _tests(self) -> list[dict[str, Any]]:
        """One entry per test: its file, threshold, abort_at, largest and told threshold."""
        names = ("threshold", "abort_at", "largest", "told")
        given: dict[str, Sequence[Any]] = {name: getattr(self, name) or (None,) for name in names}
        count = max(len(self.files), len(given["threshold"]), len(given["told"]))
        lists: dict[str, Sequence[Any]] = {"file": self.files, **given}
        for name, values in lists.items():
            if len(values) not in (1, count):
                what = "files" if name == "file" else f"values of --{name.replace('_', '-')}"
                raise BCRLError(f"{len(values)} {what} for {count} tests: give one, or one for each test")
        tests = [{name: v[i % len(v)] for name, v in lists.items()} for i in range(count)]
        for index, test in enumerate(tests):
            if test in tests[:index]:
                raise BCRLError(f"test {index + 1} is the same as an earlier one; give each once")
        return tests


def _costs(test: dict[str, Any], where: dict[str, str]) -> "np.ndarray":
    from bcrl.assess.certificate import largest_cost
    from bcrl.assess.cost_file import read_costs

    threshold, told = test["threshold"], test["told"]
    bound = largest_cost(threshold, test["abort_at"], test["largest"])
    if told is not None:
        where = where | {"threshold": f"{told!r}"}
    default = None if "threshold" in where else threshold
    return read_costs(test["file"], bound=bound, abort_at=test["abort_at"], told=default, where=where)


def _pairs(text: str | None) -> dict[str, str]:
    """seed=0,method=bcrl as a dict."""
    pairs = [word.partition("=") for word in text.split(",")] if text is not None else []
    for name, equals, _ in pairs:
        if not (name.strip() and equals):
            raise BCRLError(f"--where is {text!r}, but must be COLUMN=VALUE, with commas between several")
    return {name.strip(): value.strip() for name, _, value in pairs}


def _shown(files: Sequence[Path], told: Sequence[float | None], found: "Sequence[Certificate]") -> str:
    """A table of 80 columns at most, and a sentence for each test."""
    several = len(found) > 1
    heads = ["test", "threshold", "told", "episodes", "mean cost", "below", "verdict", "file"]
    rows = [
        [
            str(index),
            f"{one.threshold:g}",
            "" if wanted is None else f"{wanted:g}",
            f"{one.episodes:,}",
            f"{one.mean_cost:.4g}",
            "" if one.cost_high is None else f"{one.cost_high:.4g}",
            str(one.verdict),
            _name(file),
        ]
        for index, (file, wanted, one) in enumerate(zip(files, told, found, strict=True), 1)
    ]
    shown = [i for i, name in enumerate(heads) if several or name not in ("test", "file")]
    shown = [i for i in shown if any(row[i] for row in rows)]
    widths = [max(len(row[i]) for row in [heads, *rows]) for i in shown]
    lines = []
    for row in [heads, *rows]:
        cells = [f"{row[i]:<{w}}" if i >= 6 else f"{row[i]:>{w}}" for i, w in zip(shown, widths, strict=True)]
        lines.append("  ".join(cells).rstrip())
    for index, one in enumerate(found, 1):
        sentence = f"{index}. {one.sentence}" if several else one.sentence
        lines += ["", *textwrap.wrap(sentence, 80, subsequent_indent="   " if several else "")]
    confidence = f"{100 * found[0].confidence:g} %"
    lines += ["", f"below: what the mean cost is below with {confidence} confidence, by this test alone"]
    return "\n".join(lines)


def _name(file: Path) -> str:
    """At most 16 printable characters."""
    name = "".join(x if x.isprintable() else "?" for x in file.name)
    return name if len(name) <= 16 else f"{name[:7]}..{name[-7:]}"


def _json(tests: list[dict[str, Any]], where: dict[str, str], found: "Sequence[Certificate]") -> str:
    entries = [
        {
            **dataclasses.asdict(one),
            "told": test["told"],
            "file": str(test["file"]),
            "sha256": hashlib.sha256(test["file"].read_bytes()).hexdigest(),
            "sentence": one.sentence,
        }
        for test, one in zip(tests, found, strict=True)
    ]
    whole = {
        "format": FORMAT,
        "version": VERSION,
        "certified": all(one.certified for one in found),
        "where": where,
        "tests": entries,
    }
    return json.dumps(whole, indent=2, allow_nan=False) + "\n"
