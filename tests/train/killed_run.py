"""Trains in a process of its own and kills itself (SIGKILL, no clean-up) at a place given by name.

python killed_run.py PLACE ARGUMENTS-OF-bcrl.train...
"""

import os
import signal
import sys

import bcrl.files
import bcrl.train.run as run
from bcrl.policy import Policy
from bcrl.train.__main__ import main
from bcrl.train.folder import RunFolder


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def before_training() -> None:
    run.train = lambda *_, **__: die()


def after_metrics_before_checkpoint() -> None:
    """Rows are on disk that the checkpoint does not know of."""
    add = RunFolder.add

    def patched(folder, rows):
        add(folder, rows)
        if rows[0]["step"] == 40:
            die()

    RunFolder.add = patched


def in_the_middle_of_a_metrics_row() -> None:
    add = RunFolder.add

    def patched(folder, rows):
        add(folder, rows)
        if rows[0]["step"] == 50:
            path = folder.path / "metrics.csv"
            os.truncate(path, path.stat().st_size - 30)
            die()

    RunFolder.add = patched


def in_the_middle_of_a_checkpoint() -> None:
    """The new checkpoint is half written, the old one still in place."""
    replace, count = os.replace, []

    def patched(source, target):
        if str(target).endswith("checkpoint.safetensors"):
            count.append(target)
            if len(count) == 3:
                os.truncate(source, os.stat(source).st_size // 2)
                die()
        replace(source, target)

    bcrl.files.os.replace = patched


def after_training_before_the_policies() -> None:
    Policy.save = lambda *_: die()


if __name__ == "__main__":
    globals()[sys.argv.pop(1)]()
    main()
