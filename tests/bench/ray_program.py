"""A bench on a local Ray cluster in a process of its own: python ray_program.py LOGS OUT plain|killed.

With `killed`, the first worker to write a checkpoint and the first to have finished an evaluation are killed
(SIGKILL, no clean-up). Prints the number of every process that worked.
"""

import os
import signal
import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]

from tiny_bench import PACE, tiny_works  # noqa: E402

from bcrl.bench.ray_run import Cluster, run_on_ray  # noqa: E402
from bcrl.bench.run import Pace  # noqa: E402
from bcrl.bench.store import FILE, Store  # noqa: E402


class Watched(Pace):
    """Leaves a note of every process that works, and kills a process where it is told to."""

    def note(self, what: str) -> Path:
        folder = Path(os.environ["NOTES"])
        (folder / f"{what}-{os.getpid()}").touch()
        return folder

    def die_once(self, what: str) -> None:
        if os.environ["KILL"] == "killed":
            try:
                (Path(os.environ["NOTES"]) / f"killed-{what}").touch(exist_ok=False)
            except FileExistsError:
                return
            os.kill(os.getpid(), signal.SIGKILL)

    def train(self, work, runs):
        import bcrl.train.folder as run

        write = run.write_tensors

        def patched(*checkpoint):
            write(*checkpoint)
            self.die_once("training")

        self.note("train")
        run.write_tensors = patched
        try:
            super().train(work, runs)
        finally:
            run.write_tensors = write

    def judge(self, evaluation):
        self.note("judge")
        outcomes = super().judge(evaluation)
        self.die_once("evaluation")
        return outcomes


if __name__ == "__main__":
    logs, out, kill = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
    os.environ |= {"NOTES": str(out / "notes"), "KILL": kill}
    for folder in ("notes", "runs"):
        (out / folder).mkdir(parents=True)
    pace = Watched(log_every=PACE.log_every, checkpoint_every=PACE.checkpoint_every)
    half = (os.cpu_count() or 1) / 2  # so that two work at the same time on any machine
    with Store(out / FILE) as store:
        cluster = Cluster("local", train_cpus=half, evaluate_cpus=half)
        print(run_on_ray(tiny_works(logs)[:2], store, out / "runs", pace, cluster))
