"""What a plan asks for, and what decides a cell."""

import dataclasses
import json

import pytest
from tiny_bench import ENTRIES, SMALL, tiny_works
from tiny_log_maker import make_log

import bcrl.bench.plan
from bcrl.bench.cells import Protocol
from bcrl.bench.plan import Entry, Plan, read_plan, task_names, works
from bcrl.cli.bench import Command
from bcrl.errors import BCRLError
from bcrl.learn.registry import make_method
from bcrl.train.jobs import ADDED, Job, digest, read_jobs, write_jobs


def keys(found, seed=0) -> set[str]:
    return {cell.key for work in found for cell in work.reported(seed)}


def test_a_method_with_a_threshold_is_trained_for_each(logs):
    clone, *safe = tiny_works(logs)
    assert (clone.thresholds, clone.name) == ((10.0, 20.0), "point-circle, bc-all")
    assert [(work.thresholds, work.job.options["threshold"]) for work in safe] == [
        ((10.0,), 10.0),
        ((20.0,), 20.0),
    ]
    assert safe[0].name == "point-circle, bc-safe at 10"
    assert len({cell.setting for work in safe for cell in work.reported(0)}) == 1
    (asked,) = tiny_works(logs, entries=(Entry("fixed", "bc-safe", {**SMALL, "threshold": 15}),))
    assert (asked.thresholds, asked.job.options["threshold"]) == ((10.0, 20.0), 15)


@pytest.mark.parametrize(
    "change",
    [
        {"entries": tuple(dataclasses.replace(e, options={**SMALL, "dropout": 0.0}) for e in ENTRIES)},
        {"steps": 41},
        {"thresholds": (11.0, 21.0)},
        {"protocol": Protocol(episodes=3)},
        {"protocol": Protocol(episodes=2, episode_seed=1)},
        {"protocol": Protocol(episodes=2, best=True)},
    ],
    ids=lambda change: next(iter(change)),
)
def test_what_changes_a_result_changes_every_key(change, logs):
    assert not keys(tiny_works(logs, **change)) & keys(tiny_works(logs))


def test_another_rule_of_execution_is_another_result(logs):
    entries = (Entry("bcrl", "bcrl", SMALL),)
    soft = tiny_works(logs, entries=entries, protocol=Protocol(episodes=2, execution="soft"))
    assert not keys(soft) & keys(tiny_works(logs, entries=entries))


@pytest.mark.parametrize(
    "change",
    [
        {"seeds": (0, 10, 20)},
        {"entries": (*ENTRIES, Entry("third", "bc-all"))},
        {"entries": tuple(dataclasses.replace(entry, label=f"my {entry.label}") for entry in ENTRIES)},
        {"keep_every": 7},  # nothing is kept unless the best policy is asked for
    ],
    ids=lambda change: next(iter(change)),
)
def test_what_does_not_change_a_result_keeps_its_key(change, logs):
    assert keys(tiny_works(logs)) <= keys(tiny_works(logs, **change))


def test_another_log_is_another_result(logs, tmp_path):
    log = make_log()
    dataclasses.replace(log, rewards=log.rewards + 1).save(tmp_path / "point-circle.npz")
    assert not keys(tiny_works(logs)) & keys(tiny_works(tmp_path))
    log.save(tmp_path / "point-circle.hdf5")
    (tmp_path / "point-circle.npz").unlink()
    assert keys(tiny_works(logs)) == keys(tiny_works(tmp_path)), "the format of the file is no matter"


def test_seeds_and_thresholds_have_keys_of_their_own(logs):
    (clone, *_) = tiny_works(logs)
    cells = [cell for seed in (0, 10) for cell in clone.reported(seed)]
    assert len({cell.key for cell in cells}) == 4
    assert len({cell.setting for cell in cells}) == 1


def test_a_task_has_the_options_of_its_family_and_the_plans_own(tmp_path):
    make_log(observations=8).save(tmp_path / "SafetyCarCircle-v0-100-1450.hdf5")
    make_log(observations=8).save(tmp_path / "BallCircle.npz")
    entries = (
        *(Entry("bcrl", "bcrl"), Entry("mine", "bcrl", {"tau_c": 0.1}), Entry("bcrl-td3bc", "bcrl-td3bc")),
        Entry("bc-all", "bc-all"),
    )
    found = works(Plan(entries, ("CarCircle", "BallCircle")), tmp_path)
    said = {(w.job.task, w.label): (w.job.options.get("tau_c"), w.job.steps, w.thresholds) for w in found}
    protocol = (100_000, (10.0, 20.0, 40.0))
    assert said == {
        ("CarCircle", "bcrl"): (0.2, *protocol),
        ("CarCircle", "mine"): (0.1, *protocol),
        ("CarCircle", "bcrl-td3bc"): (0.2, *protocol),
        ("CarCircle", "bc-all"): (None, *protocol),
        ("BallCircle", "bcrl"): (0.2, *protocol),
        ("BallCircle", "mine"): (0.1, *protocol),
        ("BallCircle", "bcrl-td3bc"): (0.2, *protocol),
        ("BallCircle", "bc-all"): (None, *protocol),
    }
    assert found[0].job.seeds == (0, 10, 20)


def test_families_stand_for_their_tasks():
    assert len(task_names(["all"])) == 38
    assert len(task_names(["bullet"])) == 8
    assert task_names(["point", "ballcircle"]) == ("point-circle", "point-run", "point-goal", "BallCircle")


def test_a_missing_log_is_told_with_the_commands_that_make_it(tmp_path):
    with pytest.raises(BCRLError) as refused:
        works(Plan((Entry("bcrl", "bcrl"),), ("BallRun",)), tmp_path)
    line = str(refused.value)
    assert line.startswith(f"{tmp_path / 'BallRun.hdf5'}: there is no such log")
    for words in ("SafetyBallRun-v0-80-940.hdf5", "bcrl data fetch BallRun", "bcrl collect BallRun"):
        assert words in line
    assert "\n" not in line


def test_a_log_of_another_world_is_refused_before_anything_is_trained(logs, tmp_path):
    make_log(observations=8).save(tmp_path / "point-circle.npz")
    with pytest.raises(BCRLError, match=r"\(8, 2, 1\), but those of point-circle \(6, 2, 1\)"):
        tiny_works(tmp_path)
    make_log(observations=261).save(tmp_path / "easymean.npz")
    with pytest.raises(BCRLError, match="DSRL's MetaDrive is a private fork"):
        tiny_works(tmp_path, tasks=("easymean",))


@pytest.mark.parametrize(
    ("change", "wanted"),
    [
        ({"tasks": ()}, "tasks: name at least one"),
        ({"tasks": ("point-circle", "point-circle")}, "tasks: one is there twice"),
        ({"seeds": (0, 0)}, "seeds: one is there twice"),
        ({"thresholds": (-1.0,)}, "thresholds are"),
        ({"steps": 0}, "steps is 0"),
        ({"protocol": Protocol(episodes=0)}, "episodes is 0"),
        ({"preset": "huge"}, "'huge' is not known"),
        ({"entries": (Entry("a", "no-method"),)}, "there is no method 'no-method'"),
        ({"entries": (Entry("a", "bc-all", {"tau": 1}),)}, "no option 'tau'"),
        ({"entries": (Entry("a", "bc-all", candidates=8),)}, "a tracks no budget: candidates 8"),
        ({"entries": (Entry("a", "bcrl", candidates=-1),)}, "methods.a: candidates is -1"),
        ({"entries": (Entry("a", "bcrl", execution=""),)}, "methods.a: execution is '', but not one"),
        ({"entries": (Entry("a", "bcrl", execution="hard"),)}, "methods.a: execution is 'hard', but not one"),
        ({"entries": (Entry("a", "bcrl", acting={"tau_c": 0.1}),)}, "methods.a: .* acting 'tau_c'; it has"),
        ({"entries": (Entry("a", "bcrl", acting={"safety_factor": 0}),)}, "methods.a: .*safety_factor is 0"),
        ({"entries": (Entry("a", "bc-all", acting={"safety_factor": 2}),)}, "no option of acting 'safety"),
        ({"protocol": Protocol(execution="soft")}, "bc-all tracks no budget: execution soft"),
    ],
)
def test_bad_plans_are_refused(change, wanted, logs):
    with pytest.raises(BCRLError, match=wanted):
        tiny_works(logs, **change)


PLAN = """
tasks = ["point-circle"]
seeds = [3, 4]
thresholds = [5, 10.5]
steps = 50
episodes = 7

[methods.bcrl]

[methods.narrow]
method = "bcrl"
steps = 9
options = { hidden = [8], tau_c = 0.1 }
"""


def test_a_plan_file_and_the_words_that_win_over_it(tmp_path, monkeypatch):
    plans = []
    monkeypatch.setattr(bcrl.bench.plan, "works", lambda plan, logs: plans.append(plan) or [])
    path = tmp_path / "plan.toml"
    path.write_text(PLAN)
    Command(out=tmp_path, plan=path, plan_only=True, yes=True).run()
    (plan,) = plans
    assert plan.entries == (
        Entry("bcrl", "bcrl"),
        Entry("narrow", "bcrl", {"hidden": [8], "tau_c": 0.1}, 9),
    )
    assert (plan.tasks, plan.seeds, plan.thresholds, plan.steps) == (("point-circle",), (3, 4), (5, 10.5), 50)
    assert plan.protocol == Protocol(episodes=7)
    words = {"seeds": (1,), "methods": ("narrow", "bc-all"), "episodes": 2, "best_policy": True}
    Command(out=tmp_path, plan=path, plan_only=True, yes=True, **words).run()
    plan = plans[1]
    assert plan.entries == (
        Entry("narrow", "bcrl", {"hidden": [8], "tau_c": 0.1}, 9),
        Entry("bc-all", "bc-all"),
    )
    assert (plan.seeds, plan.steps, plan.protocol) == ((1,), 50, Protocol(episodes=2, best=True))


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("tasks = [", "not TOML"),
        ("task = ['x']", "task is .* which a plan does not know"),
        ("seeds = 3", "seeds is 3, but must be a list"),
        ("steps = 'many'", "steps is 'many', but must be a whole number"),
        ("methods = ['bcrl']", "methods must be tables"),
        (
            "[methods.bcrl]\ntau_c = 0.2",
            "methods.bcrl may have acting, candidates, execution, method, options",
        ),
        ("[methods.bcrl]\nsteps = 'many'", "methods.bcrl: steps is 'many', but must be"),
        ("[methods.bcrl]\nacting = 3", "methods.bcrl: acting is 3, but must be a table"),
        (None, "no such file"),
    ],
)
def test_bad_plan_files_are_refused(text, wanted, tmp_path):
    path = tmp_path / "plan.toml"
    if text is not None:
        path.write_text(text)
    with pytest.raises(BCRLError, match=wanted) as refused:
        read_plan(path)
    assert str(refused.value).startswith(f"{path}: ")


ACTING = """
[methods.bcrl]

[methods.bold]
method = "bcrl"
acting = { safety_factor = 1.0 }
candidates = 4
execution = "soft"
"""


def test_columns_that_act_in_other_ways_share_a_training(logs, tmp_path):
    path = tmp_path / "plan.toml"
    path.write_text(ACTING)
    entries = read_plan(path)["entries"]
    assert entries[1] == Entry("bold", "bcrl", {}, None, {"safety_factor": 1.0}, 4, "soft")
    plain, bold = tiny_works(logs, entries=entries)
    assert plain.job == bold.job
    assert (bold.protocol.candidates, bold.protocol.execution) == (4, "soft")
    assert json.loads(bold.reported(0)[0].options)["safety_factor"] == 1.0
    assert json.loads(plain.reported(0)[0].options)["safety_factor"] == 1.3
    whole, same = (Entry("c", "bcrl", acting={"safety_factor": factor}) for factor in (1, 1.3))
    assert tiny_works(logs, entries=(whole,))[0].acting == {"safety_factor": 1.0}
    assert keys(tiny_works(logs, entries=(same,))) == keys([plain])
    ways = [Entry("b", "bcrl", **{name: getattr(entries[1], name)}) for name in ("acting", "candidates")]
    each = [keys([plain]), keys([bold]), *(keys(tiny_works(logs, entries=(way,))) for way in ways)]
    assert len(set.union(*each)) == sum(map(len, each))


def test_results_from_before_columns_could_act_in_other_ways_are_found_again(logs):
    (work,) = tiny_works(logs, entries=(Entry("bcrl", "bcrl", SMALL),))
    judged = {"policy": "final", "episodes": 2, "execution": "finite-horizon", "episode_seed": 0}
    whole = {**work.job.identity, **judged, "seed": 0, "threshold": 10.0}
    assert work.reported(0)[0].key == digest(whole)


@pytest.mark.parametrize(
    ("name", "folder"),
    [("bcrl", "bcrl-b3b160d08b8a"), ("bc-all", "bc-all-7df0dd1e2a65"), ("caps", "caps-59828855903a")],
)
def test_a_new_option_makes_no_other_job_of_what_was_trained_before(name, folder):
    """The folders are those of commit a484f05. An option that came since belongs into `ADDED`."""
    options = dataclasses.asdict(make_method(name, preset="cpu", family="bullet"))
    job = Job("BallRun", name, options, 20_000, (0,), "sha")
    assert job.folder.name == folder
    for option in set(ADDED) & set(options):
        other = dataclasses.replace(job, options=options | {option: 3})
        assert other.folder.name != folder


def test_works_of_one_training_are_one_job_in_the_list(logs, tmp_path, capsys):
    plan = tmp_path / "plan.toml"
    plan.write_text(ACTING)
    Command(out=tmp_path / "b", plan=plan, tasks=("point-circle",), logs=logs, plan_only=True).run()
    assert len(read_jobs(tmp_path / "b" / "jobs.json")) == 1
    assert "trainings: 1" in capsys.readouterr().out


def test_nothing_to_do_is_told(tmp_path):
    with pytest.raises(BCRLError, match="give --methods"):
        Command(out=tmp_path, tasks=("point-circle",)).run()
    with pytest.raises(BCRLError, match="give --tasks"):
        Command(out=tmp_path, methods=("bcrl",)).run()


def test_jobs_survive_their_file(logs, tmp_path):
    jobs = [work.job for work in tiny_works(logs)]
    write_jobs(jobs, tmp_path / "jobs.json")
    found = read_jobs(tmp_path / "jobs.json")
    assert [job.folder for job in found] == [job.folder for job in jobs]
    assert [job.make() for job in found] == [job.make() for job in jobs]
    assert [job.seeds for job in found] == [(0, 10)] * 3


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"format": "bcrl-jobs", "version": 1, "jobs": [{"task": 1}]}', "no-file"]
)
def test_a_damaged_list_of_jobs_is_refused(text, tmp_path):
    path = tmp_path / "jobs.json"
    if text != "no-file":
        path.write_text(text)
    with pytest.raises(BCRLError, match=r"jobs\.json: ") as refused:
        read_jobs(path)
    assert "\n" not in str(refused.value)


def test_a_job_is_the_same_in_json():
    """Tuples become lists on the way: the folder must not change with it."""
    one = Job("t", "bc-all", {"hidden": (8,)}, 1, (0,), "sha")
    assert one.folder == dataclasses.replace(one, options={"hidden": [8]}).folder
