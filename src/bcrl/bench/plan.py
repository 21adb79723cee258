"""What a benchmark asks for: methods, tasks, seeds, thresholds; and the trainings that follow from it."""

import dataclasses
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

from bcrl.bench.cells import Protocol, Work
from bcrl.budget import Execution
from bcrl.data import Dataset, load_data
from bcrl.errors import BCRLError, brief_repr, printable
from bcrl.learn.protocol import Method
from bcrl.learn.registry import acts_by, default_steps, find_method, make_method
from bcrl.progress import progress
from bcrl.runtime import MOST_DRAWS
from bcrl.train.jobs import Job, find_log, is_whole
from bcrl.worlds import WORLDS, World, built_in_world, make_world
from bcrl.worlds.tasks import INSTALLS, tasks


@dataclass(frozen=True)
class Entry:
    """One column of the tables: a method, perhaps with options of its own."""

    label: str
    method: str
    options: dict[str, Any] = field(default_factory=dict)
    steps: int | None = None
    acting: dict[str, Any] = field(default_factory=dict)
    """Options of acting that the trained policies get: no other training."""
    candidates: int = 0
    execution: Execution | None = None
    """Default: the protocol's."""

    @property
    def title(self) -> str:
        """The head of the column: the method's title, unless the column has a name of its own."""
        return find_method(self.method).title if self.label == self.method else self.label


@dataclass(frozen=True)
class Plan:
    """The protocol of the paper unless said otherwise: the task's thresholds, three seeds, 20 episodes."""

    entries: tuple[Entry, ...]
    tasks: tuple[str, ...]
    seeds: tuple[int, ...] = (0, 10, 20)
    thresholds: tuple[float, ...] | None = None
    """Default: each task's own."""
    preset: str = "paper"
    steps: int | None = None
    """Default: the preset's."""
    protocol: Protocol = field(default_factory=Protocol)
    keep_every: int = 20_000
    """Steps between the policies among which the best is chosen, as in the paper."""

    def __post_init__(self) -> None:
        for name in ("entries", "tasks", "seeds"):
            if not getattr(self, name):
                raise BCRLError(f"{name.replace('entries', 'methods')}: name at least one")
        for seed in (*self.seeds, self.protocol.episode_seed):
            if not is_whole(seed, 0, 2**32):
                raise BCRLError(f"seeds: {brief_repr(seed)} is not a whole number from 0 up to 2³² − 1")
        for threshold in self.thresholds or ():
            if not isinstance(threshold, int | float) or not 0 <= threshold < 1e300:
                raise BCRLError(
                    f"thresholds are {brief_repr(self.thresholds)}, but must be numbers from 0 up"
                )
        for name, values in (
            ("methods", [entry.label for entry in self.entries]),
            ("methods", [entry.title for entry in self.entries]),
            ("tasks", self.tasks),
            ("seeds", self.seeds),
            ("thresholds", self.thresholds or ()),
        ):
            if len(set(values)) != len(values):
                raise BCRLError(f"{name}: one is there twice in {', '.join(map(str, values))}")
        steps = [entry.steps for entry in self.entries]
        for name, value in (
            ("episodes", self.protocol.episodes),
            ("keep_every", self.keep_every),
            *(("steps", value) for value in [self.steps, *steps] if value is not None),
        ):
            if not is_whole(value, 1, 2**31):
                raise BCRLError(f"{name} is {brief_repr(value)}, but must be a whole number, at least 1")
        for entry in self.entries:
            if not entry.label or printable(entry.label) != entry.label:
                raise BCRLError(f"methods: {entry.label!r} is no name for a column")
            self.protocol_of(entry)

    def protocol_of(self, entry: Entry) -> Protocol:
        """How the policies of a column are judged."""
        execution = self.protocol.execution if entry.execution is None else entry.execution
        if execution not in get_args(Execution):
            known = ", ".join(get_args(Execution))
            raise BCRLError(
                f"methods.{entry.label}: execution is {brief_repr(execution)}, but not one of {known}"
            )
        if not is_whole(entry.candidates, 0, MOST_DRAWS + 1):
            raise BCRLError(
                f"methods.{entry.label}: candidates is {brief_repr(entry.candidates)}, but must be a whole "
                f"number from 0 to {MOST_DRAWS:,}"
            )
        how = {"execution": execution, "candidates": entry.candidates}
        for name, value in how.items():
            if value != getattr(Protocol, name) and not find_method(entry.method).budgets:
                raise BCRLError(f"{entry.label} tracks no budget: {name} {value} is for bcrl alone")
        return dataclasses.replace(self.protocol, **how)


def task_names(words: Iterable[str]) -> tuple[str, ...]:
    """Tasks by name; the name of a family stands for all its tasks, `all` for the 38 of DSRL."""
    names: list[str] = []
    for word in words:
        if not isinstance(word, str):
            raise BCRLError(f"tasks: {brief_repr(word)} is not the name of a task")
        if word.startswith("gym:"):
            raise BCRLError(f"tasks: a benchmark has DSRL's tasks and the built-in worlds, not {word!r}")
        if word in (*INSTALLS, "all"):
            names += [task.name for task in tasks().values() if word in ("all", task.family)]
        elif word == "point":
            names += WORLDS
        else:
            names.append(make_world(word).name)
    return tuple(names)


def unrecorded(plan: Plan, logs: Path) -> list[str]:
    """The built-in worlds of a plan whose logs are missing, so that `works` would record them."""
    worlds = [make_world(name) for name in plan.tasks]
    return [w.name for w in worlds if w.engine == "scan" and find_log(logs, w.name, w.data_file) is None]


def works(plan: Plan, logs: Path) -> list[Work]:
    """Every training the plan asks for, in the order of tasks, methods and thresholds.

    Missing logs of built-in worlds are recorded, which takes minutes each.
    """
    worlds = [make_world(name) for name in plan.tasks]
    for world in worlds:  # before anything long is begun
        for entry in plan.entries:
            try:
                _method(entry, plan, world, world.thresholds[0])
            except BCRLError as error:
                raise BCRLError(f"methods.{entry.label}: {error}") from None
    files = [_log(logs, world) for world in worlds]
    found = []
    with progress("reading logs", len(worlds), "logs") as tick:
        for world, file in zip(worlds, files, strict=True):
            data = load_data(file)
            _check_sizes(file, data, world)
            sha256 = data.fingerprint()
            for entry in plan.entries:
                found += _trainings(plan, entry, world, file, sha256)
            tick()
    return found


def _trainings(plan: Plan, entry: Entry, world: World, log: Path, sha256: str) -> Iterable[Work]:
    """One for all thresholds, or one for each where the method must know it beforehand."""
    thresholds = tuple(map(float, world.thresholds if plan.thresholds is None else plan.thresholds))
    groups = [(threshold,) for threshold in thresholds] if _fixed(entry) else [thresholds]
    for group in groups:
        method, steps = _method(entry, plan, world, group[0])
        job = Job(
            task=world.name,
            method=method.name,
            options=dataclasses.asdict(method),  # type: ignore[call-overload]
            steps=steps,
            seeds=plan.seeds,
            data_sha256=sha256,
            data_file=world.data_file,
            keep_every=plan.keep_every if plan.protocol.best else 0,
        )
        yield Work(entry.label, job, log, group, plan.protocol_of(entry), _acting(method, entry))


def _fixed(entry: Entry) -> bool:
    """Whether a policy is trained for one threshold alone."""
    return find_method(entry.method).threshold == "before training" and "threshold" not in entry.options


def _method(entry: Entry, plan: Plan, world: World, threshold: float) -> tuple[Method, int]:
    """The method with every option for this task, and the number of steps."""
    own = {"threshold": threshold} if _fixed(entry) else {}
    family = world.family
    method = make_method(entry.method, preset=plan.preset, family=family, **{**own, **entry.options})
    asked = entry.steps if entry.steps is not None else plan.steps
    steps = default_steps(entry.method, plan.preset, family) if asked is None else asked
    _acting(method, entry)  # refuses what is no option of acting
    return method, steps


def _acting(method: Method, entry: Entry) -> dict[str, Any]:
    """The options of acting that are not those of the training; 1 and 1.0 are the same."""
    acts_by(method, entry.acting)
    floats = {field.name for field in dataclasses.fields(type(method)) if isinstance(field.default, float)}  # type: ignore[arg-type]
    said = {name: float(value) if name in floats else value for name, value in entry.acting.items()}
    return {name: value for name, value in said.items() if value != getattr(method, name)}


def _check_sizes(log: Path, data: Dataset, world: World) -> None:
    """A policy from a log of another kind could be trained, but never evaluated."""
    found = (data.observation_size, data.action_size, data.cost_count)
    wanted = (world.observation_size, world.action_size, world.cost_count)
    if found != wanted:
        raise BCRLError(
            f"{log}: (observations, actions, costs) are {found}, but those of {world.name} {wanted}: "
            f"give a log recorded in that world{f' ({world.caveat})' if world.caveat else ''}"
        )


def _log(folder: Path, world: World) -> Path:
    """The log of a task; that of a built-in world is recorded where it is missing."""
    file = find_log(folder, world.name, world.data_file)
    if file is not None:
        return file
    if world.engine == "scan":
        from bcrl.worlds.collect import collect

        file = folder / f"{world.name}.npz"
        collect(built_in_world(world.name)).save(file)
        return file
    file = folder / f"{world.name}.hdf5"
    raise BCRLError(
        f"{file}: there is no such log, nor .npz, nor {world.data_file}: bcrl data fetch {world.name} "
        f"--out {folder} downloads DSRL's, bcrl collect {world.name} --out {file} records one"
    )


def make_plan(
    file: Path | None,
    *,
    methods: Sequence[str] = (),
    episodes: int | None = None,
    protocol: Protocol,
    keep_every: int,
    **given: Any,
) -> Plan:
    """A plan from a file and what is given: that wins over the file, and both over the paper's protocol.

    `methods` are labels of the file, or names of methods. `given` are fields of `Plan`; None or an empty
    list is nothing given.
    """
    said = {} if file is None else read_plan(file)
    said |= {name: value for name, value in given.items() if value not in (None, ())}
    if methods:
        planned = {entry.label: entry for entry in said.get("entries", ())}
        said["entries"] = tuple(planned.get(label, Entry(label, label)) for label in methods)
    for name, option in (("entries", "--methods"), ("tasks", "--tasks")):
        if name not in said:
            raise BCRLError(f"nothing to do: give {option}, or --plan with it")
    planned_episodes = said.pop("episodes", protocol.episodes)
    protocol = dataclasses.replace(protocol, episodes=planned_episodes if episodes is None else episodes)
    said["tasks"] = task_names(said["tasks"])
    lists = {name: tuple(said[name]) for name in ("seeds", "thresholds") if name in said}
    try:
        return Plan(**{**said, **lists}, protocol=protocol, keep_every=keep_every)
    except BCRLError as error:
        raise BCRLError(f"{file}: {error}" if file else str(error)) from None


def read_plan(path: Path) -> dict[str, Any]:
    """A plan: tasks, seeds, thresholds, episodes, preset, steps, and a table per column; all optional."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise BCRLError(f"{path}: there is no such file") from None
    except (ValueError, RecursionError) as error:
        raise BCRLError(f"{path}: not TOML ({error})") from None
    kinds = {"tasks": list, "seeds": list, "thresholds": list, "episodes": int, "preset": str, "steps": int}
    for name, value in content.items():
        wrong = not isinstance(value, kinds.get(name, ())) or isinstance(value, bool)
        if name != "methods" and wrong:
            if name in kinds:
                words = {list: 'a list, such as ["BallRun"] or [0, 10]', int: "a whole number", str: "a word"}
                raise BCRLError(f"{path}: {name} is {brief_repr(value)}, but must be {words[kinds[name]]}")
            known = ", ".join([*kinds, "methods"])
            raise BCRLError(
                f"{path}: {name} is {brief_repr(value)}, which a plan does not know; it has {known}"
            )
    methods = content.pop("methods", None)
    if methods is not None:
        if not isinstance(methods, dict):
            raise BCRLError(f"{path}: methods must be tables, such as [methods.bcrl]")
        content["entries"] = tuple(_entry(path, label, table) for label, table in methods.items())
    return content


def _entry(path: Path, label: str, table: Any) -> Entry:
    where = f"{path}: methods.{label}"
    known = {field.name for field in dataclasses.fields(Entry)} - {"label"}
    if not isinstance(table, dict) or set(table) - known:
        raise BCRLError(f"{where} may have {', '.join(sorted(known))} only")
    said: dict[str, Any] = {"method": label} | table
    for name, kind, what in (
        ("method", str, "the name of one"),
        ("options", dict, "a table"),
        ("steps", int, "a whole number"),
        ("acting", dict, "a table"),
    ):
        if name in said and not isinstance(said[name], kind):
            raise BCRLError(f"{where}: {name} is {brief_repr(said[name])}, but must be {what}")
    return Entry(label, **said)
