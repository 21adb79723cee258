"""The folder of a run: its config, metrics, checkpoint and policies. It holds one run and nothing else."""

import csv
import json
import os
import re
import shutil
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from bcrl.errors import BCRLError, brief, brief_repr
from bcrl.files import atomic_path, can_lock, lock_file, write_text
from bcrl.learn.registry import find_method, with_old_values
from bcrl.tensors import read_header, read_tensors, write_tensors

CONFIG, METRICS, CHECKPOINT = "config.json", "metrics.csv", "checkpoint.safetensors"
STEPS, BOARD = "steps", "tensorboard"
_POLICY = re.compile(r"policy-\d+\.bcrl")
# What a killed run was writing: see `bcrl.files.temporary_name`.
_TEMPORARY = re.compile(r"\.(config|metrics|checkpoint|policy-\d+)\.\d+-\d+\.(json|csv|safetensors|bcrl)")
_MADE_BY = ("bcrl", "jax", "device")


class RunFolder:
    """The files of one run. Constructing it checks the folder and writes nothing."""

    def __init__(self, path: Path, config: dict[str, Any], *, resume: bool, overwrite: bool, phases: int):
        self.path = path
        self.config: dict[str, Any] = json.loads(json.dumps(config))
        self.board: Any = None
        self._lock: int | None = None
        for place in (path, *path.parents):
            if place.exists() and not place.is_dir():
                raise BCRLError(f"{place}: is a file, but a run needs a folder")
        self.overwrite = overwrite and self._file(CONFIG).exists()
        if not self._file(CONFIG).exists() and self._file(CHECKPOINT).exists():
            raise BCRLError(
                f"{self._file(CONFIG)}: is missing, so the checkpoint beside it cannot be resumed: "
                "bring the config back, or train into another folder"
            )
        if resume and self._file(CONFIG).exists():
            _check_same(self.config, read_config(path), self._file(CONFIG), phases)
            for file in self._files():
                if file.is_dir() and _is_policy(file.name):
                    raise BCRLError(f"{file}: is a folder in the place of a policy: move it away")
            return
        if self._file(CONFIG).exists() and not overwrite:
            raise BCRLError(
                f"{path}: holds a run already: give --resume to go on, --overwrite to replace it, "
                "or another --out"
            )
        foreign = [file for file in self._files() if not (self.overwrite and _is_ours(file))]
        foreign = [file for file in foreign if not _TEMPORARY.fullmatch(file.name)]
        if foreign:
            raise BCRLError(
                f"{path}: holds {foreign[0].name}, which is not this run's: train into a folder of its own"
            )

    def open(self, state: Any, tensorboard: bool) -> tuple[int, Any, dict[str, Any], list[dict[str, float]]]:
        """Takes hold of the folder: the step to go on from, the state there, partial sums and metrics."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:  # a dangling link is in its place, say
            raise BCRLError(
                f"{self.path}: the folder cannot be made ({error.strerror}): name another"
            ) from None
        self._lock = _locked(self.path)
        if self.overwrite:
            clear_run(self.path)
        for place in (self.path, *self._file(STEPS).glob("[0-9]*")):
            for file in place.iterdir():
                if _TEMPORARY.fullmatch(file.name):
                    file.unlink()
        # Written anew, since a resumed run may be given more steps.
        write_text(self._file(CONFIG), json.dumps(self.config, indent=2) + "\n")
        step, partial = 0, {}
        if self._file(CHECKPOINT).exists():
            header = read_header(self._file(CHECKPOINT), "checkpoint")
            step, partial = self._check_checkpoint(header)
            state = read_tensors(self._file(CHECKPOINT), state, header)
        rows = self._keep_rows_until(step)
        if tensorboard:
            self.board = summary_writer()(str(self._file(BOARD)), purge_step=step)
        return step, state, partial, rows

    def add(self, rows: list[dict[str, float]]) -> None:
        """Appends rows of metrics. The columns are those of the first row, which has them for all phases."""
        with open(self._file(METRICS), "a", newline="") as file:
            writer = csv.DictWriter(file, fieldnames=list(rows[0]))
            if file.tell() == 0:
                writer.writeheader()
            writer.writerows(rows)
        if self.board is None:
            return
        for row in rows:
            for name, value in row.items():
                if name not in ("step", "seed"):
                    self.board.add_scalar(f"seed-{row['seed']}/{name}", value, row["step"])

    def checkpoint(self, step: int, state: Any, partial: dict[str, Any]) -> None:
        """Replaces the checkpoint. `partial` are the sums of metrics since the last row."""
        header = {"format": "bcrl-checkpoint", "version": 1, "step": step, "run": self._identity}
        write_tensors(self._file(CHECKPOINT), state, header | {"partial": partial})

    def close(self) -> None:
        """Lets go of the folder."""
        if self.board is not None:
            self.board.close()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    @property
    def _identity(self) -> dict[str, Any]:
        """What a checkpoint must agree with: all that decides what is learned, but for the steps."""
        spec = {name: value for name, value in self.config["spec"].items() if name != "steps"}
        sha256 = self.config["provenance"]["data_sha256"]
        return {name: self.config[name] for name in ("method", "options", "seeds")} | {
            "spec": spec,
            "data_sha256": sha256,
        }

    def _check_checkpoint(self, header: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """The step of a checkpoint of this very run, and partial sums of metrics."""
        path = self._file(CHECKPOINT)
        step, run = header.get("step"), header.get("run", self._identity)
        if isinstance(run, dict) and isinstance(run.get("options"), dict):
            run = run | {"options": with_old_values(run["options"], find_method(self.config["method"]).kind)}
        if run != self._identity:
            raise BCRLError(f"{path}: is of another run than {CONFIG} beside it: train into another folder")
        if isinstance(step, bool) or not isinstance(step, int) or step < 0:
            raise BCRLError(
                f"{path}: step is {brief_repr(step)}, but must be a whole number: train into another folder"
            )
        try:
            from_partial(partial := header.get("partial", {}), len(self.config["seeds"]))
        except (AttributeError, TypeError, ValueError, OverflowError):
            raise BCRLError(f"{path}: its sums of metrics are damaged: train into another folder") from None
        return step, partial

    def _keep_rows_until(self, step: int) -> list[dict[str, float]]:
        """The metrics up to the checkpoint; later rows are dropped, since those steps are done again."""
        path = self._file(METRICS)
        if not path.exists():
            return []
        names, rows = _read_metrics(path)
        kept = [row for row in rows if row["step"] <= step]
        with atomic_path(path) as temporary, open(temporary, "w", newline="") as file:
            writer = csv.DictWriter(file, fieldnames=names)
            writer.writeheader()
            writer.writerows(
                {n: int(v) if n in ("step", "seed") else v for n, v in row.items()} for row in kept
            )
        return kept

    def _file(self, name: str) -> Path:
        return self.path / name

    def _files(self) -> list[Path]:
        return sorted(self.path.iterdir()) if self.path.is_dir() else []


def read_config(folder: Path) -> dict[str, Any]:
    """The config of a run, checked as far as its readers need."""
    path = folder / CONFIG
    if not path.is_file():
        raise BCRLError(f"{folder}: holds no run ({CONFIG} is missing): give the folder that train wrote")
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
        how = config.get("how", {})  # older runs have none
        right = {
            "method": isinstance(config["method"], str),
            "options": isinstance(config["options"], dict),
            "seeds": isinstance(config["seeds"], list) and all(map(_is_count, config["seeds"] or [None])),
            "spec": isinstance(config["spec"], dict) and _is_count(config["spec"].get("steps", 1)),
            "provenance": isinstance(config["provenance"], dict),
            "how": isinstance(how, dict)
            and all(isinstance(x, str) if n == "data" else _is_count(x) for n, x in how.items()),
        }
        for name, fits in right.items():
            if not fits:
                raise ValueError(f"{name} is {brief_repr(config[name])}")
        return dict(config)
    except (ValueError, TypeError, KeyError, AttributeError, OSError, RecursionError) as error:
        raise BCRLError(
            f"{path}: not a readable config ({brief(error)}): train into another folder"
        ) from None


def _is_count(value: object) -> bool:
    return type(value) is int and value >= 0


def read_metrics(folder: Path) -> list[dict[str, float]]:
    """The rows of a run's metrics, oldest first; none where nothing was logged."""
    return _read_metrics(folder / METRICS)[1] if (folder / METRICS).exists() else []


def policy_files(place: Path) -> list[Path]:
    """The policy file at a path, or those of the run in that folder, one for each seed."""
    if place.is_file():
        return [place]
    found = sorted(place.glob("policy*.bcrl"))
    if not found:
        what = (
            "no policy in this folder (is the run finished?)" if place.is_dir() else "no such file or folder"
        )
        raise BCRLError(f"{place}: {what}")
    return found


def clear_run(folder: Path) -> None:
    """Removes what a run wrote into its folder, and nothing else; the config last, since it marks a run."""
    if not folder.is_dir():
        return
    ours = [file for file in folder.iterdir() if _is_ours(file) and file.name != CONFIG]
    for file in ours:
        shutil.rmtree(file) if file.is_dir() else file.unlink()
    (folder / CONFIG).unlink(missing_ok=True)


def summary_writer() -> Any:
    """TensorBoard's writer, or an error that says how to install it."""
    try:
        from tensorboardX import SummaryWriter  # type: ignore[import-not-found]
    except ImportError:
        raise BCRLError("TensorBoard logs need one more package: pip install 'bcrl[tensorboard]'") from None
    return SummaryWriter


def _is_ours(file: Path) -> bool:
    """Whether a run writes a file or folder of this name, and nothing else is in the folder."""
    if file.is_symlink():
        return False
    if file.is_dir():
        inside = [path.relative_to(file) for path in file.rglob("*") if not path.is_dir()]
        if file.name == STEPS:
            return all(
                len(path.parts) == 2 and path.parts[0].isdigit() and _is_policy(path.name) for path in inside
            )
        return file.name == BOARD and all("tfevents" in path.name for path in inside)
    return file.name in (CONFIG, METRICS, CHECKPOINT) or _is_policy(file.name)


def _is_policy(name: str) -> bool:
    return bool(_POLICY.fullmatch(name) or _TEMPORARY.fullmatch(name))


def _read_metrics(path: Path) -> tuple[list[str], list[dict[str, float]]]:
    """Column names and rows; a last row that a stop cut short is left out."""
    try:
        with open(path, newline="", encoding="utf-8") as file:
            reader = csv.DictReader(file)
            lines = [line for line in reader if None not in line and None not in line.values()]
            names = list(reader.fieldnames or [])
        rows = [{name: float(text) for name, text in line.items()} for line in lines]
        if rows and not {"step", "seed"} <= set(names):
            raise ValueError("the column step or seed is missing")
        if not all(row[name].is_integer() for row in rows for name in ("step", "seed")):
            raise ValueError("a step or seed is not a whole number")
    except (ValueError, csv.Error, OSError) as error:
        raise BCRLError(f"{path}: damaged metrics ({brief(error)}): remove the file, or train anew") from None
    return names, rows


def _locked(folder: Path) -> int | None:
    """An open folder that no other training can lock while this process lives."""
    if not can_lock():
        return None
    opened = os.open(folder, os.O_RDONLY)
    if not lock_file(opened):
        os.close(opened)
        raise BCRLError(f"{folder}: another training writes here: wait for it, or give another --out")
    return opened


def _sha256(record: Any) -> Any:
    """The digest in a record; none of what is no record."""
    return record.get("sha256") if isinstance(record, dict) else record


def _check_same(now: dict[str, Any], before: dict[str, Any], path: Path, phases: int) -> None:
    """Refuses to go on with another run; another version or machine only costs the bit-for-bit equality."""
    before = before | {"options": with_old_values(before["options"], find_method(now["method"]).kind)}
    for section in now:
        new, old = now[section], before.get(section)
        pairs = [(section, new, old)]
        if isinstance(new, dict) and isinstance(old, dict):
            pairs = [(f"{section}.{name}", new.get(name), old.get(name)) for name in {**new, **old}]
        for name, new_value, old_value in pairs:
            last = name.rpartition(".")[2]
            # Of a log its sha256 counts: it may be moved, and older runs have no summary of it. So it does of
            # cost critics: older versions had fewer options. How often is logged changes no policy.
            known = name in ("provenance.data", "provenance.log")
            if name == "provenance.cost_critics":
                known = _sha256(new_value) == _sha256(old_value)
            if new_value == old_value or known or section == "how":
                continue
            if name.startswith("provenance.") and last in _MADE_BY:
                warnings.warn(f"{path}: {last} was {brief(old_value)} and is now {new_value}", stacklevel=4)
                continue
            if name in ("spec.steps", "provenance.steps"):
                if phases == 1 and _is_count(old_value) and (new_value or 0) > (old_value or 0):
                    continue
                reason = "a run can be given more steps, not fewer" if phases == 1 else "phases keep theirs"
                raise BCRLError(f"{path}: steps were {brief(old_value)} and are now {new_value}: {reason}")
            raise BCRLError(
                f"{path}: {name} was {brief(old_value)} and is now {brief(new_value)}; "
                "resume needs the same run"
            )


def as_partial(sums: dict[str, np.ndarray], count: int) -> dict[str, Any]:
    """Sums of metrics since the last row, for the header of a checkpoint."""
    return {"count": count, "sums": {name: [float(x) for x in value] for name, value in sums.items()}}


def from_partial(partial: dict[str, Any], seeds: int) -> tuple[dict[str, np.ndarray], int]:
    """The inverse of `as_partial`; nothing where the checkpoint has none."""
    sums = {name: np.asarray(value, np.float32) for name, value in partial.get("sums", {}).items()}
    count = int(partial.get("count", 0))
    if count < 0 or any(value.shape != (seeds,) for value in sums.values()):
        raise ValueError("a sum for each seed, of 0 or more steps")
    return sums, count
