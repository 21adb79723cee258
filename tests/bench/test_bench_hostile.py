"""Plans, lists of jobs and stores that somebody damaged, or made to do harm: one line, or success."""

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_bench_tables import cell, outcome
from tiny_bench import ENTRIES, SMALL, tiny_works

from bcrl.bench.cells import Protocol
from bcrl.bench.formats import column_blocks, latex, markdown
from bcrl.bench.plan import Entry, Plan, make_plan, read_plan, task_names
from bcrl.bench.scores import scores
from bcrl.bench.store import FILE, Outcome, Store
from bcrl.bench.tables import over_tasks, paper_form
from bcrl.cli import main
from bcrl.errors import BCRLError
from bcrl.learn.registry import METHODS
from bcrl.train.jobs import Job, kept_policies, read_jobs, seeds_folder, train, untrained, write_jobs

GOOD = {
    "task": "point-circle",
    "method": "bc-all",
    "options": {"hidden": [8], "batch_size": 8},
    "steps": 4,
    "seeds": [0, 10],
    "data_sha256": "0" * 64,
    "data_file": "",
    "keep_every": 0,
}
HUGE = 10**400
DEEP = "[" * 100_000


def jobs_file(folder: Path, row: Any) -> Path:
    path = folder / "jobs.json"
    path.write_text(json.dumps({"format": "bcrl-jobs", "version": 1, "jobs": [row]}))
    return path


def plan_of(text: str, folder: Path) -> Plan:
    path = folder / "plan.toml"
    path.write_text(text)
    return make_plan(path, protocol=Protocol(), keep_every=20_000, tasks=("point-circle",))


# ---- lists of jobs -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        {"task": "../outside"},
        {"task": "/etc/passwd"},
        {"task": ".."},
        {"task": ""},
        {"task": "a\x1b[31m"},
        {"task": "a\nb"},
        {"data_file": "../../etc/passwd"},
        {"data_file": "/etc/passwd"},
        {"data_file": None},
        {"options": None},
        {"options": []},
        {"options": {"hidden": None}},
        {"options": {"hidden": [HUGE]}},
        {"options": {"batch_size": HUGE}},
        {"options": {"batch_size": "8"}},
        {"options": {"learning_rate": HUGE}},
        {"options": {"learning_rate": {"a": 1}}},
        {"options": {"no such": 1}},
        {"method": "../bcrl"},
        {"method": None},
        {"method": ["bcrl"]},
        {"steps": 0},
        {"steps": 1.5},
        {"steps": HUGE},
        {"steps": None},
        {"seeds": []},
        {"seeds": [0.5]},
        {"seeds": [True]},
        {"seeds": [-1]},
        {"seeds": [HUGE]},
        {"seeds": 3},
        {"seeds": "01"},
        {"keep_every": -1},
        {"data_sha256": 3},
        {"more": 1},
    ],
    ids=lambda change: str(change)[:40],
)
def test_a_job_that_cannot_be_is_refused(change, tmp_path):
    assert read_jobs(jobs_file(tmp_path, GOOD))
    with pytest.raises(BCRLError) as refused:
        read_jobs(jobs_file(tmp_path, GOOD | change))
    assert str(refused.value).startswith(str(tmp_path / "jobs.json"))


@pytest.mark.parametrize(
    "text", [DEEP, '{"format": "bcrl-jobs", "version": 1, "jobs": ' + DEEP, "\udcff", "null"]
)
def test_a_list_of_jobs_that_is_none_is_refused(text, tmp_path):
    (tmp_path / "jobs.json").write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(BCRLError, match=r"jobs\.json"):
        read_jobs(tmp_path / "jobs.json")


def test_many_seeds_have_a_folder_that_can_be_made(tiny_log_file, tmp_path):
    from bcrl.data import load_data

    assert seeds_folder((0, 10, 20)) == "seeds-0-10-20"
    assert len(seeds_folder(range(300))) < 60
    assert seeds_folder(range(300)) != seeds_folder(range(1, 301))
    data = load_data(tiny_log_file)
    seeds = tuple(range(1000, 1040))
    job = Job("tiny", "bc-all", {"hidden": [4], "batch_size": 4}, 2, seeds, data.fingerprint())
    assert untrained(job, tmp_path) == [seeds]
    train(job, tiny_log_file, tmp_path)
    (folder,) = (tmp_path / job.folder).glob("seeds-*")
    assert folder.name.startswith("seeds-sha256-")
    assert untrained(job, tmp_path) == []
    (folder / "policy-1001.bcrl").unlink()
    assert untrained(job, tmp_path) == [seeds], (
        "a group that a stop has left unfinished is known by its config"
    )
    (tmp_path / job.folder / "seeds-of-mine").mkdir()
    assert untrained(job, tmp_path) == [seeds], "other folders are left alone"
    (folder / "steps" / "2x").mkdir(parents=True)
    (folder / "steps" / "2x" / "policy-1000.bcrl").write_text("")
    assert kept_policies(folder / "policy-1000.bcrl") == {}


# ---- plans -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (f"tasks = {DEEP}", "not TOML"),
        (f"a{'.a' * 3_000} = 1", "a is a dict that is nested too deeply, which a plan does not know"),
        (f"steps = '{'x' * 5_000}'", "steps is 'xxx"),
        ("seeds = [0.5]\n[methods.bcrl]", "seeds: 0.5 is not a whole number"),
        ("seeds = [true]\n[methods.bcrl]", "seeds: True is not a whole number"),
        (f"seeds = [{HUGE}]\n[methods.bcrl]", "seeds: 1000"),
        ("seeds = ['a']\n[methods.bcrl]", "seeds: 'a'"),
        (f"thresholds = [{HUGE}]\n[methods.bcrl]", "thresholds are"),
        ("thresholds = [nan]\n[methods.bcrl]", "thresholds are"),
        ("thresholds = ['a']\n[methods.bcrl]", "thresholds are"),
        ("episodes = true\n[methods.bcrl]", "episodes is True"),
        ("steps = 0\n[methods.bcrl]", "steps is 0"),
        (f"steps = {HUGE}\n[methods.bcrl]", "steps is 1000"),
        ("[methods.a]\nmethod = ['bcrl']", "method is"),
        ("[methods.a]\nmethod = 'bcrl'\nsteps = true", "steps is True"),
        ('[methods."a\\u001b[31m"]\nmethod = "bcrl"', "no name for a column"),
        ('[methods.""]\nmethod = "bcrl"', "no name for a column"),
        ("[methods.bcrl]\n[methods.BCRL]\nmethod = 'caps'", "one is there twice in BCRL, BCRL"),
    ],
    ids=lambda text: str(text)[:30],
)
def test_plans_that_cannot_be_are_refused(text, wanted, tmp_path):
    with pytest.raises(BCRLError, match=wanted) as refused:
        plan_of(text, tmp_path)
    assert str(refused.value).startswith(str(tmp_path / "plan.toml"))


@pytest.mark.parametrize(
    "options", ["hidden = []", "hidden = 'a'", "tau_c = {}", f"beta = {HUGE}", "hidden = [[8]]"]
)
def test_options_of_a_plan_are_named(options, logs, tmp_path):
    plan = plan_of(f"[methods.mine]\nmethod = 'bcrl'\noptions = {{ {options} }}", tmp_path)
    with pytest.raises(BCRLError, match=r"^methods\.mine: (hidden|tau_c|beta) is"):
        tiny_works(logs, entries=plan.entries)


def test_a_task_of_a_plan_starts_no_program():
    for name in ("gym:os:system", "gym:CartPole-v1"):
        with pytest.raises(BCRLError, match="a benchmark has DSRL's tasks and the built-in worlds"):
            task_names([name])
    with pytest.raises(BCRLError, match="is not the name of a task"):
        task_names([3])  # type: ignore[list-item]


# ---- stores ------------------------------------------------------------------------------------------


def filled(path: Path) -> Path:
    with Store(path) as store:
        for seed in (0, 10):
            store.add([outcome(cell("bcrl", "BallCircle", seed, 10.0), 0.5, 0.5)])
    return path


def told(folder: Path, capsys) -> str:
    with pytest.raises(SystemExit) as stop:
        main(["bench", "table", str(folder)])
    said = capsys.readouterr()
    assert stop.value.code == 2
    assert "Traceback" not in said.err
    (line,) = [line for line in said.err.splitlines() if line.startswith("bcrl: ")]
    return line


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE episodes SET cost = 'a lot'",
        "UPDATE episodes SET cost = 9e999",
        "UPDATE episodes SET cost = -1.0",
        "UPDATE episodes SET fallback_share = 7.0",
        "UPDATE episodes SET seed = 'x'",
        "UPDATE cells SET threshold = 'x'",
        "UPDATE cells SET task = 'gym:os:system'",
        "UPDATE cells SET task = '../x'",
        "UPDATE cells SET method = 'no such'",
        "UPDATE cells SET label = x'00ff'",
        "DROP TABLE episodes",
        "DROP TABLE cells",
        "ALTER TABLE cells DROP COLUMN facts",
        "DELETE FROM episodes",
        "DELETE FROM episodes WHERE episode = 1 AND seed = 0",
    ],
)
def test_a_damaged_store_ends_in_one_line(damage, tmp_path, capsys):
    path = filled(tmp_path / FILE)
    file = sqlite3.connect(path)
    with file:
        file.execute(damage)
    file.close()
    if "facts" in damage:  # what tables do not need may be missing
        main(["bench", "table", str(tmp_path)])
        with Store(path) as store, pytest.raises(BCRLError, match=r"results\.sqlite"):
            store.add([outcome(cell("bcrl", "BallCircle", 20, 10.0), 0.5, 0.5)])
        return
    assert FILE in told(tmp_path, capsys)


def test_bytes_overwritten_in_the_middle(tmp_path, capsys):
    path = filled(tmp_path / FILE)
    content = bytearray(path.read_bytes())
    for place in range(4096, len(content)):
        content[place] ^= 0x5A
    path.write_bytes(bytes(content))
    assert FILE in told(tmp_path, capsys)


def test_a_full_disk_ends_in_one_line_and_leaves_the_store_whole(tmp_path):
    path = filled(tmp_path / FILE)
    with Store(path) as store:
        pages = store.file.execute("PRAGMA page_count").fetchone()[0]
        store.file.execute(f"PRAGMA max_page_count = {pages}")
        rows = outcome(cell("caps", "BallCircle", 0, 10.0), 0.5, 0.5)
        many = Outcome(
            rows.cell,
            [type(row)(**{**vars(row), "episode": n}) for n in range(2000) for row in rows.rows[:1]],
            "{}",
        )
        with pytest.raises(BCRLError, match=r"results\.sqlite: .*full; make room"):
            store.add([many])
        assert len(store.cells()) == 2


# ---- labels ------------------------------------------------------------------------------------------


def test_renamed_labels_show_what_was_asked(logs, tmp_path):
    """Results are known by what decides them, not by the name of a column."""
    (clone, *_) = tiny_works(logs)
    with Store(tmp_path / FILE) as store:
        for seed in (0, 10):
            store.add([outcome(one, 0.5, 0.5) for one in clone.reported(seed)])
        assert [score.label for score in scores(store, [clone])] == ["bc-all"]
        (renamed, *_) = tiny_works(logs, entries=(Entry("mine", "bc-all", SMALL), ENTRIES[1]))
        assert renamed.reported(0)[0].key == clone.reported(0)[0].key
        assert [score.label for score in scores(store, [renamed])] == ["mine"]
        both = tiny_works(logs, entries=(Entry("a", "bc-all", SMALL), Entry("b", "bc-all", SMALL)))
        found = scores(store, both)
        assert [score.label for score in found] == ["a", "b"]
        assert found[0].rows == found[1].rows


def test_a_label_with_other_options_shows_no_old_numbers(logs, tmp_path):
    (clone, *_) = tiny_works(logs)
    with Store(tmp_path / FILE) as store:
        store.add([outcome(one, 0.5, 0.5) for seed in (0, 10) for one in clone.reported(seed)])
        (other, *_) = tiny_works(logs, entries=(Entry("bc-all", "bc-all", {**SMALL, "dropout": 0.5}),))
        assert scores(store, [other]) == [], "asked for and not done yet: the place is empty"
        assert len(scores(store)) == 1


def test_titles_are_those_of_the_registry(tmp_path):
    with Store(tmp_path / FILE) as store:
        for label, method in (("bcrl-xql", "bcrl-xql"), ("bcrl", "caps")):
            one = cell(label, "BallCircle", 0, 10.0)
            store.add([outcome(type(one)(**{**vars(one), "method": method}), 0.5, 0.5)])
        head = [text.text for text in paper_form(scores(store))[0]]
    assert head[1::2] == ["bcrl reward ↑", f"{METHODS['bcrl-xql'].title} reward ↑"], (
        "a column under another name"
    )


ODD = r"a|b \textbf{x} $x$ ^~ <b> [l](http://x) *s* `c` _u_ & # % 100"


def odd_scores(folder: Path) -> list:
    with Store(folder / FILE) as store:
        one = cell("bcrl", "BallCircle", 0, 10.0)
        store.add([outcome(type(one)(**{**vars(one), "label": f"{ODD}\x1b[31m"}), 0.5, 0.5)])
        return scores(store)


def test_tables_escape_what_they_print(tmp_path):
    found = odd_scores(tmp_path)
    table = markdown(found)
    assert "\x1b" not in table
    head = next(line for line in table.splitlines() if "reward ↑" in line)
    for raw in ("a|b", "[l](", "*s*", "`c`", "<b>", " _u_ "):
        assert raw not in head
    assert r"a\|b" in head
    assert r"\_u\_" in head
    text = latex(found)
    assert "\x1b" not in text
    assert r"a|b \textbackslash{}textbf\{x\} \$x\$ \textasciicircum{}\textasciitilde{}" in text


@pytest.mark.parametrize("width", [60, 80, 200, 10_000])
def test_tables_on_a_screen_fit_and_lose_nothing(width, tmp_path):
    with Store(tmp_path / FILE) as store:
        for label in METHODS:
            store.add([outcome(cell(label, "BallCircle", 0, 10.0), 0.5, 0.5)])
        found = scores(store)
    for table, keys in ((paper_form(found), 1), (over_tasks(found), 2)):
        shown = column_blocks(table, width, keys)
        assert max(map(len, shown.splitlines())) <= max(width, 60)
        for row in table:
            for one in row:
                assert one.text in shown.replace("\\", "")


# ---- fuzz --------------------------------------------------------------------------------------------

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.just(HUGE) | st.floats() | st.text(max_size=8)
    | st.sampled_from(["bcrl", "caps", "point-circle", "../x", "soft", "cpu"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip
QUICK = settings(
    max_examples=150, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)  # the folder is written anew by each example


def one_line(error: BCRLError) -> None:
    assert str(error).isprintable()
    assert len(str(error)) < 2_100


@QUICK
@given(change=st.dictionaries(st.sampled_from([*GOOD, "more"]), VALUES, max_size=3))
def test_any_job_is_read_or_refused(change, tmp_path):
    row = GOOD | change
    try:
        (job,) = read_jobs(jobs_file(tmp_path, row))
    except BCRLError as error:
        one_line(error)
    else:
        assert (tmp_path / "runs" / job.folder).resolve().is_relative_to(tmp_path / "runs")
        write_jobs([job], tmp_path / "again.json")
        assert read_jobs(tmp_path / "again.json") == [job]


@QUICK
@given(content=VALUES | st.binary(max_size=40))
def test_any_file_is_a_list_of_jobs_or_refused(content, tmp_path):
    path = tmp_path / "jobs.json"
    path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    with pytest.raises(BCRLError) as refused:
        read_jobs(path)
    one_line(refused.value)


def toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return repr(value)  # nan and inf are TOML too
    if isinstance(value, list):
        return f"[{', '.join(toml(one) for one in value)}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{json.dumps(key)} = {toml(one)}' for key, one in value.items())}}}"
    return json.dumps("" if value is None else value)


KEYS = ["tasks", "seeds", "thresholds", "episodes", "preset", "steps", "more"]
OPTIONS = ["hidden", "tau_c", "tracking", "beta", "batch_size", "max_budget", "more"]


@QUICK
@given(
    top=st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=3),
    entry=st.dictionaries(st.sampled_from(["method", "steps", "more"]), VALUES, max_size=2),
    options=st.dictionaries(st.sampled_from(OPTIONS), VALUES, max_size=2),
    label=st.sampled_from(["bcrl", "caps"]) | st.text(max_size=5),
)
def test_any_plan_is_done_or_refused(top, entry, options, label, logs, tmp_path):
    lines = [f"{name} = {toml(value)}" for name, value in top.items()]
    lines += [f"[methods.{json.dumps(label)}]", *(f"{name} = {toml(value)}" for name, value in entry.items())]
    lines += [f"options = {toml(options)}"]
    path = tmp_path / "plan.toml"
    path.write_text("\n".join(lines), encoding="utf-8", errors="replace")
    try:
        plan = make_plan(path, protocol=Protocol(), keep_every=20_000)
        assert all(isinstance(seed, int) for seed in plan.seeds)
        tiny_works(logs, entries=plan.entries, preset=plan.preset)
    except BCRLError as error:
        one_line(error)


@QUICK
@given(
    content=st.binary(max_size=60) | st.text(max_size=60).map(lambda text: text.encode("utf-8", "replace"))
)
def test_any_file_is_a_plan_or_refused(content, tmp_path):
    (tmp_path / "plan.toml").write_bytes(content)
    try:
        read_plan(tmp_path / "plan.toml")
    except BCRLError as error:
        one_line(error)
