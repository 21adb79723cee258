"""`bcrl paper list`: the experiments of the paper that can be run."""

from dataclasses import dataclass

COUNTED = {"ships": "scenario file", "grid": "layout"}


@dataclass
class Command:
    """List the paper's experiments: name, where the paper has it, and what is run."""

    def run(self) -> None:
        from bcrl.cli.terminal import next_step
        from bcrl.paper.experiments import EXPERIMENTS

        for experiment in EXPERIMENTS.values():
            print(f"{experiment.name}\n  {experiment.title}\n  in the paper: {experiment.place}")
            columns = ", ".join(column.label for column in experiment.columns)
            count = len(experiment.tasks)
            noun = COUNTED.get(experiment.kind, "task") + ("s" if count > 1 else "")
            print(f"  {count} {noun}{f': {columns}' if columns else ''}")
        next_step("bcrl", "paper", "run", "tau-r", "--logs", "data", "--out", "runs/paper")
