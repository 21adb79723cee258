"""Checkpoints of a recording, from which it continues after a stop."""

import json
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import bcrl
from bcrl.errors import BCRLError
from bcrl.files import atomic_path
from bcrl.tensors import read_header, tensors_sha256
from bcrl.worlds._ppo import Learner
from bcrl.worlds._recorder import Recorder
from bcrl.worlds.remote._play import Scaling

FILE = "recording.safetensors"


class Partial:
    """Checkpoints of a recording in `folder`; without a folder, none are kept."""

    def __init__(self, folder: Path | None, settings: dict[str, Any]):
        self.folder = folder
        self.settings = {**settings, "bcrl": bcrl.__version__}

    def save(self, rounds: int, learner: Learner, scaling: Scaling, recorder: Recorder) -> None:
        """Replaces the checkpoint by one after `rounds` rounds."""
        if self.folder is None:
            return
        from safetensors.numpy import save_file

        leaves = jax.tree.leaves(eqx.filter(learner, eqx.is_array))
        tensors = {f"learner/{i}": np.asarray(leaf, order="C") for i, leaf in enumerate(leaves)}
        tensors |= {f"scaling/{name}": array for name, array in vars(scaling).items()}
        tensors |= {f"recorder/{name}": array for name, array in recorder.whole().items()}
        header = {
            "format": "bcrl-recording",
            "version": 1,
            "settings": self.settings,
            "rounds": rounds,
            "random": recorder.random.bit_generator.state,
        }
        header["sha256"] = _digest(header, tensors)
        with atomic_path(self.folder / FILE) as temporary:
            save_file(tensors, temporary, metadata={"bcrl": json.dumps(header)})

    def resume(self, learner: Learner, scaling: Scaling, recorder: Recorder) -> tuple[int, Learner]:
        """Rounds done and the learner after them; `scaling` and `recorder` are filled in place."""
        if self.folder is None or not (self.folder / FILE).exists():
            return 0, learner
        path = self.folder / FILE
        header, tensors = self._read(path)
        for name, value in self.settings.items():
            if (before := header["settings"].get(name)) != value:
                raise BCRLError(
                    f"{path}: {name} was {before} and is now {value}; continue with the same, or remove "
                    f"{self.folder} to record anew"
                )
        arrays, functions = eqx.partition(learner, eqx.is_array)
        leaves, structure = jax.tree.flatten(arrays)
        leaves = [jnp.asarray(tensors[f"learner/{i}"], leaf.dtype) for i, leaf in enumerate(leaves)]
        for name in vars(scaling):
            setattr(scaling, name, tensors[f"scaling/{name}"])
        names = [name.removeprefix("recorder/") for name in tensors if name.startswith("recorder/")]
        recorder.parts = [{name: tensors[f"recorder/{name}"] for name in names}]
        recorder.held = int(recorder.parts[0]["lengths"].sum())
        recorder.random.bit_generator.state = header["random"]
        return header["rounds"], eqx.combine(jax.tree.unflatten(structure, leaves), functions)

    def _read(self, path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """The header and the tensors, if they are as they were written."""
        from safetensors import SafetensorError
        from safetensors.numpy import load_file

        header = read_header(path, "recording")
        try:
            tensors = load_file(path)
            if header.pop("sha256", None) == _digest(header, tensors):
                return header, tensors
        except (SafetensorError, OSError, ValueError, TypeError, KeyError):
            pass
        raise BCRLError(f"{path}: damaged; remove {self.folder} to record anew")


def _digest(header: dict[str, Any], tensors: dict[str, np.ndarray]) -> str:
    """SHA-256 of everything in the file."""
    text = np.frombuffer(json.dumps(header).encode(), np.uint8)
    return tensors_sha256({"header": text, **tensors})
