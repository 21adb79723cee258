"""The arguments of a training, checked before anything is written."""

import os
from collections.abc import Sequence

import numpy as np

from bcrl.data import Dataset
from bcrl.errors import BCRLError, brief_repr
from bcrl.learn.protocol import Method
from bcrl.train.folder import summary_writer
from bcrl.train.saver import Pace


def check_arguments(
    data: Dataset,
    method: Method,
    seeds: Sequence[int],
    steps: int,
    pace: Pace,
    resume: bool,
    overwrite: bool,
    out: str | os.PathLike | None,
    tensorboard: bool,
) -> None:
    """Raises unless these can be the arguments of `fit`."""
    if not isinstance(data, Dataset):
        raise BCRLError(
            f"data is {data!r}, but must be a Dataset: bcrl.load_data(path) reads one from a file"
        )
    if isinstance(method, type) or not hasattr(method, "schedule"):
        raise BCRLError(f"method is {brief_repr(method)}, but must be one: bcrl.make_method('bcrl'), say")
    if not isinstance(out, str | os.PathLike | None) or out == "":
        raise BCRLError(f"out is {brief_repr(out)}, but must be the path of a folder")
    given, seeds = seeds, tuple(seeds) if isinstance(seeds, Sequence) else ()
    whole = all(isinstance(seed, int | np.integer) and not isinstance(seed, bool) for seed in seeds)
    if not seeds or not whole or len(set(seeds)) != len(seeds) or not 0 <= min(seeds) <= max(seeds) < 2**32:
        raise BCRLError(
            f"seeds are {brief_repr(given)}, but must be different whole numbers from 0 up to 2³² − 1"
        )
    log_every, checkpoint_every, keep_every = pace
    for name, value in (("steps", steps), ("log_every", log_every), ("checkpoint_every", checkpoint_every)):
        if not isinstance(value, int) or not 1 <= value < 2**31:
            raise BCRLError(f"{name} is {brief_repr(value)}, but must be a whole number, at least 1")
    if not isinstance(keep_every, int) or keep_every < 0 or 0 < keep_every < log_every:
        raise BCRLError(
            f"keep_every is {brief_repr(keep_every)}, but must be 0 (the last alone) or at least log_every "
            f"{log_every}"
        )
    wanted = {"keep_every": keep_every, "resume": resume, "overwrite": overwrite, "tensorboard": tensorboard}
    for name, given in wanted.items():
        if given and out is None:
            raise BCRLError(f"{name} needs the folder of a run: give out")
    if resume and overwrite:
        raise BCRLError("resume goes on with a run and overwrite replaces it: give one of them")
    if tensorboard:
        summary_writer()  # a missing package is reported before anything is written
    if not data.costs_2d.any():
        raise BCRLError(
            f"{data.source}: every cost is 0, so there is nothing to bound; check the field costs"
        )
