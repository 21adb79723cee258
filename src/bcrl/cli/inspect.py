"""`bcrl inspect policy.bcrl`: what is in a policy file."""

import json
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from bcrl.errors import BCRLError


@dataclass
class Command:
    """Show what is in a policy file: method, options, the log it was trained on, sizes, speed of acting."""

    policy: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="POLICY")]
    """A policy file."""
    json: tyro.conf.FlagCreatePairsOff[bool] = False
    """Print JSON instead."""
    card: Path | None = None
    """Write a model card in Markdown, such as card.md."""
    evaluation: Path | None = None
    """For the card: what bcrl evaluate or bcrl estimate wrote with --out for this policy."""
    overwrite: tyro.conf.FlagCreatePairsOff[bool] = False
    """Replace the card if it exists."""

    def run(self) -> None:
        from bcrl.cli.out import check_file
        from bcrl.errors import printable
        from bcrl.files import write_text
        from bcrl.report.card import card, file_pairs, log_pairs, option_pairs
        from bcrl.report.inspection import evaluation_rows, inspect

        if self.evaluation is not None and self.card is None:
            raise BCRLError("--evaluation is for a model card: give --card too")
        if self.card is not None:
            check_file(self.card, (".md",), self.overwrite)
        facts = inspect(self.policy)
        rows = None if self.evaluation is None else evaluation_rows(facts, self.evaluation)
        if self.json:
            print(json.dumps(facts.to_dict(), indent=2, allow_nan=False))
        else:
            print(printable(facts.file))
            for label, text in [*file_pairs(facts), *option_pairs(facts), *log_pairs(facts)]:
                for line in textwrap.wrap(text, 80 - 16, break_on_hyphens=False) or [""]:
                    print(f"  {label:<14}{line}")
                    label = ""
        if self.card is not None:
            write_text(self.card, card(facts, rows))
            if not self.json:
                print(f"the model card: {self.card}")
