"""`bcrl report`: the results of an evaluation as a page with pictures."""

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro


@dataclass
class Command:
    """Turn results into one HTML file: what policies earn and cost at each threshold."""

    results: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RESULTS")]
    """The file bcrl evaluate --out wrote."""
    out: Path
    """The page to write, such as report.html."""
    data: Path | None = None
    """The log the policies were trained on, to show it beside what they made of it."""
    policies: Path | None = None
    """A policy file, or the folder of a run, to tell how it was trained and how to use it."""
    figure: Path | None = None
    """Write the picture to a file of its own too; its suffix, .svg, .pdf or .png, chooses the format."""

    def run(self) -> None:
        from bcrl.assess.results import read_results
        from bcrl.cli.evaluate import policy_files
        from bcrl.data import load_data
        from bcrl.policy import load
        from bcrl.report import draw, save_figure, write_report

        results = read_results(self.results)
        dataset = None if self.data is None else load_data(self.data)
        files = [] if self.policies is None else policy_files(self.policies)
        write_report(
            self.out,
            results,
            dataset=dataset,
            policies=[load(path) for path in files],
            policy_file=files[0].name if files else "",
            command=self._command(),
        )
        if self.figure is not None:
            save_figure(draw(results, dataset), self.figure)
        print(f"{len(results):,} episodes: {self.out}{f', {self.figure}' if self.figure else ''}")

    def _command(self) -> str:
        """How this page was made; folders are left out, since the reader may be somewhere else."""
        words = ["bcrl", "report", self.results.name, "--out", self.out.name]
        for option, path in (("--data", self.data), ("--policies", self.policies)):
            words += [option, path.name] if path is not None else []
        return shlex.join(words)
