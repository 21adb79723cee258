"""What a bench does, and above all what it does not do twice."""

import shutil
from dataclasses import replace

import pytest
from tiny_bench import ENTRIES, PACE, SMALL, content, tiny_works

import bcrl.bench.run
import bcrl.train.jobs
from bcrl.assess import evaluate
from bcrl.bench.cells import Protocol
from bcrl.bench.plan import Entry
from bcrl.bench.run import Pace, best_of, run_here, to_evaluate
from bcrl.bench.store import FILE, Store
from bcrl.errors import BCRLError
from bcrl.policy import load
from bcrl.train.jobs import policy_file


@pytest.fixture
def bench(tiny_bench_folder, tmp_path):
    """A copy of the finished bench, to be changed: its folder and its store."""
    out = tmp_path / "bench"
    shutil.copytree(tiny_bench_folder, out)
    with Store(out / FILE) as store:
        yield out, store


@pytest.fixture
def trained(monkeypatch) -> list:
    """The seeds of every training that is begun."""
    begun, fit = [], bcrl.train.jobs.fit

    def noted(data, method, **options):
        begun.append((method.name, options["seeds"]))
        return fit(data, method, **options)

    monkeypatch.setattr(bcrl.train.jobs, "fit", noted)
    return begun


@pytest.fixture
def judged(monkeypatch) -> list:
    """(label, seed, thresholds, policy) of every evaluation."""
    begun, judge = [], bcrl.bench.run.judge

    def noted(evaluation, workers=None):
        first = evaluation.cells[0]
        begun.append((first.label, first.seed, tuple(c.threshold for c in evaluation.cells), first.policy))
        return judge(evaluation, workers)

    monkeypatch.setattr(bcrl.bench.run, "judge", noted)
    return begun


def test_every_cell_is_there_with_its_episodes(done_here):
    cells = {(cell.label, cell.seed, cell.threshold) for cell in done_here}
    assert cells == {
        (label, seed, kappa) for label in ("bc-all", "bc-safe") for seed in (0, 10) for kappa in (10.0, 20.0)
    }
    for cell, rows in done_here.items():
        assert [(row.seed, row.threshold, row.episode) for row in rows] == [
            (cell.seed, cell.threshold, episode) for episode in (0, 1)
        ]
        assert {(row.method, row.world, row.data) for row in rows} == {
            (cell.method, "point-circle", "point-circle.npz")
        }


def test_a_finished_bench_does_nothing(bench, logs, trained, judged, done_here):
    out, store = bench
    assert run_here(tiny_works(logs), store, out / "runs", PACE) == []
    assert (trained, judged) == ([], [])
    assert content(store) == done_here


def test_a_finished_bench_needs_no_runs(bench, logs, trained, judged):
    """Runs may be thrown away: the store has the results."""
    out, store = bench
    shutil.rmtree(out / "runs")
    assert run_here(tiny_works(logs), store, out / "runs", PACE) == []
    assert (trained, judged) == ([], [])


def test_another_option_is_trained_anew_and_leaves_the_old_cells(bench, logs, monkeypatch, done_here):
    def begun(data, method, *, out, **_):
        raise BCRLError(f"training with dropout {method.dropout} in {out.parent.name}")

    out, store = bench
    monkeypatch.setattr(bcrl.train.jobs, "fit", begun)
    other = (Entry("bc-all", "bc-all", {**SMALL, "dropout": 0.0}), ENTRIES[1])
    (line,) = run_here(tiny_works(logs, entries=other), store, out / "runs", PACE)
    assert "training with dropout 0.0" in line
    assert line.rpartition(" ")[2] not in {folder.name for folder in (out / "runs/point-circle").iterdir()}
    assert content(store) == done_here


def test_more_seeds_and_thresholds_do_only_what_is_new(bench, logs, trained, judged):
    out, store = bench
    wanted = tiny_works(logs, entries=ENTRIES[:1], seeds=(0, 7), thresholds=(10.0, 5.0))
    assert run_here(wanted, store, out / "runs", PACE) == []
    assert trained == [("bc-all", (7,))]
    assert judged == [("bc-all", 0, (5.0,), "final"), ("bc-all", 7, (10.0, 5.0), "final")]


def test_a_stop_between_evaluations_costs_no_finished_cell(logs, tmp_path, monkeypatch, judged, done_here):
    """Stopped before the second seed; what follows is the rest, and the sum is the same."""
    noted, wanted = bcrl.bench.run.judge, tiny_works(logs, entries=ENTRIES[:1])

    def stopped(evaluation, workers=None):
        if judged:
            raise KeyboardInterrupt
        return noted(evaluation, workers)

    with monkeypatch.context() as patch, Store(tmp_path / FILE) as store:
        patch.setattr(bcrl.bench.run, "judge", stopped)
        with pytest.raises(KeyboardInterrupt):
            run_here(wanted, store, tmp_path / "runs", PACE)
        assert {cell.seed for cell in store.cells()} == {0}
    with Store(tmp_path / FILE) as store:
        assert run_here(wanted, store, tmp_path / "runs", PACE) == []
        assert content(store) == of_bc_all(done_here)
    assert [seed for _, seed, *_ in judged] == [0, 10]


def of_bc_all(found: dict) -> dict:
    return {cell: rows for cell, rows in found.items() if cell.label == "bc-all"}


def test_training_stops_and_goes_on_and_is_evaluated_later(
    logs, tmp_path, monkeypatch, trained, judged, done_here
):
    """Stopped in training, then asked for one seed more: the old ones go on together, the new one alone."""
    (work, *_), write = tiny_works(logs), bcrl.train.folder.write_tensors
    alone = replace(PACE, train_only=True)

    def stopped(*checkpoint):
        write(*checkpoint)
        raise KeyboardInterrupt

    with Store(tmp_path / FILE) as store:
        with monkeypatch.context() as patch:
            patch.setattr(bcrl.train.folder, "write_tensors", stopped)
            with pytest.raises(KeyboardInterrupt):
                run_here([work], store, tmp_path / "runs", alone)
        (more, *_) = tiny_works(logs, seeds=(0, 10, 7))
        assert run_here([more], store, tmp_path / "runs", alone) == []
        assert trained == [("bc-all", (0, 10)), ("bc-all", (0, 10)), ("bc-all", (7,))]
        assert (judged, store.cells()) == ([], [])
        assert run_here([work], store, tmp_path / "runs", PACE) == []
        assert len(trained) == 3
        assert content(store) == of_bc_all(done_here)


def test_columns_that_act_in_other_ways_are_trained_once(logs, tmp_path, trained):
    """And each is judged as it acts."""
    ways = {"acting": {"safety_factor": 5.0, "fallback_draws": 0}, "candidates": 3, "execution": "soft"}
    entries = (Entry("bcrl", "bcrl", SMALL), Entry("careful", "bcrl", SMALL, **ways))
    plain, careful = tiny_works(logs, entries=entries)
    with Store(tmp_path / FILE) as store:
        assert run_here([plain, careful], store, tmp_path / "runs", PACE) == []
        rows = [row for cell in careful.reported(0) for row in store.rows(cell.key)]
    assert trained == [("bcrl", (0, 10))]
    policy = load(policy_file(plain.job, tmp_path / "runs", 0)).adjusted(**ways["acting"])
    how = {"episodes": 2, "candidates": 3, "execution": "soft"}
    assert rows == list(evaluate(policy, "point-circle", (10.0, 20.0), **how))


def test_a_training_that_failed_is_not_begun_again_for_another_column(logs, tmp_path, monkeypatch):
    begun = []

    def fit(data, method, **options):
        begun.append(method.name)
        raise BCRLError("diverged")

    monkeypatch.setattr(bcrl.train.jobs, "fit", fit)
    entries = (Entry("bcrl", "bcrl", SMALL), Entry("eight", "bcrl", SMALL, candidates=8))
    with Store(tmp_path / FILE) as store:
        failures = run_here(tiny_works(logs, entries=entries), store, tmp_path / "runs", PACE)
    assert failures == [f"point-circle, {name}: diverged" for name in ("bcrl", "eight")]
    assert begun == ["bcrl"]


def test_one_fault_stops_no_other_work(bench, logs, tmp_path, capsys):
    """No episode of the log costs 0, so nothing can be cloned at that threshold."""
    out, store = bench
    wanted = tiny_works(logs, entries=ENTRIES[1:], thresholds=(0.0, 20.0))
    (line,) = run_here(wanted, store, out / "runs", PACE)
    assert line.startswith("point-circle, bc-safe at 0: ")
    assert "no episode costs at most 0" in line
    assert line in capsys.readouterr().err
    assert any(cell.threshold == 20.0 and cell.label == "bc-safe" for cell in store.cells())


def test_a_policy_of_another_training_is_refused(bench, logs):
    out, store = bench
    first, second, _ = tiny_works(logs, seeds=(0, 10), protocol=Protocol(episodes=2, episode_seed=5))
    theirs, ours = (policy_file(work.job, out / "runs", 0) for work in (second, first))
    shutil.copy(theirs, ours)
    (line,) = run_here([first], store, out / "runs", PACE)
    assert "policy-0.bcrl: method is bc-safe, but the bench wants bc-all" in line


def test_without_a_policy_nothing_is_evaluated(logs, tmp_path):
    with Store(tmp_path / FILE) as store, pytest.raises(BCRLError, match="has no policy of seed 0"):
        to_evaluate(tiny_works(logs)[0], 0, store, tmp_path / "runs")


@pytest.fixture(scope="module")
def best(logs, tmp_path_factory):
    """40 steps with a policy kept at 20: two candidates a seed."""
    out = tmp_path_factory.mktemp("best")
    (work, *_) = tiny_works(logs, protocol=Protocol(episodes=2, best=True))
    with Store(out / FILE) as store:
        assert run_here([work], store, out / "runs", Pace()) == []  # rows of metrics would be rarer than that
        yield work, out, store


def test_trials_come_first_and_are_not_reported(best):
    work, _, store = best
    cells = [(c.seed, c.policy, c.episode_seed, c.reported) for c in store.cells() if c.threshold == 10.0]
    for seed in (0, 10):
        assert [cell[1:] for cell in cells if cell[0] == seed] == [
            ("step 20", 1, 0),
            ("final", 1, 0),
            ("best", 0, 1),
        ]
    assert {c.key for c in store.cells() if c.reported} == {
        cell.key for seed in (0, 10) for cell in work.reported(seed)
    }


def test_the_reported_policy_is_the_chosen_one(best):
    """Judged again by hand, on the episodes that are reported."""
    from bcrl.worlds import make_world

    work, out, store = best
    for seed in (0, 10):
        trials = {name: work.cells(seed, name, reported=False) for name in ("step 20", "final")}
        chosen = best_of(trials, store)
        final = policy_file(work.job, out / "runs", seed)
        path = {"final": final, "step 20": final.parent / "steps" / "20" / final.name}[chosen]
        rows = evaluate([load(path)], make_world("point-circle"), (10.0, 20.0), episodes=2, seed=0)
        assert rows == [row for cell in work.reported(seed) for row in store.rows(cell.key)]


def test_kept_policies_differ_and_know_their_step(best):
    work, out, _ = best
    final = policy_file(work.job, out / "runs", 0)
    kept = final.parent / "steps" / "20" / final.name
    assert load(kept).provenance == {**load(final).provenance, "step": 20}
    assert kept.read_bytes() != final.read_bytes()


def test_it_runs_no_second_time(best, judged, trained):
    work, out, store = best
    assert run_here([work], store, out / "runs", PACE) == []
    assert (trained, judged) == ([], [])


@pytest.mark.parametrize(
    ("trials", "wanted"),
    [
        ({"a": (0.9, 1.2), "b": (0.3, 1.0), "c": (0.2, 0.1)}, "b"),  # the best of those that are safe
        ({"a": (0.9, 1.2), "b": (0.3, 1.1)}, "b"),  # none is safe: the cheapest
        ({"a": (0.3, 0.5), "b": (0.3, 0.4)}, "a"),  # the first of equals
    ],
)
def test_the_best_policy(trials, wanted):
    class Rows:
        def rows(self, key):
            reward, cost = trials[key]
            return [_Row(reward - 0.1, cost), _Row(reward + 0.1, cost)]

    class _Row:
        def __init__(self, reward, cost):
            self.normalised_reward, self.normalised_cost = reward, cost

    class Key:
        def __init__(self, key):
            self.key = key

    assert best_of({name: [Key(name)] for name in trials}, Rows()) == wanted
