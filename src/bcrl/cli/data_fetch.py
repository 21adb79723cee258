"""`bcrl data fetch TASK`."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from bcrl.cli.terminal import next_step
from bcrl.errors import BCRLError

if TYPE_CHECKING:
    from bcrl.worlds.tasks import Task

STATES = {
    "downloaded": "downloaded, matches what the server says",
    "complete": "there already, matches what the server says",
    "unchecked": "there already, not checked: the server cannot be reached",
}


@dataclass
class Command:
    """Download DSRL's logs of tasks from the Hugging Face hub (needs the extra bcrl[data]).

    An interrupted download is resumed. A file that is there already is compared with the server's checksum.
    """

    tasks: Annotated[tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="TASK")]
    """Names of tasks, such as BallCircle (bcrl worlds lists them); or all."""
    out: Path = Path("data")
    """Folder for the files."""
    endpoint: str = ""
    """The https address of a mirror of the hub (default: the variable HF_ENDPOINT, else https://huggingface.co)."""
    overwrite: tyro.conf.FlagCreatePairsOff[bool] = False
    """Replace a file of the same name that does not match."""

    def run(self) -> None:
        from bcrl.data import fetch_files

        tasks = self._chosen()
        files = fetch_files(
            [task.data_file for task in tasks], self.out, self.endpoint, overwrite=self.overwrite
        )
        for task, file in zip(tasks, files, strict=True):
            print(f"{task.name}: {file.path} ({file.size / 1e6:,.1f} MB, {STATES[file.state]})")
            if task.caveat:
                print(f"  {task.caveat}")
        first = tasks[0].name
        next_step(*("bcrl", "train", "--data", files[0].path, "--out", f"runs/{first}", "--world", first))

    def _chosen(self) -> list["Task"]:
        from bcrl.worlds.tasks import find_task, tasks

        if not self.tasks:
            raise BCRLError("name a task, such as BallCircle, or all; bcrl worlds lists them")
        if any(name.lower() == "all" for name in self.tasks):
            return list(tasks().values())
        return list({task.name: task for task in map(find_task, self.tasks)}.values())
